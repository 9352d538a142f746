package upgrade

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// topology returns a topology with a Placement of one template at all sites.
func topology(update, template string) string {
	return `
apiVersion: TOPOLOGY
kind: Placement
metadata: {name: placement}
spec: {templates: [{template: upf, sites: [all]}], ` + update + `}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: upf}, spec: {templateId: "` + template + `"}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: all}, spec: {select: {metadata: {region: north}}}}
`
}

// workload returns a version of a network function. All versions have the same
// objects.
func workload(version string, more ...string) string {
	return strings.Join(append([]string{`
apiVersion: v1
kind: Namespace
metadata: {name: upf}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: upf, namespace: upf, labels: {version: ` + version + `}}
spec:
  selector: {matchLabels: {app: upf}}
  template: {metadata: {labels: {app: upf}}, spec: {containers: [{name: upf, image: "upf:` + version + `"}]}}
`}, more...), "---\n")
}

const (
	gated   = "{apiVersion: gate.plugin.nephio.org/v1, kind: Gate, metadata: {name: gate}}\n"
	manual  = "{apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, metadata: {name: deployment, annotations: {nephio.org/approve: Manual}}}\n"
	invalid = "{apiVersion: v1, kind: Service, metadata: {name: upf, namespace: upf}, spec: {type: ExternalName, ports: [{name: n3}]}}\n" // the port has no number
)

func (w *world) awaitTemplates(id tko.DeploymentID, want map[string]int) {
	w.t.Helper()
	w.await(fmt.Sprintf("children of %v", want), func() bool { return maps.Equal(w.templates(id), want) })
}

func TestUpgradeReplacesChildInOneStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("workload/upf:v1", workload("v1"))
	w.template("workload/upf:v2", workload("v2"))
	id := w.deploy(topology("update: Apply", "workload/upf:v1"))
	w.everywhere("v1")
	w.edit(id, use("upf", "workload/upf:v2"))
	w.everywhere("v2")
	w.awaitPlaced(id, "True UpToDate")
	if diff := cmp.Diff(map[string]int{"workload/upf:v2": sites}, w.templates(id)); diff != "" {
		t.Errorf("children by template: -want +got:\n%s", diff)
	}
	w.edit(id, use("upf", "workload/upf:v1"))
	w.everywhere("v1")
	w.awaitTemplates(id, map[string]int{"workload/upf:v1": sites})
	w.check("v1", "v2", "v1")
}

// The annotations are removed, as users did before placements were updated by
// themselves.
func TestUpgradeByPreparingAgainReplacesChildInOneStep(t *testing.T) {
	t.Parallel()
	for _, update := range []string{"update: Apply", "update: Once"} {
		t.Run(update, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.template("workload/upf:v1", workload("v1"))
			w.template("workload/upf:v2", workload("v2"))
			id := w.deploy(topology(update, "workload/upf:v1"))
			w.everywhere("v1")
			w.edit(id, again(use("upf", "workload/upf:v2")))
			w.everywhere("v2")
			w.awaitTemplates(id, map[string]int{"workload/upf:v2": sites})
			w.check("v1", "v2")
		})
	}
}

// again wraps an edit that also makes everything be prepared again.
func again(edit func(krm.Package) krm.Package) func(krm.Package) krm.Package {
	return func(p krm.Package) krm.Package {
		for _, r := range p {
			if r.IsPrepared() {
				r.SetAnnotation(krm.AnnotationPrepared, "")
			}
		}
		return edit(p)
	}
}

