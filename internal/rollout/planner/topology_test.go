package planner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// topology is the package of a topology that places templates at the sites of a region.
func topology(region string, templates ...string) string {
	var text, entries strings.Builder
	for i, id := range templates {
		fmt.Fprintf(&text, "{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: t%d}, spec: {templateId: \"%s\"}}\n---\n", i, id)
		fmt.Fprintf(&entries, "{template: t%d, sites: [all], merge: [{apiVersion: v1, kind: ConfigMap, name: common}]},", i)
	}
	return text.String() + "{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: all}, spec: {select: {metadata: {region: " + region + "}}}}\n---\n" +
		"{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: p}, spec: {templates: [" + entries.String() + "]}}\n---\n" + config("common", `x: "1"`)
}

func (w *world) regions() {
	w.site("north-1", map[string]string{"region": "north"})
	w.site("north-2", map[string]string{"region": "north"})
	w.site("south-1", map[string]string{"region": "south"})
}

func kinds(all map[tko.DeploymentID]plan.Draft) map[string]int {
	counts := map[string]int{}
	for _, d := range all {
		counts[fmt.Sprintf("%s %s", d.Kind, d.Site)]++
	}
	return counts
}

func TestChildrenThatComeStayAndGoAreInThePlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.regions()
	w.template("cu:v1", config("cu", `x: "1"`))
	w.template("du:v1", config("du", `x: "1"`))
	w.template("ran:v1", topology("north", "cu:v1"))
	w.template("ran:v2", topology("north", "cu:v1", "du:v1"))
	w.template("net:v1", strings.Replace(topology("south", "ran:v1"), "merge: [{apiVersion: v1, kind: ConfigMap, name: common}]", "", 1))
	id := w.deploy("ran:v1", "", "")
	before := len(w.all())
	w.upgrade("ran:v1", "ran:v2")
	all := w.plan()
	got := kinds(all)
	if got["Change "] != 1 || got["Create north-1"] != 1 || got["Create north-2"] != 1 || len(all) != 3 {
		t.Errorf("%v", got)
	}
	if len(w.all()) != before {
		t.Error("planning created deployments")
	}
	for _, d := range all {
		if d.Kind == plan.Create && (d.Root != id || d.Parent != id || d.AfterState.Deployment.Template != "du:v1" || !d.AfterState.Deployment.Prepared || !strings.Contains(after(t, d), "common")) {
			t.Errorf("%+v\n%s", d.Row, after(t, d))
		}
	}
	again := w.plan()
	for id, d := range all {
		if again[id].After != d.After {
			t.Errorf("planned again, %s %s is another one", d.Kind, id)
		}
	}
}

func TestNestedTopologiesArePlannedToTheLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.regions()
	w.template("cu:v1", config("cu", `x: "1"`))
	w.template("ran", topology("north", "cu:v1"))
	w.template("net:v1", topology("south"))
	w.template("net:v2", topology("south", "ran"))
	id := w.deploy("net:v1", "", "")
	w.upgrade("net:v1", "net:v2")
	all := w.plan()
	if got := kinds(all); got["Change "] != 1 || got["Create south-1"] != 1 || got["Create north-1"] != 1 || got["Create north-2"] != 1 {
		t.Errorf("%v", got)
	}
	for _, d := range all {
		if d.Site == "north-1" && (d.Root != id || all[d.Parent].Site != "south-1") {
			t.Errorf("%+v has the parent %q", d.Row, d.Parent)
		}
	}
}

func TestDeletionPlansDescendants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.regions()
	w.template("cu:v1", config("cu", `x: "1"`))
	w.template("ran", topology("north", "cu:v1"))
	w.template("net", topology("south", "ran"))
	id := w.deploy("net", "", "")
	w.spec.Edits = []spec.Edit{
		{Merge: read(t, config("log", `x: "1"`)), Select: tko.DeploymentSelect{Templates: []string{"cu:*"}}},
		{Delete: true, Select: tko.DeploymentSelect{Templates: []string{"net"}}},
	}
	all := w.plan()
	if len(all) != 4 || len(all) != len(w.all()) {
		t.Errorf("%d of %d deployments are planned", len(all), len(w.all()))
	}
	for _, d := range all {
		if d.Kind != plan.Delete || d.Deployment != id && d.Root != id {
			t.Errorf("%+v", d.Row)
		}
	}
}

func TestSiteIsNotProvisionedByAPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("t:v1", config("a", `x: "1"`))
	w.template("t:v2", config("a", `x: "1"`)+"{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: new}, spec: {provisionIfNotFound: true}}")
	w.deploy("t:v1", "", "")
	w.upgrade("t:v1", "t:v2")
	d := w.one()
	if d.Kind != plan.Change || len(d.Unknown) != 1 || !strings.Contains(d.Unknown[0], "a site is provisioned") {
		t.Errorf("%s %q, unknown %q", d.Kind, d.Findings, d.Unknown)
	}
	for site := range w.Sites(w.ctx, tko.SiteSelect{}, tko.ListOptions{}) {
		t.Errorf("there is a site %q", site.ID)
	}
}

func (w *world) all() []tko.DeploymentID {
	var ids []tko.DeploymentID
	for d, err := range w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		ids = append(ids, d.ID)
	}
	return ids
}
