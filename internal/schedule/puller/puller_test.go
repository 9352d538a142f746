package puller_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

func resource(t *testing.T, text string) krm.Resource {
	t.Helper()
	pkg, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil || len(pkg) != 1 {
		t.Fatalf("%d resources, %v", len(pkg), err)
	}
	return pkg[0]
}

func TestStatusOfRepositoriesIsRead(t *testing.T) {
	t.Parallel()
	file := trigger.KubeconfigRef{File: "hub"}
	tests := map[string]struct {
		status string
		want   *puller.Spec
		says   string // of the error
	}{
		"nothing":      {status: ""},
		"none":         {status: "{none: {}}"},
		"defaults":     {status: "{flux: {kubeconfig: {file: hub}}}", want: &puller.Spec{Tool: puller.Flux, Namespace: "flux-system", Name: "lagos-edge-1", Kubeconfig: file}},
		"argocd":       {status: "{argocd: {application: {name: a, namespace: b}, kubeconfig: {file: hub}}}", want: &puller.Spec{Tool: puller.ArgoCD, Namespace: "b", Name: "a", Kubeconfig: file}},
		"silence":      {status: "{argocd: {inCluster: true, silence: 2h}}", want: &puller.Spec{Tool: puller.ArgoCD, Namespace: "argocd", Name: "lagos-edge-1", Kubeconfig: trigger.KubeconfigRef{InCluster: true}, Silence: 2 * time.Hour}},
		"both":         {status: "{flux: {inCluster: true}, argocd: {inCluster: true}}", says: "exactly one"},
		"empty":        {status: "{}", says: "exactly one"},
		"misspelled":   {status: "{fluxx: {}}", says: "fluxx"},
		"no cluster":   {status: "{flux: {}}", says: "spec.status.flux.kubeconfig: missing"},
		"two clusters": {status: "{flux: {inCluster: true, kubeconfig: {file: hub}}}", says: "exactly one of file"},
		"outside":      {status: "{flux: {kubeconfig: {file: ../hub}}}", says: "not below"},
		"other tool":   {status: "{argocd: {kustomization: {name: a}, inCluster: true}}", says: "write application"},
		"bad name":     {status: "{flux: {kustomization: {name: 'a/b'}, inCluster: true}}", says: `"flux-system/a/b"`},
		"too short":    {status: "{flux: {inCluster: true, silence: 1s}}", says: "at least a minute"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := resource(t, "{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: r}, spec: {url: x}}")
			if test.status != "" {
				r = resource(t, "{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: r}, spec: {url: x, status: "+test.status+"}}")
			}
			got, err := puller.Read(r, "Lagos/edge_1")
			if test.says != "" {
				if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.says) {
					t.Fatalf("got %v, want an invalid one with %q", err, test.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

const commit = "0123456789012345678901234567890123456789"

func TestCommitsAndDigestsAreFoundInRevisions(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("ab", 32)
	for revision, want := range map[string][2]string{
		"main@sha1:" + commit: {commit, ""}, commit: {commit, ""}, "main/" + commit: {commit, ""},
		"latest@sha256:" + digest: {"", "sha256:" + digest}, "sha256:" + digest: {"", "sha256:" + digest}, "latest/" + digest: {"", "sha256:" + digest},
		"main": {}, "": {}, "1.2.3": {}, strings.Repeat("x", 40): {},
	} {
		if got := [2]string{puller.CommitOf(revision), puller.DigestOf(revision)}; got != want {
			t.Errorf("%q: got %q, want %q", revision, got, want)
		}
	}
}

// Of a Kustomization and an Application as their controllers write them.
func TestObjectsOfToolsAreObserved(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	tests := map[string]struct {
		tool    puller.Tool
		text    string
		want    puller.Report
		entries []puller.Entry
	}{
		"a Kustomization": {
			puller.Flux, `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: lagos, namespace: flux-system, generation: 3}
spec: {interval: 10m, path: ./lagos, prune: true, wait: true}
status:
  observedGeneration: 3
  conditions: [{type: Ready, status: "False", reason: HealthCheckFailed, message: "timeout waiting for: [Deployment/core/smf status: 'Failed']"}]
  lastAppliedRevision: main@sha1:aaa
  lastAttemptedRevision: main@sha1:bbb
  history: [{lastReconciled: "2026-03-04T05:06:07Z"}]
  inventory:
    entries:
    - {id: core_smf_apps_Deployment, v: v1}
    - {id: core_smf__ConfigMap, v: v1}
    - {id: _system__smf_rbac.authorization.k8s.io_ClusterRole, v: v1}
    - {id: nonsense, v: v1}`,
			puller.Report{
				Applied: []string{"main@sha1:aaa"}, Attempted: []string{"main@sha1:bbb"}, AttemptApplied: true, Checks: true, Health: puller.Unhealthy,
				Message: "timeout waiting for: [Deployment/core/smf status: 'Failed']", At: at, Interval: 10 * time.Minute,
			},
			[]puller.Entry{
				{Object: puller.Object{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "core", Name: "smf"}, Found: puller.Found{Listed: true, Synced: true}},
				{Object: puller.Object{Version: "v1", Kind: "ConfigMap", Namespace: "core", Name: "smf"}, Found: puller.Found{Listed: true, Synced: true}},
				{Object: puller.Object{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "system:smf"}, Found: puller.Found{Listed: true, Synced: true}},
			},
		},
		"one of a hub that waits for another, and has not seen its newest generation": {
			puller.Flux, `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: lagos, generation: 4}
spec: {suspend: true, kubeConfig: {secretRef: {name: lagos}}}
status: {observedGeneration: 3, conditions: [{type: Ready, status: "False", reason: DependencyNotReady, message: m}]}`,
			puller.Report{Suspended: true, Elsewhere: true, Unobserved: true, Health: puller.InProgress, Message: "m"},
			nil,
		},
		"an Application": {
			puller.ArgoCD, `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: lagos}
spec: {syncPolicy: {automated: {}}}
status:
  reconciledAt: "2026-03-04T05:06:07Z"
  sync: {status: Synced, revision: bbb}
  health: {status: Degraded, message: bad}
  operationState: {phase: Succeeded, syncResult: {revision: bbb}}
  resources:
  - {group: apps, version: v1, kind: Deployment, namespace: core, name: smf, status: Synced, health: {status: Degraded, message: crashes}}
  - {version: v1, kind: ConfigMap, namespace: core, name: smf, status: OutOfSync}`,
			puller.Report{Applied: []string{"bbb"}, Attempted: []string{"bbb"}, Checks: true, Elsewhere: true, Health: puller.Unhealthy, Message: "bad", At: at},
			[]puller.Entry{
				{Object: puller.Object{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "core", Name: "smf"}, Found: puller.Found{Listed: true, Synced: true, Known: true, Health: puller.Unhealthy, Why: "crashes"}},
				{Object: puller.Object{Version: "v1", Kind: "ConfigMap", Namespace: "core", Name: "smf"}, Found: puller.Found{Listed: true, Known: true}},
			},
		},
		"one of several sources, whose health isn't stored, and that can't be synchronized": {
			puller.ArgoCD, `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: lagos}
status:
  resourceHealthSource: appTree
  sync: {status: OutOfSync, revisions: [aaa, bbb]}
  health: {status: Healthy}
  operationState: {phase: Failed, message: "one or more objects failed to apply", syncResult: {revisions: [aaa, bbb]}}
  resources: [{version: v1, kind: ConfigMap, name: smf, status: Synced}]`,
			puller.Report{Applied: []string{"aaa", "bbb"}, Attempted: []string{"aaa", "bbb"}, Checks: true, Elsewhere: true, Health: puller.Unhealthy, Message: "one or more objects failed to apply"},
			[]puller.Entry{{Object: puller.Object{Version: "v1", Kind: "ConfigMap", Name: "smf"}, Found: puller.Found{Listed: true, Synced: true}}},
		},
		"one that is not synchronized automatically": {
			puller.ArgoCD, "{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: a}, status: {sync: {status: OutOfSync, revision: aaa}, health: {status: Healthy}}}",
			puller.Report{Applied: []string{"aaa"}, Checks: true, Elsewhere: true, Health: puller.Healthy, Message: "it is out of sync, and is not synchronized automatically: synchronize it"},
			nil,
		},
		"one that can't be compared": {
			puller.ArgoCD, "{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: a}, status: {sync: {status: Unknown}, health: {status: Unknown}, conditions: [{type: ComparisonError, message: no repository}]}}",
			puller.Report{Checks: true, Elsewhere: true, Message: "no repository"},
			nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, entries := puller.Observe(test.tool, resource(t, test.text))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if len(entries) == 0 {
				entries = nil
			}
			if diff := cmp.Diff(test.entries, entries); diff != "" {
				t.Errorf("entries: -want +got:\n%s", diff)
			}
		})
	}
}

func TestObjectsAreFoundWhereTheToolAppliedThem(t *testing.T) {
	t.Parallel()
	in := func(namespace, name string) puller.Entry {
		return puller.Entry{Object: puller.Object{Version: "v1", Kind: "ConfigMap", Namespace: namespace, Name: name}}
	}
	x := puller.NewIndex([]puller.Entry{in("a", "one"), in("a", "two"), in("b", "two")})
	for o, want := range map[puller.Object]string{
		{Version: "v1", Kind: "ConfigMap", Namespace: "a", Name: "one"}:     "a",
		{Version: "v1", Kind: "ConfigMap", Name: "one"}:                     "a",
		{Version: "v1", Kind: "ConfigMap", Namespace: "other", Name: "one"}: "a",
		{Version: "v2", Kind: "ConfigMap", Namespace: "b", Name: "two"}:     "b",
		{Version: "v1", Kind: "ConfigMap", Name: "two"}:                     "",
		{Version: "v1", Kind: "Secret", Name: "one"}:                        "",
	} {
		got, ok := x.Find(o)
		if got.Namespace != want || ok != (want != "") {
			t.Errorf("%v: found in %q (%t), want %q", o, got.Namespace, ok, want)
		}
	}
}
