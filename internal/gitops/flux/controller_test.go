package flux_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/flux"
	"github.com/tko-orchestrator/tko/internal/gitops/fluxtest"
)

// A push becomes a revision, whose manifests are created, changed and removed in TKO.
// The status, the printed columns and the events report it.
func TestGitOpsObjectFollowsItsSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	repository, source := fluxtest.NewRepository(t), w.source("GitRepository", "fleet")
	w.gitOps("fleet", source)
	w.becomes("fleet", readyMessage, "GitRepository "+w.namespace+"/fleet: not found")
	w.Create(t, source)
	w.Fail(t, source, "no route to host")
	w.becomes("fleet", readyMessage, "GitRepository "+w.namespace+"/fleet has no artifact yet: no route to host")
	if got := w.field("fleet", readyReason); got != "ArtifactFailed" {
		t.Errorf("the reason is %q, want ArtifactFailed", got)
	}

	repository.Commit(map[string]string{"a.yaml": template("a", "1"), "b.yaml": template("b", "1")})
	first := w.Publish(t, source, repository)
	w.Kubectl(t, "-n", w.namespace, "wait", "--for=condition=Ready", "--timeout=3m", "gitops/fleet")
	w.becomes("fleet", ".status.lastAppliedRevision", first.Revision)
	if a, b := w.value("a"), w.value("b"); a != "1" || b != "1" {
		t.Fatalf("a is %q, b is %q; want 1 and 1", a, b)
	}
	repository.Commit(map[string]string{"a.yaml": template("a", "2"), "b.yaml": ""})
	second := w.Publish(t, source, repository)
	w.becomes("fleet", ".status.lastAppliedRevision", second.Revision)
	if a, b := w.value("a"), w.value("b"); a != "2" || b != "" {
		t.Errorf("a is %q, b is %q; want 2 and none", a, b)
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
	w.eventually("an event names the revision", func() bool {
		return strings.Contains(w.Kubectl(t, "-n", w.namespace, "get", "events", "--field-selector=involvedObject.kind=GitOps,involvedObject.name=fleet,reason=ReconciliationSucceeded,type=Normal"), second.Revision)
	})

	// If Flux can't fetch from now on, the published artifact still counts.
	w.Fail(t, source, "no route to host")
	w.Kubectl(t, "-n", w.namespace, "annotate", "gitops/fleet", flux.AnnotationRequested+"=now")
	w.becomes("fleet", ".status.lastHandledReconcileAt", "now")
	if got := w.field("fleet", readyStatus); got != "True" {
		t.Errorf("Ready is %q although the artifact is valid, want True", got)
	}
}

// A broken source reports its error and doesn't affect a concurrent one. Once its
// artifact is valid, it is ready.
func TestBrokenArtifactAffectsNoOtherSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{Fetch: flux.FetchOptions{Tries: 2}})
	good, away, forged, wild := w.source("GitRepository", "good"), w.source("GitRepository", "away"), w.source("GitRepository", "forged"), w.source("GitRepository", "wild")
	repository := fluxtest.NewRepository(t)
	repository.Commit(map[string]string{"a.yaml": template("a", "1")})
	w.Break(away, http.StatusServiceUnavailable)
	w.Publish(t, away, fluxtest.NewRepositoryWith(t, map[string]string{"b.yaml": template("b", "1")}))
	a := w.Retain(forged, "main@sha1:0001", repository.Archive(repository.Head()))
	a.Digest = "sha256:" + strings.Repeat("0", 64)
	w.SetCondition(t, forged, a)
	w.Offer(t, wild, "main@sha1:0002", archive(t, member{name: "../../a.yaml", content: template("w", "1")}), nil)
	for _, source := range []fluxtest.Source{away, forged, wild} {
		w.gitOps(source.Name, source, "retryInterval: 1s")
		w.becomes(source.Name, readyStatus, "False")
		w.becomes(source.Name, readyReason, "ArtifactFailed")
	}
	w.gitOps("good", good)
	for _, value := range []string{"1", "2"} {
		repository.Commit(map[string]string{"a.yaml": template("a", value)})
		w.becomes("good", ".status.lastAppliedRevision", w.Publish(t, good, repository).Revision)
		if got := w.value("a"); got != value {
			t.Errorf("with broken sources next to it, a is %q, want %q", got, value)
		}
	}
	for name, want := range map[string]string{"away": "503", "forged": "but its source states", "wild": "leads out"} {
		if got := w.field(name, readyMessage); !strings.Contains(got, want) {
			t.Errorf("the message of %s is %q, want one that contains %q", name, got, want)
		}
	}
	w.becomes("forged", `.status.conditions[?(@.type=="Stalled")].status`, "True")
	w.Break(away, 0)
	w.Publish(t, forged, fluxtest.NewRepositoryWith(t, map[string]string{"c.yaml": template("c", "1")}))
	for _, name := range []string{"away", "forged"} {
		w.becomes(name, readyStatus, "True")
		w.becomes(name, `.status.conditions[?(@.type=="Stalled")].status`, "")
	}
}

