package plan_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
)

// A scoped world has a data controller that permits the source's owner deployments at some sites only.
type scoped struct{ *world }

func (s scoped) PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error) {
	if p.Kind == tko.KindDeployment && p.Site != "emea" {
		return tko.PutResult{}, tko.Errorf(tko.ErrDenied, "gitops:fleet may not create deployments at %q", p.Site)
	}
	return s.world.PutEntity(ctx, p)
}

// A deployment is checked at its site: the owner of a source may have rights there only.
func TestDeploymentsAreCheckedAtTheirSites(t *testing.T) {
	t.Parallel()
	for name, templates := range map[string][]tko.Put{
		"with a template that is there":        nil,
		"with a template of the same revision": {template("new", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, pruning())
			w.put(template("old", "1"))
			w.put(site("emea", ""))
			one := deployment("one", "1")
			one.Site, one.Template = "emea", "old"
			if templates != nil {
				one.Template = "new"
			}
			p, err := plan.Make(t.Context(), scoped{w}, w.of(append(templates, one)...), nil, w.policy)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(p.Actions); n != 1+len(templates) {
				t.Errorf("the plan has %d actions: %+v", n, p.Actions)
			}
		})
	}
}

// A deployment whose creation was begun, and whose manifest is gone, doesn't keep a source from
// its other changes if its owner may not ask for it: it stays in the inventory.
func TestUnknownCreationDoesNotBlockThePlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.items = []tko.SourceItem{{Kind: string(tko.KindDeployment), Name: "begun", Pending: true}}
	p, err := plan.Make(t.Context(), scoped{w}, w.of(template("t", "1")), w.items, w.policy)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Actions) != 1 || len(p.Messages) != 1 || !strings.Contains(p.Messages[0], `"begun" has no manifest any more`) {
		t.Errorf("actions %+v, messages %q", p.Actions, p.Messages)
	}
}
