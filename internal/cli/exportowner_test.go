package cli

import (
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

func TestExportNamesTheOwnersThatAreLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		owner *tkopb.Owner
		want  string
	}{
		"the caller":                     {&tkopb.Owner{Subject: "cert:ann", Groups: []string{"noc"}}, ""},
		"another subject":                {&tkopb.Owner{Subject: "cert:bob", Groups: []string{"noc"}}, "cert:bob"},
		"a group":                        {&tkopb.Owner{Groups: []string{"noc"}}, "group noc"},
		"none":                           {&tkopb.Owner{}, ""},
		"none, of an earlier version":    {&tkopb.Owner{Subject: tko.OwnerUnowned}, ""},
		"a source of the server's files": {&tkopb.Owner{Subject: "gitops:fleet"}, "gitops:fleet"},
	} {
		if got := otherOwner(test.owner, "cert:ann"); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
