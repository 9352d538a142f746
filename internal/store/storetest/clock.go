package storetest

import (
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// SetClockBack checks that leases and tokens expire, and work becomes due, without an
// extra hour after the database's clock is set back by an hour. step moves the clock.
func SetClockBack(t *testing.T, open func(t *testing.T) catalog.Store, step func(by time.Duration)) {
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
		_, err := w.store.Commit(w.ctx(), deployment("d", expect(1)))
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
