package cli

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fxamacker/cbor/v2"
	"github.com/vmihailenco/msgpack/v5"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko/krm"
)

// The output formats.
const (
	formatTable       = "table"
	formatWide        = "wide"
	formatBare        = "bare"
	formatYAML        = "yaml"
	formatJSON        = "json"
	formatXJSON       = "xjson"
	formatXML         = "xml"
	formatCBOR        = "cbor"
	formatMessagePack = "messagepack"
	formatGo          = "go"
)

var formats = []string{
	formatTable, formatWide, formatBare, formatYAML, formatJSON, formatXJSON, formatXML, formatCBOR, formatMessagePack, formatGo,
}

// An encoder writes values in one of the formats. Values are nil, bool, int64,
// float64, string, []any and map[string]any.
type encoder struct {
	format string
	pretty bool
	strict bool

	expression *expressionFormat // of the formats with an expression; else nil
}

// value writes one value, and a line break where the format is text.
func (e encoder) value(w io.Writer, v any) error {
	if e.expression != nil {
		return e.expression.value(w, v)
	}
	switch e.format {
	case formatCBOR:
		mode, err := cbor.CoreDetEncOptions().EncMode()
		if err != nil {
			return err
		}
		return mode.NewEncoder(w).Encode(v)
	case formatMessagePack:
		enc := msgpack.NewEncoder(w)
		enc.SetSortMapKeys(true)
		enc.UseCompactInts(true)
		return enc.Encode(v)
	}
	text, err := e.text(v, "")
	if err != nil {
		return err
	}
	if e.format == formatXML {
		text = xml.Header + text
	}
	_, err = fmt.Fprintln(w, strings.TrimSuffix(text, "\n"))
	return err
}

// text returns a value in a text format. All lines but the first begin with indent.
func (e encoder) text(v any, indent string) (string, error) {
	switch e.format {
	case formatJSON:
		return e.json(v, indent)
	case formatXJSON:
		return e.json(extended(v), indent)
	case formatXML:
		var b strings.Builder
		e.xml(&b, v, indent)
		return b.String(), nil
	case formatGo:
		return e.golang(v, indent), nil
	default:
		return e.yaml(v)
	}
}

func (e encoder) json(v any, indent string) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if e.pretty {
		enc.SetIndent(indent, "  ")
	}
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

func (e encoder) yaml(v any) (string, error) {
	if e.strict {
		var b strings.Builder
		err := strictYAML(&b, v, "")
		return strings.TrimPrefix(b.String(), "\n"), err
	}
	text, err := yaml.Marshal(v)
	return string(text), err
}

// strictYAML writes a value after a key or a dash. It quotes every string as
// JSON does, so that YAML 1.1 and 1.2 read the same.
func strictYAML(b *strings.Builder, v any, indent string) error {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			b.WriteString(" {}")
		}
		b.WriteString("\n")
		for _, key := range slices.Sorted(maps.Keys(v)) {
			b.WriteString(indent + quoted(key) + ":")
			if err := strictYAML(b, v[key], indent+"  "); err != nil {
				return err
			}
		}
	case []any:
		if len(v) == 0 {
			b.WriteString(" []")
		}
		b.WriteString("\n")
		for _, item := range v {
			b.WriteString(indent + "-")
			if err := strictYAML(b, item, indent+"  "); err != nil {
				return err
			}
		}
	case string:
		b.WriteString(" " + quoted(v) + "\n")
	default:
		text, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		b.WriteString(" " + string(text))
	}
	return nil
}

func quoted(s string) string {
	text, err := encoder{}.json(s, "")
	if err != nil {
		return strconv.Quote(s)
	}
	return text
}

// extended returns a value in ARD's extended JSON, which distinguishes integers
// from other numbers.
func extended(v any) any {
	switch v := v.(type) {
	case int64:
		return map[string]any{"$ard.integer": strconv.FormatInt(v, 10)}
	case []any:
		return values(v, extended)
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, item := range v {
			if len(v) == 1 && slices.Contains([]string{"$ard.integer", "$ard.uinteger", "$ard.bytes", "$ard.map"}, key) {
				key = "$" + key
			}
			m[key] = extended(item)
		}
		return m
	}
	return v
}

