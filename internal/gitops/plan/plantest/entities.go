// Package plantest counts the changes of plans, and lists the entities of a data
// controller, for tests of what sources write. Start reading at [Entities].
package plantest

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
)

// A Lister lists entities of all kinds that sources have.
type Lister interface {
	plan.Lister
	Plugins(ctx context.Context, s tko.PluginSelect, o tko.ListOptions) iter.Seq2[tko.Plugin, error]
}

// Entities returns a line for each entity, by kind: its ID, revision and author. Deployments
// have names in place of their IDs, which are random.
func Entities(t testing.TB, l Lister, name func(tko.Deployment) string) []string {
	t.Helper()
	found := []string{}
	add := func(kind tko.Kind, id string, stamp tko.Stamp, err error) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, fmt.Sprintf("%s %s %d %s", kind, id, stamp.Revision, stamp.Who))
	}
	for p, err := range l.Plugins(t.Context(), tko.PluginSelect{}, tko.ListOptions{}) {
		add(tko.KindPlugin, p.ID(), p.Stamp, err)
	}
	for one, err := range l.Templates(t.Context(), tko.TemplateSelect{}, tko.ListOptions{}) {
		add(tko.KindTemplate, string(one.ID), one.Stamp, err)
	}
	for s, err := range l.Sites(t.Context(), tko.SiteSelect{}, tko.ListOptions{}) {
		add(tko.KindSite, string(s.ID), s.Stamp, err)
	}
	for d, err := range l.Deployments(t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
		add(tko.KindDeployment, name(d), d.Stamp, err)
	}
	return found
}

// Changes returns the number of actions of a plan, including held ones.
func Changes(p *plan.Plan) int { return len(p.Actions) + len(p.Held) }
