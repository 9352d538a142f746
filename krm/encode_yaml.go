package krm

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// encodeYAML encodes in the style of Kubernetes manifests: block style, two
// spaces, lists not indented, sorted keys, quotes only where YAML 1.1 or 1.2
// would read another value. It is our own encoder, because libraries don't
// preserve floats.
func encodeYAML(p Package) ([]byte, error) {
	e := &yamlEncoder{out: make([]byte, 0, 512*len(p))}
	for i, r := range p {
		if i > 0 {
			e.out = append(e.out, "---\n"...)
		}
		if len(r) == 0 {
			e.out = append(e.out, "{}\n"...)
			continue
		}
		if err := e.mapping(r, 0, 1, true); err != nil {
			return nil, located(err, p, i)
		}
	}
	return e.out, nil
}

type yamlEncoder struct {
	out  []byte
	keys []string // a stack, so that not each map needs its own list
}

func (e *yamlEncoder) indent(n int) {
	for range n {
		e.out = append(e.out, ' ')
	}
}

// mapping writes the keys of a non-empty map at a column. If inline is set, the
// first key is written at the current position.
func (e *yamlEncoder) mapping(m map[string]any, column, depth int, inline bool) *Error {
	if depth > maxEncodeDepth {
		return tooDeep()
	}
	base := len(e.keys)
	for k := range m {
		e.keys = append(e.keys, k)
	}
	keys := e.keys[base:]
	slices.Sort(keys)
	for i, k := range keys {
		if i > 0 || !inline {
			e.indent(column)
		}
		if err := e.key(k, column); err != nil {
			return err
		}
		if err := e.entry(m[k], column, depth+1); err != nil {
			return err.under(k)
		}
	}
	e.keys = e.keys[:base]
	return nil
}

// maxSimpleKey is a little less than 1024, the maximum length of a key without
// a question mark before it.
const maxSimpleKey = 1000

func (e *yamlEncoder) key(k string, column int) *Error {
	if !utf8.ValidString(k) {
		return invalidf("has a key that is not UTF-8")
	}
	start := len(e.out)
	e.scalarText(k)
	if len(e.out)-start > maxSimpleKey {
		e.out = append(e.out[:start], "? "...)
		e.quoted(k)
		e.out = append(e.out, '\n')
		e.indent(column)
	}
	e.out = append(e.out, ':')
	return nil
}

// entry writes the value of a key.
func (e *yamlEncoder) entry(value any, column, depth int) *Error {
	switch v := value.(type) {
	case map[string]any:
		if len(v) > 0 {
			e.out = append(e.out, '\n')
			return e.mapping(v, column+2, depth, false)
		}
	case []any:
		if len(v) > 0 {
			e.out = append(e.out, '\n')
			return e.list(v, column, depth, false)
		}
	}
	e.out = append(e.out, ' ')
	return e.scalar(value, column+2)
}

// list writes the items of a non-empty list at a column.
func (e *yamlEncoder) list(list []any, column, depth int, inline bool) *Error {
	if depth > maxEncodeDepth {
		return tooDeep()
	}
	for i, item := range list {
		if i > 0 || !inline {
			e.indent(column)
		}
		e.out = append(e.out, "- "...)
		var err *Error
		switch v := item.(type) {
		case map[string]any:
			if len(v) > 0 {
				err = e.mapping(v, column+2, depth+1, true)
			} else {
				err = e.scalar(item, column+2)
			}
		case []any:
			if len(v) > 0 {
				err = e.list(v, column+2, depth+1, true)
			} else {
				err = e.scalar(item, column+2)
			}
		default:
			err = e.scalar(item, column+2)
		}
		if err != nil {
			return err.item(i)
		}
	}
	return nil
}

// scalar writes a value on the rest of a line, or a text of several lines at a
// column.
func (e *yamlEncoder) scalar(value any, column int) *Error {
	switch v := value.(type) {
	case nil:
		e.out = append(e.out, "null"...)
	case bool:
		e.out = strconv.AppendBool(e.out, v)
	case int64:
		e.out = strconv.AppendInt(e.out, v, 10)
	case int:
		e.out = strconv.AppendInt(e.out, int64(v), 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return notANumber(v)
		}
		e.out = append(e.out, floatText(v)...)
	case string:
		if !utf8.ValidString(v) {
			return invalidf("is text that is not UTF-8")
		}
		if literalSafe(v) {
			e.literal(v, column)
			return nil // with its line's end
		}
		e.scalarText(v)
	case map[string]any:
		e.out = append(e.out, "{}"...)
	case []any:
		e.out = append(e.out, "[]"...)
	default:
		return notEncodable(v)
	}
	e.out = append(e.out, '\n')
	return nil
}

