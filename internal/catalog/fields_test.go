package catalog_test

import (
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/entitytest"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Each field of each entity is read from its record, or there is a reason.
func TestEntitiesHaveEachFieldOfTheirRecord(t *testing.T) {
	t.Parallel()
	f := entitytest.NewForm(t, "the entity of a record", entitytest.Exceptions{Reasons: map[string]string{
		"Template.Package":   "each caller has one of its own, without what it may not read",
		"Site.Package":       "each caller has one of its own, without what it may not read",
		"Deployment.Package": "each caller has one of its own, without what it may not read",
		"Rollout.Package":    "each caller has one of its own, without what it may not read",
		"Stamp.LeftOut":      "only servers cut rows",
	}, Most: 5})
	entitytest.Compare(f, func(e tko.Template) tko.Template { return record.TemplateOf(entitytest.Record(e)) })
	entitytest.Compare(f, func(e tko.Site) tko.Site { return record.SiteOf(entitytest.Record(e)) })
	entitytest.Compare(f, func(e tko.Deployment) tko.Deployment { return record.DeploymentOf(entitytest.Record(e)) })
	entitytest.Compare(f, func(e tko.Rollout) tko.Rollout { return record.RolloutOf(entitytest.Record(e)) })
	entitytest.Compare(f, func(e tko.Plugin) tko.Plugin {
		p, err := entitytest.Record(e).AsPlugin()
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}
