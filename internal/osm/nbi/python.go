package nbi

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// OSM shows the state of a release in Python's printed form.

const maxPythonDepth = 100

// pythonReader reads the printed form of dicts, lists, strings, numbers,
// booleans and None.
type pythonReader struct {
	text  string
	depth int
}

// releaseValues returns the values in the status of a release. known is false if the
// status can't be read.
func releaseValues(status string) (values map[string]any, known bool) {
	r := pythonReader{text: status}
	v, ok := r.value()
	release, isMap := v.(map[string]any)
	if !ok || !isMap || strings.TrimSpace(r.text) != "" {
		return nil, false
	}
	switch config := release["config"].(type) {
	case map[string]any:
		return config, true
	case nil:
		_, there := release["config"]
		return nil, there
	default:
		return nil, false
	}
}

func (r *pythonReader) skip(prefix string) bool {
	r.text = strings.TrimLeft(r.text, " \t\r\n")
	rest, ok := strings.CutPrefix(r.text, prefix)
	if ok {
		r.text = rest
	}
	return ok
}

func (r *pythonReader) value() (any, bool) {
	r.depth++
	if r.depth > maxPythonDepth {
		return nil, false
	}
	defer func() { r.depth-- }()
	switch {
	case r.skip("{"):
		return r.dict()
	case r.skip("["):
		return r.list()
	case r.skip("True"):
		return true, true
	case r.skip("False"):
		return false, true
	case r.skip("None"):
		return nil, true
	case strings.HasPrefix(r.text, "'"), strings.HasPrefix(r.text, `"`):
		return r.string()
	default:
		return r.number()
	}
}

func (r *pythonReader) dict() (any, bool) {
	m := map[string]any{}
	for !r.skip("}") {
		k, ok := r.value()
		key, isText := k.(string)
		if !ok || !isText || !r.skip(":") {
			return nil, false
		}
		m[key], ok = r.value()
		if !ok {
			return nil, false
		}
		if !r.skip(",") && !strings.HasPrefix(r.text, "}") {
			return nil, false
		}
	}
	return m, true
}

func (r *pythonReader) list() (any, bool) {
	l := []any{}
	for !r.skip("]") {
		v, ok := r.value()
		if !ok || !r.skip(",") && !strings.HasPrefix(r.text, "]") {
			return nil, false
		}
		l = append(l, v)
	}
	return l, true
}

func (r *pythonReader) number() (any, bool) {
	n := strings.IndexAny(r.text, ",]}: (")
	if n < 0 {
		n = len(r.text)
	}
	text := r.text[:n]
	r.text = r.text[n:]
	if strings.HasPrefix(r.text, "(") {
		return r.call(text)
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, true
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

// call reads an object such as datetime.datetime(2026, 1, 2). It returns a text that
// equals no other value.
func (r *pythonReader) call(name string) (any, bool) {
	end := strings.IndexByte(r.text, ')')
	if end < 0 || strings.ContainsAny(r.text[1:end], "('\"") {
		return nil, false
	}
	r.text = r.text[end+1:]
	return "\x00" + name, true
}

var pythonEscapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': `\`, '\'': "'", '"': `"`}

func (r *pythonReader) string() (any, bool) {
	quote := r.text[0]
	var b strings.Builder
	for i := 1; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == quote:
			r.text = r.text[i+1:]
			return b.String(), true
		case c != '\\':
			b.WriteByte(c)
		case i+1 == len(r.text):
			return nil, false
		default:
			i++
			if plain, ok := pythonEscapes[r.text[i]]; ok {
				b.WriteString(plain)
				continue
			}
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[r.text[i]]
			if n == 0 || i+n >= len(r.text) {
				return nil, false
			}
			code, err := strconv.ParseUint(r.text[i+1:i+1+n], 16, 32)
			if err != nil || code > utf8.MaxRune {
				return nil, false
			}
			b.WriteRune(rune(code))
			i += n
		}
	}
	return nil, false
}
