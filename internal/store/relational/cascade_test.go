package relational_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// removeInSteps deletes records, in steps of a size, and returns how many were deleted. Each
// step is bounded, except that it may exceed its size by one.
func removeInSteps(t *testing.T, s *relational.Store, size int, keys ...record.Key) (removed, steps int) {
	t.Helper()
	for {
		for _, kind := range []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment} {
			s.SetStep(kind, size)
		}
		var writes []record.Write
		for _, key := range keys {
			writes = append(writes, deleted(key.Kind, key.ID))
		}
		before, err := s.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		outcomes := commit(t, s, writes...)
		after, err := s.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Records without dependents are no part of the step.
		if n := int(after - before); n > size+len(keys)+1 {
			t.Fatalf("a step of %d changes %d records", size, n)
		}
		more := false
		for _, o := range outcomes {
			removed += o.Deleted
			more = more || o.More
		}
		steps++
		if !more {
			return removed, steps
		}
		if after == before || steps > 10_000 {
			t.Fatalf("step %d changed nothing, but there is more", steps)
		}
	}
}

// Families of any form are deleted in steps of any size: exactly them, each descendant before
// its ancestors, and nothing twice.
func TestFamiliesAreDeletedInStepsOfAnySize(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	random := rand.New(rand.NewPCG(51, 52))
	for round := range 25 {
		parents, children := map[string]string{}, map[string][]string{}
		var writes []record.Write
		ids := []string{}
		for i := range 5 + random.IntN(120) {
			id := fmt.Sprintf("r%02d/%03d", round, i)
			parent := ""
			if i > 3 { // the first ones are the roots
				switch random.IntN(3) {
				case 0:
					parent = ids[len(ids)-1] // deep
				case 1:
					parent = ids[0] // wide
				default:
					parent = ids[random.IntN(len(ids))]
				}
			}
			ids = append(ids, id)
			parents[id] = parent
			children[parent] = append(children[parent], id)
			writes = append(writes, written(tko.KindDeployment, id, under(parent)))
		}
		commit(t, s, writes...)
		before, err := s.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Two roots, of which one may be below the other one's sibling.
		roots := []string{ids[0], ids[random.IntN(len(ids))]}
		if roots[0] == roots[1] {
			roots = roots[:1]
		}
		gone := map[string]bool{}
		var mark func(id string)
		mark = func(id string) {
			gone[id] = true
			for _, child := range children[id] {
				mark(child)
			}
		}
		keys := make([]record.Key, len(roots))
		for i, root := range roots {
			mark(root)
			keys[i] = deploymentKey(root)
		}
		size := 1 + random.IntN(40)
		removed, steps := removeInSteps(t, s, size, keys...)
		if removed != len(gone) {
			t.Errorf("round %d: %d deployments were deleted in %d steps of %d, want %d", round, removed, steps, size, len(gone))
		}
		at := map[string]int{}
		for i, change := range logged(t, s, before) {
			op, id, _ := strings.Cut(change, " ")
			id, _, _ = strings.Cut(id, " ")
			if op != string(tko.OpDeleted) {
				continue
			}
			if at[id] != 0 {
				t.Errorf("round %d: %s was deleted twice", round, id)
			}
			at[id] = i + 1
		}
		for id := range gone {
			if at[id] == 0 || gone[parents[id]] && at[id] > at[parents[id]] {
				t.Fatalf("round %d: %s was deleted after its parent %s", round, id, parents[id])
			}
		}
		q := everything(tko.KindDeployment)
		q.IDs = []tko.Pattern{pattern(t, fmt.Sprintf("r%02d/**", round))}
		stay := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return gone[id] })
		if diff := cmp.Diff(stay, listed(t, s, q), cmp.Transformer("empty", func(l []string) []string { return append([]string{}, l...) })); diff != "" {
			t.Errorf("round %d: deployments that stay (-want +got)\n%s", round, diff)
		}
	}
}

// A template, and a site, are deleted in steps of any size: what refers to them stays, and
// no longer does, in one new revision each.
func TestReferencesAreRemovedInStepsOfAnySize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 7, 29, 30, 31, 60} {
		s, _ := open(t)
		ofTemplate := func(r *record.Record) { r.Template = "t" }
		writes := []record.Write{written(tko.KindTemplate, "t"), written(tko.KindTemplate, "other"), written(tko.KindSite, "s")}
		for i := range 10 {
			writes = append(writes, written(tko.KindSite, fmt.Sprintf("s%02d", i), ofTemplate))
		}
		for i := range 30 {
			writes = append(writes, written(tko.KindDeployment, fmt.Sprintf("d%02d", i), at("s"), ofTemplate))
		}
		writes = append(writes, written(tko.KindDeployment, "other", func(r *record.Record) { r.Template = "other" }))
		commit(t, s, writes...)
		removed, steps := removeInSteps(t, s, size, record.Key{Kind: tko.KindTemplate, ID: "t"})
		if least := 40 / (size + 1); removed != 1 || steps < least {
			t.Errorf("steps of %d: %d removed in %d steps, want %d at least", size, removed, steps, least)
		}
		removed, steps = removeInSteps(t, s, size, record.Key{Kind: tko.KindSite, ID: "s"})
		if removed != 1 || steps < 30/(size+1) {
			t.Errorf("steps of %d: %d removed in %d steps", size, removed, steps)
		}
		for _, kind := range []tko.Kind{tko.KindSite, tko.KindDeployment} {
			for r, err := range s.List(t.Context(), everything(kind)) {
				revision := map[tko.Kind]int64{tko.KindSite: 2, tko.KindDeployment: 3}[kind]
				template := ""
				if r.ID == "other" {
					revision, template = 1, "other"
				}
				if err != nil || r.Template != template || r.Site != "" || r.Revision != revision {
					t.Errorf("steps of %d: %s %q is at revision %d, of template %q, at site %q: %v", size, kind, r.ID, r.Revision, r.Template, r.Site, err)
				}
			}
		}
	}
}

// While a deletion is in progress, its record is marked, and its commits of steps may lose
// their connection: each record is deleted once.
func TestDeletionInStepsSurvivesLostConnections(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	for _, kind := range []fault{notSent, unknown, committed} {
		for n := 1; ; n += 3 {
			root := fmt.Sprintf("%d/%02d", kind, n)
			writes := []record.Write{written(tko.KindDeployment, root)}
			for i := range 12 {
				writes = append(writes, written(tko.KindDeployment, fmt.Sprintf("%s/%02d", root, i), under(root)))
			}
			commit(t, s, writes...)
			db.arm(n, kind)
			removed, steps := removeInSteps(t, s, 5, deploymentKey(root))
			failed := db.disarm()
			if removed != 13 || steps < 3 {
				t.Errorf("fault %d of operation %d: %d deleted in %d steps", kind, n, removed, steps)
			}
			if failed == 0 {
				break
			}
		}
	}
	if got := listed(t, s, everything(tko.KindDeployment)); len(got) > 0 {
		t.Errorf("%v stay", got)
	}
}
