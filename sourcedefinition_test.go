package tko_test

import (
	"testing"

	"github.com/tko-orchestrator/tko"
)

// A definition that is registered again changes nothing, however its JSON is written.
func TestOrderOfKeysIsNoDifferenceOfSources(t *testing.T) {
	t.Parallel()
	of := func(spec string) tko.SourceDefinition {
		return tko.SourceDefinition{Kind: tko.SourceKindGit, Name: "fleet", Spec: []byte(spec)}
	}
	for name, test := range map[string]struct {
		a, b string
		same bool
	}{
		"order":         {`{"git":{"url":"u","ref":"r"},"path":"p"}`, `{"path":"p","git":{"ref":"r","url":"u"}}`, true},
		"space":         {`{"path": "p"}`, `{"path":"p"}`, true},
		"value":         {`{"path":"p"}`, `{"path":"q"}`, false},
		"order of list": {`{"from":[1,2]}`, `{"from":[2,1]}`, false},
		"large numbers": {`{"n":9007199254740993}`, `{"n":9007199254740992}`, false},
		"no JSON":       {`{`, `{"path":"p"}`, false},
	} {
		if got := of(test.a).Same(of(test.b)); got != test.same {
			t.Errorf("%s: same is %t, want %t", name, got, test.same)
		}
	}
}
