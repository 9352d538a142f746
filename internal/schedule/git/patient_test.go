package git_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
)

// Sites that have waited for their deployments share a commit with others that come a little later; one that has not
// waited is committed at once.
func TestPatientSitesShareACommit(t *testing.T) {
	for _, impatient := range []bool{false, true} {
		repo := filepath.Join(t.TempDir(), "sites.git")
		synctest.Test(t, func(t *testing.T) {
			g := git.New(git.Options{Cache: t.TempDir()})
			began := time.Now()
			one := func(site string, patient bool) {
				ctx := t.Context()
				if patient {
					ctx = git.Patient(ctx)
				}
				if _, err := g.Schedule(ctx, repository(map[string]any{"url": repo}), tko.Site{ID: tko.SiteID(site)}, []tko.Deployment{deployment(t, "a", 1, configMap("x"))}); err != nil {
					t.Error(err)
				}
			}
			var all sync.WaitGroup
			for i := range 30 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 20 * time.Millisecond)
					one(fmt.Sprint("s", i), true)
				})
			}
			if impatient {
				all.Go(func() {
					time.Sleep(50 * time.Millisecond)
					one("at-once", false)
					if took := time.Since(began); took > 200*time.Millisecond {
						t.Errorf("a site that has not waited was committed after %s", took)
					}
				})
			}
			all.Wait()
		})
		want := map[bool]string{false: "1", true: "2"}[impatient]
		if got := commits(t, repo); got != want {
			t.Errorf("with one that has not waited: %t: %s commits, want %s", impatient, got, want)
		}
	}
}
