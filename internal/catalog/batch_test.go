package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
)

func TestMembersOfBatchAreCommittedIndependently(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("a", "x: 1"))
	const n = 40
	var commits []tko.DeploymentCommit
	for i := range n {
		id := w.create(tko.NewDeployment{Template: "t"})
		commits = append(commits, tko.DeploymentCommit{
			ID: id, Revision: 1, Package: pkg(t, state("templateId: t", isPrepared)+thing("a", fmt.Sprintf("x: %d", i))),
			Conditions: []tko.Condition{{Type: "Tried", Status: tko.ConditionTrue}}, Why: fmt.Sprintf("reason %d", i),
		})
	}
	broken := map[int]error{3: tko.ErrConflict, 7: tko.ErrInvalid, 11: tko.ErrBusy, 13: tko.ErrNotFound, 17: tko.ErrInvalid, 19: tko.ErrNotFound}
	commits[3].Revision = 2
	commits[7].Package = pkg(t, thing("a", "invalid: true"))
	if _, err := w.StartModification(w.ctx, commits[11].ID); err != nil {
		t.Fatal(err)
	}
	commits[13].ID = "no ID"
	commits[17].Conditions[0].Status = "Maybe"
	if _, err := w.DeleteDeploymentAt(w.ctx, commits[19].ID, 0); err != nil {
		t.Fatal(err)
	}

	revisions, err := w.CommitDeployments(tko.WithAuthor(w.ctx, tko.Author{Who: "preparer"}), commits)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range commits {
		want, isBroken := broken[i]
		if !isBroken {
			d, err := w.Deployment(w.ctx, c.ID, 0)
			if err != nil || revisions[i] != 2 || !d.Prepared || d.Stamp.Revision != 2 || d.Stamp.Author != (tko.Author{Who: "preparer", Why: c.Why}) {
				t.Errorf("member %d: committed as revision %d, and is %+v: %v", i, revisions[i], d.Stamp, err)
			}
			continue
		}
		if revisions[i] != 0 {
			t.Errorf("member %d, which can't be committed, has revision %d", i, revisions[i])
		}
		if _, err := w.CommitDeployment(w.ctx, c); !errors.Is(err, want) {
			t.Errorf("member %d alone: %v, want the reason: %v", i, err, want)
		}
		if want == tko.ErrNotFound {
			continue
		}
		if d, err := w.Deployment(w.ctx, c.ID, 0); err != nil || d.Stamp.Revision != 1 || d.Prepared {
			t.Errorf("member %d, which can't be committed, has changed: %+v, %v", i, d.Stamp, err)
		}
	}
}

func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	id := w.create(tko.NewDeployment{})
	if _, err := w.CommitDeployments(w.ctx, make([]tko.DeploymentCommit, 501)); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("501 commits: %v", err)
	}
	if _, err := w.CommitDeployments(w.ctx, []tko.DeploymentCommit{{ID: id, Revision: 1}, {ID: id, Revision: 1}}); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), string(id)) {
		t.Errorf("the same deployment twice: %v", err)
	}
	if _, err := w.DeploymentsByID(w.ctx, make([]tko.DeploymentID, 501)); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("501 reads: %v", err)
	}
}

func TestDeploymentsAreReadTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("a", "x: 1"))
	first, second := w.create(tko.NewDeployment{Template: "t"}), w.create(tko.NewDeployment{})
	got, err := w.DeploymentsByID(w.ctx, []tko.DeploymentID{second, "no ID", "2bWQ0dLkhlWqNTjXA0ezSxKKoWb", first})
	if err != nil {
		t.Fatal(err)
	}
	var want []tko.Deployment
	for _, id := range []tko.DeploymentID{second, first} {
		d, err := w.Deployment(w.ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, d)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-one by one +together)\n%s", diff)
	}
}

// Two servers share a database: one doesn't know the plugin that the other has
// registered.
func TestSiteIsScheduledByPluginOfAnotherServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	other := catalog.New(w.store, w.validator, catalog.Options{})
	w.site("first", thing("a", "")) // the rules are cached
	w.site("idle", thing("a", ""))
	due := func() (keys []string) {
		items, _, err := w.store.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueueSchedule, Max: 10, Lease: 1})
		if err != nil {
			t.Fatal(err)
		}
		var done []tko.FinishedWork
		for _, item := range items {
			keys, done = append(keys, item.Key), append(done, tko.FinishedWork{Item: item, Outcome: tko.WorkDone})
		}
		if err := w.store.FinishWork(w.ctx, done, nil); err != nil {
			t.Fatal(err)
		}
		return keys
	}
	if got := due(); len(got) > 1 || len(got) == 1 && got[0] != "first" {
		t.Errorf("sites without triggers are due: %q", got)
	}
	if _, err := other.RegisterPlugin(w.ctx, tko.Plugin{Type: tko.PluginSchedule, Name: "p", Arguments: []string{"x"}, Triggers: []krm.GVK{pkg(t, thing("a", ""))[0].GVK()}}); err != nil {
		t.Fatal(err)
	}
	w.site("new", thing("a", ""))
	if got := due(); len(got) != 1 || got[0] != "new" {
		t.Errorf("due at once: %q, want the site that the new plugin schedules", got)
	}
}
