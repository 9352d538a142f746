package git_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
)

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
		changes, err := g.Compare(t.Context(), trigger, site, deployments, nil)
		if err != nil {
			t.Fatal(err)
		}
		lines := []string{}
		for _, c := range changes {
			lines = append(lines, fmt.Sprintf("%s %s %s %v", c.Deployment, c.Verb, c.Object, c.Details))
		}
		return lines
	}
	first := deployment(t, "a", 1, value("one", "1")+value("two", "1")+secret("x"))
	if diff := cmp.Diff([]string{
		"a create lagos/a/10-namespaced/ns/ConfigMap.v1_one.yaml []", "a create lagos/a/10-namespaced/ns/ConfigMap.v1_two.yaml []", "a create lagos/a/10-namespaced/ns/Secret.v1_s.yaml []",
	}, compare(first)); diff != "" {
		t.Errorf("an empty repository: %s", diff)
	}
	if _, err := os.Stat(filepath.Join(repo, "refs", "heads", "main")); err == nil {
		t.Error("comparing made a commit")
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