func TestEditOfPlacementEvaluatedOnceSaysThatItHasNoEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("workload/upf:v1", workload("v1"))
	w.template("workload/upf:v2", workload("v2"))
	id := w.deploy(topology("update: Once", "workload/upf:v1"))
	w.everywhere("v1")
	w.awaitPlaced(id, "Unknown EvaluatedOnce")
	w.edit(id, use("upf", "workload/upf:v2"))
	w.awaitPlaced(id, `False EditHasNoEffect: topology.nephio.org/v1alpha1 Placement "placement", or what it names, was changed after it was evaluated, and spec.update is Once`)
	w.edit(id, use("upf", "workload/upf:v1"))
	w.awaitPlaced(id, "Unknown EvaluatedOnce")
	w.edit(id, func(p krm.Package) krm.Package {
		p.Find(krm.Identity{GVK: krm.ParseGVK("topology.nephio.org/v1alpha1", "Placement"), Name: "placement"}).Set("Apply", "spec", "update")
		return use("upf", "workload/upf:v2")(p)
	})
	w.everywhere("v2")
	w.check("v1", "v2")
}

// The new child waits for a plugin, then for an approval. Meanwhile the old child
// stays, and the template is changed again.
func TestUpgradeWaitsUntilTheNewChildIsPreparedAndApproved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("workload/upf:v1", workload("v1", manual))
	w.template("workload/upf:v2", workload("v2", gated))
	w.template("workload/upf:v3", workload("v3", gated, manual))
	w.template("workload/upf:v4", workload("v4", invalid))
	id := w.deploy(topology("update: Apply", "workload/upf:v1"))
	approve := func(template string) {
		w.await("approved children of "+template, func() bool {
			ctx := tko.WithAuthor(t.Context(), tko.Author{Who: "bob@desk"})
			_, err := w.data.ApproveDeployments(ctx, tko.DeploymentSelect{Parent: id, Templates: []string{template}}, false)
			w.must(err)
			yes, n := true, 0
			for _, err := range w.data.Deployments(t.Context(), tko.DeploymentSelect{Parent: id, Templates: []string{template}, Approved: &yes}, tko.ListOptions{}) {
				w.must(err)
				n++
			}
			return n == sites
		})
	}
	w.awaitTemplates(id, map[string]int{"workload/upf:v1": sites})
	approve("workload/upf:v1") // not an edit, which would be lost
	w.everywhere("v1")

	w.edit(id, use("upf", "workload/upf:v2")) // while the gate is closed
	w.awaitTemplates(id, map[string]int{"workload/upf:v1": sites, "workload/upf:v2": sites})
	w.awaitPlaced(id, "False WithinBudget")
	w.edit(id, use("upf", "workload/upf:v4")) // never valid
	w.awaitTemplates(id, map[string]int{"workload/upf:v1": sites, "workload/upf:v4": sites})
	w.edit(id, use("upf", "workload/upf:v3"))
	w.awaitTemplates(id, map[string]int{"workload/upf:v1": sites, "workload/upf:v3": sites})
	w.gate.open()
	w.await("prepared children of v3", func() bool {
		n := 0
		for _, d := range w.children(id) {
			if d.Prepared && !d.Approved && d.Template == "workload/upf:v3" {
				n++
			}
		}
		return n == sites
	})
	w.everywhere("v1")
	approve("workload/upf:v3")
	w.everywhere("v3")
	w.awaitTemplates(id, map[string]int{"workload/upf:v3": sites})
	w.check("v1", "v3") // v2 and v4 were never scheduled
}

// The edit is reverted: the unfinished replacement is deleted, and replaces nothing.
func TestUpgradeTakenBackLeavesTheOldChildrenAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("workload/upf:v1", workload("v1"))
	w.template("workload/upf:v2", workload("v2", gated))
	id := w.deploy(topology("update: Apply", "workload/upf:v1"))
	w.everywhere("v1")
	before := w.children(id)
	w.edit(id, use("upf", "workload/upf:v2"))
	w.awaitTemplates(id, map[string]int{"workload/upf:v1": sites, "workload/upf:v2": sites})
	w.edit(id, use("upf", "workload/upf:v1"))
	w.awaitTemplates(id, map[string]int{"workload/upf:v1": sites})
	w.gate.open()
	w.awaitPlaced(id, "True UpToDate")
	if diff := cmp.Diff(ids(before), ids(w.children(id))); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	w.check("v1")
}

