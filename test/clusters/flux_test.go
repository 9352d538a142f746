package clusters_test

import (
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// startFlux starts the controllers of Flux in a cluster, and stops them when the test ends.
func startFlux(t *testing.T, c *kube.Cluster) {
	t.Helper()
	script := exec.Command(filepath.Join(process.Root(), "test", "setup", "flux.sh"))
	script.Stderr = os.Stderr
	out, err := script.Output()
	if err != nil {
		t.Fatal(err)
	}
	programs, folder := strings.TrimSpace(string(out)), t.TempDir()
	c.Kubectl(t, "apply", "--server-side", "-f", filepath.Join(programs, "crds.yaml"))
	c.Kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=240s")
	c.Kubectl(t, "create", "namespace", "flux-system")
	at := func() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(process.FreePort(t))) }
	start := func(name string, args ...string) {
		cmd := exec.Command(filepath.Join(programs, name+"-controller"), append(args, "--enable-leader-election=false", "--metrics-addr="+at(), "--health-addr="+at())...)
		log, err := os.Create(filepath.Join(folder, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Env = append(c.Env(c.Kubeconfig), "RUNTIME_NAMESPACE=flux-system", "TUF_ROOT="+filepath.Join(folder, "tuf"), "HOME="+folder, "TMPDIR="+folder)
		cmd.Dir, cmd.Stdout, cmd.Stderr = folder, log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = log.Close()
			if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
				t.Logf("the end of the log of %s-controller:\n%s", name, text[max(0, len(text)-8000):])
			}
		})
	}
	storage := at()
	start("source", "--storage-path="+folder, "--storage-addr="+storage, "--storage-adv-addr="+storage)
	start("kustomize", "--requeue-dependency=2s")
}

// The real Flux pulls what TKO commits, and real controllers run it: a bad image stops in the canary and is undone, whether
// Flux waits for the health of what it applied or not; the other sites never get it; a good one is healthy at all sites.
func TestRolloutsSeeWhatFluxReports(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{Controllers: true})
	startFlux(t, c)
	folder, kubeconfigs := t.TempDir(), t.TempDir()
	served := httptest.NewServer(gittest.Handler(t, folder))
	t.Cleanup(served.Close)
	hub, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(kubeconfigs, "hub"), hub, 0o600); err != nil {
		t.Fatal(err)
	}
	s := process.StartServer(t, "--store=sqlite:"+filepath.Join(t.TempDir(), "tko.db"), "--target-git-local="+folder, "--kubeconfigs="+kubeconfigs)
	data, err := client.Dial(client.Options{Address: s.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = data.Close() })
	apply := func(t *testing.T, text string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "manifest.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if stdout, stderr, code := s.CLI("apply", "-f", file); code != 0 {
			t.Fatalf("tko apply: %s%s", stdout, stderr)
		}
	}

	const sites = 3 // of each kind
	kinds := map[string]string{"waits": "wait: true, timeout: 10s, retryInterval: 5s, ", "applies": ""}
	var manifests []string
	for version, image := range map[string]string{"v1": "smf:1", "v2": "never-ready:2", "v3": "smf:3"} {
		manifests = append(manifests, fmt.Sprintf("apiVersion: tko.nephio.org/v1alpha1\nkind: Template\nmetadata: {name: nf-002fsmf-003a%s}\nspec: {package: {resources: [{apiVersion: apps/v1, kind: Deployment, metadata: {name: smf}, spec: {replicas: 1, selector: {matchLabels: {app: smf}}, template: {metadata: {labels: {app: smf}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: smf, image: '%s'}]}}}}]}}", version, image))
	}
	for kind, waits := range kinds {
		gittest.Run(t, folder, "init", "--quiet", "--bare", "--initial-branch=main", kind+".git")
		c.Apply(t, fmt.Sprintf("apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: %s, namespace: flux-system}\nspec: {url: '%s/%[1]s.git', ref: {branch: main}, interval: 1s}", kind, served.URL))
		for n := range sites {
			site := fmt.Sprintf("%s-%d", kind, n)
			c.Kubectl(t, "create", "namespace", site)
			c.Apply(t, fmt.Sprintf("apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: %s, namespace: flux-system}\nspec: {%sinterval: 10m, path: %[1]s, prune: true, targetNamespace: %[1]s, sourceRef: {kind: GitRepository, name: %[3]s}}", site, waits, kind))
			manifests = append(manifests, fmt.Sprintf("apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {name: %s}\nspec: {package: {resources: [{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: sites}, spec: {url: %s, status: {flux: {kubeconfig: {file: hub}}}}}]}}", strings.ReplaceAll(site, "-", "-002d"), filepath.Join(folder, kind+".git")))
		}
	}
	apply(t, strings.Join(manifests, "\n---\n"))
	for kind := range kinds {
		for n := range sites {
			if _, stderr, code := s.CLI("deployment", "create", "nf/smf:v1", "--site", fmt.Sprintf("%s-%d", kind, n)); code != 0 {
				t.Fatal(stderr)
			}
		}
	}
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := pulled{t: t, kind: kind, sites: sites, cluster: c, data: data, apply: apply}
			eventually.True(t, "Flux has applied all deployments, and TKO sees it", func() bool { return f.healthy("nf/smf:v1") == sites })
			f.rollout("bad", "nf/smf:v2", "60s", "Undone")
			if n := strings.Count(gittest.Run(t, filepath.Join(folder, kind+".git"), "log", "--format=%B", "main"), "of nf/smf:v2"); n != 1 {
				t.Errorf("the bad image was committed to %d sites, want the canary only", n)
			}
			eventually.True(t, "all sites are as before", func() bool { return f.healthy("nf/smf:v1") == sites })
			f.images("smf:1")
			f.rollout("good", "nf/smf:v3", "5m", "Done")
			if n := f.healthy("nf/smf:v3"); n != sites {
				t.Errorf("%d sites have the good image, and are healthy, want %d", n, sites)
			}
			f.images("smf:3")
		})
	}
}

