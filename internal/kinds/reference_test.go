package kinds_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/kinds"
)

var update = flag.Bool("update", false, "rewrite the generated page")

const introduction = `# Kinds

This page is generated from the schemas of TKO's kinds; ` + "`tko explain KIND`" + ` shows the same. Fields are those of ` + "`spec`" + `.
A package may have resources of any other kind: [Validation](validation.md).

`

// The page in docs is generated: go test ./internal/kinds -run Generated -update.
func TestGeneratedKindsAreUpToDate(t *testing.T) {
	t.Parallel()
	const page = "../../docs/kinds.md"
	want := reference(t)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("docs/kinds.md is not up to date (%v): rewrite it with -update", err)
	}
	for _, must := range []string{"## Placement of topology.nephio.org/v1alpha1\n", "| `update` | string: `Once`, `Propose`, `Apply` |", "## Plugin of tko.nephio.org/v1alpha1\n"} {
		if !strings.Contains(want, must) {
			t.Errorf("the page has no %q", must)
		}
	}
}

// reference returns the page.
func reference(t *testing.T) string {
	all, descriptions := read(t)
	var index, b strings.Builder
	index.WriteString(introduction + "| kind | API version | |\n|---|---|---|\n")
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int { // by kind
		return strings.Compare(strings.Join(reversed(a), " "), strings.Join(reversed(b), " "))
	})
	for _, name := range names {
		parts := reversed(name)
		title := parts[0] + " of " + parts[1]
		anchor := strings.NewReplacer(" ", "-", ".", "", "/", "").Replace(strings.ToLower(title))
		fmt.Fprintf(&index, "| [`%s`](#%s) | `%s` | %s |\n", parts[0], anchor, parts[1], escape(descriptions[name][""]))
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", title, escape(descriptions[name][""]))
		b.WriteString("| field | type | |\n|---|---|---|\n")
		walk(all[name], "", func(path string, field map[string]any, required bool) {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", path, typeOf(field, required), escape(descriptions[name][path]))
		})
	}
	return index.String() + b.String()
}

// reversed returns the kind and the API version of a name.
func reversed(name string) []string {
	version, kind, _ := strings.Cut(name, " ")
	return []string{kind, version}
}

// read returns the schemas of the specs of all kinds, and the descriptions of their fields.
func read(t *testing.T) (specs map[string]map[string]any, descriptions map[string]map[string]string) {
	t.Helper()
	specs, descriptions, err := kinds.Read()
	if err != nil {
		t.Fatal(err)
	}
	return specs, descriptions
}

// walk calls visit for all fields of a schema, sorted.
func walk(schema map[string]any, prefix string, visit func(path string, field map[string]any, required bool)) {
	for items, ok := schema["items"].(map[string]any); ok; items, ok = schema["items"].(map[string]any) {
		schema = items
	}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		field, _ := properties[name].(map[string]any)
		visit(prefix+name, field, slices.Contains(required, any(name)))
		walk(field, prefix+name+".", visit)
	}
}

// typeOf returns the type of a field, with the values that it may have.
func typeOf(field map[string]any, required bool) string {
	text := typeName(field)
	if values, ok := field["enum"].([]any); ok {
		names := make([]string, len(values))
		for i, v := range values {
			names[i] = fmt.Sprintf("`%v`", v)
		}
		text += ": " + strings.Join(names, ", ")
	}
	if required {
		text += "; required"
	}
	return text
}

func typeName(schema map[string]any) string {
	if items, ok := schema["items"].(map[string]any); ok {
		return "list of " + typeName(items)
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok {
		return "map of " + typeName(values)
	}
	name, _ := schema["type"].(string)
	if name == "" {
		return "any"
	}
	return name
}

// escape returns a text that Markdown shows as it is.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`, "[", `\[`).Replace(text)
}