// If Flux garbage-collects an artifact before it is fetched, that is no failure: a
// newer artifact follows.
func TestCollectedArtifactIsNoFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	source, repository := w.source("GitRepository", "fleet"), fluxtest.NewRepository(t)
	repository.Commit(map[string]string{"a.yaml": template("a", "1")})
	first := w.Publish(t, source, repository)
	w.gitOps("fleet", source)
	w.becomes("fleet", ".status.lastAppliedRevision", first.Revision)

	var late fluxtest.Artifact // in the status of the source although it is collected
	for i := range fluxtest.Retained + 1 {
		commit := repository.Commit(map[string]string{"a.yaml": template("a", fmt.Sprint("later ", i))})
		if a := w.Retain(source, "main@sha1:"+commit, repository.Archive(commit)); i == 0 {
			late = a
		}
	}
	asked := w.Requests(source)
	w.SetCondition(t, source, late)
	w.eventually("the artifact is requested again", func() bool { return w.Requests(source) >= asked+2 })
	if status, message := w.field("fleet", readyStatus), w.field("fleet", readyMessage); status != "True" || message != "applied revision "+first.Revision {
		t.Errorf("the collected artifact is a failure: Ready is %s, %s", status, message)
	}
	last := w.Publish(t, source, repository)
	w.becomes("fleet", ".status.lastAppliedRevision", last.Revision)
	if got := w.value("a"); got != "later 2" {
		t.Errorf("a is %q, want later 2", got)
	}
}

// Each kind of Flux that has artifacts can be a source.
func TestAllKindsOfFluxAreSources(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	for kind, revision := range map[string]string{"OCIRepository": "latest@sha256:0003", "Bucket": "sha256:0004", "ExternalArtifact": "any@sha512:0005"} {
		name := strings.ToLower(kind)
		source, repository := w.source(kind, name), fluxtest.NewRepositoryWith(t, map[string]string{"in/a.yaml": template(name, "1"), "out/b.yaml": template("out", "1")})
		w.gitOps(name, source, "path: ./in")
		w.Offer(t, source, revision, repository.Archive(repository.Head()), map[string]string{"org.opencontainers.image.revision": "main@sha1:abc"})
		w.becomes(name, ".status.lastAppliedRevision", revision)
		w.becomes(name, ".status.lastAppliedOriginRevision", "main@sha1:abc")
		if in, out := w.value(name), w.value("out"); in != "1" || out != "" {
			t.Errorf("%s: the template in its path is %q, the one outside is %q; want 1 and none", kind, in, out)
		}
	}
}

