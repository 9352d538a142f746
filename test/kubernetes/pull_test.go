package kubernetes_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

const kustomizations = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kustomizations.kustomize.toolkit.fluxcd.io}
spec:
  group: kustomize.toolkit.fluxcd.io
  scope: Namespaced
  names: {kind: Kustomization, plural: kustomizations}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// A flux does for the Kustomizations of a cluster what Flux does, as far as TKO sees it: it
// applies a folder of a branch, lists what it applied, and reports the revision. It also does
// what the cluster would do with workloads: those whose image has "bad" in its name fail.
type flux struct {
	w    *world
	repo string

	mu      sync.Mutex
	applied map[string]string // commits by the name of the Kustomization
}

// follow runs until the test ends.
func (f *flux) follow(t *testing.T) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
			}
			if err := f.once(); err != nil {
				t.Logf("the stand-in of Flux: %v", err)
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
}

func (f *flux) git(args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", f.repo}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}

func (f *flux) kubectl(input string, args ...string) error {
	_, stderr, code := f.w.Try(f.w.t, f.w.Kubeconfig, input, args...)
	if code != 0 {
		return fmt.Errorf("kubectl %s: %s", strings.Join(args, " "), stderr)
	}
	return nil
}

// once reconciles all Kustomizations.
func (f *flux) once() error {
	tip, err := f.git("rev-parse", "--verify", "-q", "main")
	if err != nil || tip == "" {
		return nil //nolint:nilerr // nothing was committed yet
	}
	out, _, _ := f.w.Try(f.w.t, f.w.Kubeconfig, "", "get", "kustomizations", "-n", "flux-system", "-o", "json")
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct {
				Path, TargetNamespace string
				Suspend               bool
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return err
	}
	var all []error
	for _, k := range list.Items {
		f.mu.Lock()
		current := f.applied[k.Metadata.Name] == tip
		f.mu.Unlock()
		if k.Spec.Suspend || current {
			continue
		}
		if err := f.apply(k.Metadata.Name, k.Spec.Path, k.Spec.TargetNamespace, tip); err != nil {
			all = append(all, err)
			continue
		}
		f.mu.Lock()
		f.applied[k.Metadata.Name] = tip
		f.mu.Unlock()
	}
	return errors.Join(all...)
}

// apply applies the folder of a Kustomization as it is in a commit.
func (f *flux) apply(name, folder, namespace, commit string) error {
	files, err := f.git("ls-tree", "-r", "--name-only", commit, "--", folder)
	if err != nil {
		return err
	}
	var entries []map[string]string
	for file := range strings.FieldsSeq(files) {
		if !strings.HasSuffix(file, ".yaml") {
			continue
		}
		text, err := f.git("show", commit+":"+file)
		if err != nil {
			return err
		}
		if err := f.kubectl(text, "apply", "-n", namespace, "-f", "-"); err != nil {
			return err
		}
		generation, _, _ := f.w.Try(f.w.t, f.w.Kubeconfig, "", "get", "deployment", "smf", "-n", namespace, "-o", "jsonpath={.metadata.generation}")
		ready := `{"status":{"observedGeneration":` + generation + `,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1,"conditions":[{"type":"Available","status":"True"},{"type":"Progressing","status":"True","reason":"NewReplicaSetAvailable"}]}}`
		if strings.Contains(text, "bad") {
			ready = `{"status":{"observedGeneration":` + generation + `,"replicas":1,"updatedReplicas":1,"readyReplicas":0,"availableReplicas":0,"conditions":[{"type":"Available","status":"False"},{"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded","message":"the image can't be pulled"}]}}`
		}
		if err := f.kubectl("", "patch", "deployment", "smf", "-n", namespace, "--subresource=status", "--type=merge", "-p", ready); err != nil {
			return err
		}
		entries = append(entries, map[string]string{"id": namespace + "_smf_apps_Deployment", "v": "v1"})
	}
	var status bytes.Buffer
	if err := json.NewEncoder(&status).Encode(map[string]any{"status": map[string]any{
		"lastAppliedRevision": "main@sha1:" + commit, "lastAttemptedRevision": "main@sha1:" + commit, "inventory": map[string]any{"entries": entries},
		"conditions": []map[string]any{{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "Applied revision: main@sha1:" + commit}},
	}}); err != nil {
		return err
	}
	return f.kubectl("", "patch", "kustomization", name, "-n", "flux-system", "--subresource=status", "--type=merge", "-p", status.String())
}

// At sites whose commits Flux pulls, a rollout sees what became of them: a bad image stops in
// the canary and is undone, and the other sites never get it. None of the rollouts is blind.
func TestRolloutsSeeWhatBecomesOfCommits(t *testing.T) {
	folder, kubeconfigs := t.TempDir(), t.TempDir()
	gittest.Run(t, folder, "init", "--quiet", "--bare", "--initial-branch=main", "sites.git")
	w := newWorld(t, "data,preparer,meta-scheduler,rollout", "--git-local="+folder, "--kubeconfigs="+kubeconfigs)
	hub, err := os.ReadFile(w.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(kubeconfigs, "hub"), hub, 0o600); err != nil {
		t.Fatal(err)
	}
	w.with(kustomizations, "apply", "-f", "-")
	w.with("", "wait", "--for=condition=Established", "crd/kustomizations.kustomize.toolkit.fluxcd.io", "--timeout=240s")
	w.with("", "create", "namespace", "flux-system")
	f := &flux{w: w, repo: filepath.Join(folder, "sites.git"), applied: map[string]string{}}
	f.follow(t)

	for version, image := range map[string]string{"v1": "smf:1", "v2": "bad-smf:2", "v3": "smf:3"} {
		w.with(manifest("Template", "nf-002fsmf-003a"+version, "}\nspec: {package: {resources: [{apiVersion: apps/v1, kind: Deployment, metadata: {name: smf}, spec: {selector: {matchLabels: {app: smf}}, template: {metadata: {labels: {app: smf}}, spec: {containers: [{name: smf, image: '"+image+"'}]}}}}]}}"), "create", "-f", "-")
	}
	const sites = 4
	var names []string
	for n := range sites {
		site := fmt.Sprintf("pulled-%d", n)
		w.with("", "create", "namespace", site)
		w.with(fmt.Sprintf("apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: %s, namespace: flux-system}\nspec: {interval: 1m, path: %[1]s, prune: true, targetNamespace: %[1]s, sourceRef: {kind: GitRepository, name: sites}}", site), "create", "-f", "-")
		w.with(manifest("Site", strings.ReplaceAll(site, "-", "-002d"), ", labels: {region: north}}\nspec: {package: {resources: [{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: sites}, spec: {url: "+f.repo+", status: {flux: {kubeconfig: {file: hub}}}}}]}}"), "create", "-f", "-")
		names = append(names, w.with(manifest("Deployment", "any", "}\nspec: {templateId: 'nf/smf:v1', siteId: "+site+"}"), "create", "-f", "-", "-o", "name"))
	}
	c := w.dial()
	healthy := func(template tko.TemplateID) (n int) {
		for d, err := range c.Deployments(t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if h := tko.FindCondition(d.Stamp.Conditions, tko.ConditionHealthy); d.Template == template && h != nil && h.Status == tko.ConditionTrue && h.ObservedRevision == d.Stamp.Revision {
				n++
			}
		}
		return n
	}
	eventually.True(t, "Flux has applied all deployments, and TKO sees it", func() bool { return healthy("nf/smf:v1") == sites })
	before := gittest.Run(t, f.repo, "rev-list", "--count", "main")

	rollout := func(id tko.RolloutID, template, within, want string) {
		t.Helper()
		w.with(`apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: `+string(id)+`}
spec:
  edits: [{upgrade: {to: "`+template+`"}, select: {templateIdPatterns: ["nf/smf:v1"]}}]
  waves: [{name: canary, count: 1}, {name: rest}]
  limits: {concurrent: 2}
  health: {within: `+within+`, soak: 1s}
  onFailure: Undo
`, "create", "-f", "-")
		var s tko.RolloutStatus
		reach := func(want string) {
			eventually.True(t, fmt.Sprintf("rollout %s is %s", id, want), func() (ok bool) {
				if s, err = c.RolloutStatus(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				return s.State == want
			})
		}
		reach("Planned")
		if _, err := c.RolloutDo(t.Context(), tko.RolloutCommand{ID: id, Verb: "start", Plan: s.Plan}); err != nil { // without --blind
			t.Fatal(err)
		}
		reach(want)
	}

	rollout("bad", "nf/smf:v2", "20s", "Undone") // it stops at once, and is undone after within
	log := gittest.Run(t, f.repo, "log", "--format=%B", "main", "--max-count="+gittest.Run(t, f.repo, "rev-list", "--count", "main"))
	if n := strings.Count(log, "of nf/smf:v2"); n != 1 {
		t.Errorf("the bad image was committed to %d sites, want the canary only:\n%s", n, log)
	}
	eventually.True(t, "all sites are as before", func() bool { return healthy("nf/smf:v1") == sites })
	images := func(want string) {
		t.Helper()
		for n := range sites {
			w.prints(want, "get", "deployment", "smf", "-n", fmt.Sprintf("pulled-%d", n), "-o", "jsonpath={.spec.template.spec.containers[0].image}")
		}
	}
	images("smf:1")
	if after := gittest.Run(t, f.repo, "rev-list", "--count", "main"); after == before {
		t.Error("nothing was committed")
	}

	rollout("good", "nf/smf:v3", "5m", "Done")
	if n := healthy("nf/smf:v3"); n != sites {
		t.Errorf("%d sites have the good image, and are healthy", n)
	}
	images("smf:3")

	// A suspended Kustomization is what the deployment waits for, and says so.
	w.with("", "patch", "kustomization", "pulled-0", "-n", "flux-system", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
	w.with(`{"metadata":{"labels":{"note":"x"}}}`, "patch", names[0], "--type=merge", "-p", `{"spec":{"package":{"resources":[{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"smf"},"spec":{"selector":{"matchLabels":{"app":"smf"}},"template":{"metadata":{"labels":{"app":"smf"}},"spec":{"containers":[{"name":"smf","image":"smf:4"}]}}}}]}}}`)
	w.with("", "wait", `--for=jsonpath={.status.conditions[?(@.type=="Healthy")].reason}=`+tko.ReasonPullSuspended, names[0], "--timeout=240s")
	w.with("", "patch", "kustomization", "pulled-0", "-n", "flux-system", "--type=merge", "-p", `{"spec":{"suspend":false}}`)
	w.with("", "wait", "--for=condition=Healthy", names[0], "--timeout=240s")
}
