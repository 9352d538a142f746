package osm

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

// ArchiveOf is the archive of a package.
func ArchiveOf(t *testing.T, p Package) []byte {
	t.Helper()
	c, err := p.load()
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.pack(c, false)
	if err != nil {
		t.Fatal(err)
	}
	return a.Data
}

// Lost returns the element that a descriptor in YAML lacks of another one.
func Lost(t *testing.T, there, next string) string {
	t.Helper()
	read := func(text string) (tree map[string]any) {
		if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
			t.Fatal(err)
		}
		return tree
	}
	return lost(read(there), read(next))
}
