package kubernetes_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func same[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: -want +got:\n%s", what, diff)
	}
}

func TestObjectsAreAppliedUpdatedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	plain := annotated(configMap("plain", "1"), "nephio.org/prepared", "true")
	a, b := deployment("a", plain, configMap("second", "1"), secret("s", "x")), deployment("b", configMap("other", "1"))

	r := w.reconcile(a, b)
	same(t, "first apply", map[tko.DeploymentID]string{"a": "True Applied", "b": "True Applied"}, said(r))
	same(t, "health", report.Outcome{Status: "True", Reason: "Healthy", Message: "3 objects are healthy"}, r.Deployments["a"].Healthy)
	same(t, "health of the site", report.Outcome{Status: "True", Reason: "Healthy", Message: "all 2 deployments are healthy"}, r.Site.Healthy)
	same(t, "what is there", []string{"other", "plain", "second"}, w.there("ConfigMap"))
	same(t, "inventory", []string{"a ConfigMap plain", "a ConfigMap second", "a Secret s", "b ConfigMap other"}, w.inventory())
	got := w.must("ConfigMap", "plain")
	if got.Annotation("nephio.org/prepared") != "" || got.Text("metadata", "labels", kubernetes.LabelDeployment) != "a" {
		t.Errorf("metadata: %v", got["metadata"])
	}

	w.gate.writes.Store(0)
	w.reconcile(a, b)
	if n := w.gate.writes.Load(); n > 0 {
		t.Errorf("%d writes though nothing changed: %v", n, w.gate.paths)
	}
	spread := map[time.Duration]bool{}
	for range 10 {
		again := w.reconcile(a, b).Requeue
		spread[again] = true
		if again < 9*time.Minute || again > 11*time.Minute {
			t.Errorf("a healthy site is reconciled again after %s", again)
		}
	}
	if len(spread) < 5 {
		t.Errorf("the times of the next reconciliations are not spread: %v", spread)
	}

	before := w.must("ConfigMap", "other").Text("metadata", "resourceVersion")
	a = deployment("a", configMap("plain", "2"), secret("s", "x"))
	r = w.reconcile(a, b)
	same(t, "changed", "2", w.must("ConfigMap", "plain").Text("data", "key"))
	same(t, "after a removal", []string{"other", "plain"}, w.there("ConfigMap"))
	same(t, "what didn't change", before, w.must("ConfigMap", "other").Text("metadata", "resourceVersion"))
	same(t, "inventory", []string{"a ConfigMap plain", "a Secret s", "b ConfigMap other"}, w.inventory())
	same(t, "removed deployments", nil, r.Removed)

	r = w.reconcile(b)
	same(t, "removed deployments", []tko.DeploymentID{"a"}, r.Removed)
	same(t, "after a deployment went", []string{"other"}, w.there("ConfigMap"))
	same(t, "secrets", []string{}, w.there("Secret"))
	same(t, "inventory", []string{"b ConfigMap other"}, w.inventory())
}

func TestObjectsOfHeldDeploymentStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.reconcile(deployment("a", configMap("x", "1")), deployment("b", configMap("y", "1")))
	r, err := w.target.Schedule(t.Context(), w.cluster, w.site, nil, []tko.DeploymentID{"a"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "what is there", []string{"x"}, w.there("ConfigMap"))
	same(t, "kept", []tko.DeploymentID{"a"}, r.Kept)
	same(t, "removed", []tko.DeploymentID{"b"}, r.Removed)
}

func TestObjectBelongsToOneDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	shared := resource("v1", "Namespace", w.ns+"-ran")
	a, b := deployment("a", shared, configMap("x", "1")), deployment("b", shared, configMap("x", "2"), configMap("y", "1"))
	r, err := w.schedule(t.Context(), a, b)
	same(t, "two deployments", map[tko.DeploymentID]string{"a": "True Applied", "b": "False Invalid"}, said(r))
	if err == nil || !strings.Contains(r.Deployments["b"].Scheduled.Message, `is also in deployment "a"`) {
		t.Errorf("%v: %s", err, r.Deployments["b"].Scheduled.Message)
	}
	same(t, "the first has it", "1", w.must("ConfigMap", "x").Text("data", "key"))
	same(t, "the rest is there", []string{"x", "y"}, w.there("ConfigMap"))

	// The object moves to the other deployment without being deleted.
	uid := w.must("ConfigMap", "x").Text("metadata", "uid")
	w.reconcile(b)
	same(t, "the second has it now", "2", w.must("ConfigMap", "x").Text("data", "key"))
	same(t, "the same object", uid, w.must("ConfigMap", "x").Text("metadata", "uid"))
	same(t, "inventory", []string{"b ConfigMap x", "b ConfigMap y", "b Namespace " + w.ns + "-ran"}, w.inventory())

	// Another site in the same cluster.
	there := w.site
	w.site.ID += "-other"
	r, err = w.schedule(t.Context(), deployment("c", configMap("x", "3"), configMap("z", "1")))
	if err == nil || !strings.Contains(r.Deployments["c"].Scheduled.Message, `belongs to deployment "b" of site`) {
		t.Errorf("%v: %s", err, r.Deployments["c"].Scheduled.Message)
	}
	same(t, "the first site has it", "2", w.must("ConfigMap", "x").Text("data", "key"))
	same(t, "each its own", []string{"x", "y", "z"}, w.there("ConfigMap"))
	w.reconcile()
	same(t, "what is left", []string{"x", "y"}, w.there("ConfigMap"))
	w.site = there
	w.reconcile()
	same(t, "what is left", []string{}, w.there("ConfigMap"))
}

// The new site may be reconciled before the old one has released the deployment. Then
// it is retried soon.
func TestDeploymentMovesBetweenSitesOfOneCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	d := deployment("a", configMap("x", "1"))
	w.reconcile(d)
	from := w.site
	w.site.ID += "-other"
	r, err := w.schedule(t.Context(), d)
	same(t, "said", "False Failed", said(r)["a"])
	if err == nil || errors.Is(err, tko.ErrInvalid) || r.Requeue != 0 || !strings.Contains(err.Error(), "still belongs to site \""+string(from.ID)) {
		t.Errorf("it is not retried soon: %v, after %s", err, r.Requeue)
	}
	to := w.site
	w.site = from
	same(t, "let go", []tko.DeploymentID{"a"}, w.reconcile().Removed)
	w.site = to
	same(t, "said", "True Applied", said(w.reconcile(d))["a"])
	same(t, "what is there", []string{"x"}, w.there("ConfigMap"))
}

func TestObjectStaysUntilItsReplacementIsApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.reconcile(deployment("a", configMap("old", "1")), deployment("b", configMap("other", "1")))
	if _, err := w.schedule(t.Context(), deployment("a", configMap("Bad_Name", "1"))); err == nil {
		t.Error("no error")
	}
	same(t, "what is there", []string{"old"}, w.there("ConfigMap"))
	w.reconcile(deployment("a", configMap("new", "1")))
	same(t, "what is there", []string{"new"}, w.there("ConfigMap"))
	same(t, "inventory", []string{"a ConfigMap new"}, w.inventory())
}

func TestObjectsOfOtherOwnersAreNotRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.create(configMap("theirs", "1"))
	r, err := w.schedule(t.Context(), deployment("a", configMap("theirs", "2"), configMap("ours", "1")))
	same(t, "refused", map[tko.DeploymentID]string{"a": "False Invalid"}, said(r))
	if err == nil || !strings.Contains(r.Deployments["a"].Scheduled.Message, kubernetes.AnnotationAdopt) {
		t.Errorf("%v: %s", err, r.Deployments["a"].Scheduled.Message)
	}
	same(t, "it is as it was", "1", w.must("ConfigMap", "theirs").Text("data", "key"))
	w.reconcile()
	if w.get("ConfigMap", "theirs") == nil {
		t.Error("an object of another owner was removed")
	}
	w.reconcile(deployment("a", annotated(configMap("theirs", "2"), kubernetes.AnnotationAdopt, "true")))
	same(t, "adopted", "2", w.must("ConfigMap", "theirs").Text("data", "key"))
}

func TestPruneNeverRetainsObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.reconcile(deployment("a", annotated(configMap("data", "1"), kubernetes.AnnotationPrune, "Never"), configMap("rest", "1")))
	r := w.reconcile()
	same(t, "what is there", []string{"data"}, w.there("ConfigMap"))
	same(t, "inventory", []string{}, w.inventory())
	same(t, "removed", []tko.DeploymentID{"a"}, r.Removed)
}

func TestRemovalBeyondBudgetNeedsApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	var pkg krm.Package
	for i := range 30 {
		pkg = append(pkg, configMap(fmt.Sprintf("c%02d", i), "1"))
	}
	w.reconcile(deployment("a", pkg...))
	w.reconcile(deployment("a", pkg[:10]...))
	if n := len(w.there("ConfigMap")); n != 10 {
		t.Fatalf("%d objects exist after the removal of 20 of 30, which is within the budget", n)
	}
	w.reconcile(deployment("a", pkg...))
	r := w.reconcile(deployment("b", configMap("new", "1")))
	same(t, "said", []string{"False", "WaitsForApproval"}, []string{r.Site.Scheduled.Status, r.Site.Scheduled.Reason})
	same(t, "what is there", 31, len(w.there("ConfigMap")))
	same(t, "removed", nil, r.Removed)
	text := r.Site.Scheduled.Message
	if !strings.Contains(text, "30 of 30 objects would be removed") || !strings.Contains(text, "ConfigMap \""+w.ns+"/c29\"") {
		t.Error(text)
	}
	_, digest, _ := strings.Cut(text, `spec.prune.approve: "`)
	digest, _, _ = strings.Cut(digest, `"`)

	// The approval is for these removals only.
	w.set(digest, "prune", "approve")
	r = w.reconcile()
	same(t, "more than was approved", "WaitsForApproval", r.Site.Scheduled.Reason)
	r = w.reconcile(deployment("b", configMap("new", "1")))
	same(t, "what is there", []string{"new"}, w.there("ConfigMap"))
	same(t, "removed", []tko.DeploymentID{"a"}, r.Removed)
	same(t, "said", "", r.Site.Scheduled.Status)
}

func TestBudgetIgnoresObjectsAddedAtTheSameTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	several := func(name string, n int) (all krm.Package) {
		for i := range n {
			all = append(all, configMap(fmt.Sprintf("%s%02d", name, i), "1"))
		}
		return all
	}
	w.reconcile(deployment("a", several("old", 30)...))
	r := w.reconcile(deployment("a", several("new", 40)...))
	same(t, "said", "WaitsForApproval", r.Site.Scheduled.Reason)
	same(t, "what is there", 70, len(w.there("ConfigMap")))
	if text := r.Site.Scheduled.Message; !strings.Contains(text, "30 of 30 objects would be removed") {
		t.Error(text)
	}
	r = w.reconcile(deployment("a", several("new", 41)...))
	same(t, "still", "WaitsForApproval", r.Site.Scheduled.Reason)
	r = w.reconcile(deployment("a", append(several("new", 40), several("old", 30)...)...))
	same(t, "nothing is to go but one", "", r.Site.Scheduled.Reason)

	// The budget also ignores objects that an earlier reconciliation could not apply
	// completely.
	r, err := w.schedule(t.Context(), deployment("a", append(several("newer", 100), configMap("Bad_Name", "1"))...))
	same(t, "said", "False Invalid", said(r)["a"])
	if err == nil {
		t.Error("no error")
	}
	r = w.reconcile(deployment("a", several("newer", 100)...))
	same(t, "said", "WaitsForApproval", r.Site.Scheduled.Reason)
	if text := r.Site.Scheduled.Message; !strings.Contains(text, "70 of 70 objects would be removed") {
		t.Error(text)
	}
}

