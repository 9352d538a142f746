package nbi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReleaseValuesAreReadFromPythonText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]any{
		`{'config': {'replicaCount': '3'}, 'info': {'status': 'deployed', 'notes': "it's\n"}, 'version': 4}`: {"replicaCount": "3"},
		`{'config': {'a': [1, -2.5, True, False, None, {}], 'ü': 'x\xe9\u20ac\'"\\'}}`:                       {"a": []any{int64(1), -2.5, true, false, nil, map[string]any{}}, "ü": `xé€'"\`},
		`{'info': {'first_deployed': datetime.datetime(2026, 1, 2, 3, 4)}, 'config': {'a': 1}}`:              {"a": int64(1)},
		`{'config': None}`: nil,
		`{'config': {}}`:   {},
	} {
		got, known := releaseValues(text)
		if diff := cmp.Diff(want, got); diff != "" || !known {
			t.Errorf("%s: -want +got:\n%s", text, diff)
		}
	}
	for _, text := range []string{
		"", "{", "Done", "{'config': {'a': <object>}}", "{'config': {'a': 'b}}", "{'config': {}} more", "{'info': {}}", "{'config': 1}", "{'config': {1: 2}}",
		`{'config': {'a': '\`, `{'config': {'a': '\x1`, "{'config': {'a' 1}}", "{'config': [1 2]}", strings.Repeat("[", 1_000_000),
	} {
		if got, known := releaseValues(text); known {
			t.Errorf("%.40s: %v", text, got)
		}
	}
}

func FuzzReleaseValues(f *testing.F) {
	f.Add(`{'config': {'a': [1, -2.5, True, None], "b": 'x\xe9'}}`)
	f.Fuzz(func(_ *testing.T, text string) { releaseValues(text) })
}
