package kinds_test

import (
	"slices"
	"strings"
	"testing"
)

// Each kind and field that the schemas have is described, and no other.
func TestAllFieldsAreDescribed(t *testing.T) {
	t.Parallel()
	specs, descriptions := read(t)
	for kind, spec := range specs {
		want := []string{""}
		walk(spec, "", func(path string, _ map[string]any, _ bool) { want = append(want, path) })
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
