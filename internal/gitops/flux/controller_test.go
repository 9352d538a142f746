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

// A push becomes a revision, and that what is in TKO: made, changed, removed.
// Everything that people look at says so.
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

// A source that is broken, in whatever way, says so, and the one beside it goes
// on. Once it is well again, so are we.
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
			t.Errorf("beside broken ones, a is %q, not %q", got, value)
		}
	}
	for name, want := range map[string]string{"away": "503", "forged": "but its source states", "wild": "leads out"} {
		if got := w.field(name, readyMessage); !strings.Contains(got, want) {
			t.Errorf("%s says %q", name, got)
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

// An artifact that is collected before it is fetched is no failure: a newer one
// follows.
func TestCollectedArtifactIsNoFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	source, repository := w.source("GitRepository", "fleet"), fluxtest.NewRepository(t)
	repository.Commit(map[string]string{"a.yaml": template("a", "1")})
	first := w.Publish(t, source, repository)
	w.gitOps("fleet", source)
	w.becomes("fleet", ".status.lastAppliedRevision", first.Revision)

	var late fluxtest.Artifact // what the status says when two newer ones are there
	for i := range fluxtest.Retained + 1 {
		commit := repository.Commit(map[string]string{"a.yaml": template("a", fmt.Sprint("later ", i))})
		if a := w.Retain(source, "main@sha1:"+commit, repository.Archive(commit)); i == 0 {
			late = a
		}
	}
	asked := w.Requests(source)
	w.SetCondition(t, source, late)
	w.eventually("the artifact is asked for again", func() bool { return w.Requests(source) >= asked+2 })
	if status, message := w.field("fleet", readyStatus), w.field("fleet", readyMessage); status != "True" || message != "applied revision "+first.Revision {
		t.Errorf("it is a failure: Ready is %s, %s", status, message)
	}
	last := w.Publish(t, source, repository)
	w.becomes("fleet", ".status.lastAppliedRevision", last.Revision)
	if got := w.value("a"); got != "later 2" {
		t.Errorf("a is %q", got)
	}
}

// All kinds of sources that offer such artifacts do.
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
			t.Errorf("%s: in its path is %q, beside it %q", kind, in, out)
		}
	}
}

// The same revision with other content, as after a change of spec.ignore, is
// taken.
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

// What is suspended, or waits for another, does nothing; then it does.
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
		t.Errorf("a is %q, b is %q", a, b)
	}
	w.gitOps("one", source, "path: one", "suspend: false")
	w.becomes("one", readyStatus, "True")
	w.becomes("one", ".status.observedGeneration", "2")
	w.Kubectl(t, "-n", w.namespace, "annotate", "gitops/two", flux.AnnotationRequested+"=now")
	w.becomes("two", readyStatus, "True")
	if a, b := w.value("a"), w.value("b"); a+b != "11" {
		t.Errorf("a is %q, b is %q", a, b)
	}
}

// Where namespaces are tenants, nobody refers to another's.
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
		t.Errorf("it says %q", got)
	}
}

// What becomes of what an object owns when it goes is its deletionPolicy's.
func TestDeletionPolicyDecidesWhatIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	tests := map[string]struct {
		why, spec string
		stays     bool
	}{
		"mirror":    {why: "as prune says, which is the default", spec: "timeout: 1m"},
		"delete":    {why: "whatever prune says", spec: "deletionPolicy: Delete"},
		"orphan":    {why: "whatever prune says", spec: "deletionPolicy: Orphan", stays: true},
		"suspended": {why: "it touches nothing", spec: "suspend: true", stays: true},
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
			t.Errorf("%s: it stays: %t, %s", name, stays, test.why)
		}
		if _, err := w.data.Source(t.Context(), w.namespace+"/"+name); !errors.Is(err, tko.ErrNotFound) {
			t.Errorf("%s: the source is still known: %v", name, err)
		}
	}
}

// A removal beyond the budget waits until somebody writes down that it is meant.
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
	w.eventually("it says what to approve", func() bool { return w.field("fleet", ".status.asks") != "" })
	w.gitOps("fleet", source, budget, "approve: another")
	w.becomes("fleet", ".status.observedGeneration", "2")
	if got := w.value("a") + w.value("b"); got != "11" {
		t.Errorf("it was done without being approved: %q", got)
	}
	w.gitOps("fleet", source, budget, "approve: "+w.field("fleet", ".status.asks"))
	w.becomes("fleet", ".status.lastAppliedRevision", last.Revision)
	if got := w.value("a") + w.value("b") + w.value("c"); got != "1" {
		t.Errorf("what is left is %q", got)
	}
	w.becomes("fleet", ".status.asks", "")
}

// Files that SOPS encrypted are read with the key of a Secret; without one, that
// is what is said. What others have encrypted in the same repository is theirs.
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
	if got := w.field("fleet", readyMessage); !strings.Contains(got, "secret.yaml is encrypted with SOPS, and no key is given") {
		t.Errorf("it says %q", got)
	}
	w.gitOps("fleet", source, "retryInterval: 1s", "decryption: {provider: sops, secretRef: {name: sops-age}}")
	w.becomes("fleet", readyReason, "ArtifactFailed")
	w.Kubectl(t, "-n", w.namespace, "create", "secret", "generic", "sops-age", "--from-file=age.agekey=../sops/testdata/key.txt")
	w.becomes("fleet", readyStatus, "True")
	if got := w.value("secret"); got != "hush" {
		t.Errorf("it is %q", got)
	}
}