// Preparers end at random moments, and others take over.
func TestUpgradeSurvivesPreparersThatEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gate.open()
	want := []string{"v1"}
	w.template("workload/upf:v1", workload("v1"))
	id := w.deploy(topology("update: Apply", "workload/upf:v1"))
	w.everywhere("v1")
	for n := 2; n < 6; n++ {
		version := fmt.Sprintf("v%d", n)
		want = append(want, version)
		w.template("workload/upf:"+version, workload(version, gated))
		w.edit(id, use("upf", "workload/upf:"+version))
		for range 5 {
			time.Sleep(rand.N(20 * time.Millisecond)) // the moment is arbitrary
			w.prepare()
			w.startPreparer()
		}
		w.everywhere(version)
		w.awaitTemplates(id, map[string]int{"workload/upf:" + version: sites})
	}
	w.check(want...)
}

func TestRenamesInPlacementReplaceChildrenInOneStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("workload/upf:v1", workload("v1"))
	w.template("workload/upf:v2", workload("v2"))
	id := w.deploy(topology("update: Apply", "workload/upf:v1"))
	w.everywhere("v1")
	rename := func(template, placement, version string) {
		before := w.children(id)
		w.edit(id, func(p krm.Package) krm.Package {
			for _, r := range p {
				switch r.GVK().Kind {
				case "Template":
					r.Set(template, "metadata", "name")
					r.Set("workload/upf:"+version, "spec", "templateId")
				case "Placement":
					r.Set(placement, "metadata", "name")
					r.Set([]any{map[string]any{"template": template, "sites": []any{"all"}}}, "spec", "templates")
				}
			}
			return p
		})
		w.await("other children, and as many", func() bool {
			after := w.children(id)
			return len(after) == sites && cmp.Diff(ids(before), ids(after)) != "" && after[0].ID > before[len(before)-1].ID
		})
		w.everywhere(version)
		w.awaitPlaced(id, "True UpToDate")
	}
	rename("upf-function", "placement", "v1")
	rename("upf-other", "placement", "v2")
	rename("upf-other", "everywhere", "v2")
	rename("upf", "placement", "v1")
	w.check("v1", "v2", "v1")
}

// A site moves from one entry of the Placement to the other.
func TestSiteThatChangesItsEntryIsUpgradedInOneStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("workload/upf:v1", workload("v1"))
	w.template("workload/upf:v2", workload("v2"))
	w.template("workload/smf:v1", "{apiVersion: v1, kind: ConfigMap, metadata: {name: smf}}")
	ring := func(i int, ring string) {
		site, err := w.data.Site(t.Context(), siteID(i), 0)
		w.must(err)
		site.Metadata = map[string]string{"region": "north", "ring": ring}
		w.must(errOnly(w.data.RegisterSite(t.Context(), site)))
	}
	for i := range sites {
		ring(i, "stable")
	}
	id := w.deploy(`
apiVersion: TOPOLOGY
kind: Placement
metadata: {name: placement}
spec:
  templates: [{template: old, sites: [stable]}, {template: new, sites: [canary]}, {template: smf, sites: [stable, canary]}]
  update: Apply
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: old}, spec: {templateId: "workload/upf:v1"}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: new}, spec: {templateId: "workload/upf:v2"}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: smf}, spec: {templateId: "workload/smf:v1"}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: stable}, spec: {select: {metadata: {ring: stable}}}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: canary}, spec: {select: {metadata: {ring: canary}}}}
`)
	w.everywhere("v1")
	for i := range sites {
		ring(i, "canary")
	}
	w.everywhere("v2")
	w.awaitTemplates(id, map[string]int{"workload/upf:v2": sites, "workload/smf:v1": sites})
	w.check("v1", "v2")
}