// The same revision with other content, as after a change of spec.ignore, is
// applied.
func TestOtherContentOfTheSameRevisionIsApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	source, repository := w.source("GitRepository", "fleet"), fluxtest.NewRepository(t)
	w.gitOps("fleet", source)
	for _, value := range []string{"1", "2"} {
		commit := repository.Commit(map[string]string{"a.yaml": template("a", value)})
		w.Offer(t, source, "main@sha1:0006", repository.Archive(commit), nil)
		w.eventually("a is "+value, func() bool { return w.value("a") == value })
	}
}

// A suspended source and one whose dependency isn't ready apply nothing until they
// may.
func TestSuspendedAndDependentSourcesWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	source := w.source("GitRepository", "fleet")
	w.Publish(t, source, fluxtest.NewRepositoryWith(t, map[string]string{"one/a.yaml": template("a", "1"), "two/b.yaml": template("b", "1")}))
	w.gitOps("one", source, "path: one", "suspend: true")
	w.gitOps("two", source, "path: two", "dependsOn: [{name: one}]")
	w.becomes("one", readyReason, "Suspended")
	w.becomes("two", readyReason, "DependencyNotReady")
	if a, b := w.value("a"), w.value("b"); a+b != "" {
		t.Errorf("a is %q, b is %q; want none", a, b)
	}
	w.gitOps("one", source, "path: one", "suspend: false")
	w.becomes("one", readyStatus, "True")
	w.becomes("one", ".status.observedGeneration", "2")
	w.Kubectl(t, "-n", w.namespace, "annotate", "gitops/two", flux.AnnotationRequested+"=now")
	w.becomes("two", readyStatus, "True")
	if a, b := w.value("a"), w.value("b"); a+b != "11" {
		t.Errorf("a is %q, b is %q; want 1 and 1", a, b)
	}
}

// With NoCrossNamespaceRefs, an object can't refer to a source in another namespace.
func TestReferencesToOtherNamespacesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{NoCrossNamespaceRefs: true})
	w.Apply(t, fmt.Sprintf(`
apiVersion: tko.nephio.org/v1beta1
kind: GitOps
metadata: {name: curious, namespace: %s}
spec: {interval: 1m, prune: true, sourceRef: {kind: GitRepository, name: theirs, namespace: default}}
`, w.namespace))
	w.becomes("curious", readyReason, "AccessDenied")
	w.becomes("curious", `.status.conditions[?(@.type=="Stalled")].status`, "True")
	if got := w.field("curious", readyMessage); !strings.Contains(got, "spec.sourceRef.namespace default") {
		t.Errorf("the message is %q, want one that names spec.sourceRef.namespace", got)
	}
}

// The deletionPolicy of a GitOps object decides whether its entities are deleted with
// it.
func TestDeletionPolicyDecidesWhetherEntitiesAreDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	tests := map[string]struct {
		why, spec string
		stays     bool
	}{
		"mirror":    {why: "the default follows prune", spec: "timeout: 1m"},
		"delete":    {why: "the policy overrides prune", spec: "deletionPolicy: Delete"},
		"orphan":    {why: "the policy overrides prune", spec: "deletionPolicy: Orphan", stays: true},
		"suspended": {why: "a suspended object changes nothing", spec: "suspend: true", stays: true},
	}
	for name, test := range tests {
		source := w.source("GitRepository", name)
		w.Publish(t, source, fluxtest.NewRepositoryWith(t, map[string]string{"a.yaml": template(name, "1")}))
		w.gitOps(name, source)
		w.becomes(name, readyStatus, "True")
		w.gitOps(name, source, test.spec)
		w.becomes(name, ".status.observedGeneration", "2")
		w.Kubectl(t, "-n", w.namespace, "delete", "gitops", name, "--timeout=3m") // waits for the finalizer
		if stays := w.value(name) != ""; stays != test.stays {
			t.Errorf("%s: the template stays: %t, want %t: %s", name, stays, test.stays, test.why)
		}
		if _, err := w.data.Source(t.Context(), w.namespace+"/"+name); !errors.Is(err, tko.ErrNotFound) {
			t.Errorf("%s: the source is still known: %v", name, err)
		}
	}
}

