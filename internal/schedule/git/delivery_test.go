package git_test

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/krm"
)

// What another tool has applied is known by the contents of its commit: commits of other sites
// and clients that leave the site's folder as it is count as TKO's own, and those that change
// it don't.
func TestContentsOfCommitsAreKnown(t *testing.T) {
	t.Parallel()
	for name, repo := range map[string]func(t *testing.T) (dir string, r krm.Resource, g *git.Target){
		"local": func(t *testing.T) (string, krm.Resource, *git.Target) {
			d := bare(t)
			return d, repository(map[string]any{"url": d}), target(t)
		},
		"over HTTP": func(t *testing.T) (string, krm.Resource, *git.Target) {
			s := serve(t)
			return s.dir, s.repository(), s.target(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, repo, g := repo(t)
			tip := func() string { return run(t, dir, "rev-parse", "main") }
			deliver := func(deployments ...tko.Deployment) puller.Delivery {
				t.Helper()
				d, err := g.Deliver(t.Context(), repo, tko.Site{ID: "lagos"}, deployments)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			a1, b := deployment(t, "a", 1, configMap("one")), deployment(t, "b", 4, configMap("b"))
			a2 := deployment(t, "a", 2, configMap("two"))
			push(t, dir, map[string]string{"README": "x"})
			before := tip()
			deliver(a1, b)
			first := tip()
			push(t, dir, map[string]string{"lagos/a/10-namespaced/ns/ConfigMap.v1_one.yaml": "mine"})
			edited := tip()
			edit := deliver(a1, b)
			if tip() == edited {
				t.Fatal("an edit by another client was not corrected")
			}
			deliver(a2, b)
			second := tip()
			schedule(t, g, repo, "accra", deployment(t, "c", 1, configMap("c")))
			push(t, dir, map[string]string{"lagos/kustomization.yaml": "resources: []", "README": "y"})
			deliver(a2, b) // has what others have pushed
			last := tip()
			push(t, dir, map[string]string{"lagos/a/10-namespaced/ns/ConfigMap.v1_two.yaml": "mine"})
			again := tip()
			d := deliver(a2, b)

			same := func(revision int64) puller.Content { return puller.Content{Presence: puller.Same, Revision: revision} }
			for commit, want := range map[string][2]puller.Content{
				before:                  {{Presence: puller.Earlier}, {Presence: puller.Earlier}},
				first:                   {{Presence: puller.Earlier, Revision: 1}, same(4)},
				second:                  {same(2), same(4)},
				last:                    {same(2), same(4)},
				again:                   {{Presence: puller.Other, Revision: 2}, same(4)},
				strings.Repeat("1", 40): {},
			} {
				contents, err := d.In(t.Context(), []string{commit})
				if err != nil {
					t.Fatal(err)
				}
				got := [2]puller.Content{contents.Best("a", []string{commit}), contents.Best("b", []string{commit})}
				if got != want {
					t.Errorf("%s: got %v, want %v", commit, got, want)
				}
			}
			contents, err := edit.In(t.Context(), []string{first, edited})
			if err != nil {
				t.Fatal(err)
			}
			if got := contents.Best("a", []string{edited}); got.Presence != puller.Other {
				t.Errorf("the edited commit has %v", got)
			}
			if got := contents.Best("a", []string{edited, first}); got != same(1) {
				t.Errorf("the best of two commits is %v", got)
			}
		})
	}
}

// A commit in which the path of the site is a file, or belongs to another site, has nothing of it.
func TestCommitsWithoutTheFolderHaveNothing(t *testing.T) {
	t.Parallel()
	dir := bare(t)
	g, repo := target(t), repository(map[string]any{"url": dir, "path": "shared"})
	push(t, dir, map[string]string{"shared": "a file"})
	file := run(t, dir, "rev-parse", "main")
	run(t, dir, "update-ref", "refs/heads/main", run(t, dir, "commit-tree", "-m", "x", run(t, dir, "mktree")))
	if _, err := g.Schedule(t.Context(), repo, tko.Site{ID: "accra"}, []tko.Deployment{deployment(t, "a", 1, configMap("one"))}); err != nil {
		t.Fatal(err)
	}
	others := run(t, dir, "rev-parse", "main")
	schedule(t, g, repo, "accra")
	d, err := g.Deliver(t.Context(), repo, tko.Site{ID: "lagos"}, []tko.Deployment{deployment(t, "a", 1, configMap("two"))})
	if err != nil {
		t.Fatal(err)
	}
	contents, err := d.In(t.Context(), []string{file, others})
	if err != nil {
		t.Fatal(err)
	}
	for _, commit := range []string{file, others} {
		if got := contents.Best("a", []string{commit}); got != (puller.Content{Presence: puller.Earlier}) {
			t.Errorf("%s: %v", commit, got)
		}
	}
}
