package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// SetClockBack checks that leases and tokens expire, and work becomes due, without an
// extra hour after the database's clock is set back by an hour. step moves the clock.
func SetClockBack(t *testing.T, open func(t *testing.T) record.Store, step func(by time.Duration)) {
	t.Helper()
	const short = 2 * time.Second // far less than an hour, and long enough for a check
	w := &world{T: t, store: open(t)}
	w.commit(deployment("d"), deployment("e"), deployment("waits"), deployment("later"))
	items := w.claim(tko.QueuePrepare, 10, time.Hour)
	w.equal("items", len(items), 4)
	held := map[string]tko.WorkItem{}
	for _, item := range items {
		held[item.Key] = item
	}
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{
		{Item: held["waits"], Outcome: tko.WorkFailed, Error: "failed", Retry: short},
		{Item: held["later"], Outcome: tko.WorkLater, Retry: short},
	}, nil))
	renewed, err := w.store.RenewWork(w.ctx(), []tko.WorkItem{held["d"]}, short)
	w.ok(err)
	w.equal("renewed", len(renewed), 1)
	w.start("T", short)
	w.commit(site("s"))
	w.equal("claimed at the site", w.claim(tko.QueueSchedule, 1, short)[0].Key, "s")

	step(-time.Hour)
	come := map[string]bool{}
	eventually.True(w, "leases expire, and work is due again", func() bool {
		for _, queue := range []string{tko.QueuePrepare, tko.QueueSchedule} {
			items, _, err := w.store.ClaimWork(w.ctx(), tko.ClaimWork{Queue: queue, Max: 10, Lease: time.Hour})
			w.ok(err)
			for _, item := range items {
				come[item.Key] = true
			}
		}
		return come["d"] && come["waits"] && come["later"] && come["s"]
	})
	if come["e"] {
		t.Error("a lease of an hour has expired, want it to end an hour after the step")
	}
	eventually.True(w, "the token expires", func() bool {
		_, err := w.store.Commit(w.ctx(), record.Ungated(deployment("d", expect(1))))
		return err == nil
	})
	w.start("U", time.Hour)

	// Once more, with a store that was opened after the step.
	_, err = w.store.BreakModification(w.ctx(), "d")
	w.ok(err)
	w.start("V", short)
	w.ok(w.store.Close())
	step(-time.Hour)
	w = &world{T: t, store: open(t)}
	eventually.True(w, "the token expires after a restart", func() bool {
		_, _, err := w.store.StartModification(w.ctx(), "d", "W", time.Hour)
		return err == nil
	})
}

// SetClockForward checks that nothing is done twice or reordered after the database's
// clock is set forward by an hour, and back again. step moves the clock.
func SetClockForward(t *testing.T, open func(t *testing.T) record.Store, step func(by time.Duration)) {
	t.Helper()
	w := &world{T: t, store: open(t)}
	w.commit(deployment("d"))
	w.ok(w.store.Audit(w.ctx(), audit.Record{Kind: "login"}))
	first := w.claim(tko.QueuePrepare, 1, time.Minute)
	w.equal("claims", len(first), 1)
	w.start("T", time.Minute)
	compare := func(id string) {
		w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueCompare, []string{id}, false))
		_, err := w.store.SaveTargetState(w.ctx(), tko.TargetState{Site: tko.SiteID(id), Name: tko.ComparisonState}, w.claim(tko.QueueCompare, 1, time.Minute)[0])
		w.ok(err)
	}
	compare("first")
	compare("second")
	_, err := w.store.TargetState(w.ctx(), "first", tko.ComparisonState)
	w.ok(err)

	step(time.Hour)
	compare("third")
	_, err = w.store.TargetState(w.ctx(), "first", tko.ComparisonState)
	w.failed(err, tko.ErrNotFound) // comparisons expire
	w.ok(w.store.Audit(w.ctx(), audit.Record{Kind: "login"}))
	second := w.claim(tko.QueuePrepare, 1, time.Minute)
	w.equal("claims after the lease", len(second), 1)
	renewed, err := w.store.RenewWork(w.ctx(), first, time.Minute)
	w.ok(err)
	w.equal("leases renewed by the first worker", len(renewed), 0)
	_, err = w.store.Commit(w.ctx(), record.Ungated(deployment("d", expect(1), func(c *record.Write) { c.Claim = &first[0] })))
	if !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrBusy) {
		t.Errorf("a write of the first worker: %v, want it refused", err)
	}
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: first[0], Outcome: tko.WorkDone}}, nil))
	if _, _, err := w.store.WorkClaim(w.ctx(), tko.QueuePrepare, "d"); err != nil {
		t.Errorf("the claim of the second worker after the first one's end: %v, want it held", err)
	}
	w.commit(deployment("e"))
	step(-time.Hour)
	w.commit(deployment("f"))
	w.ok(w.store.Audit(w.ctx(), audit.Record{Kind: "login"}))

	last := int64(0)
	var order []string
	for _, c := range w.changes(0) {
		if c.Position <= last {
			t.Errorf("the change of %s has the position %d after %d", c.ID, c.Position, last)
		}
		last = c.Position
		order = append(order, c.ID)
	}
	w.equal("order of the log", order, []string{"d", "e", "f"})
	records, head, base, err := w.store.Audited(w.ctx(), 0, 10)
	w.ok(err)
	v := audit.NewVerifier(base)
	for _, r := range records {
		w.ok(v.Next(r))
	}
	w.ok(v.End(head))
	w.equal("audit records", len(records), 3)
}