// A removal beyond the budget waits until a user approves it in the spec.
func TestApprovalInTheSpecAllowsARemoval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	source, repository := w.source("GitRepository", "fleet"), fluxtest.NewRepository(t)
	repository.Commit(map[string]string{"a.yaml": template("a", "1"), "b.yaml": template("b", "1"), "c.yaml": template("c", "1")})
	w.Publish(t, source, repository)
	const budget = "budget: {percent: 20, entities: 1}"
	w.gitOps("fleet", source, budget)
	w.becomes("fleet", readyStatus, "True")
	repository.Commit(map[string]string{"a.yaml": "", "b.yaml": ""})
	last := w.Publish(t, source, repository)
	w.becomes("fleet", readyReason, "WaitsForApproval")
	w.eventually("the status has the digest to approve", func() bool { return w.field("fleet", ".status.asks") != "" })
	w.gitOps("fleet", source, budget, "approve: another")
	w.becomes("fleet", ".status.observedGeneration", "2")
	if got := w.value("a") + w.value("b"); got != "11" {
		t.Errorf("the removal was done without approval: a and b are %q, want 11", got)
	}
	w.gitOps("fleet", source, budget, "approve: "+w.field("fleet", ".status.asks"))
	w.becomes("fleet", ".status.lastAppliedRevision", last.Revision)
	if got := w.value("a") + w.value("b") + w.value("c"); got != "1" {
		t.Errorf("the templates are %q, want that of c only", got)
	}
	w.becomes("fleet", ".status.asks", "")
}

// Manifests that SOPS encrypted are decrypted with the key in a Secret; without a key
// the message asks for one. Encrypted files that aren't TKO manifests are ignored.
func TestEncryptedManifestsAreDecrypted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	source := w.source("GitRepository", "fleet")
	read := func(name string) string {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	w.Publish(t, source, fluxtest.NewRepositoryWith(t, map[string]string{"secret.yaml": read("template.yaml"), "theirs.yaml": read("secret.yaml")}))
	w.gitOps("fleet", source)
	w.becomes("fleet", readyReason, "BuildFailed")
	if got := w.field("fleet", readyMessage); !strings.Contains(got, "secret.yaml: it is encrypted with SOPS, and no key is given") {
		t.Errorf("the message is %q, want that no key is given", got)
	}
	w.gitOps("fleet", source, "retryInterval: 1s", "decryption: {provider: sops, secretRef: {name: sops-age}}")
	w.becomes("fleet", readyReason, "ArtifactFailed")
	w.Kubectl(t, "-n", w.namespace, "create", "secret", "generic", "sops-age", "--from-file=age.agekey=../sops/testdata/key.txt")
	w.becomes("fleet", readyStatus, "True")
	if got := w.value("secret"); got != "hush" {
		t.Errorf("the template has %q, want hush", got)
	}
}

