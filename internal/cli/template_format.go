package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/tko-orchestrator/tko"
)

// The formats with an expression, as FORMAT=EXPRESSION.
const (
	formatJSONPath      = "jsonpath"
	formatGoTemplate    = "go-template"
	formatCustomColumns = "custom-columns"
)

var expressionFormats = []string{formatJSONPath, formatGoTemplate, formatCustomColumns}

// An expressionFormat writes values as an expression says. Of a list, JSONPath and Go
// templates get a map with the key items, as those of kubectl do.
type expressionFormat struct {
	kind    string
	path    jsonPath
	text    *template.Template
	columns []customColumn
}

type customColumn struct {
	name  string
	steps []pathStep
}

// parseExpression parses FORMAT=EXPRESSION; nil if it is another format.
func parseExpression(format string) (*expressionFormat, error) {
	kind, expression, _ := strings.Cut(format, "=")
	if !slices.Contains(expressionFormats, kind) {
		return nil, nil //nolint:nilnil // other formats have no expression
	}
	if expression == "" {
		return nil, tko.Errorf(errUsage, "--format %s: use %s=EXPRESSION", kind, kind)
	}
	e := &expressionFormat{kind: kind}
	var err error
	switch kind {
	case formatJSONPath:
		if !strings.Contains(expression, "{") {
			expression = "{." + strings.TrimPrefix(expression, ".") + "}"
		}
		e.path, err = parseJSONPath(expression)
	case formatGoTemplate:
		if e.text, err = template.New("format").Parse(expression); err != nil {
			err = tko.Errorf(errUsage, "--format %s: %w", kind, err)
		}
	case formatCustomColumns:
		for column := range strings.SplitSeq(expression, ",") {
			name, path, ok := strings.Cut(column, ":")
			if !ok || name == "" || path == "" {
				return nil, tko.Errorf(errUsage, "--format %s: %q is not a column: use NAME:PATH, such as ID:.siteId", kind, column)
			}
			var steps []pathStep
			if steps, err = parsePath(path); err != nil {
				return nil, err
			}
			e.columns = append(e.columns, customColumn{name, steps})
		}
	}
	return e, err
}

// parsePath parses one path, with or without braces and the first dot.
func parsePath(text string) ([]pathStep, error) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
	if !strings.HasPrefix(text, ".") && !strings.HasPrefix(text, "[") {
		text = "." + text
	}
	return parseSteps(text, text)
}

// value writes one value.
func (e *expressionFormat) value(w io.Writer, v any) error {
	switch e.kind {
	case formatJSONPath:
		_, err := io.WriteString(w, e.path.execute(v))
		return err
	case formatGoTemplate:
		if err := e.text.Execute(w, v); err != nil {
			return tko.Errorf(errUsage, "--format %s: %w", e.kind, err)
		}
	}
	return nil
}

// list writes a list. Columns are written row by row.
func (e *expressionFormat) list(a *app, items []any) error {
	if e.kind != formatCustomColumns {
		return e.value(a.out, map[string]any{"items": items})
	}
	var columns []column[any]
	for _, c := range e.columns {
		columns = append(columns, column[any]{name: c.name, text: func(v any) string { return strings.Join(textsAt(v, c.steps), ",") }})
	}
	return printTable(a, columns, items)
}

// maxSorted is the most rows that --sort-by holds in memory.
const maxSorted = 1_000_000

// sortKey returns the value of a row to sort by, as a text and, of numbers, a number.
func sortKey(row map[string]any, steps []pathStep) (number float64, text string) {
	found := valuesAt(row, steps)
	if len(found) == 0 {
		return 0, ""
	}
	switch v := found[0].(type) {
	case int64:
		return float64(v), ""
	case float64:
		return v, ""
	case bool:
		if v {
			return 1, ""
		}
		return 0, ""
	case []any:
		return float64(len(v)), ""
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return float64(at.UnixNano()), ""
		}
	}
	return 0, pathText(found[0])
}

// sorted sorts items by the values of their rows at a path. Equal ones stay in their order.
func sorted[T any](steps []pathStep, items []T, row func(T) map[string]any) []T {
	type keyed struct {
		item   T
		number float64
		text   string
	}
	all := make([]keyed, len(items))
	for i, item := range items {
		number, text := sortKey(row(item), steps)
		all[i] = keyed{item, number, text}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.text, b.text)) })
	for i, k := range all {
		items[i] = k.item
	}
	return items
}

var errTooManyToSort = fmt.Errorf("--sort-by sorts at most %d rows: use filters", maxSorted)
