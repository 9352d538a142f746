package kinds_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko/internal/kinds"
)

// Each kind and field that the schemas have is described, and no other.
func TestAllFieldsAreDescribed(t *testing.T) {
	t.Parallel()
	var specs, entities map[string]map[string]any
	var descriptions map[string]map[string]string
	for _, file := range []struct {
		data []byte
		to   any
	}{{kinds.Schemas, &specs}, {kinds.Entities, &entities}, {kinds.Descriptions, &descriptions}} {
		if err := yaml.UnmarshalStrict(file.data, file.to); err != nil {
			t.Fatal(err)
		}
	}
	maps.Copy(specs, entities)
	for kind, spec := range specs {
		want := append(paths(spec, ""), "")
		for _, path := range want {
			if text := descriptions[kind][path]; text == "" || !strings.HasSuffix(text, ".") {
				t.Errorf("%s %q is described as %q: add a sentence to descriptions.yaml", kind, path, text)
			}
		}
		for path := range descriptions[kind] {
			if !slices.Contains(want, path) {
				t.Errorf("%s has no field %q: remove it from descriptions.yaml", kind, path)
			}
		}
	}
	for kind := range descriptions {
		if specs[kind] == nil {
			t.Errorf("there is no kind %s: remove it from descriptions.yaml", kind)
		}
	}
}

// paths returns the paths of all fields of a schema.
func paths(schema map[string]any, prefix string) (all []string) {
	if items, ok := schema["items"].(map[string]any); ok {
		return paths(items, prefix)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, below := range properties {
		all = append(all, prefix+name)
		if within, ok := below.(map[string]any); ok {
			all = append(all, paths(within, prefix+name+".")...)
		}
	}
	return all
}