func TestApprovalCoversLaterStepsOfRemoval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	var pkg krm.Package
	for i := range 60 {
		r := configMap(fmt.Sprintf("c%02d", i), "1")
		if i < 30 {
			r.SetAnnotation(kubernetes.AnnotationOrder, "-1")
		}
		if i == 59 {
			r.Set([]any{"example.com/wait"}, "metadata", "finalizers")
		}
		pkg = append(pkg, r)
	}
	w.reconcile(deployment("a", pkg...))
	_, digest, _ := strings.Cut(w.reconcile().Site.Scheduled.Message, `spec.prune.approve: "`)
	w.set(strings.TrimSuffix(digest, `"`+digest[strings.Index(digest, `"`)+1:]), "prune", "approve")
	r := w.reconcile()
	same(t, "one waits, and the earlier step with it", 31, len(w.there("ConfigMap")))
	same(t, "said", "Removing", r.Site.Scheduled.Reason)
	w.patch("ConfigMap", "c59", `{"metadata": {"finalizers": null}}`)
	r = w.reconcile()
	same(t, "what is there", []string{}, w.there("ConfigMap"))
	same(t, "removed", []tko.DeploymentID{"a"}, r.Removed)
}

func definition(group string) krm.Resource {
	const kind, plural = "Thing", "things"
	r := resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", plural+"."+group)
	r["spec"] = map[string]any{
		"group": group, "scope": "Namespaced", "names": map[string]any{"kind": kind, "plural": plural, "singular": strings.ToLower(kind)},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}}}},
	}
	return r
}

func TestDefinitionsAreAppliedFirstAndRemovedLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	group := w.ns + ".example.com"
	thing := resource(group+"/v1", "Thing", "one")
	thing["spec"] = map[string]any{"a": "b"}
	crd := definition(group)
	late := w.ns + "-late"
	inLate := configMap("in-late", "1")
	inLate.Set(late, "metadata", "namespace")
	// The first deployment needs a definition and a namespace of the second one.
	a, b := deployment("a", thing, inLate), deployment("b", configMap("x", "1"), resource("v1", "Namespace", late), crd)
	r := w.reconcile(a, b)
	same(t, "said", map[tko.DeploymentID]string{"a": "True Applied", "b": "True Applied"}, said(r))
	same(t, "inventory", []string{"a ConfigMap in-late", "a Thing one", "b ConfigMap x", "b CustomResourceDefinition things." + group, "b Namespace " + late}, w.inventory())

	// The definition is removed after the objects that need it.
	r = w.reconcile(a)
	same(t, "said", "Removing", r.Site.Scheduled.Reason)
	if text := r.Site.Scheduled.Message; !strings.Contains(text, "stays as long as there are objects of its kind") || !strings.Contains(text, `stays as long as deployment "a" has objects in it`) {
		t.Error(text)
	}
	w.must("CustomResourceDefinition", "things."+group)
	if w.must("Namespace", late).Text("metadata", "deletionTimestamp") != "" {
		t.Error("the namespace was removed with the object of another deployment")
	}
	eventually.True(t, "the definition to go", func() bool {
		w.reconcile()
		return w.get("CustomResourceDefinition", "things."+group) == nil
	})
	if w.must("Namespace", late).Text("metadata", "deletionTimestamp") == "" {
		t.Error("the namespace was not removed")
	}
}

func TestObjectOfUnknownKindIsRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	group := w.ns + ".example.com"
	d := deployment("a", resource(group+"/v1", "Thing", "one"), configMap("x", "1"))
	r, err := w.schedule(t.Context(), d)
	same(t, "said", map[tko.DeploymentID]string{"a": "False Failed"}, said(r))
	if err == nil || !strings.Contains(err.Error(), "is of a kind that the cluster does not have") {
		t.Error(err)
	}
	same(t, "it is tried again with the back-off of failures", 0, r.Requeue)
	same(t, "the rest is there", []string{"x"}, w.there("ConfigMap"))
	w.create(definition(group))
	eventually.True(t, "the kind", func() bool {
		r, err = w.schedule(t.Context(), d)
		return err == nil
	})
	same(t, "said", map[tko.DeploymentID]string{"a": "True Applied"}, said(r))
}

func TestNextStepWaitsForHealthyObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	d := deployment("a", annotated(configMap("last", "1"), kubernetes.AnnotationOrder, "5"), workload(1))
	other := deployment("b", configMap("other", "1"))
	r := w.reconcile(d, other)
	same(t, "said", map[tko.DeploymentID]string{"a": "False Waiting", "b": "True Applied"}, said(r))
	same(t, "what is there", []string{"other"}, w.there("ConfigMap"))
	same(t, "health", "InProgress", r.Deployments["a"].Healthy.Reason)
	if r.Requeue > kubernetes.Soon {
		t.Errorf("the next reconciliation is after %s", r.Requeue)
	}
	w.patch("Deployment", "web", `{"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1, "conditions": [{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]}}`, "status")
	r = w.reconcile(d, other)
	same(t, "said", map[tko.DeploymentID]string{"a": "True Applied", "b": "True Applied"}, said(r))
	same(t, "what is there", []string{"last", "other"}, w.there("ConfigMap"))
	same(t, "health", "Healthy", r.Deployments["a"].Healthy.Reason)
	if r.Requeue < kubernetes.Soon {
		t.Errorf("the next reconciliation is after %s", r.Requeue)
	}
}

func TestUnhealthyObjectIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	d := deployment("a", workload(1), configMap("x", "1"))
	w.reconcile(d)
	w.patch("Deployment", "web", `{"status": {"observedGeneration": 1, "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "no room"}]}}`, "status")
	r := w.reconcile(d)
	same(t, "health", []string{"False", "Unhealthy"}, []string{r.Deployments["a"].Healthy.Status, r.Deployments["a"].Healthy.Reason})
	same(t, "health of the site", []string{"False", "Unhealthy"}, []string{r.Site.Healthy.Status, r.Site.Healthy.Reason})
	if !strings.Contains(r.Deployments["a"].Healthy.Message, `Deployment.apps "`+w.ns+`/web"`) {
		t.Error(r.Deployments["a"].Healthy.Message)
	}
}

func TestInvalidObjectIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	bad := configMap("Bad_Name", "1")
	r, err := w.schedule(t.Context(), deployment("a", bad, configMap("x", "1")), deployment("b", configMap("y", "1")))
	same(t, "said", map[tko.DeploymentID]string{"a": "False Invalid", "b": "True Applied"}, said(r))
	if err == nil || !strings.Contains(err.Error(), "Bad_Name") {
		t.Error(err)
	}
	if r.Requeue < time.Minute {
		t.Errorf("an invalid object is retried after %s", r.Requeue)
	}
	same(t, "the others are there", []string{"x", "y"}, w.there("ConfigMap"))
}

func TestInvalidObjectDoesNotDelayOthersInProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	r, err := w.schedule(t.Context(), deployment("a", configMap("x", "1"), workload(1)), deployment("b", configMap("x", "2")))
	same(t, "said", map[tko.DeploymentID]string{"a": "True Applied", "b": "False Invalid"}, said(r))
	same(t, "health", "InProgress", r.Deployments["a"].Healthy.Reason)
	if !errors.Is(err, tko.ErrInvalid) || r.Requeue != kubernetes.Soon {
		t.Errorf("the next reconciliation is after %s, want %s (%v)", r.Requeue, kubernetes.Soon, err)
	}
}

