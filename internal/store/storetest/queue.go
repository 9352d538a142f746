package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

var queuePromises = []promise{
	{"changes call for work", changesCallForWork},
	{"items of the same key fall together, the oldest first", itemsFallTogether},
	{"nobody gets what somebody else has claimed", claimsAreApart},
	{"a lease that runs out is claimed again", leaseRunsOut},
	{"a lease is renewed by its owner only", leaseIsRenewed},
	{"work that failed comes back, with its error", failedComesBack},
	{"work for later comes back, as no failure", laterComesBack},
	{"work that was released comes back at once", releasedComesBack},
	{"renewing, finishing and new work at once lose nothing", func(w *world) { contend(w) }},
	{"new work since the claim is not lost", newWorkIsNotLost},
	{"work that waits is stirred up", waitingIsStirred},
	{"stirring reaches work that is claimed", claimedIsStirred},
	{"a schedule plugin calls for every site", everySite},
	{"a wrong outcome is invalid", wrongOutcome},
}

func changesCallForWork(w *world) {
	w.commit(site("s"), site("s2"))
	w.equal("sites", w.dueWork(tko.QueueSchedule), []string{"s", "s2"})
	steps := []struct {
		why               string
		write             catalog.Write
		prepare, schedule []string
	}{
		{"new, not prepared", deployment("d", at("s")), []string{"d"}, nil},
		{"prepared and approved", deployment("d", expect(1), at("s"), ready), nil, []string{"s"}},
		{"moved", deployment("d", expect(2), at("s2"), ready), nil, []string{"s", "s2"}},
		{"not prepared any more", deployment("d", expect(3), at("s2")), []string{"d"}, []string{"s2"}},
		{"again", deployment("d", expect(4), at("s2"), ready), nil, []string{"s2"}},
		{"gone", deleted(deploymentKey("d")), nil, []string{"s2"}},
		{"a template calls for nothing", template("t"), nil, nil},
	}
	for _, step := range steps {
		w.commit(step.write)
		w.equal(step.why+": prepare", w.dueWork(tko.QueuePrepare), append([]string{}, step.prepare...))
		w.equal(step.why+": schedule", w.dueWork(tko.QueueSchedule), append([]string{}, step.schedule...))
	}
}

func itemsFallTogether(w *world) {
	for i, id := range []string{"c", "a", "b"} {
		w.commit(deployment(id))
		w.commit(deployment(id, expect(1), withPackage(strconv.Itoa(i))))
	}
	items := w.claim(tko.QueuePrepare, 2, time.Hour)
	if len(items) != 2 || items[0].Key != "c" || items[1].Key != "a" || items[0].Claim == "" || items[0].Queue != tko.QueuePrepare || items[0].Attempt != 0 {
		w.Errorf("items are %+v", items)
	}
	w.equal("one more", w.claim(tko.QueuePrepare, 10, 2*time.Hour)[0].Key, "b")
	items, next, err := w.store.ClaimWork(w.ctx(), tko.ClaimWork{Queue: tko.QueuePrepare, Max: 2, Lease: time.Hour})
	w.ok(err)
	if len(items) != 0 || next.Before(time.Now().Add(50*time.Minute)) || next.After(time.Now().Add(70*time.Minute)) {
		w.Errorf("items are %v, next is due at %v", items, next)
	}
	items, next, err = w.store.ClaimWork(w.ctx(), tko.ClaimWork{Queue: "empty", Max: 2, Lease: time.Hour})
	w.ok(err)
	if len(items) != 0 || !next.IsZero() {
		w.Errorf("an empty queue has the items %v, and is due at %v", items, next)
	}
}

func claimsAreApart(w *world) {
	const n = 200
	var writes []catalog.Write
	for _, id := range ids("d%03d", n) {
		writes = append(writes, deployment(id))
	}
	w.commit(writes...)
	var mutex sync.Mutex
	count := map[string]int{}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for {
				items, next, err := w.store.ClaimWork(w.ctx(), tko.ClaimWork{Queue: tko.QueuePrepare, Max: 7, Lease: time.Hour})
				if err != nil {
					w.Error(err)
					return
				}
				// Nothing but what others are claiming right now: look again.
				if len(items) == 0 && next.After(time.Now().Add(time.Minute)) {
					return
				}
				mutex.Lock()
				for _, item := range items {
					count[item.Key]++
				}
				mutex.Unlock()
			}
		})
	}
	wait.Wait()
	w.equal("claimed", len(count), n)
	for id, times := range count {
		if times != 1 {
			w.Errorf("%s is claimed %d times", id, times)
		}
	}
}

// Contend renews, finishes and commits the same items at the same time, again
// and again, each in an order of its own: for backends that can tell whether
// that made them wait in circles.
func Contend(t *testing.T, store catalog.Store) { contend(&world{T: t, store: store}) }

