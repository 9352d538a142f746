package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// kptfile returns a Kptfile with a number of functions.
func kptfile(functions int, annotation string) krm.Resource {
	r := homebody("kpt.dev/v1", "Kptfile", "upf", krm.AnnotationLocal)
	list := make([]any, functions)
	for i := range list {
		list[i] = map[string]any{"image": "example.com/fn:v1"}
	}
	r["pipeline"] = map[string]any{"mutators": list}
	r.SetAnnotation(krm.AnnotationPipeline, annotation)
	return r
}

// A blueprint of 14 resources, of which ten functions would make a network function, was reported
// as prepared, scheduled and healthy, with its one Namespace.
func TestBlueprintIsNotDeliveredSilently(t *testing.T) {
	t.Parallel()
	pkg := krm.Package{
		homebody("deployment.nephio.org/v1alpha1", "Deployment", "deployment", ""), kptfile(10, ""),
		homebody("v1", "Namespace", "upf", ""), homebody("workload.nephio.org/v1alpha1", "NFDeployment", "upf", ""),
	}
	for i := range 11 {
		pkg = append(pkg, homebody("req.nephio.org/v1alpha1", "Interface", fmt.Sprint("n", i), krm.AnnotationLocal))
	}
	trigger := krm.Resource{
		"apiVersion": git.GVK.Group + "/" + git.GVK.Version, "kind": git.GVK.Kind, "metadata": map[string]any{"name": "r"},
		"spec": map[string]any{"url": t.TempDir() + "/sites.git"},
	}
	target := pulledTarget{writer: git.New(git.Options{Cache: t.TempDir()})}
	d := tko.Deployment{ID: "d", Prepared: true, Approved: true, Package: pkg, Stamp: tko.Stamp{Revision: 3}}
	seen := snapshot{site: tko.Site{ID: "s", Package: krm.Package{trigger}}, deployments: []tko.Deployment{d}}
	p := decide(seen, builtins(builtin{place.Git, target}))
	r, err := target.Schedule(t.Context(), trigger, seen.site, p.deployments, nil)
	if err != nil {
		t.Fatal(err)
	}
	conditions := map[string]tko.Condition{}
	for _, c := range conclude(seen, p, []result{{report: r}}) {
		if c.id == "d" {
			conditions[c.condition.Type] = c.condition
		}
	}
	want := tko.Condition{
		Type: tko.ConditionDelivered, Status: tko.ConditionFalse, Reason: tko.ReasonDeliveredPartly, ObservedRevision: 3,
		Message: `delivered 1 of 14 resources; 10 pipeline functions not run: annotate the Kptfile "upf" with nephio.org/pipeline: Run, or with Skip if they have run elsewhere; ` +
			`not delivered: workload.nephio.org/v1alpha1 NFDeployment "upf" (its group stays here without nephio.org/deploy: "true"); 12 resources for local tools (config.kubernetes.io/local-config)`,
	}
	if diff := cmp.Diff(want, conditions[tko.ConditionDelivered]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if conditions[tko.ConditionScheduled].Status != tko.ConditionTrue {
		t.Errorf("Scheduled is %+v: the git target has what is for it", conditions[tko.ConditionScheduled])
	}

	// A failure of the site says nothing of what was delivered.
	if failed := conclude(seen, p, []result{{err: errors.New("down")}}); strings.Contains(fmt.Sprint(failed), tko.ConditionDelivered) {
		t.Errorf("a site that failed reports %v", failed)
	}
}

// The condition names what a user may have meant to deliver; what TKO, plugins and local tools
// use is no omission.
func TestDeliveryNamesWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	gits, clusters, osm := step{place: place.Git, target: fakeTarget{}}, step{place: place.Kubernetes, target: fakeTarget{}}, step{place: place.OSM, target: fakeTarget{}}
	plugin := step{plugin: tko.Plugin{Name: "p"}}
	prepared := homebody("workload.nephio.org/v1alpha1", "NFDeployment", "upf", krm.AnnotationPrepared)
	chart := homebody("workload.nephio.org/v1alpha1", "HelmChart", "chart", "")
	namespace := homebody("v1", "Namespace", "ns", "")
	rendered := kptfile(2, "")
	rendered["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Rendered", "status": "True"}}}
	filled := homebody("v1", "ConfigMap", "c", "")
	filled["data"] = map[string]any{"a": "PLACEHOLDER_A", "program": "s/PLACEHOLDER_B/\n1/"}
	list := krm.Resource{"apiVersion": "v1", "kind": "List", "items": []any{map[string]any(namespace), map[string]any(homebody("workload.nephio.org/v1alpha1", "NFDeployment", "inner", ""))}}
	for name, test := range map[string]struct {
		steps []step
		pkg   krm.Package
		want  string // "" if there is nothing to report
	}{
		"plain":                           {[]step{gits}, krm.Package{namespace}, ""},
		"for TKO and plugins":             {[]step{gits}, krm.Package{namespace, homebody("infra.nephio.org/v1", "WorkloadCluster", "w", ""), homebody("x.plugin.nephio.org/v1", "X", "x", ""), homebody("metadata.nephio.org/v1", "M", "m", ""), homebody("topology.nephio.org/v1alpha1", "Site", "s", "")}, ""},
		"used by a preparer":              {[]step{gits}, krm.Package{namespace, prepared}, ""},
		"deployed on request":             {[]step{gits}, krm.Package{homebody("workload.nephio.org/v1alpha1", "NFDeployment", "upf", krm.AnnotationDeploy)}, ""},
		"given to a plugin":               {[]step{gits, plugin}, krm.Package{namespace, homebody("workload.nephio.org/v1alpha1", "NFDeployment", "upf", "")}, ""},
		"a chart at a cluster":            {[]step{clusters}, krm.Package{chart}, ""},
		"a chart in files":                {[]step{gits}, krm.Package{namespace, chart}, "delivered 1 of 2 resources; not delivered: " + chart.Identity().String() + " (no target of the site installs charts)"},
		"an object at OSM":                {[]step{osm}, krm.Package{namespace}, `delivered 0 of 1 resource; not delivered: v1 Namespace "ns" (no target of the site takes resources of its kind)`},
		"an object at OSM and a cluster":  {[]step{osm, clusters}, krm.Package{namespace}, ""},
		"rendered by kpt":                 {[]step{gits}, krm.Package{namespace, rendered}, ""},
		"skipped":                         {[]step{gits}, krm.Package{namespace, kptfile(2, krm.PipelineSkip)}, ""},
		"to be run, and isn't":            {[]step{gits}, krm.Package{namespace, kptfile(1, krm.PipelineRun)}, "delivered 1 of 2 resources; 1 pipeline function not run"},
		"without functions":               {[]step{gits}, krm.Package{namespace, kptfile(0, "")}, ""},
		"a placeholder":                   {[]step{gits}, krm.Package{filled}, `delivered 1 of 1 resource; placeholders that nothing has filled, such as v1 ConfigMap "c" data.a`},
		"of a List":                       {[]step{gits}, krm.Package{list}, `delivered 1 of 2 resources; not delivered: workload.nephio.org/v1alpha1 NFDeployment "inner"`},
		"of a List for tools, and others": {[]step{gits}, krm.Package{namespace, func() krm.Resource { l := list.Clone(); l.SetAnnotation(krm.AnnotationLocal, "true"); return l }()}, ""},
	} {
		d := tko.Deployment{ID: "d", Package: test.pkg}
		got := (plan{steps: test.steps}).delivery(d)
		if (got.Status == "") != (test.want == "") || !strings.HasPrefix(got.Message, test.want) {
			t.Errorf("%s: %+v, want %q", name, got, test.want)
		}
	}
	was := []tko.Condition{{Type: tko.ConditionDelivered, Status: tko.ConditionFalse, Reason: tko.ReasonDeliveredPartly}}
	if got := (plan{steps: []step{gits}}).delivery(tko.Deployment{Package: krm.Package{namespace}, Stamp: tko.Stamp{Conditions: was}}); got != (report.Outcome{Status: tko.ConditionTrue, Reason: tko.ReasonDelivered, Message: "delivered 1 of 1 resource"}) {
		t.Errorf("when all is delivered, the condition is %+v", got)
	}
	many := krm.Package{}
	for i := range 100 {
		many = append(many, homebody("workload.nephio.org/v1alpha1", "NFDeployment", strings.Repeat("x", 5000)+strconv.Itoa(i), ""))
	}
	if got := (plan{steps: []step{gits}}).delivery(tko.Deployment{Package: many}); len(got.Message) > 3000 || !strings.Contains(got.Message, "and 95 more") {
		t.Errorf("the message has %d bytes: %.200s", len(got.Message), got.Message)
	}
}
