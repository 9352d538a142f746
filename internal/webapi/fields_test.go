package webapi

import (
	"encoding/json"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/entitytest"
)

// Each field of each entity is in its row of the HTTP API, or there is a reason.
func TestRowsHaveEachFieldOfTheirEntity(t *testing.T) {
	t.Parallel()
	f := entitytest.NewForm(t, "the row of the HTTP API", entitytest.Exceptions{Reasons: map[string]string{
		"Template.Package":          "the response with one entity has it",
		"Site.Package":              "the response with one entity has it",
		"Deployment.Package":        "the response with one entity has it",
		"Rollout.Package":           "the response with one entity has it",
		"Stamp.UID":                 "it only tells an entity from another one that had its ID",
		"Stamp.Position":            "the response has one for all rows",
		"Stamp.Who":                 "the response with one entity has it",
		"Stamp.Why":                 "the response with one entity has it",
		"Stamp.Steps":               "only reads of one revision return them",
		"Stamp.LeftOut":             "rows of this API are never cut",
		"Stamp.Conditions.Attached": "only the transport that wrote it reads it",
	}, Most: 11})
	text := func(row any) string {
		data, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	entitytest.Compare(f, func(e tko.Template) string { return text(templateRow(e)) })
	entitytest.Compare(f, func(e tko.Site) string { return text(siteRow(e)) })
	entitytest.Compare(f, func(e tko.Deployment) string { return text(deploymentRow(e)) })
	entitytest.Compare(f, func(e tko.Plugin) string { return text(pluginRow(e)) })
	entitytest.Compare(f, func(e tko.Rollout) string { return text(rolloutRow(e)) })
}
