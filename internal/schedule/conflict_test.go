package schedule_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
)

// object is a resource with a value.
func object(kind, namespace, name, value string) krm.Resource {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	r := krm.Resource{"apiVersion": "v1", "kind": kind, "metadata": metadata}
	if kind == "ConfigMap" {
		r["data"] = map[string]any{"key": value}
	} else if value != "" {
		metadata["labels"] = map[string]any{"value": value}
	}
	return r
}

func withPackage(d tko.Deployment, pkg ...krm.Resource) tko.Deployment {
	d.Package = pkg
	return d
}

// message is the message of the Scheduled condition of a deployment.
func (r *records) message(t *testing.T, id tko.DeploymentID) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.deployments[id].Stamp.Conditions {
		if c.Type == tko.ConditionScheduled {
			return c.Message
		}
	}
	t.Errorf("deployment %q has no Scheduled condition", id)
	return ""
}

// checkBoth checks that the conflict of a and b is on both, and names the other.
func checkBoth(t *testing.T, r *records) {
	t.Helper()
	said := r.said()
	for id, other := range map[tko.DeploymentID]string{"a": `deployment "b"`, "b": `deployment "a"`} {
		if got := said[string(id)]; got != "False Conflict @1" {
			t.Errorf("deployment %q says %q", id, got)
		}
		if got := r.message(t, id); !strings.Contains(got, other) || !strings.Contains(got, `ConfigMap "core/upf"`) {
			t.Errorf("deployment %q says %q", id, got)
		}
	}
	if got := said["lagos"]; got != "False Conflict @1" {
		t.Errorf("the site says %q", got)
	}
	if got := said["c"]; !strings.HasPrefix(got, "True ") {
		t.Errorf("a deployment without a conflict says %q", got)
	}
}

