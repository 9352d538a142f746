package kubename_test

import (
	"testing"

	"github.com/tko-orchestrator/tko/kubename"
)

// The IDs . and .. name folders in the paths of an API: no request could name such an
// entity.
func TestDotsAloneAreEscaped(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{".": "-002e", "..": "-002e-002e", "...": "...", "a.b": "a.b", ".a": ".a"} {
		for write, read := range map[*func(string) (string, error)]func(string) (string, error){
			new(kubename.Escape): kubename.Unescape, new(kubename.EscapeKeepingHyphens): kubename.UnescapeHyphens,
		} {
			name, err := (*write)(id)
			if err != nil || name != want {
				t.Errorf("the name of %q is %q, %v: want %q", id, name, err, want)
			}
			if back, err := read(name); err != nil || back != id {
				t.Errorf("%q is the name of %q, %v: want %q", name, back, err, id)
			}
		}
	}
	for _, id := range []string{"-002e", "-002e-002e"} {
		name, err := kubename.EscapeKeepingHyphens(id)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := kubename.UnescapeHyphens(name); err != nil || back != id {
			t.Errorf("%q has the name %q, which is that of %q, %v", id, name, back, err)
		}
	}
}
