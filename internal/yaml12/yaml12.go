package yaml12

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// Unmarshal reads one document into a value, by the names and types that encoding/json
// uses. A text field takes numbers and booleans as they are written, and a boolean field the
// words yes, no, on and off, too. A document that is empty changes nothing. Two keys that
// are equal, and a second document, are errors.
func Unmarshal(data []byte, into any) error { return unmarshal(data, into, false) }

// UnmarshalStrict is Unmarshal, but refuses fields that the value doesn't have.
func UnmarshalStrict(data []byte, into any) error { return unmarshal(data, into, true) }

// ToJSON returns one document as JSON; null if it is empty. It refuses two equal keys, and a
// second document.
func ToJSON(data []byte) ([]byte, error) { return convert(data, nil) }

func unmarshal(data []byte, into any, strict bool) error {
	text, err := convert(data, reflect.TypeOf(into))
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if strict {
		decoder.DisallowUnknownFields()
	}
	if err := decoder.Decode(into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			return fmt.Errorf("field %s is a %s, and must be a %s", wrong.Field, strings.ReplaceAll(wrong.Value, "string", "text"), kindName(wrong.Type))
		}
		reason := strings.TrimPrefix(err.Error(), "json: ")
		if strict && strings.HasPrefix(reason, "unknown field") {
			reason = cmp.Or(Misplaced(text, into), reason)
		}
		return errors.New(reason)
	}
	return nil
}

// kindName returns the word of users for a type.
func kindName(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the others have their own names
	case reflect.Map, reflect.Struct:
		return "mapping"
	case reflect.Slice, reflect.Array:
		return "list"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "boolean: true or false"
	}
	return "number"
}

const (
	maxDepth = 1000
	// A document may be this many times as large when its aliases are resolved, and
	// minExpanded bytes in any case.
	maxExpansion = 10
	minExpanded  = 1 << 20
)

// convert returns a document as JSON for a type; nil if it is unknown.
func convert(data []byte, target reflect.Type) ([]byte, error) {
	root, err := parse(data)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return []byte("null"), nil
	}
	w := &writer{left: maxExpansion*len(data) + minExpanded}
	if err := w.value(root, target, 0); err != nil {
		return nil, err
	}
	return w.Bytes(), nil
}

// parse returns the only document; nil if there is none. A panic of the parser, which reads
// untrusted input, is an error.
func parse(data []byte) (root *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, fmt.Errorf("it can't be parsed: %v", r)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return root, nil
		} else if err != nil {
			return nil, errors.New(printable.Short(strings.TrimPrefix(err.Error(), "yaml: "), 500))
		}
		if len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null" && document.Content[0].Value == "" {
			continue // only comments
		}
		if root != nil {
			return nil, fmt.Errorf("line %d: it has a second document: write all into the first", document.Content[0].Line)
		}
		root = document.Content[0]
	}
}

// A writer writes nodes as JSON.
type writer struct {
	bytes.Buffer
	left int // bytes that aliases may still add
}

func wrong(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: %s", n.Line, fmt.Sprintf(format, args...))
}

func (w *writer) value(n *yaml.Node, target reflect.Type, depth int) error {
	w.left -= len(n.Value) + 1
	if w.left < 0 {
		return wrong(n, "its aliases make it more than %d times as large", maxExpansion)
	}
	if depth > maxDepth {
		return wrong(n, "it is nested more than %d times", maxDepth)
	}
	for target != nil && target.Kind() == reflect.Pointer {
		target = target.Elem()
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.value(n.Alias, target, depth+1)
	case yaml.SequenceNode:
		var element reflect.Type
		if target != nil && (target.Kind() == reflect.Slice || target.Kind() == reflect.Array) && !decodesItself(target) {
			element = target.Elem()
		}
		before := byte('[')
		for _, item := range n.Content {
			_ = w.WriteByte(before)
			if err := w.value(item, element, depth+1); err != nil {
				return err
			}
			before = ','
		}
		if before == '[' {
			_ = w.WriteByte('[')
		}
		_ = w.WriteByte(']')
		return nil
	case yaml.MappingNode:
		return w.mapping(n, target, depth)
	case yaml.DocumentNode, yaml.ScalarNode:
	}
	return w.scalar(n, target)
}

// An entry is a key and its value.
type entry struct {
	key   string
	value *yaml.Node
}

