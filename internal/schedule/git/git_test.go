package git_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var run = gittest.Run

func files(t testing.TB, repo string) []string {
	t.Helper()
	return strings.Split(run(t, repo, "ls-tree", "-r", "--name-only", "main"), "\n")
}

func commits(t testing.TB, repo string) string {
	t.Helper()
	run(t, repo, "fsck", "--strict")
	return run(t, repo, "rev-list", "--count", "main")
}

// decode reads a package written in a test.
func decode(t testing.TB, text string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// repository is a Repository resource.
func repository(spec map[string]any) krm.Resource {
	return krm.Resource{"apiVersion": "git.plugin.nephio.org/v1alpha1", "kind": "Repository", "metadata": map[string]any{"name": "main"}, "spec": spec}
}

const workload = `
apiVersion: deployment.nephio.org/v1alpha1
kind: Deployment
metadata: {name: deployment, annotations: {nephio.org/prepared: "true"}}
spec: {templateId: upf, siteId: lagos}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: upf, namespace: core, annotations: {nephio.org/prepared: "true", kept: "yes"}}
spec: {replicas: 2}
---
apiVersion: example.com/v1
kind: Zone
metadata: {name: west}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, annotations: {nephio.org/merge: Override}}
---
apiVersion: v1
kind: Namespace
metadata: {name: core}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: zones.example.com}
spec: {group: example.com, scope: Cluster, names: {kind: Zone, plural: zones}}
---
apiVersion: workload.nephio.org/v1alpha1
kind: HelmChart
metadata: {name: chart}
spec: {chart: x}
`

func deployment(t testing.TB, id string, revision int64, text string) tko.Deployment {
	t.Helper()
	return tko.Deployment{ID: tko.DeploymentID(id), Template: "upf", Package: decode(t, text), Stamp: tko.Stamp{Revision: revision}}
}

func configMap(name string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %q, namespace: ns}}", name)
}

func target(t testing.TB) *git.Target {
	t.Helper()
	return git.New(git.Options{Cache: t.TempDir()})
}

func schedule(t testing.TB, g *git.Target, repo krm.Resource, site string, deployments ...tko.Deployment) []tko.DeploymentID {
	t.Helper()
	removed, err := g.Schedule(t.Context(), repo, tko.Site{ID: tko.SiteID(site)}, deployments)
	if err != nil {
		t.Fatal(err)
	}
	return removed
}

func TestDeploymentIsWrittenAsOneFilePerResource(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "new", "sites.git")
	schedule(t, target(t), repository(map[string]any{"url": repo}), "lagos", deployment(t, "2abc", 7, workload))
	want := []string{
		"lagos/.tko",
		"lagos/2abc/00-cluster/CustomResourceDefinition.v1.apiextensions.k8s.io_zones.example.com.yaml",
		"lagos/2abc/00-cluster/Namespace.v1_core.yaml",
		"lagos/2abc/00-cluster/Zone.v1.example.com_west.yaml",
		"lagos/2abc/10-namespaced/_unset/ConfigMap.v1_settings.yaml",
		"lagos/2abc/10-namespaced/core/Deployment.v1.apps_upf.yaml",
	}
	if diff := cmp.Diff(want, files(t, repo)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for path, want := range map[string]string{
		"lagos/2abc/10-namespaced/core/Deployment.v1.apps_upf.yaml":  "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  annotations:\n    kept: \"yes\"\n  name: upf\n  namespace: core\nspec:\n  replicas: 2",
		"lagos/2abc/10-namespaced/_unset/ConfigMap.v1_settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings",
	} {
		if diff := cmp.Diff(want, run(t, repo, "show", "main:"+path)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", path, diff)
		}
	}
	message := run(t, repo, "log", "-1", "--format=%an <%ae>%n%B")
	if want := "TKO <tko@localhost>\nlagos: 1 added, 0 updated, 0 removed\n\nsite lagos\n  added 2abc revision 7 of upf"; message != want {
		t.Errorf("got %q, want %q", message, want)
	}
	if head := run(t, repo, "symbolic-ref", "HEAD"); head != "refs/heads/main" {
		t.Errorf("HEAD is %s", head)
	}
}

