package gitops_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// isReady returns a function that reports whether a source is ready at a revision
// and has no other condition.
func isReady(revision string) func(tko.Source) bool {
	return func(s tko.Source) bool {
		return s.Status.Applied == revision && len(s.Status.Conditions) == 1 && ready(s).Status == tko.ConditionTrue
	}
}

// After a short outage of their repository, a source and its dependent are ready
// again, and no entity has changed.
func TestReadyAgainAfterAShortOutage(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	revision := r.push(map[string]string{"base/a.yaml": template("a", "1"), "sites/s.yaml": site("s", "a")})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{
		spec(t, gitops.Settings{Name: "base", Path: "base", Git: gitops.GitSettings{URL: r.url}}),
		spec(t, gitops.Settings{Name: "sites", Path: "sites", DependsOn: []string{"base"}, Git: gitops.GitSettings{URL: r.url}}),
	}})
	for range 2 { // the second reconciliation compares with TKO
		w.sync("base", revision)
		w.sync("sites", revision)
	}
	before := w.entities()
	for range 2 {
		r.away.Store(true)
		w.refused("base", tko.SourceReasonFetchFailed)
		w.refused("sites", tko.SourceReasonFetchFailed)
		r.away.Store(false)
		w.until("base", "ready again", isReady(revision))
		w.until("sites", "ready again", isReady(revision))
	}
	if diff := cmp.Diff(before, w.entities()); diff != "" {
		t.Error(diff)
	}
}

// A source is ready again when the source that it depends on is, although there is
// nothing to apply.
func TestDependentIsReadyAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	r, other := newRepo(t), newRepo(t)
	first, second := r.push(map[string]string{"a.yaml": template("a", "1")}), other.push(map[string]string{"s.yaml": site("s", "a")})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{
		spec(t, gitops.Settings{Name: "base", Git: gitops.GitSettings{URL: r.url}}),
		spec(t, gitops.Settings{Name: "sites", DependsOn: []string{"base"}, Git: gitops.GitSettings{URL: other.url}}),
	}})
	for range 2 {
		w.sync("base", first)
		w.sync("sites", second)
	}
	r.away.Store(true)
	w.refused("base", tko.SourceReasonFetchFailed)
	w.refused("sites", tko.SourceReasonDependency, `"base"`)
	r.away.Store(false)
	w.until("base", "ready again", isReady(first))
	w.until("sites", "ready again", isReady(second))
}

// A branch that is reset to the applied revision counts as applied.
func TestReadyAgainAfterABadRevisionIsReverted(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	good := r.push(map[string]string{"a.yaml": template("a", "1")})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Git: gitops.GitSettings{URL: r.url}})}})
	w.sync("fleet", good)
	r.push(map[string]string{"a.yaml": "apiVersion: tko.nephio.org/v1alpha1\nkind: Template\nspec: {wrong: 1}\n"})
	w.refused("fleet", tko.SourceReasonInvalid)
	git(t, r.dir, "reset", "-q", "--hard", "HEAD~1")
	git(t, r.dir, "push", "-q", "-f", "origin", "main")
	s := w.sync("fleet", good)
	if s.Status.Attempted != good {
		t.Errorf("attempted %s, want %s", s.Status.Attempted, good)
	}
}

// A reconciliation that a user enqueues also compares with TKO, and restores a
// deleted entity.
func TestSyncRestoresWhatWasChanged(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	revision := r.push(map[string]string{"a.yaml": template("a", "1")})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Git: gitops.GitSettings{URL: r.url}})}})
	w.sync("fleet", revision)
	if _, err := w.RemoveEntity(t.Context(), tko.KindTemplate, "a", false); err != nil {
		t.Fatal(err)
	}
	w.sync("fleet", revision)
	eventually.True(t, "the template is restored", func() bool {
		_, err := w.Template(t.Context(), "a", 0)
		return err == nil
	})
}
