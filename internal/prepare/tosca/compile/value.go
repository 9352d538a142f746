package compile

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tliron/go-ard"
	"github.com/tliron/puccini/normal"
	"github.com/tliron/puccini/tosca/parsing"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// The bounds of the evaluation of values, which may refer to each other in loops.
const (
	maxDepth  = 100
	maxValues = 1_000_000 // in all
	maxText   = 1 << 20   // bytes of a text that functions make
)

// A reader reads the values of a service template.
type reader struct {
	template *normal.ServiceTemplate
	values   int // read so far
}

// A scope resolves SELF, SOURCE and TARGET for a value.
type scope struct {
	self        *normal.NodeTemplate
	requirement *normal.Requirement // the requirement whose relationship has the value; may be nil
}

// A special is a value of one of TOSCA's own types: written as a text, and compared
// by its meaning.
type special struct {
	text  string // as written
	order any    // float64, or a text
	parts []any  // of a range
}

func (s special) String() string { return s.text }

// value evaluates a value, and checks the constraints of its definition. The result
// consists of maps, lists, plain values and specials.
func (r *reader) value(in scope, value normal.Value, depth int) (any, error) {
	if err := r.count(depth); err != nil {
		return nil, err
	}
	var read any
	var err error
	switch v := value.(type) {
	case nil:
		return nil, nil //nolint:nilnil // null is a value
	case *normal.Primitive:
		read, err = r.primitive(in, v.Primitive, depth)
	case *normal.List:
		read, err = r.list(in, v, depth)
	case *normal.Map:
		read, err = r.entries(in, v, depth)
	case *normal.FunctionCall:
		read, err = r.call(in, v, depth)
	default:
		return nil, fmt.Errorf("a %T can't be read", value)
	}
	if err != nil {
		return nil, err
	}
	return read, r.check(in, read, metaOf(value), depth)
}

// count bounds the number and the depth of values.
func (r *reader) count(depth int) error {
	r.values++
	if r.values > maxValues {
		return fmt.Errorf("it takes more than %d values to evaluate it", maxValues)
	}
	if depth > maxDepth {
		return fmt.Errorf("it is nested more than %d deep, or refers to itself", maxDepth)
	}
	return nil
}

func (r *reader) list(in scope, v *normal.List, depth int) (any, error) {
	list := make([]any, 0, len(v.Entries))
	for _, entry := range v.Entries {
		read, err := r.value(in, entry, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, read)
	}
	return list, nil
}

func (r *reader) entries(in scope, v *normal.Map, depth int) (any, error) {
	m := make(map[string]any, len(v.Entries))
	for _, entry := range v.Entries {
		key, err := keyOf(entry)
		if err != nil {
			return nil, err
		}
		if m[key], err = r.value(in, entry, depth+1); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func metaOf(value normal.Value) *normal.ValueMeta {
	switch v := value.(type) {
	case *normal.Primitive:
		return v.ValueMeta
	case *normal.List:
		return v.ValueMeta
	case *normal.Map:
		return v.ValueMeta
	case *normal.FunctionCall:
		return v.ValueMeta
	}
	return nil
}

// primitive reads plain values, and Puccini's structs for TOSCA's own types: sizes,
// times, versions, ranges.
func (r *reader) primitive(in scope, v ard.Value, depth int) (any, error) {
	if err := r.count(depth); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case ard.Map:
		m := make(map[string]any, len(v))
		for key, value := range v {
			read, err := r.primitive(in, value, depth+1)
			if err != nil {
				return nil, err
			}
			m[fmt.Sprint(key)] = read
		}
		return m, nil
	case ard.List:
		list := make([]any, len(v))
		for i := range v {
			var err error
			if list[i], err = r.primitive(in, v[i], depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case *parsing.FunctionCall:
		return r.call(in, normal.NewFunctionCall(v), depth+1)
	case nil, bool, string, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return v, nil
	default:
		return readSpecial(v)
	}
}

// readSpecial reads one of Puccini's structs by its JSON.
func readSpecial(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("a %T can't be read: %w", v, err)
	}
	var fields struct {
		Text   *string         `json:"$originalString"`
		Number *float64        `json:"$number"`
		Order  string          `json:"$string"`
		Lower  *uint64         `json:"lower"`
		Upper  json.RawMessage `json:"upper"`

		Comparer                 string `json:"$comparer"`
		Major, Minor, Fix, Build float64
		Qualifier                string
	}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("a %T can't be read: %w", v, err)
	}
	switch {
	case fields.Lower != nil:
		var upper uint64
		if err := json.Unmarshal(fields.Upper, &upper); err != nil {
			return nil, fmt.Errorf("a range can't be read: %w", err)
		}
		s := special{parts: []any{*fields.Lower, upper}}
		if upper == 1<<64-1 {
			s.parts[1] = "UNBOUNDED"
		}
		s.text = fmt.Sprintf("[%v, %v]", s.parts[0], s.parts[1])
		return s, nil
	case fields.Text == nil:
		return nil, fmt.Errorf("a %T can't be read", v)
	case fields.Comparer != "": // a version
		return special{text: *fields.Text, order: fmt.Sprintf("%010.0f.%010.0f.%010.0f.%s.%010.0f", fields.Major, fields.Minor, fields.Fix, fields.Qualifier, fields.Build)}, nil
	case fields.Number != nil:
		return special{text: *fields.Text, order: *fields.Number}, nil
	default:
		return special{text: *fields.Text, order: fields.Order}, nil
	}
}

// plain converts a value to one of packages.
func plain(v any) any {
	switch v := v.(type) {
	case special:
		if v.parts != nil {
			return v.parts
		}
		return v.text
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = plain(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	default:
		return v
	}
}

func keyOf(value normal.Value) (string, error) {
	var key normal.Value
	switch v := value.(type) {
	case *normal.Primitive:
		key = v.Key
	case *normal.List:
		key = v.Key
	case *normal.Map:
		key = v.Key
	case *normal.FunctionCall:
		key = v.Key
	}
	if p, ok := key.(*normal.Primitive); ok {
		return fmt.Sprint(p.Primitive), nil
	}
	return "", errors.New("a key that is no plain value can't be read")
}

// textOf returns a plain value as functions write it into texts.
func textOf(v any) (string, error) {
	switch v.(type) {
	case nil, map[string]any, []any:
		return "", errors.New("it must be made of plain values")
	}
	return fmt.Sprint(v), nil
}

// shorten bounds the part of a value in a message.
func shorten(v any) string {
	return printable.Short(strings.ToValidUTF8(fmt.Sprint(plain(v)), "\uFFFD"), 100)
}
