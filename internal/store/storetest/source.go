package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var sourcePromises = []promise{
	{"enqueued work is due at once", enqueuedWorkIsDue},
	{"with missing, only work without an item is enqueued", missingWorkIsEnqueuedOnce},
	{"a GitOps source is read as it was saved", sourceIsAsSaved},
	{"a GitOps source is Enqueued until its reconciliation ends, and Due while no worker claims it", sourceIsEnqueued},
	{"only the holder of a claim saves its GitOps source", sourceIsSavedByHolder},
	{"a change with a claim needs the claim to be valid", changesNeedValidClaim},
	{"changes with and without a claim don't affect each other", claimsAreIndependent},
}

func (w *world) claimSource(lease time.Duration, names ...string) []tko.WorkItem {
	w.Helper()
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueGitOps, names, false))
	items := w.claim(tko.QueueGitOps, len(names), lease)
	if len(items) != len(names) {
		w.Fatalf("claimed %v, want %v", items, names)
	}
	return items
}

func enqueuedWorkIsDue(w *world) {
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueGitOps, nil, false))
	item := w.claimSource(time.Hour, "a")[0]
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: item, Outcome: tko.WorkLater, Retry: time.Hour}}, nil))
	signal := w.store.Signal()
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueGitOps, []string{"b", "a", "a"}, false))
	<-signal // workers that wait receive a signal
	w.equal("due", w.dueWork(tko.QueueGitOps), []string{"a", "b"})

	items := w.claimSource(time.Hour, "a", "b")
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueGitOps, []string{"a"}, false))
	w.equal("while it is claimed", w.dueWork(tko.QueueGitOps), []string{})
	for _, i := range items {
		w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: i, Outcome: tko.WorkLater, Retry: time.Hour}}, nil))
	}
	w.equal("afterwards", w.dueWork(tko.QueueGitOps), []string{"a"})
	w.failed(w.store.EnqueueWork(w.ctx(), tko.QueueGitOps, []string{"\x00"}, false), tko.ErrInvalid)
}

func missingWorkIsEnqueuedOnce(w *world) {
	item := w.claimSource(time.Hour, "a")[0]
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: item, Outcome: tko.WorkLater, Retry: time.Hour}}, nil))
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueGitOps, []string{"a", "b"}, true))
	w.equal("due", w.dueWork(tko.QueueGitOps), []string{"b"})
}

func sourceIsAsSaved(w *world) {
	_, err := w.store.Source(w.ctx(), "a")
	w.failed(err, tko.ErrNotFound)
	w.failed(w.store.ApproveSource(w.ctx(), "a", "x"), tko.ErrNotFound)
	items := w.claimSource(time.Hour, "a", "b")
	a := tko.Source{
		Name: "a", State: []byte{0, 1, 255}, Status: tko.SourceStatus{
			Kind: "git", Applied: "r1", Items: []tko.SourceItem{{Kind: "site", Name: "s", Revision: 3}},
			Conditions: []tko.Condition{{Type: tko.ConditionReady, Status: tko.ConditionTrue, Message: "ä\u2028"}},
		},
	}
	for want := range int64(3) {
		version, err := w.store.SaveSource(w.ctx(), a, items[0])
		w.ok(err)
		w.equal("version", version, want+1)
	}
	_, err = w.store.SaveSource(w.ctx(), tko.Source{Name: "b"}, items[1])
	w.ok(err)
	w.ok(w.store.ApproveSource(w.ctx(), "a", "yes"))

	got, err := w.store.Source(w.ctx(), "a")
	w.ok(err)
	if time.Since(got.Updated).Abs() > time.Minute {
		w.Errorf("updated at %v", got.Updated)
	}
	a.Version, a.Updated, a.Approved, a.Enqueued = 3, got.Updated, "yes", true
	w.equal("source", got, a)
	_, err = w.store.SaveSource(w.ctx(), a, items[0])
	w.ok(err)
	got, err = w.store.Source(w.ctx(), "a")
	w.ok(err)
	w.equal("approved digest", got.Approved, "yes")

	all, err := w.store.Sources(w.ctx())
	w.ok(err)
	a.State, a.Version, a.Updated = nil, 4, got.Updated
	if len(all) != 2 || all[1].Name != "b" {
		w.Fatalf("sources are %+v", all)
	}
	w.equal("first of all", all[0], a)

	w.ok(w.store.ForgetSource(w.ctx(), "a", items[0]))
	w.ok(w.store.ForgetSource(w.ctx(), "a", items[0]))
	_, err = w.store.Source(w.ctx(), "a")
	w.failed(err, tko.ErrNotFound)
}

