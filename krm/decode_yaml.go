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
)

// decodeYAML reads documents, each a resource or a list of resources, as
// kubectl does: YAML 1.1 without timestamps, keys made into text.
func decodeYAML(data []byte, limits Limits) (Package, error) {
	if tokens(data) > limits.Values {
		return nil, tooManyValues(limits)
	}
	d := &yamlDecoder{budget: budget{limits: limits}, data: data}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.SetStrict(true) // refuses duplicate keys
	var p Package
	for document := 1; ; document++ {
		value, err := readDocument(decoder)
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return nil, &Error{Document: document, Reason: yamlReason(err)}
		}
		var bad *Error
		if p, bad = d.document(p, value); bad != nil {
			bad.Document = document
			return nil, bad
		}
	}
}

// tokens estimates from above how many values YAML holds, before it costs
// memory to parse them: it counts what can begin one.
func tokens(data []byte) int {
	n := 0
	for _, c := range data {
		switch c {
		case '\n', ',', ':', '[', '{', '?':
			n++
		}
	}
	return n + bytes.Count(data, []byte("- "))
}

// readDocument reads the next one. The parser is not ours and reads what
// strangers send: should it panic, that is the document's fault.
func readDocument(decoder *yaml.Decoder) (value any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot be parsed: %v", r)
		}
	}()
	err = decoder.Decode(&value)
	return value, err
}

func yamlReason(err error) string {
	var lines *yaml.TypeError
	if errors.As(err, &lines) {
		return brief(strings.Join(lines.Errors, "; "), 500)
	}
	return brief(strings.TrimPrefix(err.Error(), "yaml: "), 500)
}

type yamlDecoder struct {
	budget
	data []byte
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

// yamlIdentity is what can be told of a resource that couldn't be read.
func yamlIdentity(m map[any]any) Identity {
	r := Resource{"apiVersion": m["apiVersion"], "kind": m["kind"], "name": m["name"]}
	if metadata, ok := m["metadata"].(map[any]any); ok {
		r["metadata"] = map[string]any{"name": metadata["name"]}
	}
	return r.Identity()
}

// value makes what the parser answers into what a resource holds.
func (d *yamlDecoder) value(value any, depth int) (any, *Error) {
	if err := d.spend(1, depth); err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case nil, bool, int64:
		return v, nil
	case string:
		if !utf8.ValidString(v) {
			return nil, invalidf("is binary, which a resource can't hold; write it as base64 text without the !!binary")
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
			if _, ok := m[key]; ok {
				return nil, invalidf("has the key %q twice, once not as text", brief(key, 100))
			}
			if m[key], err = d.value(x, depth+1); err != nil {
				return nil, err.under(key)
			}
		}
		return m, nil
	}
	return nil, invalidf("is of a type that a resource can't hold")
}

// float refuses what is none, and integers that the parser made one because
// they are too long.
func (d *yamlDecoder) float(f float64) (any, *Error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, notANumber(f)
	}
	if math.Abs(f) >= 1<<63 && f == math.Trunc(f) {
		if digits, ok := longInteger(d.data, f); ok {
			return nil, outOfRange(digits)
		}
	}
	return f, nil
}

// longInteger looks for an integer in the text that is that number: the
// parser doesn't tell 1e20 from its digits.
func longInteger(data []byte, f float64) (string, bool) {
	digit := func(c byte) bool { return c >= '0' && c <= '9' || c == '_' }
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
		if g, err := strconv.ParseFloat(text, 64); err == nil && g == math.Abs(f) {
			return text, true
		}
	}
	return "", false
}

// yamlKey makes a key text as kubectl does.
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
	return "", invalidf("has the key %s, which a resource can't hold; put it in quotes", brief(fmt.Sprint(key), 50))
}
