package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/entitytest"
	"github.com/tko-orchestrator/tko/internal/field"
)

// Each field of each entity is in its row for programs, or there is a reason.
func TestRowsHaveEachFieldOfTheirEntity(t *testing.T) {
	t.Parallel()
	f := entitytest.NewForm(t, "the row for programs", entitytest.Exceptions{Reasons: map[string]string{
		"Template.Package":          "get prints it",
		"Site.Package":              "get prints it",
		"Deployment.Package":        "get prints it",
		"Rollout.Package":           "get prints it",
		"Template.DeploymentCount":  "the row has the IDs",
		"Site.DeploymentCount":      "the row has the IDs",
		"Stamp.UID":                 "it only tells an entity from another one that had its ID",
		"Stamp.Position":            "events and history have it",
		"Stamp.Steps":               "explain prints them",
		"Stamp.LeftOut":             "a notice names them",
		"Stamp.Conditions.Attached": "only the transport that wrote it reads it",
	}, Most: 11})
	entitytest.Compare(f, templateView.row)
	entitytest.Compare(f, siteView.row)
	entitytest.Compare(f, deploymentView.row)
	entitytest.Compare(f, pluginView.row)
	entitytest.Compare(f, rolloutView.row)
}

// The table in docs/tko.md names the fields of the rows of each kind, and no others.
func TestFieldsOfRowsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/tko.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin, tko.KindRollout} {
		row := regexp.MustCompile(`\n\| ` + string(kind) + `s \| (.*) \|\n`).FindSubmatch(page)
		if row == nil {
			t.Errorf("docs/tko.md has no row with the fields of %ss", kind)
			continue
		}
		text := regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(string(row[1]), "")
		var got []string
		for _, name := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(text, -1) {
			got = append(got, name[1])
		}
		var want []string
		for _, f := range field.Of(kind) {
			if f.Row != "package" {
				want = append(want, f.Row)
			}
		}
		if kind == tko.KindSite || kind == tko.KindDeployment {
			want = append(want, "suspended")
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("docs/tko.md has the fields %v of %ss, want %v", got, kind, want)
		}
	}
}
