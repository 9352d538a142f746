package krm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "sigs.k8s.io/yaml/goyaml.v2"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// decodeYAML reads documents, each a resource or a list of resources, as
// kubectl does: YAML 1.1 without timestamps; keys become text. Unlike kubectl
// it refuses duplicate keys.
//
// If core is set, booleans are those of YAML 1.2.
func decodeYAML(data []byte, limits Limits, core bool) (Package, error) {
	if tokens(data) > limits.Values {
		return nil, tooManyValues(limits)
	}
	p, err := readYAML(data, limits, true, core)
	if _, duplicate := errors.AsType[*yaml.TypeError](err); !duplicate || !bytes.Contains(data, []byte("<<")) {
		return p, err
	}
	// The parser also reports a key that overrides a merged one as a duplicate.
	if err := duplicateKeys(data); err != nil {
		return nil, err
	}
	return readYAML(data, limits, false, core)
}

func readYAML(data []byte, limits Limits, strict, core bool) (Package, error) {
	d := &yamlDecoder{budget: budget{limits: limits}, data: data}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.SetStrict(strict)
	var p Package
	for document := 1; ; document++ {
		value, err := readValue(decoder, core)
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return nil, &Error{Document: document, Reason: yamlReason(err), cause: err}
		}
		var bad *Error
		p, bad = d.document(p, value)
		if bad != nil {
			bad.Document = document
			return nil, bad
		}
	}
}

// duplicateKeys returns an error for duplicate keys, except for merge keys.
func duplicateKeys(data []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for document := 1; ; document++ {
		var o ordered
		err := readDocument(decoder, &o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &Error{Document: document, Reason: yamlReason(err)}
		}
		for _, item := range o.items {
			if err := duplicateKey(item, 1); err != nil {
				err.Document = document
				return err
			}
		}
	}
}

// An ordered value is a document with all its keys, including duplicates, and
// without merged keys.
type ordered struct {
	items []yaml.MapSlice
}

func (o *ordered) UnmarshalYAML(unmarshal func(any) error) error {
	var one yaml.MapSlice
	if err := unmarshal(&one); err == nil {
		o.items = []yaml.MapSlice{one}
		return nil
	}
	return unmarshal(&o.items)
}

func duplicateKey(value any, depth int) *Error {
	if depth > maxEncodeDepth {
		return tooDeep()
	}
	switch v := value.(type) {
	case []any:
		for i, x := range v {
			if err := duplicateKey(x, depth+1); err != nil {
				return err.item(i)
			}
		}
	case yaml.MapSlice:
		seen := make(map[string]bool, len(v))
		for _, item := range v {
			key, err := yamlKey(item.Key)
			if err != nil {
				return err
			}
			if seen[key] {
				return invalidf("has the key %q twice", printable.Short(key, 100))
			}
			seen[key] = true
			if err := duplicateKey(item.Value, depth+1); err != nil {
				return err.under(key)
			}
		}
	}
	return nil
}

// tokens estimates the number of values in YAML before it is parsed, which
// takes a hundred times as much memory: it counts characters that can begin a
// value, also inside of text. The real number is hardly more than twice the
// estimate.
func tokens(data []byte) int {
	n := 0
	for _, token := range []string{"\n", "\r", ",", "[", "{", ": ", "- ", "? "} {
		n += bytes.Count(data, []byte(token))
	}
	return n
}

// readDocument reads the next document. The parser is a library that reads
// untrusted input: a panic becomes an error of the document.
func readDocument(decoder *yaml.Decoder, into any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot be parsed: %v", r)
		}
	}()
	return decoder.Decode(into)
}

func yamlReason(err error) string {
	if lines, ok := errors.AsType[*yaml.TypeError](err); ok {
		return printable.Short(strings.Join(lines.Errors[:min(len(lines.Errors), 10)], "; "), 500)
	}
	return printable.Short(strings.TrimPrefix(err.Error(), "yaml: "), 500)
}

type yamlDecoder struct {
	budget
	data []byte
	long map[float64]string // integers in data that are too long for the parser; found when first needed
}