// pulled are sites whose commits Flux pulls.
type pulled struct {
	t       *testing.T
	kind    string
	sites   int
	cluster *kube.Cluster
	data    *client.Client
	apply   func(t *testing.T, text string)
}

// healthy returns the number of deployments of a template whose present revision is healthy.
func (p pulled) healthy(template tko.TemplateID) (n int) {
	p.t.Helper()
	for d, err := range p.data.Deployments(p.t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			p.t.Fatal(err)
		}
		if h := tko.FindCondition(d.Stamp.Conditions, tko.ConditionHealthy); strings.HasPrefix(string(d.Site), p.kind) && d.Template == template && h != nil && h.Status == tko.ConditionTrue && h.ObservedRevision == d.Stamp.Revision {
			n++
		}
	}
	return n
}

// images waits until all sites run an image.
func (p pulled) images(want string) {
	p.t.Helper()
	for n := range p.sites {
		p.cluster.Eventually(p.t, want+" 1", "get", "deployment", "smf", "-n", fmt.Sprintf("%s-%d", p.kind, n), "-o", "jsonpath={.spec.template.spec.containers[0].image} {.status.availableReplicas}")
	}
}

// rollout runs a rollout of a template until it has a state.
func (p pulled) rollout(name, template, within, want string) {
	p.t.Helper()
	id := tko.RolloutID(name + "-" + p.kind)
	p.apply(p.t, fmt.Sprintf(`apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: %s}
spec:
  edits: [{upgrade: {to: "%s"}, select: {templateIdPatterns: ["nf/smf:v1"], siteIdPatterns: ["%s-*"]}}]
  waves: [{name: canary, count: 1}, {name: rest}]
  limits: {concurrent: 2}
  health: {within: %s, soak: 1s}
  onFailure: Undo
`, id, template, p.kind, within))
	var status tko.RolloutStatus
	reach := func(want string) {
		p.t.Helper()
		eventually.True(p.t, fmt.Sprintf("rollout %s is %s", id, want), func() bool {
			var err error
			if status, err = p.data.RolloutStatus(p.t.Context(), id); err != nil {
				p.t.Fatal(err)
			}
			return status.State == want
		})
	}
	reach("Planned")
	if _, err := p.data.RolloutDo(p.t.Context(), tko.RolloutCommand{ID: id, Verb: "start", Plan: status.Plan}); err != nil { // without --blind
		p.t.Fatal(err)
	}
	began := time.Now()
	reach(want)
	p.t.Logf("rollout %s is %s after %s", id, want, time.Since(began).Round(time.Second))
}