// Who approves must see what waits, whatever else fails at the site.
func TestApprovalIsAskedForWhileAnotherDeploymentIsInvalid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	var pkg krm.Package
	for i := range 30 {
		pkg = append(pkg, configMap(fmt.Sprintf("c%02d", i), "1"))
	}
	r := w.reconcile(deployment("a", pkg...))
	same(t, "nothing waits", "True NothingToApprove", r.Removals.Status+" "+r.Removals.Reason)
	if !r.SiteReceipt.Of(tko.ConditionScheduled, 0) || !r.Receipts["a"].Of(tko.ConditionScheduled, 0) || !r.Receipts["a"].Of(tko.ConditionHealthy, 0) || r.Receipts["a"].Of(tko.ConditionScheduled, 1) {
		t.Errorf("the receipts are %+v, %+v", r.SiteReceipt, r.Receipts)
	}
	r, err := w.schedule(t.Context(), deployment("b", configMap("Bad_Name", "1")))
	if err == nil || r.Removals.Status != tko.ConditionFalse || r.Removals.Reason != "WaitsForApproval" || !strings.Contains(r.Removals.Message, `spec.prune.approve: "`) {
		t.Errorf("%v, %+v", err, r.Removals)
	}
	if r.Receipts["b"].Delivered || r.SiteReceipt.Delivered {
		t.Errorf("what is invalid has a receipt: %+v, %+v", r.Receipts["b"], r.SiteReceipt)
	}
	same(t, "what is there", 30, len(w.there("ConfigMap")))
}

// What was approved goes on while other removals wait.
func TestApprovedRemovalsGoOnWhileOthersWaitForAnApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	several := func(name string) (all krm.Package) {
		for i := range map[string]int{"a": 40, "b": 30}[name] {
			r := configMap(fmt.Sprintf("%s%02d", name, i), "1")
			if name == "a" && i < 15 {
				r.SetAnnotation(kubernetes.AnnotationOrder, "-1")
			}
			if name == "a" && i == 39 {
				r.Set([]any{"example.com/wait"}, "metadata", "finalizers")
			}
			all = append(all, r)
		}
		return all
	}
	w.reconcile(deployment("a", several("a")...), deployment("b", several("b")...))
	_, digest, _ := strings.Cut(w.reconcile(deployment("b", several("b")...)).Site.Scheduled.Message, `spec.prune.approve: "`)
	digest, _, _ = strings.Cut(digest, `"`)
	w.set(digest, "prune", "approve")
	r := w.reconcile(deployment("b", several("b")...))
	same(t, "the earlier step waits for one", "Removing", r.Site.Scheduled.Reason)
	same(t, "what is there", 30+16, len(w.there("ConfigMap")))
	r = w.reconcile()
	same(t, "the removals of b wait", "WaitsForApproval", r.Removals.Reason)
	w.patch("ConfigMap", "a39", `{"metadata": {"finalizers": null}}`)
	r = w.reconcile()
	same(t, "still", "WaitsForApproval", r.Removals.Reason)
	same(t, "a was approved, and is gone", 30, len(w.there("ConfigMap")))
}

// Equal objects of two deployments are there once, belong to the first one, and are removed
// with the last one.
func TestEqualObjectsAreRemovedWithTheLastDeploymentThatHasThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	shared := configMap("shared", "1")
	r := w.reconcile(deployment("a", shared, configMap("of-a", "1")), deployment("b", shared, configMap("of-b", "1")))
	same(t, "said", map[tko.DeploymentID]string{"a": "True Applied", "b": "True Applied"}, said(r))
	same(t, "what is there", []string{"of-a", "of-b", "shared"}, w.there("ConfigMap"))
	owner := func() string {
		return w.must("ConfigMap", "shared").Text("metadata", "labels", kubernetes.LabelDeployment)
	}
	same(t, "the owner", "a", owner())
	uid := w.must("ConfigMap", "shared").Text("metadata", "uid")
	r = w.reconcile(deployment("b", shared, configMap("of-b", "1")))
	same(t, "removed", []tko.DeploymentID{"a"}, r.Removed)
	same(t, "what is there", []string{"of-b", "shared"}, w.there("ConfigMap"))
	same(t, "the owner", "b", owner())
	same(t, "the object", uid, w.must("ConfigMap", "shared").Text("metadata", "uid"))
	w.reconcile()
	same(t, "what is there", []string{}, w.there("ConfigMap"))
}
