package git_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
	"github.com/tko-orchestrator/tko/krm"
)

// compared returns the differences of a site, as lines.
func compared(t *testing.T, g *git.Target, trigger krm.Resource, site tko.Site, deployments ...tko.Deployment) []string {
	t.Helper()
	found, err := g.Compare(t.Context(), trigger, site, deployments, []tko.DeploymentID{"held"})
	if err != nil {
		t.Fatal(err)
	}
	lines := append([]string{}, found.Unsearched...)
	for _, c := range slices.Concat(found.Changes, found.Orphans) {
		lines = append(lines, fmt.Sprintf("%s %s %s %v", c.Deployment, c.Verb, c.Object, c.Details))
	}
	return lines
}

func TestCompareShowsWhatTheNextCommitWouldChange(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "sites.git")
	g, trigger, site := target(t), repository(map[string]any{"url": repo}), tko.Site{ID: "lagos"}
	value := func(name, v string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %q, namespace: ns}, data: {key: %q}}\n---\n", name, v)
	}
	secret := func(v string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: ns}, stringData: {key: %q}}\n---\n", v)
	}
	compare := func(deployments ...tko.Deployment) []string {
		t.Helper()
		return compared(t, g, trigger, site, deployments...)
	}
	first := deployment(t, "a", 1, value("one", "1")+value("two", "1")+secret("x"))
	if diff := cmp.Diff([]string{
		"a create lagos/a/10-namespaced/ns/ConfigMap.v1_one.yaml []", "a create lagos/a/10-namespaced/ns/ConfigMap.v1_two.yaml []", "a create lagos/a/10-namespaced/ns/Secret.v1_s.yaml []",
	}, compare(first)); diff != "" {
		t.Errorf("an empty repository: %s", diff)
	}
	if _, err := os.Stat(repo); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("comparing made a repository: %v", err)
	}
	if err := os.Mkdir(repo, 0o700); err != nil {
		t.Fatal(err)
	}
	if made := compare(first); len(made) != 3 {
		t.Errorf("an empty folder: %v", made)
	}
	if files, err := os.ReadDir(repo); err != nil || len(files) > 0 {
		t.Errorf("comparing made %v: %v", files, err)
	}
	other := deployment(t, "b", 1, configMap("other"))
	schedule(t, g, trigger, "lagos", first, other)
	if diff := cmp.Diff([]string{}, compare(first, other)); diff != "" {
		t.Errorf("after a commit: %s", diff)
	}
	tip := run(t, repo, "rev-parse", "main")
	if diff := cmp.Diff([]string{
		`a update lagos/a/10-namespaced/ns/ConfigMap.v1_one.yaml [data.key: "1" → "2"]`, "a create lagos/a/10-namespaced/ns/ConfigMap.v1_three.yaml []", "a remove lagos/a/10-namespaced/ns/ConfigMap.v1_two.yaml []",
		"a update lagos/a/10-namespaced/ns/Secret.v1_s.yaml [stringData.key: hidden → hidden]", "b remove lagos/b []",
	}, compare(deployment(t, "a", 2, value("one", "2")+value("three", "1")+secret("y")))); diff != "" {
		t.Error(diff)
	}
	if now := run(t, repo, "rev-parse", "main"); now != tip {
		t.Error("comparing made a commit")
	}
	work := filepath.Join(t.TempDir(), "work")
	gittest.Run(t, ".", "clone", "-q", "-b", "main", repo, work)
	if err := os.WriteFile(filepath.Join(work, "lagos/a/10-namespaced/ns/ConfigMap.v1_one.yaml"), []byte(value("one", "by hand")), 0o600); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, work, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qam", "by hand")
	gittest.Run(t, work, "push", "-q", "origin", "main")
	if diff := cmp.Diff([]string{`a update lagos/a/10-namespaced/ns/ConfigMap.v1_one.yaml [data.key: "by hand" → "1"]`}, compare(first, other)); diff != "" {
		t.Errorf("a change by hand: %s", diff)
	}
}

