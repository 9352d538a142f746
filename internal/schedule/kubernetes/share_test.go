package kubernetes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// Two sites with a namespace in common don't undo each other's changes. The last site
// removes the namespace.
func TestSitesDoNotFightOverSharedNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	name := w.ns + "-shared"
	namespace := resource("v1", "Namespace", name)
	sites := map[tko.DeploymentID]tko.Site{"a": w.site, "b": {ID: w.site.ID + "-b"}, "c": {ID: w.site.ID + "-c"}}
	reconcile := func(id tko.DeploymentID, pkg ...krm.Resource) (report.Outcome, int64) {
		t.Helper()
		now := time.Now().Unix() // API servers record changes with a resolution of seconds
		eventually.True(t, "the next second", func() bool { return time.Now().Unix() > now })
		w.site = sites[id]
		w.gate.writes.Store(0)
		var deployments []tko.Deployment
		if len(pkg) > 0 {
			deployments = append(deployments, deployment(id, pkg...))
		}
		r, err := w.schedule(t.Context(), deployments...)
		v := r.Deployments[id].Scheduled
		if (err != nil) != (v.Reason == "Invalid") {
			t.Error(err)
		}
		return v, w.gate.writes.Load()
	}
	reconcile("a", namespace)
	reconcile("b", namespace)
	version := w.must("Namespace", name).Text("metadata", "resourceVersion")
	for range 2 {
		for _, id := range []tko.DeploymentID{"a", "b"} {
			if v, writes := reconcile(id, namespace); writes > 0 || v.Reason != "Applied" || v.Note != "" {
				t.Errorf("deployment %s: %d writes, %+v", id, writes, v)
			}
		}
	}
	same(t, "the namespace", version, w.must("Namespace", name).Text("metadata", "resourceVersion"))

	// A different content is reported, and doesn't change the other site's.
	other := with(namespace, "b", "metadata", "labels", "level")
	reconcile("b")
	for range 2 {
		if v, _ := reconcile("b", other); v.Reason != "Invalid" || !strings.Contains(v.Message, `is also in deployment "a" of site "`+string(sites["a"].ID)+`" in the same cluster, with another content: /metadata/labels/level is missing, should be "b"`) {
			t.Errorf("%+v", v)
		}
		if v, writes := reconcile("a", namespace); writes > 0 || v.Reason != "Applied" {
			t.Errorf("deployment a: %d writes, %+v", writes, v)
		}
	}

	reconcile("b", namespace)
	reconcile("a")
	if w.must("Namespace", name).Text("metadata", "deletionTimestamp") != "" {
		t.Error("the namespace was removed while the other site has it")
	}
	for _, id := range []tko.DeploymentID{"b", "c"} { // also a new one
		if v, _ := reconcile(id, namespace); v.Reason != "Applied" {
			t.Errorf("deployment %s: %+v", id, v)
		}
	}
	reconcile("b")
	if w.must("Namespace", name).Text("metadata", "deletionTimestamp") != "" {
		t.Error("the namespace was removed while the last site has it")
	}
	reconcile("c")
	if w.must("Namespace", name).Text("metadata", "deletionTimestamp") == "" {
		t.Error("the namespace was not removed with the last site")
	}
}
