package plan_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/prune"
)

// The first 20 changes are shown, each of 300 bytes at most; the others are counted.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 20, 21, 50} {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("%03d", i) + strings.Repeat("x", 297+i%2)
		}
		got := plan.Bounded(slices.Values(all))
		if len(got) != min(n, 20)+min(max(n-20, 0), 1) {
			t.Fatalf("of %d changes %d are shown", n, len(got))
		}
		for i, text := range got[:min(n, 20)] {
			if cut := strings.TrimSuffix(text, "…"); len(cut) > 300 || (cut == text) != (i%2 == 0) || !strings.HasPrefix(all[i], cut) {
				t.Errorf("of %d changes the %dth has %d bytes, of %d", n, i, len(text), len(all[i]))
			}
		}
		if n > 20 && got[20] != fmt.Sprintf("and %d more", n-20) {
			t.Errorf("of %d changes the last is %q", n, got[20])
		}
	}
}

// Explain says what changes in each existing entity, and nothing of others.
func TestExplainShowsEachChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(plugin("p"), template("t", "1"), template("t2", "1"), site("s", "t", "k", "1"), site("gone", "t"), placed("d", "1"), placed("same", "1"))...)
	changed := plugin("p")
	changed.Plugin.Arguments = append(changed.Plugin.Arguments, "y")
	changed.Plugin.Properties = map[string]string{"a": "b"}
	moved := placed("d", "2")
	moved.Template, moved.Metadata = "t2", map[string]string{"k": "v"}
	w.put(tko.Put{Kind: tko.KindSite, ID: "adopted", Metadata: map[string]string{"k": "theirs"}})
	w.policy.Adopt = true
	p := w.plan(w.of(changed, template("t", "2"), template("t2", "1"), site("s", "t2", "k", "2"), plainSite("adopted"), moved, placed("same", "1"))...)
	if err := p.Explain(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, a := range p.Actions {
		got[a.Verb+" "+a.Name] = a.Changes
	}
	equal(t, "changes", map[string][]string{
		"update schedule|p": {`arguments: ["x"] → ["x","y"]`, `properties.a: (none) → "b"`},
		"update t":          {`v1 ConfigMap "settings": data.k: "1" → "2"`},
		"update s":          {`template: "t" → "t2"`, `metadata.k: "1" → "2"`},
		"adopt adopted":     {`metadata.k: "theirs" → (none)`},
		"update d":          {`template: "t" → "t2"`, `metadata.k: (none) → "v"`, `v1 ConfigMap "own": data.k: "1" → "2"`},
		"delete gone":       nil,
	}, got)

	// Entities that were deleted meanwhile have no changes.
	w.remove(tko.KindDeployment, w.item(tko.KindDeployment, "d").ID)
	if err := p.Explain(t.Context()); err != nil {
		t.Errorf("after a deployment was deleted: %v", err)
	}
}

// A deployment is compared with what its source made: changes by preparation or by other
// clients since then aren't shown as changes of the source.
func TestExplainLeavesOutChangesByOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(deployment("d", "1"))...)
	modification, err := w.StartModification(t.Context(), tko.DeploymentID(w.item(tko.KindDeployment, "d").ID))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.EndModification(t.Context(), modification.Token, append(modification.Package, configMap("prepared", "1")...)); err != nil {
		t.Fatal(err)
	}
	p := w.plan(w.of(deployment("d", "2"))...)
	if err := p.Explain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(p.Actions) != 1 {
		t.Fatalf("actions: %v, want one", actions(p.Actions))
	}
	equal(t, "changes", []string{`v1 ConfigMap "own": data.k: "1" → "2"`}, p.Actions[0].Changes)
}

// A meter counts requests for single entities and lists, and the listed entities.
type meter struct {
	*world
	single, lists, listed atomic.Int64
}

func (m *meter) Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error) {
	m.single.Add(1)
	return m.Client.Site(ctx, id, revision)
}

func (m *meter) Sites(ctx context.Context, s tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error] {
	m.lists.Add(1)
	return func(yield func(tko.Site, error) bool) {
		for e, err := range m.Client.Sites(ctx, s, o) {
			m.listed.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}

// 50 entities of a kind are read in one list, fewer one by one. The plan is the same.
func TestManyEntitiesAreReadInOneList(t *testing.T) {
	t.Parallel()
	for _, n := range []int{49, 50} {
		w := newWorld(t, pruning())
		w.policy.Budget = prune.Budget{Percent: 100}
		puts := numbered(n-1, plainSite, "s")
		puts = append([]tko.Put{plainSite("first")}, puts...) // no other site has its prefix
		w.put(plainSite("a"))
		w.put(plainSite("z"))
		w.put(plainSite("zz"))
		w.apply(w.of(puts...)...)
		w.put(site("s03", "", "k", "theirs"))
		w.remove(tko.KindSite, "s05")
		m := &meter{world: w}
		p, err := plan.Make(t.Context(), m, w.of(puts[:n-1]...), w.items, w.policy)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprint(n, " sites"), []string{
			`update site "s03" (it was changed by ada)`, `create site "s05" (it was deleted)`, fmt.Sprintf(`delete site "s%02d"`, n-2),
		}, actions(p.Actions))
		if lists := m.lists.Load(); lists != int64(n-49) || lists == 1 && (m.single.Load() > 0 || m.listed.Load() > int64(n+1)) || lists == 0 && m.single.Load() != int64(n) {
			t.Errorf("%d sites: %d lists of %d entities, and %d single reads", n, lists, m.listed.Load(), m.single.Load())
		}
	}
}

// A cut lists sites up to the third, and then fails.
type cut struct{ *world }

func (c *cut) Sites(ctx context.Context, s tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error] {
	return func(yield func(tko.Site, error) bool) {
		n := 0
		for e, err := range c.Client.Sites(ctx, s, o) {
			n++
			if n > 3 {
				yield(tko.Site{}, tko.Errorf(tko.ErrUnavailable, "the connection was lost"))
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// If a list fails, there is no plan: the entities that it didn't reach may exist.
func TestPlansNeedWholeLists(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	puts := numbered(60, plainSite, "s")
	w.apply(w.of(puts...)...)
	for name, manifests := range map[string][]manifest.Manifest{"unchanged": w.of(puts...), "all are removed": nil} {
		if p, err := plan.Make(t.Context(), &cut{w}, manifests, w.items, w.policy); !errors.Is(err, tko.ErrUnavailable) {
			t.Errorf("%s: the plan is %+v, the error %v, want an ErrUnavailable", name, p, err)
		}
	}
}