// xml writes a value as ARD does: every element is named after a type.
func (e encoder) xml(b *strings.Builder, v any, indent string) {
	line, deeper := "", indent
	if e.pretty {
		line, deeper = "\n", indent+"  "
	}
	start := func(indent, text string) { b.WriteString(line + indent + text) }
	switch v := v.(type) {
	case nil:
		b.WriteString("<nil></nil>")
	case map[string]any:
		b.WriteString("<map>")
		inner := deeper
		if e.pretty {
			inner += "  "
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			start(deeper, "<entry>")
			start(inner, "<key>")
			e.xml(b, key, inner)
			b.WriteString("</key>")
			start(inner, "<value>")
			e.xml(b, v[key], inner)
			b.WriteString("</value>")
			start(deeper, "</entry>")
		}
		start(indent, "</map>")
	case []any:
		b.WriteString("<list>")
		for _, item := range v {
			start(deeper, "")
			e.xml(b, item, deeper)
		}
		start(indent, "</list>")
	case string:
		b.WriteString("<string>")
		_ = xml.EscapeText(b, []byte(v)) // a strings.Builder never fails
		b.WriteString("</string>")
	default:
		fmt.Fprintf(b, "<%T>%v</%T>", v, v, v)
	}
}

// golang returns a value as a Go expression.
func (e encoder) golang(v any, indent string) string {
	var head string
	var items []string
	line := "\n" + indent
	switch v := v.(type) {
	case map[string]any:
		head = "map[string]any"
		for _, key := range slices.Sorted(maps.Keys(v)) {
			items = append(items, strconv.Quote(key)+": "+e.golang(v[key], indent+"\t"))
		}
	case []any:
		head = "[]any"
		for _, item := range v {
			items = append(items, e.golang(item, indent+"\t"))
		}
	case nil:
		return "nil"
	case int64:
		return fmt.Sprintf("int64(%d)", v)
	case float64:
		return fmt.Sprintf("float64(%v)", v)
	default:
		return fmt.Sprintf("%#v", v)
	}
	if len(items) == 0 || !e.pretty {
		return head + "{" + strings.Join(items, ", ") + "}"
	}
	return head + "{" + line + "\t" + strings.Join(items, ","+line+"\t") + "," + line + "}"
}

// A listEncoder writes a list item by item where the format allows it.
type listEncoder struct {
	encoder
	w     io.Writer
	n     int
	items []any // of formats that begin with the number of items
}

func (l *listEncoder) add(v any) error {
	l.n++
	switch l.format {
	case formatCBOR, formatMessagePack:
		l.items = append(l.items, v)
		return nil
	case formatYAML:
		text, err := l.yaml([]any{v})
		if err == nil {
			_, err = io.WriteString(l.w, text)
		}
		return err
	}
	indent, before, separator, _ := l.frame()
	if l.n > 1 {
		before = separator
	}
	text, err := l.text(v, indent)
	if err == nil {
		_, err = io.WriteString(l.w, before+indent+text)
	}
	return err
}

// frame returns the indentation of items, and the texts around and between them.
func (l *listEncoder) frame() (indent, before, separator, after string) {
	line := ""
	if l.pretty {
		indent, line = "  ", "\n"
	}
	switch {
	case l.format == formatXML:
		return indent, xml.Header + "<list>" + line, line, line + "</list>"
	case l.format != formatGo:
		return indent, "[" + line, "," + line, line + "]"
	case l.pretty:
		return "\t", "[]any{\n", ",\n", ",\n}"
	}
	return "", "[]any{", ", ", "}"
}

func (l *listEncoder) end() error {
	if l.n == 0 {
		return l.value(l.w, []any{})
	}
	switch l.format {
	case formatCBOR, formatMessagePack:
		return l.value(l.w, l.items)
	case formatYAML:
		return nil
	}
	_, _, _, after := l.frame()
	_, err := fmt.Fprintln(l.w, after)
	return err
}

// plainResource returns a resource as a value.
func plainResource(r krm.Resource) map[string]any { return r }
