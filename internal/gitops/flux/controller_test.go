package flux_test

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/gitops/flux"
	"github.com/tko-orchestrator/tko/internal/gitops/fluxtest"
)

// A push becomes a revision, and that what is in TKO: made, changed, removed.
// Everything that people look at says so.
func TestFollow(t *testing.T) {
	w := newWorld(t, flux.Options{})
	repository, source := fluxtest.NewRepository(t), w.source("GitRepository", "fleet")
	w.gitOps("fleet", source)
	w.becomes("fleet", readyMessage, "GitRepository "+w.namespace+"/fleet is not there")
	w.Create(t, source)
	w.Fail(t, source, "no route to host")
	w.becomes("fleet", readyMessage, "GitRepository "+w.namespace+"/fleet has no artifact yet: no route to host")
	if got := w.field("fleet", readyReason); got != "ArtifactFailed" {
		t.Errorf("reason %q", got)
	}

	repository.Commit(map[string]string{"a.yaml": template("a", "1"), "b.yaml": template("b", "1")})
	first := w.Publish(t, source, repository)
	w.Kubectl(t, "-n", w.namespace, "wait", "--for=condition=Ready", "--timeout=3m", "gitops/fleet")
	w.becomes("fleet", ".status.lastAppliedRevision", first.Revision)
	if a, b := w.value("a"), w.value("b"); a != "1" || b != "1" {
		t.Fatalf("a is %q, b is %q", a, b)
	}
	repository.Commit(map[string]string{"a.yaml": template("a", "2"), "b.yaml": ""})
	second := w.Publish(t, source, repository)
	w.becomes("fleet", ".status.lastAppliedRevision", second.Revision)
	if a, b := w.value("a"), w.value("b"); a != "2" || b != "" {
		t.Errorf("a is %q, b is %q", a, b)
	}
	for path, want := range map[string]string{
		readyStatus: "True", readyReason: "ReconciliationSucceeded", ".status.observedGeneration": "1", ".status.lastAttemptedRevision": second.Revision,
		".status.inventory.entries[*].name": "a", ".status.inventory.entries[*].kind": "template", ".status.conditions[*].type": "Ready",
		".status.history[*].digest": second.Digest + " " + first.Digest, ".status.history[0].lastReconciledStatus": "ReconciliationSucceeded",
		".metadata.finalizers[*]": flux.Finalizer,
	} {
		w.becomes("fleet", path, want)
	}
	columns := w.Kubectl(t, "-n", w.namespace, "get", "gitops")
	for _, want := range []string{"SOURCE", "READY", "STATUS", "REVISION", "AGE", "fleet", "True", "applied revision " + second.Revision} {
		if !strings.Contains(columns, want) {
			t.Errorf("kubectl get prints no %q:\n%s", want, columns)
		}
	}
	w.eventually("there are events", func() bool {
		return strings.Contains(w.Kubectl(t, "-n", w.namespace, "get", "events", "--field-selector=involvedObject.kind=GitOps,involvedObject.name=fleet,reason=ReconciliationSucceeded,type=Normal"), second.Revision)
	})

	// Fetching fails from now on: what was published still counts.
	w.Fail(t, source, "no route to host")
	w.Kubectl(t, "-n", w.namespace, "annotate", "gitops/fleet", flux.AnnotationRequested+"=now")
	w.becomes("fleet", ".status.lastHandledReconcileAt", "now")
	if got := w.field("fleet", readyStatus); got != "True" {
		t.Errorf("Ready is %q although the artifact is good", got)
	}
}