// The folders of held deployments stay unchanged while others change.
func TestHeldDeploymentsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	dir := bare(t)
	g, repo := target(t), repository(map[string]any{"url": dir})
	schedule(t, g, repo, "lagos", deployment(t, "a", 1, configMap("x")), deployment(t, "b", 1, configMap("y")))
	removed, err := g.Schedule(t.Context(), repo, tko.Site{ID: "lagos"}, []tko.Deployment{deployment(t, "c", 1, configMap("z"))}, "a", "never-there")
	if err != nil || !slices.Equal(removed, []tko.DeploymentID{"b"}) {
		t.Fatalf("removed %v, %v, want b", removed, err)
	}
	want := []string{"lagos/.tko", "lagos/a/10-namespaced/ns/ConfigMap.v1_x.yaml", "lagos/c/10-namespaced/ns/ConfigMap.v1_z.yaml"}
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if removed := schedule(t, g, repo, "lagos", deployment(t, "c", 1, configMap("z"))); !slices.Equal(removed, []tko.DeploymentID{"a"}) {
		t.Errorf("removed %v, want what is held no longer", removed)
	}
}

func TestRepositoryFollowsTheDeploymentsOfASite(t *testing.T) {
	t.Parallel()
	for name, repo := range map[string]func(t *testing.T) (dir string, r krm.Resource, g *git.Target){
		"local": func(t *testing.T) (string, krm.Resource, *git.Target) {
			d := bare(t)
			return d, repository(map[string]any{"url": "file://" + d, "path": "sites/lagos", "author": map[string]any{"name": "Ada", "email": "ada@example.com"}}), target(t)
		},
		"over HTTP": func(t *testing.T) (string, krm.Resource, *git.Target) {
			s := serve(t)
			r := s.repository()
			r.Set("sites/lagos", "spec", "path")
			return s.dir, r, s.target(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, repo, g := repo(t)
			// files from before stay, both outside of the path and in it
			push(t, dir, map[string]string{"README": "ours", "sites/lagos/kustomization.yaml": "resources: []", "sites/other/x": "y"})
			foreign := []string{"README", "sites/lagos/kustomization.yaml", "sites/other/x"}
			check := func(step string, wantCommits string, want ...string) {
				t.Helper()
				if got := commits(t, dir); got != wantCommits {
					t.Errorf("%s: %s commits, want %s", step, got, wantCommits)
				}
				want = slices.Sorted(slices.Values(append(want, foreign...)))
				if diff := cmp.Diff(want, files(t, dir)); diff != "" {
					t.Errorf("%s: -want +got:\n%s", step, diff)
				}
			}
			file := func(d, name string) string {
				return "sites/lagos/" + d + "/10-namespaced/ns/ConfigMap.v1_" + name + ".yaml"
			}

			schedule(t, g, repo, "lagos")
			check("nothing to do", "1")
			schedule(t, g, repo, "lagos", deployment(t, "a", 1, configMap("x")), deployment(t, "b", 1, configMap("w")))
			check("two", "2", "sites/lagos/.tko", file("a", "x"), file("b", "w"))
			schedule(t, g, repo, "lagos", deployment(t, "a", 2, configMap("x")), deployment(t, "b", 1, configMap("w")))
			check("a revision that changes no file", "2", "sites/lagos/.tko", file("a", "x"), file("b", "w"))
			schedule(t, g, repo, "lagos", deployment(t, "a", 3, configMap("y")), deployment(t, "b", 1, configMap("w")))
			check("an update", "3", "sites/lagos/.tko", file("a", "y"), file("b", "w"))
			push(t, dir, map[string]string{"sites/lagos/more": "z"})
			foreign = append(foreign, "sites/lagos/more")
			if removed := schedule(t, g, repo, "lagos", deployment(t, "c", 1, configMap("x")), deployment(t, "b", 1, configMap("w"))); !slices.Equal(removed, []tko.DeploymentID{"a"}) {
				t.Errorf("removed %v, want a", removed)
			}
			check("one is removed, one is added, after a commit of another client", "5", "sites/lagos/.tko", file("b", "w"), file("c", "x"))
			message := run(t, dir, "log", "-1", "--format=%B")
			for _, want := range []string{"lagos: 1 added, 0 updated, 1 removed", "added c revision 1 of upf", "removed a (was at revision 3)"} {
				if !strings.Contains(message, want) {
					t.Errorf("the message lacks %q:\n%s", want, message)
				}
			}
			schedule(t, g, repo, "lagos")
			check("all gone", "6")
			schedule(t, g, repo, "lagos")
			check("still gone", "6")
		})
	}
}

