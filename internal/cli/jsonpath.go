package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// A jsonPath is a parsed template of kubectl's JSONPath: text, and expressions in
// braces. Supported are .key, ['key'], [n], [*], .*, [?(@.key=="text")] (also !=),
// quoted text, range and end. A key that is missing has no value.
type jsonPath []pathNode

// A pathNode is a part of a jsonPath: text, the values at steps, or, of a range,
// its body for each of the values.
type pathNode struct {
	text  string
	steps []pathStep
	kind  int
	body  jsonPath
}

const (
	nodeText = iota
	nodeValues
	nodeRange
)

// A pathStep leads from a value to others.
type pathStep struct {
	key    string
	index  int
	kind   int
	filter []pathStep // of a filter
	equal  bool
	value  string
}

const (
	stepKey = iota
	stepIndex
	stepAll
	stepFilter
)

func pathError(text, reason string) error {
	return tko.Errorf(errUsage, "the JSONPath %.200q %s: use, for example, {.items[*].siteId} or {range .items[*]}{.siteId}{\"\\n\"}{end}", text, reason)
}

// parseJSONPath parses a template.
func parseJSONPath(text string) (jsonPath, error) {
	path, rest, ended, err := parseNodes(text, text)
	if err == nil && (ended || rest != "") {
		err = pathError(text, "has an {end} without {range}")
	}
	return path, err
}

// parseNodes parses up to the end, or up to {end}.
func parseNodes(whole, text string) (path jsonPath, rest string, ended bool, err error) {
	for text != "" {
		before, after, ok := strings.Cut(text, "{")
		if before != "" {
			path = append(path, pathNode{text: before})
		}
		if !ok {
			return path, "", false, nil
		}
		end := closing(after)
		if end < 0 {
			return nil, "", false, pathError(whole, "has a { without }")
		}
		expression := strings.TrimSpace(after[:end])
		text = after[end+1:]
		switch {
		case expression == "end":
			return path, text, true, nil
		case strings.HasPrefix(expression, `"`) || strings.HasPrefix(expression, `'`):
			literal, err := unquote(expression)
			if err != nil {
				return nil, "", false, pathError(whole, "has wrong quotes")
			}
			path = append(path, pathNode{text: literal})
		case strings.HasPrefix(expression, "range "):
			node := pathNode{kind: nodeRange}
			if node.steps, err = parseSteps(whole, strings.TrimSpace(expression[len("range "):])); err != nil {
				return nil, "", false, err
			}
			if node.body, text, ended, err = parseNodes(whole, text); err != nil {
				return nil, "", false, err
			}
			if !ended {
				return nil, "", false, pathError(whole, "has a {range} without {end}")
			}
			path = append(path, node)
		default:
			node := pathNode{kind: nodeValues}
			if node.steps, err = parseSteps(whole, expression); err != nil {
				return nil, "", false, err
			}
			path = append(path, node)
		}
	}
	return path, "", false, nil
}

// closing returns the position of the } that ends an expression, outside of quotes;
// -1 if there is none.
func closing(text string) int {
	var quote byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quote != 0:
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '}':
			return i
		}
	}
	return -1
}

func unquote(text string) (string, error) {
	if len(text) > 1 && text[0] == '\'' && text[len(text)-1] == '\'' {
		return text[1 : len(text)-1], nil
	}
	return strconv.Unquote(text)
}