func contend(w *world) {
	const rounds, n = 30, 40
	writes := make([]catalog.Write, n)
	for i := range writes {
		writes[i] = deployment(fmt.Sprintf("d%02d", i))
	}
	w.commit(writes...)
	for round := range rounds {
		items := w.claim(tko.QueuePrepare, n, time.Minute)
		if len(items) != n {
			w.Fatalf("round %d: %d items are due, want %d", round, len(items), n)
		}
		mixed := slices.Clone(items)
		rand.Shuffle(n, func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] }) //nolint:gosec // an order, not a secret
		finished := make([]tko.FinishedWork, n)
		again := make([]catalog.Write, n)
		for i := range n {
			finished[i] = tko.FinishedWork{Item: items[n-1-i], Outcome: tko.WorkReleased}
			again[i] = deployment(fmt.Sprintf("d%02d", n-1-i), expect(catalog.Any), withPackage(strconv.Itoa(round)))
		}
		var wait sync.WaitGroup
		for _, do := range []func() error{
			func() error { _, err := w.store.RenewWork(w.ctx(), mixed, time.Minute); return err },
			func() error { return w.store.FinishWork(w.ctx(), finished, nil) },
			func() error { _, err := w.store.Commit(w.ctx(), again...); return err },
		} {
			wait.Go(func() {
				if err := do(); err != nil {
					w.Error(err)
				}
			})
		}
		wait.Wait()
	}
}

func leaseRunsOut(w *world) {
	w.commit(deployment("d"))
	first := w.claim(tko.QueuePrepare, 1, 20*time.Millisecond)[0]
	var second []tko.WorkItem
	w.eventually("the lease runs out", func() bool {
		second = w.claim(tko.QueuePrepare, 1, time.Hour)
		return len(second) == 1
	})
	if first.Claim == second[0].Claim {
		w.Error("both claims are the same")
	}
	// The first owner is late: what it says doesn't count.
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: first, Outcome: tko.WorkDone}}, nil))
	renewed, err := w.store.RenewWork(w.ctx(), append(second, first), time.Hour)
	w.ok(err)
	w.equal("renewed", renewed, second)
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: second[0], Outcome: tko.WorkDone}}, nil))
	w.equal("done", len(w.claim(tko.QueuePrepare, 1, time.Hour)), 0)
}

func leaseIsRenewed(w *world) {
	w.commit(deployment("d"), deployment("e"))
	items := w.claim(tko.QueuePrepare, 2, 10*time.Second)
	renewed, err := w.store.RenewWork(w.ctx(), items, time.Hour)
	w.ok(err)
	w.equal("renewed", len(renewed), 2)
	_, next, err := w.store.ClaimWork(w.ctx(), tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: time.Hour})
	w.ok(err)
	if next.Before(time.Now().Add(50 * time.Minute)) {
		w.Errorf("the next is due at %v", next)
	}
	stolen := items[0]
	stolen.Claim = "guessed"
	renewed, err = w.store.RenewWork(w.ctx(), []tko.WorkItem{stolen}, time.Hour)
	w.ok(err)
	w.equal("of others", len(renewed), 0)
	renewed, err = w.store.RenewWork(w.ctx(), nil, time.Hour)
	w.ok(err)
	w.equal("of none", len(renewed), 0)
}

func (w *world) finish(item tko.WorkItem, outcome tko.WorkOutcome, change ...func(*tko.FinishedWork)) {
	w.Helper()
	f := tko.FinishedWork{Item: item, Outcome: outcome}
	for _, c := range change {
		c(&f)
	}
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{f}, func(attempt int) time.Duration { return time.Duration(attempt) * time.Hour }))
}

func (w *world) dueIn(from, to time.Duration) {
	w.Helper()
	items, next, err := w.store.ClaimWork(w.ctx(), tko.ClaimWork{Queue: tko.QueuePrepare, Max: 10, Lease: time.Hour})
	w.ok(err)
	if in := time.Until(next); len(items) != 0 || in < from || in > to {
		w.Errorf("the items %v are due, the next in %v, not between %v and %v", items, in, from, to)
	}
}

func failedComesBack(w *world) {
	w.commit(deployment("d"))
	w.finish(w.claim(tko.QueuePrepare, 1, time.Minute)[0], tko.WorkFailed, func(f *tko.FinishedWork) { f.Error = "no luck\x00\xff" })
	w.dueIn(50*time.Minute, 70*time.Minute)
	w.commit(deployment("d", expect(1)))
	item := w.claim(tko.QueuePrepare, 1, time.Minute)[0]
	w.equal("failures", item.Attempt, 1)
	w.equal("error", item.LastError, "no luck\uFFFD\uFFFD")
	w.finish(item, tko.WorkFailed, func(f *tko.FinishedWork) { f.Error = "again" })
	w.dueIn(100*time.Minute, 140*time.Minute)
	w.commit(deployment("d", expect(2)))
	w.finish(w.claim(tko.QueuePrepare, 1, time.Minute)[0], tko.WorkFailed, func(f *tko.FinishedWork) { f.Retry = time.Millisecond })
	w.eventually("it comes back when it said", func() bool {
		items := w.claim(tko.QueuePrepare, 1, time.Minute)
		return len(items) == 1 && items[0].Attempt == 3
	})
}

