package gitops_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// Other programs clean directories of temporary files. Files that they remove don't
// count as removed from the source.
func TestCleanedTemporaryDirectoryRemovesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		why   string
		clean func(t *testing.T, dir string)
	}{
		"whole directory": {"cleaners remove directories of processes that have stopped", func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}},
		"one file": {"cleaners remove files that no process has read for long", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, dir := newRepo(t), t.TempDir()
			revision := r.push(map[string]string{"a.yaml": template("a", "1"), "b.yaml": template("b", "1")})
			s, err := gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: r.url}, Interval: "1h", Resync: "1s"}.Spec(dir)
			if err != nil {
				t.Fatal(err)
			}
			w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{s}})
			w.sync("fleet", revision)
			directories, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(directories) != 1 {
				t.Fatalf("the directories are %v, %v; want one", directories, err)
			}
			test.clean(t, directories[0])
			if _, err := w.RemoveEntity(t.Context(), tko.KindTemplate, "a", false); err != nil {
				t.Fatal(err)
			}
			eventually.True(t, "template a is restored", func() bool {
				if err := w.controller.Enqueue(t.Context(), "fleet"); err != nil {
					t.Fatal(err)
				}
				_, err := w.Template(t.Context(), "a", 0)
				return err == nil
			})
			source := w.until("fleet", "reconciled", func(s tko.Source) bool { return !s.Enqueued && ready(s).Status == tko.ConditionTrue })
			if i := slices.IndexFunc(source.Status.Operations, func(o tko.SourceOperation) bool { return o.Verb == "delete" }); i >= 0 || len(source.Status.Items) != 2 {
				t.Errorf("%s: the status is %+v, want two items and no deletion", test.why, source.Status)
			}
		})
	}
}

// calls records the names of the sources that are enqueued.
type calls struct {
	*client.Client
	mu    sync.Mutex
	names []string
}

func (c *calls) EnqueueSources(ctx context.Context, names []string, missing bool, approve string) error {
	if !missing {
		c.mu.Lock()
		c.names = append(c.names, names...)
		c.mu.Unlock()
	}
	return c.Client.EnqueueSources(ctx, names, missing, approve)
}

// If two sources have the same repository, the dependent one applies a revision after
// the other, and is enqueued as soon as the other has applied it.
func TestDependentAppliesRevisionAfterItsDependency(t *testing.T) {
	t.Parallel()
	r, c := newRepo(t), &calls{Client: data(t)}
	git := gitops.GitSettings{URL: r.url}
	first := r.push(map[string]string{"base/t.yaml": template("t", "1"), "sites/s.yaml": site("s", "t")})
	w := &world{TB: t, Client: c.Client}
	w.controller = gitops.New(c, gitops.Options{Sources: []gitops.Spec{
		spec(t, gitops.Settings{Name: "base", Git: git, Path: "base"}), spec(t, gitops.Settings{Name: "sites", Git: git, Path: "sites", DependsOn: []string{"base"}}),
		spec(t, gitops.Settings{Name: "self", Git: git, Path: "sites", DependsOn: []string{"self"}}),
	}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.controller.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	w.until("sites", "at first", func(s tko.Source) bool { return s.Status.Applied == first })
	w.refused("self", tko.SourceReasonDependency, "depends on itself")

	second := r.push(map[string]string{"base/t.yaml": template("t", "2")})
	w.refused("sites", tko.SourceReasonDependency, "base", "isn't at revision", second)
	c.mu.Lock()
	c.names = nil
	c.mu.Unlock()
	w.sync("base", second)
	eventually.True(t, "the dependent is enqueued", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Contains(c.names, "sites")
	})
	w.until("sites", "at second", func(s tko.Source) bool { return s.Status.Applied == second && ready(s).Status == tko.ConditionTrue })
}
