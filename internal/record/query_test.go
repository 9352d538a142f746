package record_test

import (
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
)

// The past is selected by Matches, and the present by statements: no pattern matches what isn't there.
func TestNoPatternMatchesAMissingSiteOrTemplate(t *testing.T) {
	t.Parallel()
	all, err := tko.ParsePattern("**")
	if err != nil {
		t.Fatal(err)
	}
	bare := record.Record{Key: record.Key{Kind: tko.KindDeployment, ID: "d"}}
	placed := bare
	placed.Site, placed.Template = "s", "t"
	for name, query := range map[string]record.Query{"sites": {Sites: []tko.Pattern{all}}, "templates": {Templates: []tko.Pattern{all}}} {
		query.Kind, query.Scope = tko.KindDeployment, access.ScopeAll
		if query.Matches(bare) || !query.Matches(placed) {
			t.Errorf("%s by **: without %t, with %t, want false and true", name, query.Matches(bare), query.Matches(placed))
		}
	}
}