func sourceIsEnqueued(w *world) {
	enqueued := func(when string, want, due bool) {
		w.Helper()
		one, err := w.store.Source(w.ctx(), "a")
		w.ok(err)
		all, err := w.store.Sources(w.ctx())
		w.ok(err)
		w.equal(when, []bool{one.Enqueued, all[0].Enqueued, !one.Due.IsZero(), !all[0].Due.IsZero()}, []bool{want, want, due, due})
		if due && time.Since(one.Due).Abs() > time.Minute {
			w.Errorf("%s, it is due since %v", when, one.Due)
		}
	}
	finish := func(item tko.WorkItem, outcome tko.WorkOutcome) {
		w.Helper()
		w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: item, Outcome: outcome, Retry: time.Hour}}, nil))
	}
	enqueue := func() { w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueGitOps, []string{"a"}, false)) }
	item := w.claimSource(time.Hour, "a")[0]
	_, err := w.store.SaveSource(w.ctx(), tko.Source{Name: "a"}, item)
	w.ok(err)
	enqueued("during the reconciliation", true, false)
	finish(item, tko.WorkLater)
	enqueued("after it", false, false)
	enqueue()
	enqueued("enqueued again", true, true)
	item = w.claim(tko.QueueGitOps, 1, time.Hour)[0]
	enqueue()
	finish(item, tko.WorkLater)
	enqueued("enqueued during the reconciliation", true, true)
	finish(w.claim(tko.QueueGitOps, 1, time.Hour)[0], tko.WorkFailed)
	enqueued("after a reconciliation that failed", false, false)
	finish(w.claimSource(time.Hour, "a")[0], tko.WorkReleased)
	enqueued("released for an hour", true, false)
	enqueue()
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: w.claim(tko.QueueGitOps, 1, time.Hour)[0], Outcome: tko.WorkReleased}}, nil))
	enqueued("released", true, true)
	finish(w.claim(tko.QueueGitOps, 1, time.Hour)[0], tko.WorkDone)
	enqueued("done, by a worker that doesn't know the source", true, false)
}

func sourceIsSavedByHolder(w *world) {
	old := w.claimSource(time.Microsecond, "a")[0]
	var now []tko.WorkItem
	eventually.True(w, "the lease runs out", func() bool {
		now = w.claim(tko.QueueGitOps, 1, time.Hour)
		return len(now) == 1
	})
	_, err := w.store.SaveSource(w.ctx(), tko.Source{Name: "a", State: []byte("new")}, now[0])
	w.ok(err)
	_, err = w.store.SaveSource(w.ctx(), tko.Source{Name: "a", State: []byte("old")}, old)
	w.failed(err, tko.ErrConflict)
	w.failed(w.store.ForgetSource(w.ctx(), "a", old), tko.ErrConflict)
	got, err := w.store.Source(w.ctx(), "a")
	w.ok(err)
	w.equal("state", string(got.State), "new")
}

func withClaim(item tko.WorkItem) func(*record.Write) {
	return func(w *record.Write) { w.Claim = &item }
}

func changesNeedValidClaim(w *world) {
	old := w.claimSource(time.Microsecond, "a")[0]
	w.commit(template("t", withClaim(old))) // no other worker has claimed it yet
	var now []tko.WorkItem
	eventually.True(w, "the lease runs out", func() bool {
		now = w.claim(tko.QueueGitOps, 1, time.Hour)
		return len(now) == 1
	})
	head := w.head()
	err := w.refusal(tko.ErrConflict, template("t", expect(1), withPackage("old"), withClaim(old)))
	if !strings.Contains(err.Error(), "claim") {
		w.Errorf("the error is %v", err)
	}
	w.refused(tko.ErrConflict, template("t2", withClaim(old)))
	w.refused(tko.ErrConflict, deleted(templateKey("t"), withClaim(old)))
	w.equal("head", w.head(), head)
	w.commit(template("t", expect(1), withPackage("new"), withClaim(now[0])))
	w.commit(deleted(templateKey("t"), withClaim(now[0])))
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: now[0], Outcome: tko.WorkDone}}, nil))
	w.refused(tko.ErrConflict, template("t3", withClaim(now[0])))
}

func claimsAreIndependent(w *world) {
	items := w.claimSource(time.Hour, "a", "b")
	other := items[0]
	other.Claim = "unknown"
	writes := make(chan error)
	for i, change := range []func(*record.Write){withClaim(items[0]), withClaim(items[1]), withClaim(other), func(*record.Write) {}} {
		go func() {
			var err error
			for n := range 20 {
				if _, e := w.store.Commit(w.ctx(), record.Ungated(site("s"+strings.Repeat("x", i)+"-"+strings.Repeat("y", n), change))); e != nil {
					err = e
				}
			}
			writes <- err
		}()
	}
	var errs []error
	for range 4 {
		errs = append(errs, <-writes)
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) != 1 {
		w.Fatalf("errors are %v", errs)
	}
	w.failed(errs[0], tko.ErrConflict)
	w.equal("sites", len(w.ids(record.Query{Kind: tko.KindSite, Limit: -1})), 60)
}
