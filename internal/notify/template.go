package notify

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// maxCost limits an expression, in units of CEL.
const maxCost = 1_000_000

// compiled are the expressions of a template. Either may be nil.
type compiled struct{ title, text cel.Program }

// compile compiles a template, which may be nil. Errors name the field.
func compile(t *Template) (c compiled, err error) {
	if t == nil {
		return c, nil
	}
	env, err := cel.NewEnv(cel.Variable("message", cel.DynType), cel.OptionalTypes(), cel.ParserExpressionSizeLimit(maxTemplate), cel.CrossTypeNumericComparisons(true), ext.Strings())
	if err != nil {
		return c, fmt.Errorf("make the environment of templates: %w", err)
	}
	for _, part := range []struct {
		name, text string
		to         *cel.Program
	}{{"title", t.Title, &c.title}, {"text", t.Text, &c.text}} {
		if part.text == "" {
			continue
		}
		ast, issues := env.Compile(part.text)
		if err := issues.Err(); err != nil {
			return c, fmt.Errorf("template.%s: %s", part.name, bounded(err))
		}
		if out := ast.OutputType(); out != cel.StringType && out != cel.DynType {
			return c, fmt.Errorf("template.%s: the expression is a %s: write one that is a text, such as with string(…)", part.name, out)
		}
		if *part.to, err = env.Program(ast, cel.CostLimit(maxCost)); err != nil {
			return c, fmt.Errorf("template.%s: %s", part.name, bounded(err))
		}
	}
	return c, nil
}

func bounded(err error) string { return printable.Short(strings.TrimSpace(err.Error()), 2*maxLine) }

// render replaces the texts of a message by those of the template. A template that fails
// leaves them as they are, and the message says so: it is sent in any case.
func (c compiled) render(m *Message) {
	if c.title == nil && c.text == nil {
		return
	}
	facts, err := factsOf(*m)
	for _, part := range []struct {
		name    string
		program cel.Program
		to      *string
		limit   int
	}{{"title", c.title, &m.Title, maxTitle}, {"text", c.text, &m.Text, maxBody}} {
		if part.program == nil {
			continue
		}
		var text string
		if err == nil {
			text, err = evaluate(part.program, facts)
		}
		if err != nil {
			m.Problem = fmt.Sprintf("the template fails: template.%s: %s", part.name, bounded(err))
			continue
		}
		*part.to = printable.Short(text, part.limit)
	}
	if m.Problem != "" {
		m.Text = printable.Short(m.Text+"\n"+m.Problem+"\n", maxBody)
	}
}

func evaluate(p cel.Program, facts map[string]any) (string, error) {
	value, _, err := p.Eval(map[string]any{"message": facts})
	if err != nil {
		return "", err
	}
	text, ok := value.Value().(string)
	if !ok {
		return "", fmt.Errorf("the expression is a %s, and no text", value.Type())
	}
	return text, nil
}

// factsOf returns a message as expressions see it: with the names of its JSON, and with
// whole numbers.
func factsOf(m Message) (map[string]any, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	var facts map[string]any
	if err := decoder.Decode(&facts); err != nil {
		return nil, err
	}
	whole(facts)
	return facts, nil
}

// whole replaces the numbers in a value.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, one := range v {
			v[key] = whole(one)
		}
	case []any:
		for i, one := range v {
			v[i] = whole(one)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
	}
	return v
}