// Flux's notification-controller receives events about the source, because alerts
// support Flux's kinds only, with the metadata that a commit status needs.
func TestNotificationControllerReceivesEvents(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var received []map[string]any
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		var one map[string]any
		if err := json.NewDecoder(r.Body).Decode(&one); err != nil || r.Method != http.MethodPost {
			t.Errorf("%s: %v", r.Method, err)
		}
		mu.Lock()
		defer mu.Unlock()
		received = append(received, one)
	})
	w := newWorld(t, flux.Options{EventsAddress: address})
	source, repository := w.source("GitRepository", "fleet"), fluxtest.NewRepository(t)
	repository.Commit(map[string]string{"a.yaml": template("a", "1")})
	a := w.Publish(t, source, repository)
	w.gitOps("fleet", source)
	w.eventually("two events are received", func() bool { mu.Lock(); defer mu.Unlock(); return len(received) == 2 })
	object, _ := received[0]["involvedObject"].(map[string]any)
	uid := w.Kubectl(t, "-n", w.namespace, "get", "gitrepository", "fleet", "-o", "jsonpath={.metadata.uid}")
	if object["kind"] != "GitRepository" || object["name"] != "fleet" || object["namespace"] != w.namespace || object["uid"] != uid || object["apiVersion"] != "source.toolkit.fluxcd.io/v1" {
		t.Errorf("the event is about %v, want the GitRepository", object)
	}
	const prefix = "source.toolkit.fluxcd.io/"
	want := map[string]any{prefix + "revision": a.Revision, prefix + "digest": a.Digest, prefix + "checksum": a.Digest, prefix + "gitops": w.namespace + "/fleet"}
	for i, more := range []map[string]any{{}, {prefix + "commit_status": "update", prefix + "token": "commit_status"}} {
		maps.Copy(want, more)
		for key, value := range maps.Clone(want) {
			want["tko.nephio.org/"+strings.TrimPrefix(key, prefix)] = value
		}
		for key := range want {
			if strings.HasPrefix(key, "tko.nephio.org/tko.nephio.org/") {
				delete(want, key)
			}
		}
		if diff := cmp.Diff(want, received[i]["metadata"]); diff != "" {
			t.Errorf("metadata of event %d, of which the first is for users and the second for the commit status:\n%s", i, diff)
		}
		if received[i]["severity"] != "info" || received[i]["reason"] != "ReconciliationSucceeded" || received[i]["reportingController"] != "tko-gitops" || received[i]["timestamp"] == nil ||
			received[i]["message"] != "GitOps "+w.namespace+"/fleet: applied revision "+a.Revision {
			t.Errorf("event %d is %v", i, received[i])
		}
	}
	failed := func(n int, a fluxtest.Artifact) {
		t.Helper()
		w.eventually("events of the failure are received", func() bool { mu.Lock(); defer mu.Unlock(); return len(received) == n })
		for _, one := range received[n-2:] {
			if metadata, _ := one["metadata"].(map[string]any); one["severity"] != "error" || metadata[prefix+"revision"] != a.Revision {
				t.Errorf("the event is %v, want an error of revision %s", one, a.Revision)
			}
		}
	}
	repository.Commit(map[string]string{"a.yaml": "kind: Template\napiVersion: tko.nephio.org/v1alpha1\nspec: {wrong: 1}\n"})
	a = w.Publish(t, source, repository)
	failed(4, a)
	// A fetch failure is reported for the revision that can't be fetched, not for the one
	// that was attempted before.
	commit := repository.Commit(map[string]string{"a.yaml": template("a", "2")})
	a = w.Retain(source, "main@sha1:"+commit, repository.Archive(commit))
	a.Digest = "sha256:" + strings.Repeat("0", 64)
	w.SetCondition(t, source, a)
	failed(6, a)
}