// floatText returns a float in a form that no reader takes as an integer or
// text.
func floatText(f float64) string {
	text := strconv.FormatFloat(f, 'g', -1, 64)
	mantissa, exponent, hasExponent := strings.Cut(text, "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	if hasExponent {
		return mantissa + "e" + exponent
	}
	return mantissa
}

// scalarText writes a text on one line.
func (e *yamlEncoder) scalarText(s string) {
	if plainSafe(s) {
		e.out = append(e.out, s...)
		return
	}
	e.quoted(s)
}

// plainSafe reports whether each reader reads a text without quotes as the same
// text. If in doubt, it returns false.
func plainSafe(s string) bool {
	if s == "" || len(s) > 1<<16 {
		return false
	}
	switch c := s[0]; {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '/':
	case c >= '0' && c <= '9':
		if !plainDigits(s) {
			return false
		}
	default:
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c < ' ' || c > '~' {
			return false
		}
		last := i == len(s)-1
		switch {
		case c == ':' && (last || s[i+1] == ' '),
			c == ' ' && (last || s[i+1] == '#'):
			return false
		}
	}
	return !reserved(s)
}

// reserved reports whether a text is another value in YAML 1.1, in YAML 1.2, or
// to lenient readers.
func reserved(s string) bool {
	switch len(s) {
	case 1, 2, 3, 4, 5:
		switch strings.ToLower(s) {
		case "y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf":
			return true
		}
	}
	return false
}

// plainDigits reports whether a text that begins with a digit can't be read as
// a number or a date: quantities, addresses, versions.
func plainDigits(s string) bool {
	i, dots := 0, 0
	for ; i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.'); i++ {
		if s[i] == '.' {
			dots++
		}
	}
	rest := s[i:]
	if dots > 1 {
		return rest == "" || rest[0] == '/' || rest[0] == '-'
	}
	switch rest {
	case "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "s", "ms", "h":
		return true
	}
	return false
}

// literalSafe reports whether a text of several lines can be written as a
// literal block.
func literalSafe(s string) bool {
	if !strings.Contains(s, "\n") || strings.IndexByte(" \t\n", s[0]) >= 0 {
		return false
	}
	for _, r := range s {
		if r != '\n' && r != '\t' && !isPrintable(r) {
			return false
		}
	}
	// Readers may drop lines of only spaces at the end.
	line := s[strings.LastIndexByte(strings.TrimRight(s, "\n"), '\n')+1:]
	return strings.TrimSpace(line) != ""
}

func isPrintable(r rune) bool {
	return r < utf8.RuneSelf && r >= ' ' && r != 0x7f || r >= 0xa0 && unicode.IsPrint(r)
}

func (e *yamlEncoder) literal(s string, column int) {
	body := strings.TrimRight(s, "\n")
	e.out = append(e.out, '|')
	switch len(s) - len(body) {
	case 0:
		e.out = append(e.out, '-')
	case 1:
	default:
		e.out = append(e.out, '+')
	}
	e.out = append(e.out, '\n')
	for line := range strings.SplitSeq(body, "\n") {
		if line != "" {
			e.indent(column)
			e.out = append(e.out, line...)
		}
		e.out = append(e.out, '\n')
	}
	for range len(s) - len(body) - 1 {
		e.out = append(e.out, '\n')
	}
}

func (e *yamlEncoder) quoted(s string) {
	const digits = "0123456789abcdef"
	e.out = append(e.out, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			e.out = append(e.out, '\\', byte(r))
		case r == '\n':
			e.out = append(e.out, `\n`...)
		case r == '\t':
			e.out = append(e.out, `\t`...)
		case r == '\r':
			e.out = append(e.out, `\r`...)
		case isPrintable(r):
			e.out = utf8.AppendRune(e.out, r)
		case r < 0x100:
			e.out = append(e.out, '\\', 'x', digits[r>>4], digits[r&15])
		case r < 0x10000:
			e.out = append(e.out, '\\', 'u', digits[r>>12], digits[r>>8&15], digits[r>>4&15], digits[r&15])
		default:
			e.out = append(e.out, `\U`...)
			for shift := 28; shift >= 0; shift -= 4 {
				e.out = append(e.out, digits[r>>shift&15])
			}
		}
	}
	e.out = append(e.out, '"')
}
