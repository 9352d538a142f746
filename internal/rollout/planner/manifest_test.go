package planner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// declare is a rollout of manifests, each a line of JSON.
func declare(manifests ...string) string {
	return `{apiVersion: tko.nephio.org/v1alpha1, kind: Rollout, metadata: {name: r}, spec: {edits: [{manifests: [` + strings.Join(manifests, ",") + `]}]}}`
}

// put makes a deployment as a source does.
func (w *world) put(origin, template, site string, metadata map[string]string) tko.DeploymentID {
	w.t.Helper()
	r, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindDeployment, Origin: origin, Template: tko.TemplateID(template), Site: tko.SiteID(site), Metadata: metadata})
	if err != nil {
		w.t.Fatal(err)
	}
	id := tko.DeploymentID(r.ID)
	w.settle(id)
	return id
}

// A rollout of manifests moves, creates and deletes deployments, and its undo moves, deletes
// and creates them back, with their metadata.
func TestManifestsMoveCreateAndDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(3) // makes templates and sites
	moved := w.put("f/moved", "t:v1", "s00", map[string]string{"stays": "1", "goes": "1"})
	gone := w.put("f/gone", "t:v1", "s01", nil)
	before := w.content([]tko.DeploymentID{moved, gone})
	w.started("r", declare(
		fmt.Sprintf(`{name: moved, origin: f/moved, deploymentId: %q, templateId: "t:v2", siteId: s02, metadata: {stays: "1", new: "2"}, digest: d}`, moved),
		`{name: gone, origin: f/gone, absent: true, before: b}`, // found by its origin
		`{name: made, origin: f/made, templateId: "t:v2", siteId: s01, metadata: {new: "3"}, package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: own}}]}, digest: d}`,
	))
	made, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindDeployment, Origin: "f/made", DryRun: true})
	if err != nil || made.Created {
		t.Fatalf("the deployment isn't created with its origin: %+v, %v; %+v", made, err, w.status("r"))
	}
	d := w.deployment(moved)
	if d.Site != "s02" || d.Template != "t:v2" || d.Metadata["stays"] != "1" || d.Metadata["new"] != "2" || d.Metadata["goes"] != "" || w.version(moved) != "v2" {
		t.Errorf("the moved deployment is %+v", d)
	}
	if _, err := w.Deployment(w.ctx, gone, 0); err == nil {
		t.Error("the deployment that is absent exists")
	}
	if n := w.deployment(tko.DeploymentID(made.ID)); n.Site != "s01" || n.Metadata["new"] != "3" || len(n.Package) != 3 {
		t.Errorf("the created deployment is %+v", n)
	}
	w.settle(moved, tko.DeploymentID(made.ID))
	w.advance("r")
	if s := w.status("r"); s.State != "Done" {
		t.Fatalf("%+v", s)
	}
	w.do("r", "undo")
	for range 5 {
		w.advance("r")
		w.advance("r-undo")
		w.settle(moved, gone)
	}
	if s := w.status("r"); s.State != "Undone" {
		t.Fatalf("%+v %+v", s, w.status("r-undo"))
	}
	if got := w.content([]tko.DeploymentID{moved, gone}); got != before {
		t.Errorf("after the undo there is\n%s, want\n%s", got, before)
	}
	if d := w.deployment(moved); d.Metadata["goes"] != "1" || d.Metadata["new"] != "" {
		t.Errorf("after the undo the metadata is %v", d.Metadata)
	}
	if r, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindDeployment, Origin: "f/made", DryRun: true}); err != nil || !r.Created {
		t.Errorf("after the undo the created deployment exists: %v, %v", r, err)
	}
}

// A manifest whose site doesn't exist is invalid, and names it; equal ones are the same.
func TestManifestsThatAreInvalidBlockTheRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(1)
	same := w.put("f/same", "t:v1", "s00", nil)
	s := w.create("r", declare(
		fmt.Sprintf(`{name: same, origin: f/same, deploymentId: %q, templateId: "t:v1", siteId: s00}`, same),
		`{name: a, origin: f/a, templateId: "t:v1", siteId: nowhere}`, `{name: b, origin: f/b, templateId: "t:v9", siteId: s00}`,
	))
	if s.State != "Planned" || s.Kinds["Same"] != 1 || s.Kinds["Invalid"] != 2 {
		t.Fatalf("%+v", s)
	}
	var findings []string
	for _, e := range s.Examples {
		findings = append(findings, e.Findings...)
	}
	found := strings.Join(findings, "\n")
	if !strings.Contains(found, "nowhere") || !strings.Contains(found, "t:v9") {
		t.Errorf("the findings are %q", found)
	}
	_, err := w.RegisterRollout(w.ctx, tko.Rollout{ID: "twice", Package: decode(t, declare(`{name: a, origin: o}`, `{name: b, origin: o}`))})
	if err == nil || !strings.Contains(err.Error(), "two manifests have the origin") {
		t.Errorf("two manifests of one origin: %v", err)
	}
}

// The status of a rollout says why a changed deployment isn't healthy.
func TestStatusSaysWhyAnAppliedDeploymentIsNotHealthy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(8)
	w.started("r", strings.ReplaceAll(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", "waves: [{name: all}]"))
	for _, id := range ids {
		if err := w.SetConditions(w.ctx, tko.KindDeployment, string(id), []tko.Condition{
			{Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: "Refused", Message: "the cluster refuses it", ObservedRevision: w.deployment(id).Stamp.Revision},
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.advance("r")
	s := w.status("r")
	if len(s.Examples) != 5 || s.Examples[0].Progress != "Applied" || s.Examples[0].Reason != "not scheduled: the cluster refuses it" {
		t.Errorf("the status shows %+v, want 5 deployments with the message of their condition", s.Examples)
	}
}