// The schema of the CRD refuses invalid objects.
func TestCRDRefusesInvalidObjects(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	base := "apiVersion: tko.nephio.org/v1beta1\nkind: GitOps\nmetadata: {name: x, namespace: default}\nspec:\n  "
	tests := map[string]struct{ why, spec, want string }{
		"good":         {why: "this is as documented", spec: "interval: 1h30m\n  prune: false\n  sourceRef: {kind: Bucket, name: x}\n  path: ./a..b/c"},
		"no source":    {why: "without a source there is nothing to apply", spec: "interval: 1m\n  prune: false", want: "sourceRef"},
		"other source": {why: "a HelmRepository has no files", spec: "interval: 1m\n  prune: false\n  sourceRef: {kind: HelmRepository, name: x}", want: "sourceRef.kind"},
		"no prune":     {why: "the user must decide about removals", spec: "interval: 1m\n  sourceRef: {kind: Bucket, name: x}", want: "prune"},
		"no time":      {why: "durations have no unit for days", spec: "interval: 1d\n  prune: false\n  sourceRef: {kind: Bucket, name: x}", want: "interval"},
		"too often":    {why: "the controller would reconcile without pause", spec: "interval: 10ms\n  prune: false\n  sourceRef: {kind: Bucket, name: x}", want: "at least 1s"},
		"path out":     {why: "a path must stay in the source", spec: "interval: 1m\n  prune: false\n  path: a/../../b\n  sourceRef: {kind: Bucket, name: x}", want: "must not lead out"},
		"policy":       {why: "a typo would remove everything", spec: "interval: 1m\n  prune: true\n  deletionPolicy: orphan\n  sourceRef: {kind: Bucket, name: x}", want: "deletionPolicy"},
		"percent":      {why: "100 percent is the maximum", spec: "interval: 1m\n  prune: true\n  budget: {percent: 101, entities: 1}\n  sourceRef: {kind: Bucket, name: x}", want: "budget.percent"},
		"other key":    {why: "SOPS is the only provider", spec: "interval: 1m\n  prune: true\n  decryption: {provider: vault, secretRef: {name: x}}\n  sourceRef: {kind: Bucket, name: x}", want: "decryption.provider"},
		"unknown":      {why: "a misspelt field must not be ignored", spec: "interval: 1m\n  prunes: true\n  prune: true\n  sourceRef: {kind: Bucket, name: x}", want: "prunes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, stderr, code := c.Try(t, c.Kubeconfig, base+test.spec, "create", "--dry-run=server", "--validate=strict", "-f", "-")
			if (code == 0) != (test.want == "") || !strings.Contains(stderr, test.want) {
				t.Errorf("%s: exit code %d, %s; want a message that contains %q", test.why, code, stderr, test.want)
			}
		})
	}
}

// A source that is deleted and created again with the applied artifact is ready again.
func TestSourceCreatedAgainIsReadyAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	source, repository := w.source("GitRepository", "fleet"), fluxtest.NewRepository(t)
	repository.Commit(map[string]string{"a.yaml": template("a", "1")})
	a := w.Publish(t, source, repository)
	w.gitOps("fleet", source)
	w.becomes("fleet", readyStatus, "True")
	w.Delete(t, source)
	w.becomes("fleet", readyMessage, "GitRepository "+w.namespace+"/fleet: not found")
	w.becomes("fleet", readyStatus, "False")
	if again := w.Publish(t, source, repository); again.Revision != a.Revision || again.Digest != a.Digest {
		t.Fatalf("the artifact is %+v, want %+v", again, a)
	}
	w.becomes("fleet", readyStatus, "True")
	w.becomes("fleet", ".status.conditions[*].type", "Ready")
	w.becomes("fleet", ".status.lastAppliedRevision", a.Revision)
}

// A commit that doesn't change the artifact's content is also a revision: it is
// applied at once and gets a commit status.
func TestCommitWithTheSameContentIsApplied(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	statuses := map[string]bool{} // revisions that have a commit status
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		var one struct{ Metadata map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&one); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if one.Metadata["source.toolkit.fluxcd.io/commit_status"] == "update" {
			statuses[one.Metadata["source.toolkit.fluxcd.io/revision"]] = true
		}
	})
	w := newWorld(t, flux.Options{EventsAddress: address})
	source, repository := w.source("GitRepository", "fleet"), fluxtest.NewRepositoryWith(t, map[string]string{"a.yaml": template("a", "1")})
	archive := repository.Archive(repository.Head())
	w.gitOps("fleet", source)
	for _, revision := range []string{"main@sha1:0010", "main@sha1:0011", "main@sha1:0012"} {
		a := w.Offer(t, source, revision, archive, nil)
		w.becomes("fleet", ".status.lastAppliedRevision", revision)
		w.becomes("fleet", ".status.history[0].metadata.revision", revision)
		w.becomes("fleet", ".status.history[*].digest", a.Digest)
		w.eventually(revision+" has a commit status", func() bool { mu.Lock(); defer mu.Unlock(); return statuses[revision] })
	}
}