func TestTwoDeploymentsWithTheSameObjectAreAConflictInGit(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "lagos.git")
	namespace := object("Namespace", "", "core", "")
	r := world([]tko.Site{site("lagos", repository(repo))}, []tko.Deployment{
		withPackage(deployment("a", "lagos"), namespace, object("ConfigMap", "core", "upf", "1")),
		withPackage(deployment("c", "lagos"), namespace, object("ConfigMap", "core", "smf", "1")),
	})
	s := schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir()})
	files := func() []string {
		return strings.Fields(gittest.Run(t, repo, "ls-tree", "-r", "--name-only", "main", "lagos/a", "lagos/b", "lagos/c"))
	}
	s.Reconcile(t.Context(), "lagos")
	shared := []string{"lagos/a/00-cluster/Namespace.v1_core.yaml", "lagos/a/10-namespaced/core/ConfigMap.v1_upf.yaml", "lagos/c/10-namespaced/core/ConfigMap.v1_smf.yaml"}
	if diff := cmp.Diff(shared, files()); diff != "" {
		t.Errorf("a namespace that both name alike is there once: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"lagos": "True Scheduled @1", "a": "True Scheduled @1", "c": "True Scheduled @1"}, r.said()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	r.deployments["b"] = withPackage(deployment("b", "lagos"), object("ConfigMap", "core", "upf", "2"))
	if got := s.Reconcile(t.Context(), "lagos"); got.Outcome != tko.WorkDone {
		t.Errorf("a change of records is needed, and it is tried again: %v", got)
	}
	checkBoth(t, r)
	if diff := cmp.Diff(shared, files()); diff != "" {
		t.Errorf("something of the two was applied, or removed: -want +got:\n%s", diff)
	}
	writes := r.writes
	if s.Reconcile(t.Context(), "lagos"); r.writes != writes {
		t.Error("looking again wrote again")
	}

	delete(r.deployments, "a")
	s.Reconcile(t.Context(), "lagos")
	want := []string{"lagos/b/10-namespaced/core/ConfigMap.v1_upf.yaml", "lagos/c/00-cluster/Namespace.v1_core.yaml", "lagos/c/10-namespaced/core/ConfigMap.v1_smf.yaml"}
	if diff := cmp.Diff(want, files()); diff != "" {
		t.Errorf("the conflict has ended: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"lagos": "True Scheduled @1", "b": "True Scheduled @1", "c": "True Scheduled @1"}, r.said()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A plugin gets all deployments of a site, whatever else is wrong there: it decides itself.
func TestPluginGetsAllDeploymentsAlsoWhenTwoConflictOrAnotherTargetFails(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		target krm.Resource
		value  string // of the second deployment's object
		fails  error  // of the plugin
		said   map[string]string
	}{
		"a conflict": {repository(filepath.Join(t.TempDir(), "lagos.git")), "2", nil, map[string]string{"lagos": "False Conflict @1", "a": "False Conflict @1", "b": "False Conflict @1", "c": "True Scheduled @1"}},
		// What the plugin failed to deliver isn't scheduled.
		"a conflict, and the plugin fails": {
			repository(filepath.Join(t.TempDir(), "lagos.git")), "2", errors.New("away"),
			map[string]string{"lagos": "False Conflict @1", "a": "False Conflict @1", "b": "False Conflict @1", "c": "False Failed @1"},
		},
		"the plugin fails":     {repository(filepath.Join(t.TempDir(), "lagos.git")), "1", errors.New("away"), map[string]string{"lagos": "False Failed @1", "a": "False Failed @1", "b": "False Failed @1", "c": "False Failed @1"}},
		"another target fails": {repository("ftp://x"), "1", nil, map[string]string{"lagos": "False Invalid @1", "a": "False Invalid @1", "b": "False Invalid @1", "c": "False Invalid @1"}},
		"all is well":          {repository(filepath.Join(t.TempDir(), "lagos.git")), "1", nil, map[string]string{"lagos": "True Scheduled @1", "a": "True Scheduled @1", "b": "True Scheduled @1", "c": "True Scheduled @1"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := world([]tko.Site{site("lagos", test.target, trigger("e"))}, []tko.Deployment{
				withPackage(deployment("a", "lagos"), object("ConfigMap", "core", "upf", "1")),
				withPackage(deployment("b", "lagos"), object("ConfigMap", "core", "upf", test.value)),
				withPackage(deployment("c", "lagos"), object("ConfigMap", "core", "smf", "1")),
			}, plugin("p", edge))
			run := &runner{err: map[string]error{"p": test.fails}}
			s := schedule.New(r, run, schedule.Options{GitCache: t.TempDir()})
			defer s.Close()
			s.Reconcile(t.Context(), "lagos")
			if diff := cmp.Diff([]string{"p e lagos [a b c]"}, run.runs); diff != "" {
				t.Errorf("the plugin: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(test.said, r.said()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for id, got := range r.saidOf(tko.ConditionHealthy) {
				if got != "Unknown HealthNotReported @1" {
					t.Errorf("the health of %s is %q, and no target reports any", id, got)
				}
			}
		})
	}
}

// claimed returns a context with the claim of the work of the site lagos, as the loop has.
func claimed(t *testing.T) context.Context {
	t.Helper()
	return tko.WithClaim(t.Context(), tko.WorkItem{Queue: tko.QueueSchedule, Key: "lagos", Claim: "c"})
}

// What is held is delivered as it was.
func TestPluginGetsHeldDeploymentsAtTheirLastDeliveredRevision(t *testing.T) {
	t.Parallel()
	r := world([]tko.Site{site("lagos", trigger("e"))}, []tko.Deployment{
		withPackage(deployment("a", "lagos"), object("ConfigMap", "core", "upf", "1")), deployment("b", "lagos"), deployment("c", "lagos"),
	}, plugin("p", edge))
	run := &runner{}
	s := schedule.New(r, run, schedule.Options{})
	defer s.Close()
	ctx := claimed(t)
	s.Reconcile(ctx, "lagos")
	states := len(r.saved)
	if s.Reconcile(ctx, "lagos"); len(r.saved) != states || states != 1 {
		t.Errorf("%d states were saved, %d of them by the first reconciliation", len(r.saved), states)
	}
	change := func(id tko.DeploymentID, to func(*tko.Deployment)) {
		d := r.deployments[id]
		to(&d)
		r.deployments[id] = d
	}
	r.former = map[int64]tko.Deployment{1: r.deployments["a"]}
	change("a", func(d *tko.Deployment) {
		d.Stamp.Revision, d.Metadata, d.Package = 2, map[string]string{tko.MetadataSuspend: "true"}, krm.Package{object("ConfigMap", "core", "upf", "2")}
	})
	change("b", func(d *tko.Deployment) { d.Prepared = false })
	change("c", func(d *tko.Deployment) { d.Stamp.Revision = 5 })
	r.deployments["new"] = func() tko.Deployment {
		d := deployment("new", "lagos")
		d.Metadata = map[string]string{tko.MetadataSuspend: "true"}
		return d
	}()
	for range 2 { // also after a is reported to wait
		s.Reconcile(ctx, "lagos")
		if got := run.runs[len(run.runs)-1]; got != "p e lagos [a b c]" {
			t.Errorf("the plugin got %s", got)
		}
		if got := run.got["a"][0]["data"].(map[string]any)["key"]; got != "1" {
			t.Errorf("it got the object of the suspended deployment with %v", got)
		}
	}
	if diff := cmp.Diff(map[string]string{"lagos": "True Scheduled @1", "a": "False Suspended @2", "b": "True Scheduled @1", "c": "True Scheduled @5", "new": "False Suspended @1"}, r.said()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	r.former = nil // its revision is no longer retained
	runs := len(run.runs)
	if s.Reconcile(ctx, "lagos"); len(run.runs) != runs || r.said()["lagos"] != "False Suspended @1" {
		t.Errorf("%d runs, %v", len(run.runs)-runs, r.said())
	}
}

// The file of an object that a held deployment shares stays in the repository when the
// deployment that has written it is deleted: a tool that pulls would remove the object.
func TestObjectOfAHeldSharerStaysWhenItsProviderIsDeleted(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "lagos.git")
	namespace := object("Namespace", "", "core", "")
	r := world([]tko.Site{site("lagos", repository(repo))}, []tko.Deployment{
		withPackage(deployment("a", "lagos"), namespace, object("ConfigMap", "core", "of-a", "1")),
		withPackage(deployment("b", "lagos"), namespace, object("ConfigMap", "core", "of-b", "1")),
	})
	s := schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir()})
	defer s.Close()
	ctx := claimed(t)
	check := func(why string, want ...string) {
		t.Helper()
		for range 2 { // the second reconciliation changes nothing
			s.Reconcile(ctx, "lagos")
			if diff := cmp.Diff(want, strings.Fields(gittest.Run(t, repo, "ls-tree", "-r", "--name-only", "main", "lagos/a", "lagos/b"))); diff != "" { //nolint:contextcheck // it uses that of the test
				t.Errorf("%s: -want +got:\n%s", why, diff)
			}
		}
	}
	of := func(id string, cluster bool) (files []string) {
		if cluster {
			files = append(files, "lagos/"+id+"/00-cluster/Namespace.v1_core.yaml")
		}
		return append(files, "lagos/"+id+"/10-namespaced/core/ConfigMap.v1_of-"+id+".yaml")
	}
	check("both", slices.Concat(of("a", true), of("b", false))...)
	b := r.deployments["b"]
	b.Prepared = false // it is prepared again, and held meanwhile
	r.deployments["b"] = b
	delete(r.deployments, "a")
	check("one is held, and the other one deleted", slices.Concat(of("a", true), of("b", false))...)
	b = r.deployments["b"]
	b.Prepared = true
	r.deployments["b"] = b
	check("it is applied", of("b", true)...)
}

// While something at a site is stopped, a plugin gets what was deleted or unapproved there, too.
func TestPluginGetsDeletedDeploymentsWhileOthersAreStopped(t *testing.T) {
	t.Parallel()
	r := world([]tko.Site{site("lagos", trigger("e"))}, []tko.Deployment{deployment("a", "lagos"), deployment("b", "lagos"), deployment("c", "lagos")}, plugin("p", edge))
	run := &runner{}
	s := schedule.New(r, run, schedule.Options{})
	defer s.Close()
	ctx := claimed(t)
	s.Reconcile(ctx, "lagos")
	r.former = map[int64]tko.Deployment{1: r.deployments["b"]}
	delete(r.deployments, "b")
	c := r.deployments["c"]
	c.Approved = false
	r.deployments["c"] = c
	r.stop = tko.SiteStop{Held: []tko.DeploymentID{"a"}, Reason: "stopped"}
	s.Reconcile(ctx, "lagos")
	if got := run.runs[len(run.runs)-1]; got != "p e lagos [a b c]" {
		t.Errorf("the plugin got %s", got)
	}
	if got := r.said()["c"]; got != "True Scheduled @1" {
		t.Errorf("c, which is still there, says %q", got)
	}
	runs := len(run.runs)
	r.former = nil
	if s.Reconcile(ctx, "lagos"); len(run.runs) != runs {
		t.Errorf("the plugin was run without b, and would remove it: %v", run.runs)
	}
	r.stop = tko.SiteStop{}
	s.Reconcile(ctx, "lagos")
	if got := run.runs[len(run.runs)-1]; got != "p e lagos [a]" {
		t.Errorf("after the stop the plugin got %s", got)
	}
}

// Equal objects are shared, and are removed with the last deployment that has them. One that
// wants another content waits for the others.
func TestEqualObjectsAreSharedAndChangeTogether(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "lagos.git")
	with := func(id tko.DeploymentID, value string) tko.Deployment {
		return withPackage(deployment(id, "lagos"), object("ConfigMap", "core", "logging", value), object("ConfigMap", "core", "of-"+string(id), value))
	}
	r := world([]tko.Site{site("lagos", repository(repo))}, []tko.Deployment{with("a", "1"), with("b", "1")})
	s := schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir()})
	defer s.Close()
	ctx := claimed(t)
	check := func(why string, files []string, said map[string]string) {
		t.Helper()
		s.Reconcile(ctx, "lagos")
		var got []string
		for file := range strings.FieldsSeq(gittest.Run(t, repo, "ls-tree", "-r", "--name-only", "main", "lagos/a", "lagos/b", "lagos/c")) { //nolint:contextcheck // it uses that of the test
			value := "?"
			for line := range strings.Lines(gittest.Run(t, repo, "show", "main:"+file)) {
				if _, after, ok := strings.Cut(line, "key: "); ok {
					value = strings.Trim(after, "\"'\n")
				}
			}
			name := strings.TrimSuffix(file[strings.LastIndex(file, "_")+1:], ".yaml")
			got = append(got, strings.Split(file, "/")[1]+":"+name+"="+value)
		}
		if diff := cmp.Diff(files, got); diff != "" {
			t.Errorf("%s: files: -want +got:\n%s", why, diff)
		}
		if diff := cmp.Diff(said, r.said()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", why, diff)
		}
		writes, saved := r.writes, len(r.saved)
		if s.Reconcile(ctx, "lagos"); r.writes != writes || len(r.saved) != saved {
			t.Errorf("%s: a second reconciliation wrote again", why)
		}
	}
	set := func(id tko.DeploymentID, revision int64, value string) {
		d := with(id, value)
		d.Stamp.Revision, d.Stamp.Conditions = revision, r.deployments[id].Stamp.Conditions
		r.deployments[id] = d
	}
	ok := "True Scheduled @"
	check("equal", []string{"a:logging=1", "a:of-a=1", "b:of-b=1"}, map[string]string{"lagos": ok + "1", "a": ok + "1", "b": ok + "1"})
	set("b", 2, "2")
	check("one wants another content", []string{"a:logging=1", "a:of-a=1", "b:of-b=1"}, map[string]string{"lagos": "False WaitsForSharers @1", "a": ok + "1", "b": "False WaitsForSharers @2"})
	if got := r.message(t, "b"); !strings.Contains(got, `ConfigMap "core/logging" is shared with deployment "a"`) {
		t.Errorf("it says %q", got)
	}
	set("a", 2, "3")
	check("both, and not the same", []string{"a:logging=1", "a:of-a=1", "b:of-b=1"}, map[string]string{"lagos": "False WaitsForSharers @1", "a": "False WaitsForSharers @2", "b": "False WaitsForSharers @2"})
	set("a", 3, "2")
	check("both the same", []string{"a:logging=2", "a:of-a=2", "b:of-b=2"}, map[string]string{"lagos": ok + "1", "a": ok + "3", "b": ok + "2"})
	set("b", 3, "1")
	check("one changes again", []string{"a:logging=2", "a:of-a=2", "b:of-b=2"}, map[string]string{"lagos": "False WaitsForSharers @1", "a": ok + "3", "b": "False WaitsForSharers @3"})
	r.deployments["c"] = with("c", "7")
	check("a third one was never equal", []string{"a:logging=2", "a:of-a=2", "b:of-b=2"}, map[string]string{"lagos": "False Conflict @1", "a": "False Conflict @3", "b": "False WaitsForSharers @3", "c": "False Conflict @1"})
	delete(r.deployments, "c")
	delete(r.deployments, "a")
	check("the other one is gone", []string{"b:logging=1", "b:of-b=1"}, map[string]string{"lagos": ok + "1", "b": ok + "3"})
}