// entries returns the entries of a mapping. Those of mappings that it merges (<<) come last,
// without those that it has itself.
func (w *writer) entries(n *yaml.Node, depth int) (all []entry, err error) {
	if depth > maxDepth {
		return nil, wrong(n, "it is nested more than %d times", maxDepth)
	}
	has := map[string]bool{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null":
			return nil, wrong(key, "a key must be text")
		case key.ShortTag() == "!!merge":
			merged = append(merged, value)
			continue
		case has[key.Value]:
			return nil, wrong(key, "the key %q is there twice", printable.Short(key.Value, 100))
		}
		has[key.Value] = true
		all = append(all, entry{key.Value, value})
	}
	for len(merged) > 0 {
		from := merged[0]
		merged = merged[1:]
		for from.Kind == yaml.AliasNode {
			from = from.Alias
		}
		if from.Kind == yaml.SequenceNode {
			merged = append(append([]*yaml.Node{}, from.Content...), merged...)
			continue
		}
		if from.Kind != yaml.MappingNode {
			return nil, wrong(from, "<< needs a mapping, or a list of mappings")
		}
		w.left -= len(from.Content)
		if w.left < 0 {
			return nil, wrong(from, "its aliases make it more than %d times as large", maxExpansion)
		}
		others, err := w.entries(from, depth+1)
		if err != nil {
			return nil, err
		}
		for _, e := range others {
			if !has[e.key] {
				has[e.key] = true
				all = append(all, e)
			}
		}
	}
	return all, nil
}

func (w *writer) mapping(n *yaml.Node, target reflect.Type, depth int) error {
	entries, err := w.entries(n, depth)
	if err != nil {
		return err
	}
	fields := map[string]reflect.Type{}
	var element reflect.Type
	switch {
	case target == nil || decodesItself(target):
	case target.Kind() == reflect.Map:
		element = target.Elem()
	case target.Kind() == reflect.Struct:
		fields = fieldsOf(target)
	}
	before := byte('{')
	for _, e := range entries {
		_ = w.WriteByte(before)
		w.text(e.key)
		_ = w.WriteByte(':')
		next := element
		if next == nil {
			next = fields[strings.ToLower(e.key)]
		}
		if err := w.value(e.value, next, depth+1); err != nil {
			return err
		}
		before = ','
	}
	if before == '{' {
		_ = w.WriteByte('{')
	}
	_ = w.WriteByte('}')
	return nil
}

// fieldsOf returns the types of a struct's fields by their names in JSON, in lower case.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" || !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		name = strings.ToLower(name)
		if fields[name] == nil || len(f.Index) == 1 {
			fields[name] = f.Type
		}
	}
	return fields
}

// decodesItself reports whether a type has its own way to read JSON.
func decodesItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

func (w *writer) text(s string) {
	data, _ := json.Marshal(s) // text can always be written
	_, _ = w.Write(data)
}

// The scalars of YAML 1.2's core schema. Numbers that begin with 0 are left out: YAML 1.1
// reads 0123 as 83, and YAML 1.2 as 123, so they stay text.
var (
	integer = regexp.MustCompile(`^[-+]?(?:0|[1-9][0-9]*)$`)
	based   = regexp.MustCompile(`^0(?:o[0-7]+|x[0-9a-fA-F]+)$`)
	float   = regexp.MustCompile(`^[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$`)
)

// booleans are those of YAML 1.2, and, for fields that are booleans, of YAML 1.1.
var booleans = map[string]string{"true": "true", "True": "true", "TRUE": "true", "false": "false", "False": "false", "FALSE": "false"}

func boolean11(s string) string {
	switch s {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
		return "true"
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return "false"
	}
	return ""
}

func (w *writer) scalar(n *yaml.Node, target reflect.Type) error {
	plain := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	if n.Style&yaml.TaggedStyle != 0 {
		switch n.Tag {
		case "!!str", "!":
			plain = false
		case "!!int", "!!float", "!!bool", "!!null":
			plain = true
		default:
			return wrong(n, "the tag %s has no meaning here: leave it out", printable.Short(n.Tag, 100))
		}
	}
	isText := target != nil && (target.Kind() == reflect.String && !decodesItself(target) || reflect.PointerTo(target).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) && !decodesItself(target))
	switch {
	case !plain:
		w.text(n.Value)
	case n.Value == "" || n.Value == "~" || n.Value == "null" || n.Value == "Null" || n.Value == "NULL":
		_, _ = w.WriteString("null")
	case isText:
		w.text(n.Value)
	case booleans[n.Value] != "":
		_, _ = w.WriteString(booleans[n.Value])
	case target != nil && target.Kind() == reflect.Bool && boolean11(n.Value) != "":
		_, _ = w.WriteString(boolean11(n.Value))
	case integer.MatchString(n.Value):
		_, _ = w.WriteString(strings.TrimPrefix(n.Value, "+"))
	case based.MatchString(n.Value):
		i, err := strconv.ParseInt(n.Value, 0, 64)
		if err != nil {
			return wrong(n, "the number %s is too large", printable.Short(n.Value, 100))
		}
		_, _ = w.WriteString(strconv.FormatInt(i, 10))
	case float.MatchString(n.Value):
		f, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsInf(f, 0) {
			return wrong(n, "the number %s is too large", printable.Short(n.Value, 100))
		}
		data, err := json.Marshal(f)
		if err != nil {
			return wrong(n, "%v", err)
		}
		_, _ = w.Write(data)
	default:
		w.text(n.Value)
	}
	return nil
}
