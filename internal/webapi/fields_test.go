package webapi

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
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

// The dashboard's type of rows has each field of the rows of the HTTP API.
func TestTypeOfRowsInTheDashboardHasEachField(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../web/src/api.ts")
	if err != nil {
		t.Fatal(err)
	}
	declared := func(name string) []string {
		body := regexp.MustCompile(`(?s)interface ` + name + ` \{(.*?)\n?\}\n`).FindSubmatch(source)
		if body == nil {
			t.Fatalf("web/src/api.ts has no interface %s", name)
		}
		var names []string
		for _, found := range regexp.MustCompile(`(\w+)\??: `).FindAllSubmatch(body[1], -1) {
			names = append(names, string(found[1]))
		}
		return names
	}
	for name, rows := range map[string][]reflect.Type{
		"Row": {
			reflect.TypeFor[templateBody](), reflect.TypeFor[siteBody](), reflect.TypeFor[deploymentBody](), reflect.TypeFor[pluginBody](), reflect.TypeFor[rolloutBody](),
		},
		"Condition": {reflect.TypeFor[conditionBody]()},
	} {
		has := declared(name)
		for _, row := range rows {
			for _, field := range entitytest.Names(row) {
				if !slices.Contains(has, field) {
					t.Errorf("the interface %s in web/src/api.ts lacks %s of %s", name, field, row)
				}
			}
		}
	}
}
