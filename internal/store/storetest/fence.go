package storetest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/backup"
)

// Fences checks that a promotion makes a store's fencing epoch greater than all before, that backups
// carry it, and that a restored store stands by until it is promoted, or its first site is released.
func Fences(t *testing.T, from, to, again Archiver) {
	t.Helper()
	w := &world{T: t, store: from}
	w.fillAll()
	w.fence(from, tko.Fence{})
	before := time.Now().Add(-time.Hour).UnixMicro() // clocks of databases differ
	first, err := from.Promote(t.Context(), backup.Promotion{Reason: "the other region is lost"})
	w.ok(err)
	if first.Epoch < before || first.Standby {
		t.Errorf("the first promotion gives %+v, want its time", first)
	}
	w.fence(from, first)
	far, err := from.Promote(t.Context(), backup.Promotion{After: first.Epoch + 1e15})
	w.ok(err)
	if far.Epoch != first.Epoch+1e15+1 {
		t.Errorf("a promotion beyond an epoch of the future gives %+v", far)
	}
	next, err := from.Promote(t.Context(), backup.Promotion{})
	w.ok(err)
	if next.Epoch != far.Epoch+1 {
		t.Errorf("the promotion after one of the future gives %+v, want one more", next)
	}
	w.checkPromotionAudited("the other region is lost")
	var saved bytes.Buffer
	_, err = from.Archive(t.Context(), &saved, "v1")
	w.ok(err)

	w = &world{T: t, store: to}
	_, err = to.Restore(t.Context(), bytes.NewReader(saved.Bytes()), backup.Restore{})
	w.ok(err)
	standby := tko.Fence{Epoch: next.Epoch, Standby: true}
	w.fence(to, standby)
	holds, err := to.Holds(t.Context())
	w.ok(err)
	var queues, sites []tko.Hold
	for _, h := range holds {
		if h.Queue == tko.QueueSchedule {
			sites = append(sites, h)
		} else {
			queues = append(queues, h)
		}
	}
	w.ok(to.ReleaseHolds(t.Context(), queues, ""))
	w.fence(to, standby) // the store changes, and no site does
	w.ok(to.ReleaseHolds(t.Context(), sites[:1], tko.HoldKeep))
	released := tko.Fence{Epoch: next.Epoch + 1}
	w.fence(to, released)
	w.ok(to.ReleaseHolds(t.Context(), sites, "")) // it is promoted once
	w.fence(to, released)
	w.fence(from, next)

	w = &world{T: t, store: again}
	_, err = again.Restore(t.Context(), bytes.NewReader(saved.Bytes()), backup.Restore{})
	w.ok(err)
	promoted, err := again.Promote(t.Context(), backup.Promotion{})
	w.ok(err)
	w.fence(again, tko.Fence{Epoch: next.Epoch + 1})
	if promoted.Standby {
		t.Errorf("the restored store stands by after its promotion: %+v", promoted)
	}
	if _, err := again.Restore(t.Context(), bytes.NewReader(saved.Bytes()), backup.Restore{}); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("a restore into a promoted store: %v, want ErrConflict", err)
	}
}

func (w *world) fence(s record.Backups, want tko.Fence) {
	w.Helper()
	got, err := s.Fence(w.ctx())
	w.ok(err)
	w.equal("fence", got, want)
}

func (w *world) checkPromotionAudited(reason string) {
	w.Helper()
	records, _, _, err := w.store.Audited(w.ctx(), 0, 1000)
	w.ok(err)
	for _, r := range records {
		one, err := r.Record()
		w.ok(err)
		if one.Op == "promoted" && one.Decision == audit.Allow && bytes.Contains(r.Text, []byte(reason)) {
			return
		}
	}
	w.Error("the promotion is not in the audit log")
}
