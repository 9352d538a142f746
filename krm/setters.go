package krm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// AnnotationSetters is the annotation with the setters of a resource: the
// comments "# kpt-set:" of its YAML, because packages have no comments.
const AnnotationSetters = "tko.nephio.org/setters"

// A Setter states that a field is composed of values that are given by name.
type Setter struct {
	Field   string `json:"field"`          // a JSON pointer
	Pattern string `json:"pattern"`        // text with ${NAME}
	Text    bool   `json:"text,omitempty"` // the value was quoted: it stays text
}

// Setters returns the setters of a resource. A malformed annotation is an
// [ErrInvalid].
func (r Resource) Setters() ([]Setter, error) {
	text := r.Annotation(AnnotationSetters)
	if text == "" {
		return nil, nil
	}
	var setters []Setter
	if err := json.Unmarshal([]byte(text), &setters); err != nil {
		return nil, invalidf("%s has malformed setters in its annotation %s: %s", r.Identity(), AnnotationSetters, err)
	}
	return setters, nil
}

const setterComment = "# kpt-set:"

// maxSetterBytes is the maximum size of YAML that is read a second time, with
// its comments.
const maxSetterBytes = 16 << 20

// maxSetterPattern is the maximum length of the pattern of a setter; longer
// ones are ignored.
const maxSetterPattern = 4 << 10

// annotateSetters annotates resources with the setters in the comments of their
// YAML. Resources without metadata stay unchanged.
func annotateSetters(p Package, data []byte) {
	if len(data) > maxSetterBytes || !bytes.Contains(data, []byte(setterComment)) {
		return
	}
	found := findSetters(data)
	if len(found) != len(p) {
		return
	}
	for i, setters := range found {
		if _, ok := p[i]["metadata"].(map[string]any); !ok || len(setters) == 0 {
			continue
		}
		known, err := p[i].Setters()
		if err != nil {
			continue
		}
		known = slices.DeleteFunc(known, func(s Setter) bool {
			return slices.ContainsFunc(setters, func(n Setter) bool { return n.Field == s.Field })
		})
		if text, err := json.Marshal(append(known, setters...)); err == nil {
			p[i].SetAnnotation(AnnotationSetters, string(text))
		}
	}
}

// findSetters returns the setters of each resource in YAML; nil if the YAML
// can't be read with its comments.
func findSetters(data []byte) (found [][]Setter) {
	defer func() {
		if recover() != nil { // a fault of the parser: ignore the comments
			found = nil
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			return nil
		}
		for _, root := range document.Content {
			items := []*yaml.Node{root}
			if root.Kind == yaml.SequenceNode {
				items = root.Content
			}
			for _, item := range items {
				if item.Kind == yaml.MappingNode {
					var s setterFinder
					s.mapping(item, "", 0)
					found = append(found, s.found)
				}
			}
		}
	}
}

type setterFinder struct{ found []Setter }

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func (s *setterFinder) mapping(node *yaml.Node, at string, depth int) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		field := at + "/" + pointerEscapes.Replace(key.Value)
		switch value.Kind {
		case yaml.MappingNode:
			if depth < maxEncodeDepth {
				s.mapping(value, field, depth+1)
			}
		case yaml.SequenceNode:
			if !s.add(field, key.LineComment, false) {
				s.add(field, value.LineComment, false)
			}
			s.sequence(value, field, depth+1)
		case yaml.ScalarNode:
			s.scalar(value, field)
		default: // an alias: the setters are where its anchor is
		}
	}
}

func (s *setterFinder) sequence(node *yaml.Node, at string, depth int) {
	if depth >= maxEncodeDepth {
		return
	}
	for i, item := range node.Content {
		field := at + "/" + strconv.Itoa(i)
		switch item.Kind {
		case yaml.MappingNode:
			s.mapping(item, field, depth+1)
		case yaml.SequenceNode:
			s.sequence(item, field, depth+1)
		case yaml.ScalarNode:
			s.scalar(item, field)
		default: // as in a mapping
		}
	}
}

func (s *setterFinder) scalar(node *yaml.Node, field string) {
	s.add(field, node.LineComment, node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0)
}

func (s *setterFinder) add(field, comment string, text bool) (added bool) {
	pattern, ok := strings.CutPrefix(comment, setterComment)
	pattern = strings.TrimSpace(pattern)
	if !ok || pattern == "" || len(pattern) > maxSetterPattern {
		return false
	}
	s.found = append(s.found, Setter{Field: field, Pattern: pattern, Text: text})
	return true
}
