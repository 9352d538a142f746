package storetest

import (
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var targetPromises = []promise{
	{"the state of a target is read as it was saved", targetStateIsAsSaved},
	{"the state of a target is saved only with the claim of the site's work", targetStateNeedsItsClaim},
	{"the state of a target stays when its site is deleted", targetStateOutlivesItsSite},
}

// claimSite claims the work of the site "lagos".
func (w *world) claimSite(lease time.Duration) tko.WorkItem {
	w.Helper()
	const id = "lagos"
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueSchedule, []string{id}, false))
	items := w.claim(tko.QueueSchedule, 1, lease)
	if len(items) != 1 || items[0].Key != id {
		w.Fatalf("claimed %v, want the work of site %q", items, id)
	}
	return items[0]
}

func targetStateIsAsSaved(w *world) {
	_, err := w.store.TargetState(w.ctx(), "lagos", "main")
	w.failed(err, tko.ErrNotFound)
	claim := w.claimSite(time.Hour)
	saved := tko.TargetState{Site: "lagos", Name: "main", State: []byte{0, 1, 255}}
	for want := range int64(3) {
		version, err := w.store.SaveTargetState(w.ctx(), saved, claim)
		w.ok(err)
		w.equal("version", version, want+1)
	}
	for _, other := range []tko.TargetState{{Site: "lagos", Name: "second"}, {Site: "lagos:main", Name: "main"}} {
		version, err := w.store.SaveTargetState(w.ctx(), other, claim)
		w.ok(err)
		w.equal("version of another state", version, int64(1))
	}
	got, err := w.store.TargetState(w.ctx(), "lagos", "main")
	w.ok(err)
	if time.Since(got.Updated).Abs() > time.Minute {
		w.Errorf("updated at %v, want now", got.Updated)
	}
	saved.Version, saved.Updated = 3, got.Updated
	w.equal("state", got, saved)

	_, err = w.store.SaveTargetState(w.ctx(), tko.TargetState{Site: "lagos", Name: "main"}, claim)
	w.ok(err)
	got, err = w.store.TargetState(w.ctx(), "lagos", "main")
	w.ok(err)
	w.equal("length of an empty state", len(got.State), 0)
	w.equal("version of an empty state", got.Version, int64(4))

	sources, err := w.store.Sources(w.ctx())
	w.ok(err)
	w.equal("sources", len(sources), 0)
}

func targetStateNeedsItsClaim(w *world) {
	lost := w.claimSite(time.Microsecond)
	var held []tko.WorkItem
	eventually.True(w, "the lease expires", func() bool {
		held = w.claim(tko.QueueSchedule, 1, time.Hour)
		return len(held) == 1
	})
	_, err := w.store.SaveTargetState(w.ctx(), tko.TargetState{Site: "lagos", Name: "main", State: []byte("new")}, held[0])
	w.ok(err)
	_, err = w.store.SaveTargetState(w.ctx(), tko.TargetState{Site: "lagos", Name: "main", State: []byte("old")}, lost)
	w.failed(err, tko.ErrConflict)
	got, err := w.store.TargetState(w.ctx(), "lagos", "main")
	w.ok(err)
	w.equal("state", string(got.State), "new")
	w.equal("version", got.Version, int64(1))
}

func targetStateOutlivesItsSite(w *world) {
	w.commit(site("lagos"))
	claim := w.claimSite(time.Hour)
	_, err := w.store.SaveTargetState(w.ctx(), tko.TargetState{Site: "lagos", Name: "main", State: []byte("made")}, claim)
	w.ok(err)
	w.commit(deleted(record.Key{Kind: tko.KindSite, ID: "lagos"}))
	got, err := w.store.TargetState(w.ctx(), "lagos", "main")
	w.ok(err)
	w.equal("state", string(got.State), "made")
}
