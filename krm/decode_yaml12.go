package krm

import (
	"bytes"
	"regexp"

	yaml "sigs.k8s.io/yaml/goyaml.v2"
)

// DecodeYAML12 is [Decode] for YAML 1.2: only true and false are booleans; yes,
// no, on, off, y and n are text. Python's ruamel.yaml writes such text without
// quotes.
func DecodeYAML12(data []byte, limits Limits) (Package, error) {
	if len(data) == 0 {
		return nil, nil
	}
	limits = limits.orDefault()
	if len(data) > limits.Bytes {
		return nil, tooManyBytes(len(data), limits)
	}
	data, _ = withoutVersion12(data)
	return decodeYAML(data, limits, booleans11.Match(data))
}

// booleans11 matches possible booleans of YAML 1.1, also inside of text.
var booleans11 = regexp.MustCompile(`(?m)(?:^|[\s,\[{:?-])(?:[yY]|[yY]es|YES|[nN]|[nN]o|NO|[oO]n|ON|[oO]ff|OFF)(?:[\s,\]}:]|$)`)

var (
	directive = []byte("%YAML")
	version12 = regexp.MustCompile(`^%YAML[ \t]+1\.([02-9])`)
)

// withoutVersion12 changes directives of YAML 1.2 to 1.1, the only version that
// the parser accepts, and reports whether there were any.
func withoutVersion12(data []byte) (_ []byte, found bool) {
	if !bytes.Contains(data, directive) {
		return data, false
	}
	between, at := true, 0 // documents
	for line := range bytes.Lines(data) {
		text := bytes.TrimRight(bytes.TrimPrefix(line, []byte("\ufeff")), "\r\n")
		if m := version12.FindSubmatchIndex(text); between && m != nil {
			if !found {
				data, found = bytes.Clone(data), true
			}
			data[at+len(line)-len(bytes.TrimPrefix(line, []byte("\ufeff")))+m[2]] = '1'
		}
		switch {
		case bytes.Equal(text, []byte("...")) || bytes.HasPrefix(text, []byte("... ")):
			between = true
		case len(bytes.TrimSpace(text)) > 0 && text[0] != '#' && text[0] != '%':
			between = false
		}
		at += len(line)
	}
	return data, found
}

// A coreValue is the parser's result, except that booleans of YAML 1.1 only are
// text.
type coreValue struct{ value any }

// UnmarshalYAML implements the parser's interface.
func (c *coreValue) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	if unmarshal(&text) == nil {
		if err := unmarshal(&c.value); err != nil {
			return err
		}
		if _, ok := c.value.(bool); ok {
			switch text {
			case "true", "True", "TRUE", "false", "False", "FALSE":
			default:
				c.value = text
			}
		}
		return nil
	}
	var probe []skipped
	if unmarshal(&probe) == nil {
		var items []coreValue
		if err := unmarshal(&items); err != nil {
			return err
		}
		list := make([]any, len(items))
		for i, item := range items {
			list[i] = item.value
		}
		c.value = list
		return nil
	}
	var items map[coreValue]coreValue
	if err := unmarshal(&items); err != nil {
		return err
	}
	m := make(map[any]any, len(items))
	for key, item := range items {
		m[key.value] = item.value
	}
	c.value = m
	return nil
}

// UnmarshalText is called for the quoted texts null and ~, which the parser
// first treats as null.
func (c *coreValue) UnmarshalText(text []byte) error {
	c.value = string(text)
	return nil
}

// A skipped value is ignored.
type skipped struct{}

// UnmarshalYAML implements the parser's interface.
func (*skipped) UnmarshalYAML(func(any) error) error { return nil }

// UnmarshalText is like that of coreValue.
func (*skipped) UnmarshalText([]byte) error { return nil }

// readValue reads the next document.
func readValue(decoder *yaml.Decoder, core bool) (any, error) {
	if core {
		var c coreValue
		err := readDocument(decoder, &c)
		return c.value, err
	}
	var value any
	err := readDocument(decoder, &value)
	return value, err
}