// The child is a topology: its children are replaced site by site.
func TestUpgradeOfNestedTopologyReplacesItsChildrenInOneStep(t *testing.T) {
	t.Parallel()
	for _, update := range []string{"update: Apply", "update: Once"} {
		t.Run(update, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.template("workload/upf:v1", workload("v1"))
			w.template("workload/upf:v2", workload("v2", gated))
			w.template("topology/inner:v1", topology(update, "workload/upf:v1"))
			w.template("topology/inner:v2", topology(update, "workload/upf:v2"))
			outer := `
apiVersion: TOPOLOGY
kind: Placement
metadata: {name: placement}
spec: {templates: [{template: inner, sites: [first]}], update: Apply}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: inner}, spec: {templateId: "topology/inner:v1"}}
---
{apiVersion: TOPOLOGY, kind: Site, metadata: {name: first}, spec: {siteId: north/edge-0}}
`
			id := w.deploy(outer)
			w.everywhere("v1")
			inner := func() tko.Deployment {
				children := w.children(id)
				if len(children) != 1 {
					return tko.Deployment{}
				}
				return children[0]
			}
			w.edit(id, use("inner", "topology/inner:v2"))
			w.await("the new topology, with both versions below it", func() bool {
				d := inner()
				return d.Template == "topology/inner:v2" && maps.Equal(w.templates(d.ID), map[string]int{"workload/upf:v1": sites, "workload/upf:v2": sites})
			})
			w.everywhere("v1")
			w.gate.open()
			w.everywhere("v2")
			w.awaitTemplates(inner().ID, map[string]int{"workload/upf:v2": sites})
			w.edit(id, use("inner", "topology/inner:v1")) // back to the first version
			w.everywhere("v1")
			w.await("the old versions below the old topology", func() bool {
				d := inner()
				return d.Template == "topology/inner:v1" && maps.Equal(w.templates(d.ID), map[string]int{"workload/upf:v1": sites})
			})
			w.check("v1", "v2", "v1")
		})
	}
}

// A replacement doesn't count as a deletion, and Propose proposes it.
func TestReplacementIsProposedAndIsNotADeletionForTheBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("workload/upf:v1", workload("v1"))
	w.template("workload/upf:v2", workload("v2"))
	id := w.deploy(topology("update: Propose, budget: {create: 2, delete: 0}", "workload/upf:v1"))
	w.everywhere("v1")
	w.edit(id, use("upf", "workload/upf:v2"))
	w.awaitPlaced(id, `False WaitsForApproval: Placement "placement" would replace 5 deployments, each when the new one is prepared and approved: `)
	w.everywhere("v1")
	w.await("approved", func() bool {
		n, err := w.data.ApproveDeployment(t.Context(), id)
		w.must(err)
		return n == 1
	})
	w.everywhere("v2")
	w.awaitTemplates(id, map[string]int{"workload/upf:v2": sites})
	w.check("v1", "v2")
}

// A replacement that would discard a user's edit is proposed.
func TestReplacementOfAnEditedChildIsProposed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("workload/upf:v1", workload("v1"))
	w.template("workload/upf:v2", workload("v2"))
	id := w.deploy(topology("update: Apply", "workload/upf:v1"))
	w.everywhere("v1")
	edited := w.children(id)[0]
	w.edit(edited.ID, func(p krm.Package) krm.Package {
		p.Find(krm.Identity{GVK: krm.ParseGVK("apps/v1", "Deployment"), Name: "upf"}).Set("mine", "metadata", "labels", "owner")
		return p
	})
	w.edit(id, use("upf", "workload/upf:v2"))
	w.awaitPlaced(id, fmt.Sprintf(`False WaitsForApproval: Placement "placement" would replace 1 deployments, each when the new one is prepared and approved: %s (workload/upf:v1 at %s, last written by ann@laptop)`, edited.ID, edited.Site))
	w.awaitTemplates(id, map[string]int{"workload/upf:v1": 1, "workload/upf:v2": sites - 1})
	w.await("approved", func() bool {
		n, err := w.data.ApproveDeployment(t.Context(), id)
		w.must(err)
		return n == 1
	})
	w.everywhere("v2")
	w.awaitTemplates(id, map[string]int{"workload/upf:v2": sites})
	w.check("v1", "v2")
}