func laterComesBack(w *world) {
	w.commit(deployment("d"))
	w.finish(w.claim(tko.QueuePrepare, 1, time.Minute)[0], tko.WorkLater, func(f *tko.FinishedWork) { f.Retry = time.Hour })
	w.dueIn(50*time.Minute, 70*time.Minute)
	w.commit(deployment("d", expect(1)))
	item := w.claim(tko.QueuePrepare, 1, time.Minute)[0]
	w.equal("failures", item.Attempt, 0)
	w.finish(item, tko.WorkLater, func(f *tko.FinishedWork) { f.Retry = time.Millisecond })
	w.eventually("it comes back", func() bool { return len(w.claim(tko.QueuePrepare, 1, time.Minute)) == 1 })
}

func releasedComesBack(w *world) {
	w.commit(deployment("d"))
	item := w.claim(tko.QueuePrepare, 1, time.Hour)[0]
	w.finish(item, tko.WorkReleased)
	again := w.claim(tko.QueuePrepare, 1, time.Hour)
	if len(again) != 1 || again[0].Attempt != 0 || again[0].Claim == item.Claim {
		w.Errorf("it is %+v", again)
	}
}

func newWorkIsNotLost(w *world) {
	revision := int64(0)
	for _, outcome := range []tko.WorkOutcome{tko.WorkDone, tko.WorkReleased, tko.WorkLater} {
		w.commit(deployment("d", expect(revision)))
		item := w.claim(tko.QueuePrepare, 1, time.Hour)[0]
		w.commit(deployment("d", expect(revision+1)))
		w.equal("while it is claimed", len(w.claim(tko.QueuePrepare, 1, time.Hour)), 0)
		w.finish(item, outcome, func(f *tko.FinishedWork) { f.Retry = time.Hour })
		w.equal("after "+string(outcome), w.dueWork(tko.QueuePrepare), []string{"d"})
		revision += 2
	}
	w.equal("in the end", w.dueWork(tko.QueuePrepare), []string{})

	w.commit(deployment("d", expect(revision)))
	item := w.claim(tko.QueuePrepare, 1, time.Hour)[0]
	w.commit(deployment("d", expect(revision+1)))
	w.finish(item, tko.WorkFailed)
	w.eventually("after failed: it comes back, not only after the hour that failures wait", func() bool {
		return len(w.claim(tko.QueuePrepare, 1, time.Hour)) == 1
	})
}

func waitingIsStirred(w *world) {
	stirs := []struct {
		why   string
		write catalog.Write
		stirs bool
	}{
		{"a new template may be the one it waits for", template("t"), true},
		{"a known one is not new", template("t", expect(1)), false},
		{"a new site may be", site("s"), true},
		{"a known site may match now", site("s", expect(1)), true},
		{"a plugin may help", written(tko.KindPlugin, "prepare|p"), true},
		{"a deployment doesn't", deployment("other", ready), false},
		{"a status doesn't", status(siteKey("s")), false},
	}
	w.commit(deployment("d", ready), deployment("waits"))
	item := w.claim(tko.QueuePrepare, 1, time.Minute)[0]
	for _, stir := range stirs {
		w.finish(item, tko.WorkLater, func(f *tko.FinishedWork) { f.Retry = time.Hour })
		w.commit(stir.write)
		if !stir.stirs {
			w.dueIn(50*time.Minute, 70*time.Minute)
			w.commit(deployment("waits", expect(catalog.Any)))
		}
		var items []tko.WorkItem
		w.eventually(stir.why, func() bool {
			items = w.claim(tko.QueuePrepare, 1, time.Minute)
			return len(items) == 1
		})
		item = items[0]
	}
}

func claimedIsStirred(w *world) {
	w.commit(deployment("d"))
	item := w.claim(tko.QueuePrepare, 1, time.Hour)[0]
	w.commit(template("t")) // after it was looked for, before the look has ended
	w.finish(item, tko.WorkLater, func(f *tko.FinishedWork) { f.Retry = time.Hour })
	w.eventually("it is due soon", func() bool { return len(w.claim(tko.QueuePrepare, 1, time.Minute)) == 1 })
}

func everySite(w *world) {
	w.commit(site("a"), site("b"), template("t"), deployment("d", ready))
	w.dueWork(tko.QueueSchedule)
	w.commit(written(tko.KindPlugin, "schedule|p"))
	var keys []string
	w.eventually("every site is due", func() bool {
		keys = append(keys, w.dueWork(tko.QueueSchedule)...)
		return len(keys) == 2
	})
	slices.Sort(keys)
	w.equal("sites", keys, []string{"a", "b"})
}

func wrongOutcome(w *world) {
	w.commit(deployment("d"))
	item := w.claim(tko.QueuePrepare, 1, time.Minute)[0]
	w.failed(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: item, Outcome: "so so"}}, nil), tko.ErrInvalid)
}
