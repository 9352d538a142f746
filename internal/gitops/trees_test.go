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
)

// Folders of temporary files are cleaned by others. What they remove hasn't left
// the source.
func TestCleanedFolderRemovesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		why   string
		clean func(t *testing.T, folder string)
	}{
		"all": {"the folder itself goes, as that of a process that has died", func(t *testing.T, folder string) {
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
		}},
		"one": {"files go that nobody has read for long", func(t *testing.T, folder string) {
			if err := os.Remove(filepath.Join(folder, "b.yaml")); err != nil {
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
			folders, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(folders) != 1 {
				t.Fatalf("%v, %v", folders, err)
			}
			test.clean(t, folders[0])
			if _, err := w.RemoveEntity(t.Context(), tko.KindTemplate, "a", false); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a is back", func() bool {
				if err := w.controller.Enqueue(t.Context(), "fleet"); err != nil {
					t.Fatal(err)
				}
				_, err := w.Template(t.Context(), "a", 0)
				return err == nil
			})
			source := w.until("fleet", "looked at", func(s tko.Source) bool { return !s.Enqueued && ready(s).Status == tko.ConditionTrue })
			if i := slices.IndexFunc(source.Status.Operations, func(o tko.SourceOperation) bool { return o.Verb == "delete" }); i >= 0 || len(source.Status.Items) != 2 {
				t.Errorf("%s: %+v", test.why, source.Status)
			}
		})
	}
}

// calls notes whose look was called for.
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

// Of sources of one repository, one that depends on another takes a revision
// after it, and soon.
func TestDependsOnTheSameRevision(t *testing.T) {
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
	eventually(t, "called for, as what it waits for is there", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Contains(c.names, "sites")
	})
	w.until("sites", "at second", func(s tko.Source) bool { return s.Status.Applied == second && ready(s).Status == tko.ConditionTrue })
}
