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

// AnnotationSetters keeps the setters of a resource: what comments "# kpt-set:"
// in its YAML say, which packages have no place for.
const AnnotationSetters = "tko.nephio.org/setters"

// A Setter says that a field is made of values that are given by name.
type Setter struct {
	Field   string `json:"field"`          // a JSON pointer
	Pattern string `json:"pattern"`        // text with ${NAME} in it
	Text    bool   `json:"text,omitempty"` // the value was quoted: it stays text
}

// Setters returns the setters of a resource. What its annotation has of another
// form is an [ErrInvalid].
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

// maxSetterBytes is how much YAML is read a second time, with its comments.
const maxSetterBytes = 16 << 20

// maxSetterPattern is how long a pattern is that is kept.
const maxSetterPattern = 4 << 10

// keepSetters annotates resources with the setters that the YAML they come from
// has in comments. Resources without metadata are left as they are.
func keepSetters(p Package, data []byte) {
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

// findSetters returns the setters of each resource in YAML; nil if it can't be
// read again with its comments.
func findSetters(data []byte) (found [][]Setter) {
	defer func() {
		if recover() != nil { // a fault of the parser: there are no comments then
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
		default: // an alias: what it stands for has its setters where it is written
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
	if pattern = strings.TrimSpace(pattern); !ok || pattern == "" || len(pattern) > maxSetterPattern {
		return false
	}
	s.found = append(s.found, Setter{Field: field, Pattern: pattern, Text: text})
	return true
}
