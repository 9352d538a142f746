package kubename_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/kubename"
)

func TestHyphensStayWhereTheyAreNoEscapes(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"smf-v2": "smf-v2", "smf": "smf", "a/b-c": "a-002fb-c", "placement/2Zq8-2": "placement-002f2Zq8-2", "upgrade-20261122-1": "upgrade-20261122-1",
		"a-002fb": "a-002d002fb", "a-002": "a-002", "--": "--", "a-/": "a--002f", "a-": "a-", "a-0041": "a-0041", // A needs no escape
	} {
		name, err := kubename.EscapeKeepingHyphens(id)
		if err != nil || name != want {
			t.Errorf("the name of %q is %q, %v, want %q", id, name, err, want)
		}
	}
	for _, name := range []string{"smf-002dv2", "smf-v2"} {
		if id, err := kubename.UnescapeHyphens(name); err != nil || id != "smf-v2" {
			t.Errorf("%q is the name of %q, %v", name, id, err)
		}
	}
	if name, err := kubename.EscapeKeepingHyphens("a\u2026"); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("an ID that isn't ASCII has the name %q, %v", name, err)
	}
	for _, name := range []string{"", "a_b", "a/b"} {
		if id, err := kubename.UnescapeHyphens(name); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%q is the name of %q, %v", name, id, err)
		}
	}
}

func TestNamesWithHyphensReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[a-f0-9_./:-]{1,30}`).Draw(t, "id")
		for _, write := range []func(string) (string, error){kubename.Escape, kubename.EscapeKeepingHyphens} {
			name, err := write(id)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := kubename.UnescapeHyphens(name); err != nil || got != id {
				t.Fatalf("%q is written %q and read %q, %v", id, name, got, err)
			}
		}
	})
}
