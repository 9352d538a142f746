package gitops_test

import (
	"flag"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
)

var update = flag.Bool("update", false, "rewrite the generated schemas")

// The schemas of the kinds of sources are made from the settings of the file of sources:
// go test ./internal/gitops -run Generated -update.
func TestGeneratedSchemasOfSourcesAreUpToDate(t *testing.T) {
	t.Parallel()
	const file = "../kinds/sources.yaml"
	kinds := map[string]any{}
	for kind, fields := range gitops.KindFields {
		all := schemaOf(reflect.TypeFor[gitops.Settings]())
		properties, _ := all["properties"].(map[string]any)
		own := map[string]any{}
		for _, field := range fields {
			own[field] = properties[field]
		}
		kinds[tko.SourceAPIVersion+" "+kind] = map[string]any{"properties": own}
	}
	text, err := yaml.Marshal(kinds)
	if err != nil {
		t.Fatal(err)
	}
	want := "# The manifests of GitOps sources. Each is the schema of spec, generated from the settings\n# of package gitops.\n" + string(text)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not up to date (%v): rewrite it with -update", file, err)
	}
}

// schemaOf returns the schema of a type of settings.
func schemaOf(typ reflect.Type) map[string]any {
	switch typ.Kind() { //nolint:exhaustive // settings have no others
	case reflect.Pointer:
		return schemaOf(typ.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(typ.Elem())}
	case reflect.Map:
		if typ.Elem().Kind() == reflect.Interface {
			return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		}
		return map[string]any{"type": "object", "additionalProperties": schemaOf(typ.Elem())}
	}
	properties := map[string]any{}
	var required []any
	for field := range typ.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case !field.IsExported() || name == "-":
		case name == "file" || name == "token" || name == "password" || name == "caFile" && typ == reflect.TypeFor[gitops.GitSettings](): // refused: see confine
		case field.Anonymous:
			embedded, _ := schemaOf(field.Type)["properties"].(map[string]any)
			maps.Copy(properties, embedded)
		default:
			properties[name] = schemaOf(field.Type)
			if !strings.HasPrefix(options, "omit") {
				required = append(required, name)
			}
		}
	}
	schema := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}