func (d *yamlDecoder) document(p Package, value any) (Package, *Error) {
	items, isList := value.([]any)
	if !isList {
		items = []any{value}
	}
	for i, item := range items {
		v, err := d.value(item, 1)
		if err == nil {
			p, err = d.add(p, v)
		} else {
			err.Index = len(p) + 1
			if m, ok := item.(map[any]any); ok {
				err.Resource = yamlIdentity(m)
			}
		}
		if err != nil {
			if isList && err.Index > 0 && err.Resource == (Identity{}) {
				err.Reason += fmt.Sprintf(" (item %d of the document's list)", i+1)
			}
			return nil, err
		}
	}
	return p, nil
}

// yamlIdentity returns the identity of a resource that can't be read, as far as
// it is known.
func yamlIdentity(m map[any]any) Identity {
	r := Resource{"apiVersion": m["apiVersion"], "kind": m["kind"], "name": m["name"]}
	if metadata, ok := m["metadata"].(map[any]any); ok {
		r["metadata"] = map[string]any{"name": metadata["name"]}
	}
	return r.Identity()
}

// value converts the parser's result to a value of a resource.
func (d *yamlDecoder) value(value any, depth int) (any, *Error) {
	if err := d.spend(depth); err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case nil, bool, int64:
		return v, nil
	case string:
		if !utf8.ValidString(v) {
			return nil, invalidf("is binary, which a resource can't hold; write it as base64 text without the !!binary")
		}
		if err := d.spendText(len(v)); err != nil {
			return nil, err
		}
		return v, nil
	case int:
		return int64(v), nil
	case uint64:
		return nil, outOfRange(strconv.FormatUint(v, 10))
	case float64:
		return d.float(v)
	case []any:
		for i, x := range v {
			c, err := d.value(x, depth+1)
			if err != nil {
				return nil, err.item(i)
			}
			v[i] = c
		}
		return v, nil
	case map[any]any:
		m := make(map[string]any, len(v))
		for k, x := range v {
			key, err := yamlKey(k)
			if err != nil {
				return nil, err
			}
			if err := d.spendText(len(key)); err != nil {
				return nil, err
			}
			if _, ok := m[key]; ok {
				return nil, invalidf("has the key %q twice, once not as text", printable.Short(key, 100))
			}
			if m[key], err = d.value(x, depth+1); err != nil {
				return nil, err.under(key)
			}
		}
		return m, nil
	}
	return nil, invalidf("is of a type that a resource can't hold")
}

// float refuses values that are not finite, and integers that the parser made
// floats because they are too long.
func (d *yamlDecoder) float(f float64) (any, *Error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, notANumber(f)
	}
	if math.Abs(f) < 1<<63 {
		return f, nil
	}
	if d.long == nil {
		d.long = longIntegers(d.data)
	}
	if digits, ok := d.long[f]; ok {
		return nil, outOfRange(digits)
	}
	return f, nil
}

// longIntegers finds integers that are too long for the parser, by the float
// that the parser makes of them: its result is the same for 1e20 and for the
// digits.
func longIntegers(data []byte) map[float64]string {
	digit := func(c byte) bool { return c >= '0' && c <= '9' || c == '_' }
	long := map[float64]string{}
	for i := 0; i < len(data); i++ {
		if !digit(data[i]) {
			continue
		}
		start := i
		for i < len(data) && digit(data[i]) {
			i++
		}
		if i-start < 19 || i-start > 400 || i < len(data) && (data[i] == '.' || data[i] == 'e' || data[i] == 'E') {
			continue
		}
		text := strings.ReplaceAll(string(data[start:i]), "_", "")
		if start > 0 && data[start-1] == '-' {
			text = "-" + text
		}
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			continue
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			long[f] = text
		}
	}
	return long
}

// yamlKey converts a key to text as kubectl does.
func yamlKey(key any) (string, *Error) {
	switch k := key.(type) {
	case string:
		if !utf8.ValidString(k) {
			return "", invalidf("has a binary key, which a resource can't hold")
		}
		return k, nil
	case bool:
		return strconv.FormatBool(k), nil
	case int:
		return strconv.Itoa(k), nil
	case int64:
		return strconv.FormatInt(k, 10), nil
	case float64:
		switch text := strconv.FormatFloat(k, 'g', -1, 32); text {
		case "+Inf":
			return ".inf", nil
		case "-Inf":
			return "-.inf", nil
		case "NaN":
			return ".nan", nil
		default:
			return text, nil
		}
	case nil:
		return "", invalidf("has a null key, which a resource can't hold; put it in quotes")
	}
	return "", invalidf("has the key %s, which a resource can't hold; put it in quotes", printable.Short(fmt.Sprint(key), 50))
}