// Flux's notification-controller is told what happened, of the source, as
// alerts are for Flux's kinds only, with what it needs for a commit's status.
func TestNotificationControllerReceivesEvents(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []map[string]any
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		var one map[string]any
		if err := json.NewDecoder(r.Body).Decode(&one); err != nil || r.Method != http.MethodPost {
			t.Errorf("%s: %v", r.Method, err)
		}
		mu.Lock()
		defer mu.Unlock()
		told = append(told, one)
	})
	w := newWorld(t, flux.Options{EventsAddress: address})
	source, repository := w.source("GitRepository", "fleet"), fluxtest.NewRepository(t)
	repository.Commit(map[string]string{"a.yaml": template("a", "1")})
	a := w.Publish(t, source, repository)
	w.gitOps("fleet", source)
	w.eventually("it was told of", func() bool { mu.Lock(); defer mu.Unlock(); return len(told) == 2 })
	object, _ := told[0]["involvedObject"].(map[string]any)
	uid := w.Kubectl(t, "-n", w.namespace, "get", "gitrepository", "fleet", "-o", "jsonpath={.metadata.uid}")
	if object["kind"] != "GitRepository" || object["name"] != "fleet" || object["namespace"] != w.namespace || object["uid"] != uid || object["apiVersion"] != "source.toolkit.fluxcd.io/v1" {
		t.Errorf("it is about %v", object)
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
		if diff := cmp.Diff(want, told[i]["metadata"]); diff != "" {
			t.Errorf("metadata of event %d, of which the first is for people and the second for the commit:\n%s", i, diff)
		}
		if told[i]["severity"] != "info" || told[i]["reason"] != "ReconciliationSucceeded" || told[i]["reportingController"] != "tko-gitops" || told[i]["timestamp"] == nil ||
			told[i]["message"] != "GitOps "+w.namespace+"/fleet: applied revision "+a.Revision {
			t.Errorf("%v", told[i])
		}
	}
	failed := func(n int, a fluxtest.Artifact) {
		t.Helper()
		w.eventually("the failure was told of", func() bool { mu.Lock(); defer mu.Unlock(); return len(told) == n })
		for _, one := range told[n-2:] {
			if metadata, _ := one["metadata"].(map[string]any); one["severity"] != "error" || metadata[prefix+"revision"] != a.Revision {
				t.Errorf("%v", one)
			}
		}
	}
	repository.Commit(map[string]string{"a.yaml": "kind: Template\napiVersion: tko.nephio.org/v1alpha1\nspec: {wrong: 1}\n"})
	a = w.Publish(t, source, repository)
	failed(4, a)
	// What can't be got is not the fault of the revision that was tried before it.
	commit := repository.Commit(map[string]string{"a.yaml": template("a", "2")})
	a = w.Retain(source, "main@sha1:"+commit, repository.Archive(commit))
	a.Digest = "sha256:" + strings.Repeat("0", 64)
	w.SetCondition(t, source, a)
	failed(6, a)
}

// The API server refuses what makes no sense.
func TestCRDRefusesInvalidObjects(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	base := "apiVersion: tko.nephio.org/v1beta1\nkind: GitOps\nmetadata: {name: x, namespace: default}\nspec:\n  "
	tests := map[string]struct{ why, spec, want string }{
		"good":         {why: "as documented", spec: "interval: 1h30m\n  prune: false\n  sourceRef: {kind: Bucket, name: x}\n  path: ./a..b/c"},
		"no source":    {why: "there is nothing to do", spec: "interval: 1m\n  prune: false", want: "sourceRef"},
		"other source": {why: "it has no files", spec: "interval: 1m\n  prune: false\n  sourceRef: {kind: HelmRepository, name: x}", want: "sourceRef.kind"},
		"no prune":     {why: "it has to be decided", spec: "interval: 1m\n  sourceRef: {kind: Bucket, name: x}", want: "prune"},
		"no time":      {why: "days are unknown", spec: "interval: 1d\n  prune: false\n  sourceRef: {kind: Bucket, name: x}", want: "interval"},
		"too often":    {why: "it would never rest", spec: "interval: 10ms\n  prune: false\n  sourceRef: {kind: Bucket, name: x}", want: "at least 1s"},
		"path out":     {why: "it isn't the source's", spec: "interval: 1m\n  prune: false\n  path: a/../../b\n  sourceRef: {kind: Bucket, name: x}", want: "must not lead out"},
		"policy":       {why: "a typo would remove everything", spec: "interval: 1m\n  prune: true\n  deletionPolicy: orphan\n  sourceRef: {kind: Bucket, name: x}", want: "deletionPolicy"},
		"percent":      {why: "more than all", spec: "interval: 1m\n  prune: true\n  budget: {percent: 101, entities: 1}\n  sourceRef: {kind: Bucket, name: x}", want: "budget.percent"},
		"other key":    {why: "nobody reads it", spec: "interval: 1m\n  prune: true\n  decryption: {provider: vault, secretRef: {name: x}}\n  sourceRef: {kind: Bucket, name: x}", want: "decryption.provider"},
		"unknown":      {why: "a typo", spec: "interval: 1m\n  prunes: true\n  prune: true\n  sourceRef: {kind: Bucket, name: x}", want: "prunes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, stderr, code := c.Try(t, c.Kubeconfig, base+test.spec, "create", "--dry-run=server", "--validate=strict", "-f", "-")
			if (code == 0) != (test.want == "") || !strings.Contains(stderr, test.want) {
				t.Errorf("%s: exit code %d, %s", test.why, code, stderr)
			}
		})
	}
}

// A source that was deleted and is made again, with what is applied, is well again.
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
		t.Fatalf("the artifact is %+v, and was %+v", again, a)
	}
	w.becomes("fleet", readyStatus, "True")
	w.becomes("fleet", ".status.conditions[*].type", "Ready")
	w.becomes("fleet", ".status.lastAppliedRevision", a.Revision)
}

// A commit that doesn't change the artifact's content is a revision, too: it is
// applied at once, and has a commit status.
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
