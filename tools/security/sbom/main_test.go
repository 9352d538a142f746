package main

import (
	"cmp"
	"debug/buildinfo"
	"go/build"
	"os"
	"path/filepath"
	"testing"
)

// Each component of a bill of materials has a licence: here, those of this test.
func TestEachComponentHasALicence(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	b := bom("test", info, cmp.Or(os.Getenv("GOMODCACHE"), filepath.Join(build.Default.GOPATH, "pkg", "mod")))
	if len(*b.Components) < 2 {
		t.Fatalf("there are %d components", len(*b.Components))
	}
	if without := withoutLicence(b); len(without) > 0 {
		t.Errorf("components without a licence: %q", without)
	}
	if b := bom("test", info, t.TempDir()); len(withoutLicence(b)) == 0 {
		t.Error("an empty cache has licences")
	}
	for name, want := range map[string]string{"github.com/BurntSushi/toml": "github.com/!burnt!sushi/toml", "v1.2.0+incompatible": "v1.2.0+incompatible"} {
		if got := escaped(name); got != want {
			t.Errorf("%q is %q in the cache: want %q", name, got, want)
		}
	}
}