func TestLastRemovalLeavesAnEmptyTree(t *testing.T) {
	t.Parallel()
	repo := bare(t)
	r := repository(map[string]any{"url": repo})
	schedule(t, target(t), r, "lagos", deployment(t, "a", 1, configMap("x")))
	schedule(t, target(t), r, "lagos")
	if got := run(t, repo, "ls-tree", "-r", "--name-only", "main"); got != "" {
		t.Errorf("got %q", got)
	}
	commits(t, repo)
}

// bare makes an empty bare repository.
func bare(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sites.git")
	run(t, ".", "init", "-q", "--bare", "-b", "main", dir)
	run(t, dir, "config", "http.receivepack", "true")
	return dir
}

// push commits files to a repository as another client does.
func push(t testing.TB, repo string, content map[string]string) {
	t.Helper()
	dir := t.TempDir()
	run(t, dir, "clone", "-q", repo, "c")
	dir = filepath.Join(dir, "c")
	run(t, dir, "checkout", "-q", "-B", "main")
	gittest.Write(t, dir, content)
	run(t, dir, "add", "-A")
	run(t, dir, "commit", "-q", "-m", "another client's")
	run(t, dir, "push", "-q", "origin", "main")
}

const token = "s3cr3t-t0ken"

// server serves a repository over HTTP to clients with the token.
type server struct {
	dir     string
	url     string
	secrets string
	away    atomic.Bool
	pushes  atomic.Int32
	before  func() // is called before every push
}

func serve(t testing.TB) *server {
	t.Helper()
	s := &server{dir: bare(t), secrets: t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.secrets, "token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	backend := gittest.Handler(t, filepath.Dir(s.dir), "REMOTE_USER=test")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != token {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who is there, "+r.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		if s.away.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "git-receive-pack") {
			s.pushes.Add(1)
			if s.before != nil {
				s.before()
			}
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	s.url = web.URL + "/sites.git"
	return s
}

func (s *server) repository() krm.Resource {
	return repository(map[string]any{"url": s.url, "credentials": map[string]any{"tokenFile": "token"}})
}

func (s *server) target(t testing.TB) *git.Target {
	t.Helper()
	return git.New(git.Options{Cache: t.TempDir(), Secrets: s.secrets})
}

func TestConcurrentWritersOfABranchLoseNoCommit(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T) (dir string, r krm.Resource, new func() *git.Target){
		"local": func(t *testing.T) (string, krm.Resource, func() *git.Target) {
			dir := bare(t)
			return dir, repository(map[string]any{"url": dir}), func() *git.Target { return target(t) }
		},
		"over HTTP": func(t *testing.T) (string, krm.Resource, func() *git.Target) {
			s := serve(t)
			return s.dir, s.repository(), func() *git.Target { return s.target(t) }
		},
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, repo, newTarget := make(t)
			const writers, sites = 3, 8 // writers are processes, each with sites of its own, and another client with git
			var running sync.WaitGroup
			var want []string
			for w := range writers {
				g := newTarget()
				for s := range sites {
					site := fmt.Sprintf("w%d/s%d", w, s)
					want = append(want, site+"/.tko", site+"/a/10-namespaced/ns/ConfigMap.v1_x.yaml")
					running.Go(func() {
						if _, err := g.Schedule(t.Context(), repo, tko.Site{ID: tko.SiteID(site)}, []tko.Deployment{deployment(t, "a", 1, configMap("x"))}); err != nil {
							t.Errorf("%s: %v", site, err)
						}
					})
				}
			}
			running.Wait()
			slices.Sort(want)
			if diff := cmp.Diff(want, files(t, dir)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			commits(t, dir)
		})
	}
}

func TestLostRaceForTheBranchIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	push(t, s.dir, map[string]string{"README": "1"})
	n := 0
	s.before = func() {
		n++
		if n <= 2 {
			push(t, s.dir, map[string]string{fmt.Sprintf("other%d", n): "x"})
		}
	}
	schedule(t, s.target(t), s.repository(), "lagos", deployment(t, "a", 1, configMap("x")))
	want := []string{"README", "lagos/.tko", "lagos/a/10-namespaced/ns/ConfigMap.v1_x.yaml", "other1", "other2"}
	if diff := cmp.Diff(want, files(t, s.dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := commits(t, s.dir); got != "4" {
		t.Errorf("%s commits, want 4", got)
	}
}

func TestFaultsOfTheRepositoryAreReportedWithARemedy(t *testing.T) {
	t.Parallel()
	s := serve(t)
	cache := t.TempDir()
	newTarget := func() *git.Target {
		return git.New(git.Options{Cache: cache, Secrets: s.secrets, Timeout: 2 * time.Minute})
	}
	repo := s.repository()

	s.away.Store(true)
	_, err := newTarget().Schedule(t.Context(), repo, tko.Site{ID: "lagos"}, nil)
	if err == nil || errors.Is(err, tko.ErrInvalid) {
		t.Errorf("got %v of a server that is away, want an error that is worth another try", err)
	}
	s.away.Store(false)
	schedule(t, newTarget(), repo, "lagos", deployment(t, "a", 1, configMap("x")))

	t.Run("a rejected push", func(t *testing.T) {
		hook := filepath.Join(s.dir, "hooks", "pre-receive")
		if err := os.WriteFile(hook, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := newTarget().Schedule(t.Context(), repo, tko.Site{ID: "lagos"}, nil)
		if err == nil || errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "hook declined") {
			t.Errorf("got %v", err)
		}
		if err := os.Remove(hook); err != nil {
			t.Fatal(err)
		}
	})
	pushes := s.pushes.Load()
	schedule(t, newTarget(), repo, "lagos", deployment(t, "a", 1, configMap("x")))
	if s.pushes.Load() != pushes {
		t.Error("pushed although nothing changed")
	}
	damages := map[string]func(dir string){
		"a clone that is gone":       func(dir string) { remove(t, dir) },
		"a clone without objects":    func(dir string) { remove(t, filepath.Join(dir, "objects")) },
		"a clone without references": func(dir string) { remove(t, filepath.Join(dir, "refs")) },
		"a clone that is rubbish": func(dir string) {
			if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				_ = os.Chmod(path, 0o644)
				return os.WriteFile(path, []byte("rubbish"), 0o644)
			}); err != nil {
				t.Fatal(err)
			}
		},
		"a clone of empty files": func(dir string) {
			if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				_ = os.Chmod(path, 0o644)
				return os.Truncate(path, 0)
			}); err != nil {
				t.Fatal(err)
			}
		},
	}
	i := 0
	for _, name := range slices.Sorted(mapsKeys(damages)) {
		t.Run(name, func(t *testing.T) {
			clones, err := filepath.Glob(filepath.Join(cache, "*.git"))
			if err != nil || len(clones) != 1 {
				t.Fatalf("clones: %v %v", clones, err)
			}
			damages[name](clones[0])
			i++
			schedule(t, newTarget(), repo, "lagos", deployment(t, "a", 1, configMap(fmt.Sprintf("y%d", i))))
			commits(t, s.dir)
			want := []string{"lagos/.tko", fmt.Sprintf("lagos/a/10-namespaced/ns/ConfigMap.v1_y%d.yaml", i)}
			if diff := cmp.Diff(want, files(t, s.dir)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func mapsKeys[K comparable, V any](m map[K]V) func(yield func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func TestStaleLocksAndDamagedClonesAreReplaced(t *testing.T) {
	t.Parallel()
	dir := bare(t)
	repo := repository(map[string]any{"url": dir})
	schedule(t, target(t), repo, "lagos", deployment(t, "a", 1, configMap("x")))
	lock := filepath.Join(dir, "refs", "heads", "main.lock")
	if err := os.WriteFile(lock, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(lock, old, old); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "pack-refs", "--all") // the branch isn't a file of its own any more
	run(t, dir, "gc", "-q")
	schedule(t, target(t), repo, "lagos", deployment(t, "a", 2, configMap("y")))
	if got := commits(t, dir); got != "2" {
		t.Errorf("%s commits, want 2", got)
	}
}

func TestCredentialsAreReadAndNeverShown(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if err := os.Setenv("TKO_TEST_GIT_TOKEN", token); err != nil { //nolint:usetesting // Setenv of a test excludes parallel tests
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(outside, []byte("outside-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(s.secrets, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.secrets, "wrong"), []byte("wr0ng-s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		why         string
		credentials map[string]any
		none        bool // no folder of secrets
		wantInvalid bool
		wantErr     string // "": works
	}{
		"a token":          {why: "the usual", credentials: map[string]any{"tokenFile": "token"}},
		"a variable":       {why: "the operator lists it", credentials: map[string]any{"tokenFile": "env:TKO_TEST_GIT_TOKEN"}},
		"another variable": {why: "the server's environment isn't the site's", credentials: map[string]any{"tokenFile": "env:PATH"}, wantErr: "--secret-environment"},
		"no Vault":         {why: "it isn't configured", credentials: map[string]any{"tokenFile": "vault:secret/data/git#token"}, wantErr: "--vault-address"},
		"a password":       {why: "the older usual", credentials: map[string]any{"username": "ada", "passwordFile": "token"}},
		"an absolute path": {why: "in the folder", credentials: map[string]any{"tokenFile": filepath.Join(s.secrets, "token")}},
		"nothing":          {why: "the server minds", wantErr: "authentication required"},
		"a wrong token":    {why: "the server minds", credentials: map[string]any{"tokenFile": "wrong"}, wantErr: "authentication required"},
		"a missing file":   {why: "it may come", credentials: map[string]any{"tokenFile": "later"}, wantErr: `tokenFile "later" can't be read`},
		"climbing out":     {why: "a site can't have the server read any file", credentials: map[string]any{"tokenFile": "../shadow"}, wantInvalid: true, wantErr: "not in the meta-scheduler's folder"},
		"absolutely out":   {why: "nor so", credentials: map[string]any{"tokenFile": outside}, wantInvalid: true, wantErr: "not in the meta-scheduler's folder"},
		"linked out":       {why: "nor through a link", credentials: map[string]any{"tokenFile": "link"}, wantErr: "can't be read"},
		"no folder":        {why: "no secrets unless configured", credentials: map[string]any{"tokenFile": outside}, none: true, wantErr: "no folder of secrets"},
		"both":             {why: "which?", credentials: map[string]any{"tokenFile": "token", "passwordFile": "token"}, wantInvalid: true, wantErr: "both"},
		"password no user": {why: "whose?", credentials: map[string]any{"passwordFile": "token"}, wantInvalid: true, wantErr: "no username"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := git.Options{Cache: t.TempDir(), Secrets: s.secrets, References: secret.Sources{Environment: []string{"TKO_TEST_GIT_TOKEN"}}}
			if test.none {
				o.Secrets = ""
			}
			r := repository(map[string]any{"url": s.url, "credentials": test.credentials})
			if test.credentials == nil {
				r = repository(map[string]any{"url": s.url})
			}
			_, err := git.New(o).Schedule(t.Context(), r, tko.Site{ID: "lagos"}, nil)
			if test.wantErr == "" {
				if err != nil {
					t.Errorf("%s: %v", test.why, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.wantErr) || errors.Is(err, tko.ErrInvalid) != test.wantInvalid {
				t.Errorf("%s: got %v, want %q, invalid %v", test.why, err, test.wantErr, test.wantInvalid)
			}
			for _, secret := range []string{"wr0ng-s3cret", "outside-secret", token} {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows a secret: %v", err)
				}
			}
		})
	}
}

func TestInvalidRepositoryResourcesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	key := map[string]any{"sshKeyFile": "id", "knownHostsFile": "known_hosts"}
	tests := map[string]struct {
		spec map[string]any
		want string
	}{
		"no URL":               {map[string]any{}, "missing"},
		"an unknown scheme":    {map[string]any{"url": "ftp://x/y"}, "scheme"},
		"a password in it":     {map[string]any{"url": "https://u:hunter2@x/y"}, "passwordFile"},
		"a user in it":         {map[string]any{"url": "https://u@x/y"}, "username"},
		"shell on the server":  {map[string]any{"url": "ssh://git@x/y';reboot'", "credentials": key}, "quotes"},
		"no key":               {map[string]any{"url": "ssh://git@x/y"}, "sshKeyFile"},
		"a key for https":      {map[string]any{"url": "https://x/y", "credentials": key}, "ssh key"},
		"no key, short":        {map[string]any{"url": "git@x:y"}, "sshKeyFile"},
		"no known hosts":       {map[string]any{"url": "git@x:y", "credentials": map[string]any{"sshKeyFile": "id"}}, "knownHostsFile"},
		"secrets in the clear": {map[string]any{"url": "http://example.com/x", "credentials": map[string]any{"tokenFile": "t"}}, "https"},
		"a branch of options":  {map[string]any{"url": dir, "branch": "--force"}, "branch"},
		"a branch elsewhere":   {map[string]any{"url": dir, "branch": "../../config"}, "branch"},
		"a branch lock":        {map[string]any{"url": dir, "branch": "main.lock"}, "branch"},
		"climbing out":         {map[string]any{"url": dir, "path": "a/../../b"}, "path"},
		"hooks":                {map[string]any{"url": dir, "path": ".GIT/hooks"}, "path"},
		"nowhere":              {map[string]any{"url": dir, "path": "//"}, "path"},
		"an author's trick":    {map[string]any{"url": dir, "author": map[string]any{"name": "x\ncommitter y"}}, "author"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := target(t).Schedule(t.Context(), repository(test.spec), tko.Site{ID: "lagos"}, nil)
			if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `Repository "main"`) {
				t.Errorf("got %v, want an ErrInvalid with %q", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

func TestFolderOfAnotherOwnerIsNotReplaced(t *testing.T) {
	t.Parallel()
	dir, worktree := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, worktree, "init", "-q")
	for path, want := range map[string]string{dir: "neither empty nor a bare repository", worktree: "working tree"} {
		_, err := target(t).Schedule(t.Context(), repository(map[string]any{"url": path}), tko.Site{ID: "lagos"}, nil)
		if !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("a folder of another owner was changed: %v %v", entries, err)
	}
}

func TestNamesOfAllIdentitiesAreDistinctFiles(t *testing.T) {
	t.Parallel()
	dir := bare(t)
	g := target(t)
	repo := repository(map[string]any{"url": dir})
	long := strings.Repeat("n", 400)
	var pkg krm.Package
	names := []string{"a", "A", "..", "../../x", "a/b", "a%2fb", "a_b", "", long + "1", long + "2", "CON", "x\x00y", "ünï"}
	for _, name := range names {
		pkg = append(pkg, krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": name}})
	}
	for _, kind := range []string{"a/v1 K", "v1 K", "a/v2 K", "a.k/v1 K", "../v1 K", "v1 ..", "a/v1 K/L", "-/v1 K-", "/v1 K_"} {
		version, kind, _ := strings.Cut(kind, " ")
		pkg = append(pkg, krm.Resource{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": "x"}})
	}
	sites := []tko.SiteID{"a", "a/b", "a/b/c", "..", "../a", "a//b", "/a", "a/", ".", "./a", "a/..", "a/./b", "a/../b", ".git", ".tko", "a/.tko", "a:b", "a/2abc", tko.SiteID(strings.Repeat("s", 300)), "A"}
	for range 2 { // no site undoes the files of another one
		for _, site := range sites {
			if _, err := g.Schedule(t.Context(), repo, tko.Site{ID: site}, []tko.Deployment{{ID: "2xyz", Package: pkg, Stamp: tko.Stamp{Revision: 1}}}); err != nil {
				t.Errorf("%s: %v", site, err)
			}
		}
	}
	commits(t, dir)
	all := files(t, dir)
	if want := len(sites) * (len(pkg) + 1); len(all) != want {
		t.Errorf("%d files, want %d: one for each resource of each site, and what is ours", len(all), want)
	}
	for _, file := range all {
		for segment := range strings.SplitSeq(file, "/") {
			if len(segment) > 255 || segment == "." || segment == ".." || strings.EqualFold(segment, ".git") {
				t.Errorf("bad name %q", file)
			}
		}
	}
	checkout := t.TempDir()
	run(t, checkout, "clone", "-q", dir, "c") // a real file system takes it
}

func TestSitesOfARepositoryDoNotChangeEachOther(t *testing.T) {
	t.Parallel()
	dir := bare(t)
	g := target(t)
	schedule(t, g, repository(map[string]any{"url": dir, "path": "p"}), "lagos", deployment(t, "a", 1, configMap("x")))
	_, err := g.Schedule(t.Context(), repository(map[string]any{"url": dir, "path": "p"}), tko.Site{ID: "accra"}, nil)
	if !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), `belongs to site "lagos"`) {
		t.Errorf("got %v, want that the path is taken", err)
	}
	_, err = g.Schedule(t.Context(), repository(map[string]any{"url": dir, "path": "p/a/10-namespaced/ns/ConfigMap.v1_x.yaml/deeper"}), tko.Site{ID: "accra"}, []tko.Deployment{deployment(t, "b", 1, configMap("x"))})
	if !errors.Is(err, tko.ErrConflict) {
		t.Errorf("got %v, want that a file is no folder", err)
	}
	schedule(t, g, repository(map[string]any{"url": dir, "branch": "other"}), "accra", deployment(t, "b", 1, configMap("x")))
	if got := run(t, dir, "ls-tree", "--name-only", "other"); got != "accra" {
		t.Errorf("the other branch has %q", got)
	}
}

func TestConcurrentSitesShareCommitsAndFailSeparately(t *testing.T) {
	t.Parallel()
	s := serve(t)
	g := s.target(t)
	release := make(chan struct{})
	var once sync.Once
	s.before = func() { once.Do(func() { <-release }) }
	repo := func(path string) krm.Resource {
		r := s.repository()
		r.Set(path, "spec", "path")
		return r
	}
	var running sync.WaitGroup
	put := func(ctx context.Context, site tko.SiteID, path string, ok bool) {
		running.Go(func() {
			_, err := g.Schedule(ctx, repo(path), tko.Site{ID: site}, []tko.Deployment{deployment(t, "a", 1, configMap("x"))})
			if (err == nil) != ok {
				t.Errorf("%s: %v", site, err)
			}
		})
	}
	put(t.Context(), "first", "first", true)
	eventually.True(t, "the first push", func() bool { return s.pushes.Load() > 0 })
	gone, cancel := context.WithCancel(t.Context())
	for i := range 20 {
		put(t.Context(), tko.SiteID(fmt.Sprintf("site%d", i)), fmt.Sprintf("site%d", i), true)
	}
	put(t.Context(), "thief", "first", false)
	put(gone, "gone", "gone", false)
	cancel()
	time.Sleep(50 * time.Millisecond) // for the requests to line up; if they don't, there are only more commits
	close(release)
	running.Wait()
	if got := len(strings.Split(run(t, s.dir, "ls-tree", "--name-only", "main"), "\n")); got != 21 {
		t.Errorf("%d sites, want 21", got)
	}
	if pushes := s.pushes.Load(); pushes > 10 {
		t.Errorf("%d pushes for 21 sites that came together", pushes)
	}
}

// BenchmarkSites schedules many sites into one repository, 64 at a time.
func BenchmarkSites(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		for name, setup := range map[string]func() (krm.Resource, *git.Target){
			"local": func() (krm.Resource, *git.Target) {
				return repository(map[string]any{"url": bare(b)}), target(b)
			},
			"http": func() (krm.Resource, *git.Target) {
				s := serve(b)
				return s.repository(), s.target(b)
			},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					repo, g := setup()
					var running sync.WaitGroup
					var next atomic.Int64
					for range 64 {
						running.Go(func() {
							for i := next.Add(1); i <= int64(n); i = next.Add(1) {
								d := []tko.Deployment{deployment(b, fmt.Sprintf("2a%d", i), 1, workload), deployment(b, fmt.Sprintf("2b%d", i), 1, workload)}
								d[1].Package[1].Set(i, "spec", "replicas")
								if _, err := g.Schedule(b.Context(), repo, tko.Site{ID: tko.SiteID(fmt.Sprintf("edge/site-%05d", i))}, d); err != nil {
									b.Error(err)
								}
							}
						})
					}
					running.Wait()
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "sites/s")
			})
		}
	}
}

func TestDeploymentsThatARestoredStoreLacksStayInTheRepository(t *testing.T) {
	t.Parallel()
	dir := bare(t)
	g, repo := target(t), repository(map[string]any{"url": dir})
	schedule(t, g, repo, "lagos", deployment(t, "a", 1, configMap("x")), deployment(t, "later", 1, configMap("y")))
	restored := []tko.Deployment{deployment(t, "a", 1, configMap("z"))}
	removed, err := g.Schedule(t.Context(), repo, tko.Site{ID: "lagos"}, restored, tko.OtherDeployments)
	if err != nil || len(removed) != 0 {
		t.Fatalf("removed %v, %v, want nothing", removed, err)
	}
	want := []string{"lagos/.tko", "lagos/a/10-namespaced/ns/ConfigMap.v1_z.yaml", "lagos/later/10-namespaced/ns/ConfigMap.v1_y.yaml"}
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if removed := schedule(t, g, repo, "lagos", restored...); !slices.Equal(removed, []tko.DeploymentID{"later"}) {
		t.Errorf("removed %v, want what the store doesn't have", removed)
	}
}

// A site that is stopped while its commit is built isn't in the commit; others are.
func TestStoppedSiteIsNotCommitted(t *testing.T) {
	repo, g := bare(t), target(t)
	at := func(path string) krm.Resource {
		return repository(map[string]any{"url": repo, "branch": "main", "path": path})
	}
	stopped := fence.With(t.Context(), func(context.Context) error { return fence.NewError(tko.Errorf(tko.ErrStopped, "storm")) })
	d := deployment(t, "d", 1, configMap("one"))
	if _, err := g.Schedule(stopped, at("a"), tko.Site{ID: "a"}, []tko.Deployment{d}); !fence.Is(err) || !errors.Is(err, tko.ErrStopped) {
		t.Fatalf("%v", err)
	}
	asked := 0
	meanwhile := fence.With(t.Context(), func(context.Context) error {
		asked++
		if asked > 1 { // once the commit is built
			return fence.NewError(tko.Errorf(tko.ErrStopped, "storm"))
		}
		return nil
	})
	if _, err := g.Schedule(meanwhile, at("a"), tko.Site{ID: "a"}, []tko.Deployment{d}); !errors.Is(err, tko.ErrStopped) {
		t.Fatalf("%v", err)
	}
	schedule(t, g, at("b"), "b", d)
	for _, file := range files(t, repo) {
		if strings.HasPrefix(file, "a/") {
			t.Errorf("%s was committed", file)
		}
	}
}
