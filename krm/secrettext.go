package krm

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	yaml "sigs.k8s.io/yaml/goyaml.v2"
)

// maxNestedTexts is the maximum number of texts inside of each other in which
// Secrets are looked for. A deeper one that may have a Secret is redacted as a
// whole.
const maxNestedTexts = 4

// redactedWhole replaces a whole text. It differs from the value of a Secret, which may
// be written elsewhere.
const redactedWhole = Redacted + " (text)"

// seemsSecret matches a manifest of a Secret in any text, such as a script.
var seemsSecret = regexp.MustCompile(`kind["']?\s*:\s*["']?Secret\b`)

// RedactText returns a text with the values of the Secrets in it redacted: JSON
// or YAML of any number of documents, texts in those, and base64 of them. A text
// that seems to have a Secret but can't be read is redacted as a whole. Other
// texts stay as they are. Redacting twice equals redacting once.
func RedactText(text string) string { return redactText(text, 0) }

func redactText(text string, nested int) string {
	if !hasMarker(text, secretMarkers) {
		return text
	}
	if decoded, ok := fromBase64(text); ok {
		if redactText(decoded, nested+1) != decoded {
			return redactedWhole
		}
		return text
	}
	if !strings.Contains(text, "kind") && !hasMarker(text, secretMarkers[1:]) {
		return text
	}
	if nested == maxNestedTexts {
		return redactedWhole
	}
	if redacted, ok := redactJSON(text, nested); ok {
		return redacted
	}
	if redacted, ok := redactYAML(text, nested); ok {
		return redacted
	}
	if seemsSecret.MatchString(text) {
		return redactedWhole
	}
	return text
}

func hasMarker(text string, markers []string) bool {
	return slices.ContainsFunc(markers, func(marker string) bool { return strings.Contains(text, marker) })
}

// fromBase64 returns the text that another one is the base64 of.
func fromBase64(text string) (decoded string, ok bool) {
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	return string(data), err == nil && utf8.Valid(data)
}

// redactJSON redacts a JSON value; ok is false if the text is none.
func redactJSON(text string, nested int) (redacted string, ok bool) {
	var tree any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&tree) != nil {
		return "", false
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return "", false
	}
	tree, changed := redactTree(tree, nested+1)
	if !changed {
		return text, true
	}
	encoded, err := json.Marshal(tree)
	if err != nil {
		return "", false
	}
	if strings.HasSuffix(text, "\n") {
		encoded = append(encoded, '\n')
	}
	return string(encoded), true
}

// redactYAML redacts documents of YAML; ok is false if the text is something else, as
// far as that can be known.
func redactYAML(text string, nested int) (redacted string, ok bool) {
	documents, ok := yamlDocuments([]byte(text))
	if !ok {
		return "", false
	}
	found := false
	for i, document := range documents {
		if scalar, isText := document.(string); isText { // no manifest, but it may have one
			if seemsSecret.MatchString(scalar) {
				return "", false
			}
			continue
		}
		tree, changed := redactTree(document, nested+1)
		documents[i] = tree
		found = found || changed
	}
	if !found {
		return text, true
	}
	e := &yamlEncoder{}
	for i, document := range documents {
		if i > 0 {
			e.out = append(e.out, "---\n"...)
		}
		if err := e.document(document); err != nil {
			return "", false
		}
	}
	return string(e.out), true
}

func yamlDocuments(data []byte) (documents []any, ok bool) {
	limits := Limits{}.orDefault()
	if tokens(data) > limits.Values {
		return nil, false
	}
	d := &yamlDecoder{budget: budget{limits: limits}, data: data}
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		value, err := readValue(decoder, false)
		if errors.Is(err, io.EOF) {
			return documents, true
		}
		if err != nil {
			return nil, false
		}
		document, bad := d.value(value, 1)
		if bad != nil {
			return nil, false
		}
		documents = append(documents, document)
	}
}

// document writes any value.
func (e *yamlEncoder) document(value any) *Error {
	switch v := value.(type) {
	case map[string]any:
		if len(v) > 0 {
			return e.mapping(v, 0, 1, true)
		}
	case []any:
		if len(v) > 0 {
			return e.list(v, 0, 1, true)
		}
	}
	return e.scalar(value, 0)
}