func TestCompareReportsOrphans(t *testing.T) {
	t.Parallel()
	remote := serve(t)
	for name, test := range map[string]struct {
		repo    string
		trigger krm.Resource
		target  *git.Target
	}{
		"local":  {bare(t), nil, target(t)},
		"remote": {remote.dir, remote.repository(), remote.target(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.trigger == nil {
				test.trigger = repository(map[string]any{"url": test.repo})
			}
			site, a := tko.Site{ID: "lagos"}, deployment(t, "a", 1, configMap("x"))
			schedule(t, test.target, test.trigger, "lagos", a)
			schedule(t, test.target, test.trigger, "lagos/inner", deployment(t, "b", 1, configMap("x")))
			schedule(t, test.target, test.trigger, "lagos/far/away", deployment(t, "c", 1, configMap("x")))
			schedule(t, test.target, test.trigger, "elsewhere", deployment(t, "d", 1, configMap("x")))
			if diff := cmp.Diff([]string{}, compared(t, test.target, test.trigger, site, a)); diff != "" {
				t.Errorf("other sites are orphans: %s", diff)
			}
			push(t, test.repo, map[string]string{
				"lagos/README.md": "x", "lagos/old/10-namespaced/x.yaml": "x", "lagos/old/y.yaml": "y", "lagos/one/y.yaml": "y", "lagos/far/note": "x", "lagos/inner/note": "x", "elsewhere/note": "x", "note": "x",
				"lagos/held/x.yaml": "x",
			})
			if diff := cmp.Diff([]string{
				" orphan lagos/README.md []", " orphan lagos/far/note []", " orphan lagos/old/ [2 files]", " orphan lagos/one/ [1 file]",
			}, compared(t, test.target, test.trigger, site, a)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A clone doesn't have the files that TKO committed, but those that others did.
func TestCompareShowsWhatACloneHas(t *testing.T) {
	t.Parallel()
	remote := serve(t)
	g, trigger, site := remote.target(t), remote.repository(), tko.Site{ID: "lagos"}
	value := func(name, v string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %q, namespace: ns}, data: {key: %q}}\n---\n", name, v)
	}
	first := deployment(t, "a", 1, value("one", "1")+value("two", "1"))
	schedule(t, g, trigger, "lagos", first)
	folder := "the meta-scheduler's clone doesn't have the files of its own commits, so what is in them isn't shown"
	if diff := cmp.Diff([]string{
		"a update lagos/a/10-namespaced [revision 1 is there, and revision 2 is to be: tko diff deployment a --from r1 shows what differs; " + folder + "]",
	}, compared(t, g, trigger, site, deployment(t, "a", 2, value("one", "2")+value("two", "1")))); diff != "" {
		t.Errorf("a change of the package: %s", diff)
	}
	push(t, remote.dir, map[string]string{"lagos/a/10-namespaced/ns/ConfigMap.v1_one.yaml": value("one", "by hand"), "lagos/a/10-namespaced/ns/more.yaml": value("more", "1")})
	if diff := cmp.Diff([]string{
		`a update lagos/a/10-namespaced/ns/ConfigMap.v1_one.yaml [data.key: "by hand" → "1"]`, "a remove lagos/a/10-namespaced/ns/more.yaml []",
	}, compared(t, g, trigger, site, first)); diff != "" {
		t.Errorf("a change by hand: %s", diff)
	}
	push(t, remote.dir, map[string]string{"lagos/a/10-namespaced/ns/ConfigMap.v1_one.yaml": "not: [yaml"})
	if diff := cmp.Diff([]string{
		"a update lagos/a/10-namespaced/ns/ConfigMap.v1_one.yaml [what is there isn't one resource in YAML]", "a remove lagos/a/10-namespaced/ns/more.yaml []",
	}, compared(t, g, trigger, site, first)); diff != "" {
		t.Errorf("a damaged file: %s", diff)
	}
}
