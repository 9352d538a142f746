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
// quoted text, range and end. A key that is missing has no value. Each part writes its
// text for a value. It is not that of k8s.io/client-go/util/jsonpath, which fails for an index beyond the end of a list (so one
// row would end a table), and writes the values of a map in random order.
type jsonPath []func(b *strings.Builder, v any)

// A pathStep returns the values to which it leads from a value.
type pathStep func(v any) []any

func pathError(text, reason string) error {
	return tko.Errorf(errUsage, "the JSONPath %.200q %s: use, for example, {.items[*].siteId} or {range .items[*]}{.siteId}{\"\\n\"}{end}", text, reason)
}

// parseJSONPath parses a template.
func parseJSONPath(text string) (jsonPath, error) {
	p := pathParser{whole: text, rest: text}
	return p.parts(false)
}

// A pathParser parses a template; rest is what it hasn't read yet.
type pathParser struct{ whole, rest string }

// parts parses up to the end, or, within a range, up to its {end}.
func (p *pathParser) parts(within bool) (path jsonPath, err error) {
	for p.rest != "" {
		before, after, ok := strings.Cut(p.rest, "{")
		if before != "" {
			path = append(path, literal(before))
		}
		if !ok {
			break
		}
		end := closing(after)
		if end < 0 {
			return nil, pathError(p.whole, "has a { without }")
		}
		expression := strings.TrimSpace(after[:end])
		p.rest = after[end+1:]
		repeated, isRange := strings.CutPrefix(expression, "range ")
		switch {
		case expression == "end" && within:
			return path, nil
		case expression == "end":
			return nil, pathError(p.whole, "has an {end} without {range}")
		case strings.HasPrefix(expression, `"`) || strings.HasPrefix(expression, `'`):
			text, err := unquote(expression)
			if err != nil {
				return nil, pathError(p.whole, "has wrong quotes")
			}
			path = append(path, literal(text))
			continue
		}
		steps, err := parseSteps(p.whole, strings.TrimSpace(repeated))
		if err != nil {
			return nil, err
		}
		if !isRange {
			path = append(path, func(b *strings.Builder, v any) { b.WriteString(strings.Join(textsAt(v, steps), " ")) })
			continue
		}
		body, err := p.parts(true)
		if err != nil {
			return nil, err
		}
		path = append(path, func(b *strings.Builder, v any) {
			for _, found := range valuesAt(v, steps) {
				body.write(b, found)
			}
		})
	}
	if within {
		return nil, pathError(p.whole, "has a {range} without {end}")
	}
	return path, nil
}

func literal(text string) func(b *strings.Builder, v any) {
	return func(b *strings.Builder, _ any) { b.WriteString(text) }
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
				steps = append(steps, allIn)
			default:
				steps = append(steps, atKey(key))
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
			depth--
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}

func parseBracket(whole, text string) (pathStep, error) {
	switch {
	case text == "*":
		return allIn, nil
	case strings.HasPrefix(text, "?(") && strings.HasSuffix(text, ")"):
		condition := text[2 : len(text)-1]
		left, right, equal := strings.Cut(condition, "==")
		if !equal {
			var ok bool
			left, right, ok = strings.Cut(condition, "!=")
			if !ok {
				return nil, pathError(whole, "has a filter without == or !=")
			}
		}
		steps, err := parseSteps(whole, strings.TrimSpace(left))
		if err != nil {
			return nil, err
		}
		wanted := strings.TrimSpace(right)
		if text, err := unquote(wanted); err == nil {
			wanted = text
		}
		return matching(steps, wanted, equal), nil
	case strings.HasPrefix(text, `"`), strings.HasPrefix(text, `'`):
		key, err := unquote(text)
		if err != nil {
			return nil, pathError(whole, "has wrong quotes")
		}
		return atKey(key), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil, pathError(whole, fmt.Sprintf("has the index %q", text))
	}
	return atIndex(n), nil
}

func atKey(key string) pathStep {
	return func(v any) []any {
		if value := asMap(v)[key]; value != nil {
			return []any{value}
		}
		return nil
	}
}

// atIndex counts negative indexes from the end.
func atIndex(n int) pathStep {
	return func(v any) []any {
		list, _ := v.([]any)
		i := n
		if i < 0 {
			i += len(list)
		}
		if i < 0 || i >= len(list) {
			return nil
		}
		return list[i : i+1]
	}
}

// allIn is the step to all values of a list, or of a map in the order of its keys.
func allIn(v any) []any {
	list, _ := v.([]any)
	m := asMap(v)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[key])
	}
	return list
}

// matching is the step to the items of a list whose first value at steps is the wanted one,
// or is another one.
func matching(steps []pathStep, wanted string, equal bool) pathStep {
	return func(v any) (matches []any) {
		list, _ := v.([]any)
		for _, item := range list {
			found := textsAt(item, steps)
			if is := len(found) > 0 && found[0] == wanted; is == equal {
				matches = append(matches, item)
			}
		}
		return matches
	}
}

// execute returns the template's text for a value.
func (p jsonPath) execute(v any) string {
	var b strings.Builder
	p.write(&b, v)
	return b.String()
}

func (p jsonPath) write(b *strings.Builder, v any) {
	for _, part := range p {
		part(b, v)
	}
}

// valuesAt returns the values to which steps lead.
func valuesAt(v any, steps []pathStep) []any {
	values := []any{v}
	for _, step := range steps {
		var next []any
		for _, v := range values {
			next = append(next, step(v)...)
		}
		values = next
	}
	return values
}

// textsAt returns the values to which steps lead as texts.
func textsAt(v any, steps []pathStep) []string {
	var texts []string
	for _, found := range valuesAt(v, steps) {
		texts = append(texts, pathText(found))
	}
	return texts
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