func TestTwoDeploymentsWithTheSameObjectAreAConflictInKubernetes(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t, kube.Options{})
	text, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lagos"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	namespace := "conflict-" + strings.ToLower(filepath.Base(dir))
	cluster := krm.Resource{
		"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "c"},
		"spec": map[string]any{"kubeconfig": map[string]any{"file": "lagos"}, "namespace": namespace, "inventoryNamespace": namespace},
	}
	c.Kubectl(t, "create", "namespace", namespace)
	r := world([]tko.Site{site("lagos", cluster)}, []tko.Deployment{
		withPackage(deployment("a", "lagos"), object("ConfigMap", namespace, "upf", "1")),
		withPackage(deployment("c", "lagos"), object("ConfigMap", namespace, "smf", "1")),
	})
	s := schedule.New(r, &runner{}, schedule.Options{Kubernetes: clusters(kubernetes.Options{Kubeconfigs: dir, Interval: time.Hour})})
	defer s.Close()
	there := func() []string {
		list := strings.Fields(c.Kubectl(t, "get", "configmaps", "-n", namespace, "-l", kubernetes.LabelDeployment, "-o",
			`jsonpath={range .items[*]}{.metadata.name}={.data.key}{"\n"}{end}`))
		slices.Sort(list)
		return list
	}
	s.Reconcile(t.Context(), "lagos")
	if diff := cmp.Diff([]string{"smf=1", "upf=1"}, there()); diff != "" {
		t.Fatalf("-want +got:\n%s\n%v", diff, r.said())
	}
	// The second one names no namespace: it is the site's.
	r.deployments["b"] = withPackage(deployment("b", "lagos"), object("ConfigMap", "", "upf", "2"), object("ConfigMap", "", "nrf", "2"))
	s.Reconcile(t.Context(), "lagos")
	said := r.said()
	if said["a"] != "False Conflict @1" || said["b"] != "False Conflict @1" || said["lagos"] != "False Conflict @1" || said["c"] != "True Applied @1" {
		t.Errorf("%v", said)
	}
	if diff := cmp.Diff([]string{"smf=1", "upf=1"}, there()); diff != "" {
		t.Errorf("something of the two was applied, or removed: -want +got:\n%s", diff)
	}
	delete(r.deployments, "a")
	s.Reconcile(t.Context(), "lagos")
	if diff := cmp.Diff([]string{"nrf=2", "smf=1", "upf=2"}, there()); diff != "" {
		t.Errorf("the conflict has ended: -want +got:\n%s\n%v", diff, r.said())
	}
}
