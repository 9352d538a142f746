package schedule

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

func homebody(apiVersion, kind, name, annotation string) krm.Resource {
	r := krm.Resource{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
	if annotation != "" {
		r.SetAnnotation(annotation, "true")
	}
	return r
}

// All targets and plugins get packages without resources for local tools, and with
// the items of Lists instead of the Lists.
func TestLocalResourcesAreHandedToNoTarget(t *testing.T) {
	t.Parallel()
	list := krm.Resource{"apiVersion": "v1", "kind": "List", "items": []any{map[string]any(homebody("v1", "Namespace", "of-list", ""))}}
	d := tko.Deployment{ID: "d", Prepared: true, Approved: true, Package: krm.Package{
		homebody("kpt.dev/v1", "Kptfile", "kpt", krm.AnnotationLocal),
		homebody("v1", "ConfigMap", "plain", ""),
		homebody("infra.nephio.org/v1alpha1", "WorkloadCluster", "for-plugins", ""),
		list,
	}}
	p := decide(snapshot{site: tko.Site{ID: "s"}, deployments: []tko.Deployment{d}}, nil)
	want := []string{"of-list", "plain", "for-plugins"}
	for what, pkg := range map[string]krm.Package{"targets": p.deployments[0].Package, "plugins": p.packages()["d"]} {
		var got []string
		for _, r := range pkg {
			got = append(got, r.Name())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}

// A resource of a nephio.org group goes to the site only with the annotation
// nephio.org/deploy.
func TestDeploymentWithoutResourcesForItsSiteIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trigger := krm.Resource{
		"apiVersion": git.GVK.Group + "/" + git.GVK.Version, "kind": git.GVK.Kind, "metadata": map[string]any{"name": "r"},
		"spec": map[string]any{"url": dir + "/sites.git"},
	}
	target := pulledTarget{writer: git.New(git.Options{Cache: t.TempDir()})}
	deployments := []tko.Deployment{
		{ID: "nothing", Package: krm.Package{homebody("deployment.nephio.org/v1alpha1", "Deployment", "deployment", "")}},
		{ID: "something", Package: krm.Package{homebody("workload.nephio.org/v1alpha1", "NFDeployment", "upf", krm.AnnotationDeploy)}},
	}
	r, err := target.Schedule(t.Context(), trigger, tko.Site{ID: "s"}, deployments, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report.State{Scheduled: report.Nothing()}, r.Deployments["nothing"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for i := range deployments {
		deployments[i].Prepared, deployments[i].Approved = true, true
	}
	seen := snapshot{site: tko.Site{ID: "s"}, deployments: deployments}
	written := conclude(seen, plan{steps: []step{{trigger: trigger, target: target}}, deployments: deployments}, []result{{report: r}})
	i := slices.IndexFunc(written, func(c conditionOf) bool { return c.id == "nothing" })
	if i < 0 || written[i].condition.Reason != report.ReasonNothing || written[i].condition.Status != tko.ConditionTrue {
		t.Errorf("the conditions are %+v", written)
	}
}
