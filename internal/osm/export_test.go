package osm

import "testing"

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