// parseSteps parses an expression, such as .items[0].metadata['a.b'].
func parseSteps(whole, text string) ([]pathStep, error) {
	steps := []pathStep{}
	text = strings.TrimPrefix(strings.TrimPrefix(text, "$"), "@")
	if text == "." {
		return steps, nil
	}
	for text != "" {
		switch text[0] {
		case '.':
			end := 1
			for end < len(text) && text[end] != '.' && text[end] != '[' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			key := strings.ReplaceAll(text[1:min(end, len(text))], `\`, "")
			text = text[min(end, len(text)):]
			switch key {
			case "":
				if strings.HasPrefix(text, "[") {
					continue
				}
				return nil, pathError(whole, "has an empty key")
			case "*":
				steps = append(steps, pathStep{kind: stepAll})
			default:
				steps = append(steps, pathStep{key: key})
			}
		case '[':
			end := bracketEnd(text)
			if end < 0 {
				return nil, pathError(whole, "has a [ without ]")
			}
			step, err := parseBracket(whole, strings.TrimSpace(text[1:end]))
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
			text = text[end+1:]
		default:
			return nil, pathError(whole, "has an expression that doesn't begin with a dot")
		}
	}
	return steps, nil
}

// bracketEnd returns the position of the ] that belongs to the first character.
func bracketEnd(text string) int {
	var quote byte
	depth := 0
	for i := range len(text) {
		switch c := text[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '[':
			depth++
		case c == ']':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

func parseBracket(whole, text string) (pathStep, error) {
	switch {
	case text == "*":
		return pathStep{kind: stepAll}, nil
	case strings.HasPrefix(text, "?(") && strings.HasSuffix(text, ")"):
		step := pathStep{kind: stepFilter, equal: true}
		left, right, ok := strings.Cut(text[2:len(text)-1], "==")
		if !ok {
			left, right, ok = strings.Cut(text[2:len(text)-1], "!=")
			step.equal = false
		}
		if !ok {
			return step, pathError(whole, "has a filter without == or !=")
		}
		var err error
		if step.filter, err = parseSteps(whole, strings.TrimSpace(left)); err != nil {
			return step, err
		}
		step.value = strings.TrimSpace(right)
		if text, err := unquote(step.value); err == nil {
			step.value = text
		}
		return step, nil
	case strings.HasPrefix(text, `"`), strings.HasPrefix(text, `'`):
		key, err := unquote(text)
		if err != nil {
			return pathStep{}, pathError(whole, "has wrong quotes")
		}
		return pathStep{key: key}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return pathStep{}, pathError(whole, fmt.Sprintf("has the index %q", text))
	}
	return pathStep{kind: stepIndex, index: n}, nil
}

// execute returns the template's text for a value.
func (p jsonPath) execute(v any) string {
	var b strings.Builder
	p.write(&b, v)
	return b.String()
}

func (p jsonPath) write(b *strings.Builder, v any) {
	for _, node := range p {
		switch node.kind {
		case nodeText:
			b.WriteString(node.text)
		case nodeValues:
			for i, found := range valuesAt(v, node.steps) {
				if i > 0 {
					b.WriteString(" ")
				}
				b.WriteString(pathText(found))
			}
		case nodeRange:
			for _, found := range valuesAt(v, node.steps) {
				node.body.write(b, found)
			}
		}
	}
}

// valuesAt returns the values to which steps lead.
func valuesAt(v any, steps []pathStep) []any {
	values := []any{v}
	for _, step := range steps {
		var next []any
		for _, v := range values {
			next = append(next, step.from(v)...)
		}
		values = next
	}
	return values
}

func (s pathStep) from(v any) []any {
	list, _ := v.([]any)
	m, _ := v.(map[string]any)
	switch s.kind {
	case stepIndex:
		i := s.index
		if i < 0 {
			i += len(list)
		}
		if i >= 0 && i < len(list) {
			return list[i : i+1]
		}
	case stepAll:
		for _, key := range slices.Sorted(maps.Keys(m)) {
			list = append(list, m[key])
		}
		return list
	case stepFilter:
		var matches []any
		for _, item := range list {
			found := valuesAt(item, s.filter)
			if is := len(found) > 0 && pathText(found[0]) == s.value; is == s.equal {
				matches = append(matches, item)
			}
		}
		return matches
	default:
		if value, ok := m[s.key]; ok && value != nil {
			return []any{value}
		}
	}
	return nil
}

// pathText returns a scalar as plain text, and others as JSON.
func pathText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case map[string]any, []any:
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(text)
	}
	return fmt.Sprint(v)
}
