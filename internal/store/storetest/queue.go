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
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var queuePromises = []promise{
	{"changes enqueue work", changesEnqueueWork},
	{"items of the same key are merged, and claimed oldest first", itemsAreMerged},
	{"an item is claimed by one worker only", claimsAreExclusive},
	{"an item whose lease has expired can be claimed again", expiredLeaseIsClaimed},
	{"only the holder of a claim renews its lease", leaseIsRenewedByOwner},
	{"failed work is due again after the back-off, with its error", failedIsRetried},
	{"work for later is due again, and not counted as failed", laterIsRetried},
	{"deployments that become ready wait for an item that gathers, and all else makes it due", gatheringWaits},
	{"released work is due after its delay, by default at once", releasedIsDue},
	{"concurrent renewing, finishing and enqueueing lose no work", func(w *world) { contend(w) }},
	{"new work since the claim is not lost", newWorkIsNotLost},
	{"changes that may help make waiting work due", waitingIsWoken},
	{"such changes also reach work that is claimed", claimedIsWoken},
	{"a new schedule plugin enqueues every site", schedulePluginEnqueuesSites},
	{"an unknown outcome is an ErrInvalid", wrongOutcomeIsInvalid},
	{"a site at which nothing is scheduled enqueues no work", untriggeredSiteIsNoWork},
	{"its change is not lost if a worker has claimed the site", untriggeredSiteIsClaimed},
	{"work names the newest request that caused it", workNamesItsCause},
	{"work signals the workers of its queue", workSignalsItsQueue},
	{"the items of a queue are listed with the leases that have not ended", workIsListed},
	{"the items of a queue that fail are listed, with the most failures first", failingWorkIsListed},
	{"work that is due soon signals the workers of its queue", soonWorkSignalsItsQueue},
}

func workIsListed(w *world) {
	w.commit(deployment("a"), deployment("b"), deployment("c"))
	items := w.claim(tko.QueuePrepare, 2, time.Minute)
	w.claim(tko.QueuePrepare, 1, time.Microsecond) // it has ended at once
	time.Sleep(time.Millisecond)
	list, err := w.store.WorkOf(w.ctx(), tko.QueuePrepare)
	w.ok(err)
	leased := map[string]bool{}
	var keys []string
	for _, item := range list {
		keys = append(keys, item.Key)
		leased[item.Key] = !item.Claimed.IsZero()
		if leased[item.Key] && (time.Since(item.Claimed) > time.Minute || time.Until(item.LeaseUntil) < 30*time.Second) {
			w.Errorf("claimed at %s until %s", item.Claimed, item.LeaseUntil)
		}
	}
	w.equal("keys", keys, []string{"a", "b", "c"})
	w.equal("leased", leased, map[string]bool{items[0].Key: true, items[1].Key: true, "c": false})
	list, err = w.store.WorkOf(w.ctx(), tko.QueueGitOps)
	w.ok(err)
	w.equal("of another queue", len(list), 0)
}

func failingWorkIsListed(w *world) {
	fail := func(keys ...string) {
		for _, key := range keys {
			w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueGitOps, []string{key}, false))
			item := w.claim(tko.QueueGitOps, 1, time.Minute)[0]
			w.equal("key", item.Key, key)
			w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: item, Outcome: tko.WorkFailed, Error: fmt.Sprint(key, item.Attempt), Retry: time.Hour}}, nil))
		}
	}
	fail("b", "a", "c", "c", "d")
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueGitOps, []string{"d"}, false))
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: w.claim(tko.QueueGitOps, 1, time.Minute)[0], Outcome: tko.WorkDone}}, nil))
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueGitOps, []string{"never failed"}, false))
	list := func(queue string, most int) (keys []string) {
		items, err := w.store.FailingWork(w.ctx(), queue, most)
		w.ok(err)
		for _, item := range items {
			keys = append(keys, fmt.Sprint(item.Key, " ", item.Failures, " ", item.Error))
			if left := time.Until(item.Due); left < 50*time.Minute || left > 70*time.Minute {
				w.Errorf("%s is due in %s, want an hour", item.Key, left)
			}
		}
		return keys
	}
	w.equal("failing", list(tko.QueueGitOps, 10), []string{"c 2 c1", "a 1 a0", "b 1 b0"})
	w.equal("the first", list(tko.QueueGitOps, 1), []string{"c 2 c1"})
	w.equal("of another queue", list(tko.QueuePrepare, 10), []string(nil))
}

func workNamesItsCause(w *world) {
	causedBy := func(cause string) func(*record.Write) { return func(write *record.Write) { write.Cause = cause } }
	w.commit(deployment("a", causedBy("r-1")), deployment("b", causedBy("r-2")), deployment("c"))
	w.commit(deployment("b", expect(1), causedBy("r-3")), deployment("a", expect(1)))
	causes := map[string]string{}
	items := w.claim(tko.QueuePrepare, 10, time.Minute)
	for _, item := range items {
		causes[item.Key] = item.Cause
	}
	w.equal("causes", causes, map[string]string{"a": "r-1", "b": "r-3", "c": ""})

	// A retry has the cause, too; the next change replaces it.
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: items[0], Outcome: tko.WorkReleased}}, nil))
	again := w.claim(tko.QueuePrepare, 1, time.Minute)
	w.equal("the cause of a retry", again[0].Cause, causes[again[0].Key])

	ctx := trail.WithRequest(w.ctx(), "r-4")
	w.ok(w.store.EnqueueWork(ctx, tko.QueueGitOps, []string{"source"}, false))
	w.equal("the cause of enqueued work", w.claim(tko.QueueGitOps, 1, time.Minute)[0].Cause, "r-4")
}

func changesEnqueueWork(w *world) {
	w.commit(site("s"), site("s2"))
	w.equal("sites", w.dueWork(tko.QueueSchedule), []string{"s", "s2"})
	steps := []struct {
		why               string
		write             record.Write
		prepare, schedule []string
	}{
		{"new, not prepared", deployment("d", at("s")), []string{"d"}, nil},
		{"prepared and approved", deployment("d", expect(1), at("s"), ready), nil, []string{"s"}},
		{"moved", deployment("d", expect(2), at("s2"), ready), nil, []string{"s", "s2"}},
		{"not prepared any more", deployment("d", expect(3), at("s2")), []string{"d"}, []string{"s2"}},
		{"again", deployment("d", expect(4), at("s2"), ready), nil, []string{"s2"}},
		{"gone", deleted(deploymentKey("d")), nil, []string{"s2"}},
		{"a template enqueues nothing", template("t"), nil, nil},
	}
	for _, step := range steps {
		w.commit(step.write)
		w.equal(step.why+": prepare", w.dueWork(tko.QueuePrepare), append([]string{}, step.prepare...))
		w.equal(step.why+": schedule", w.dueWork(tko.QueueSchedule), append([]string{}, step.schedule...))
	}
}

func itemsAreMerged(w *world) {
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

func claimsAreExclusive(w *world) {
	const n = 200
	var writes []record.Write
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
				// If other workers are claiming the rest right now, try again.
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
			w.Errorf("%s was claimed %d times, want once", id, times)
		}
	}
}

// Contend repeatedly renews, finishes and commits the same items concurrently, each in
// its own order: for backends that can detect deadlocks.
func Contend(t *testing.T, store record.Store) { contend(&world{T: t, store: store}) }

func contend(w *world) {
	const rounds, n = 30, 40
	writes := make([]record.Write, n)
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
		rand.Shuffle(n, func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] }) //nolint:gosec // the order is not a secret
		finished := make([]tko.FinishedWork, n)
		again := make([]record.Write, n)
		for i := range n {
			finished[i] = tko.FinishedWork{Item: items[n-1-i], Outcome: tko.WorkReleased}
			again[i] = deployment(fmt.Sprintf("d%02d", n-1-i), expect(record.Any), withPackage(strconv.Itoa(round)))
		}
		var wait sync.WaitGroup
		for _, do := range []func() error{
			func() error { _, err := w.store.RenewWork(w.ctx(), mixed, time.Minute); return err },
			func() error { return w.store.FinishWork(w.ctx(), finished, nil) },
			func() error { _, err := w.store.Commit(w.ctx(), record.Ungated(again...)); return err },
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

func expiredLeaseIsClaimed(w *world) {
	w.commit(deployment("d"))
	first := w.claim(tko.QueuePrepare, 1, 20*time.Millisecond)[0]
	var second []tko.WorkItem
	eventually.True(w, "the lease expires", func() bool {
		second = w.claim(tko.QueuePrepare, 1, time.Hour)
		return len(second) == 1
	})
	if first.Claim == second[0].Claim {
		w.Error("both claims are the same")
	}
	// The first holder is late: its result is ignored.
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: first, Outcome: tko.WorkDone}}, nil))
	renewed, err := w.store.RenewWork(w.ctx(), append(second, first), time.Hour)
	w.ok(err)
	w.equal("renewed", renewed, second)
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: second[0], Outcome: tko.WorkDone}}, nil))
	w.equal("done", len(w.claim(tko.QueuePrepare, 1, time.Hour)), 0)
}

func leaseIsRenewedByOwner(w *world) {
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
	stolen.Claim = "invented"
	renewed, err = w.store.RenewWork(w.ctx(), []tko.WorkItem{stolen}, time.Hour)
	w.ok(err)
	w.equal("renewed with an unknown claim", len(renewed), 0)
	renewed, err = w.store.RenewWork(w.ctx(), nil, time.Hour)
	w.ok(err)
	w.equal("renewed of no items", len(renewed), 0)
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
		w.Errorf("the items %v are due, the next in %v, want the next between %v and %v", items, in, from, to)
	}
}

func failedIsRetried(w *world) {
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
	eventually.True(w, "the item is due after its own delay", func() bool {
		items := w.claim(tko.QueuePrepare, 1, time.Minute)
		return len(items) == 1 && items[0].Attempt == 3
	})
}

func laterIsRetried(w *world) {
	w.commit(deployment("d"))
	w.finish(w.claim(tko.QueuePrepare, 1, time.Minute)[0], tko.WorkLater, func(f *tko.FinishedWork) { f.Retry = time.Hour })
	w.dueIn(50*time.Minute, 70*time.Minute)
	w.commit(deployment("d", expect(1)))
	item := w.claim(tko.QueuePrepare, 1, time.Minute)[0]
	w.equal("failures", item.Attempt, 0)
	w.finish(item, tko.WorkLater, func(f *tko.FinishedWork) { f.Retry = time.Millisecond })
	eventually.True(w, "the item is due again", func() bool { return len(w.claim(tko.QueuePrepare, 1, time.Minute)) == 1 })
}

func gatheringWaits(w *world) {
	w.commit(site("s"), deployment("a", at("s"), ready))
	claim := func() tko.WorkItem {
		w.Helper()
		items := w.claim(tko.QueueSchedule, 10, time.Minute)
		if len(items) != 1 {
			w.Fatalf("claimed %v, want the item of the site", items)
		}
		return items[0]
	}
	gather := func(item tko.WorkItem) {
		w.Helper()
		w.finish(item, tko.WorkLater, func(f *tko.FinishedWork) { f.Retry, f.Gather = time.Hour, true })
	}
	waits := func(why string) {
		w.Helper()
		w.equal(why, len(w.claim(tko.QueueSchedule, 10, time.Minute)), 0)
	}
	item := claim()
	w.commit(deployment("b", at("s"), ready))
	gather(item)
	waits("a deployment that became ready while the item was claimed")
	w.commit(deployment("c", at("s"), ready))
	w.commit(deployment("c", at("s"), ready, expect(1)))
	waits("deployments that became ready since")

	left := []string{"a", "b"}
	revision := int64(0)
	for why, cause := range map[string]func(){
		"a change of the site": func() {
			revision++
			w.commit(site("s", expect(revision), metadata("n", strconv.FormatInt(revision, 10))))
		},
		"a request": func() { w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueSchedule, []string{"s"}, false)) },
		"a deployment that leaves": func() {
			w.commit(deleted(deploymentKey(left[0])))
			left = left[1:]
		},
	} {
		cause()
		item := claim() // it is due at once
		cause()
		gather(item)
		gather(claim()) // also after what happened while it was claimed
		waits("after " + why)
	}
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueSchedule, []string{"s"}, false))
	w.finish(claim(), tko.WorkLater, func(f *tko.FinishedWork) { f.Retry = time.Hour })
	w.commit(deployment("d", at("s"), ready))
	claim() // the item did not gather
}

func releasedIsDue(w *world) {
	w.commit(deployment("d"))
	item := w.claim(tko.QueuePrepare, 1, time.Hour)[0]
	w.finish(item, tko.WorkReleased)
	again := w.claim(tko.QueuePrepare, 1, time.Hour)
	if len(again) != 1 || again[0].Attempt != 0 || again[0].Claim == item.Claim {
		w.Errorf("claimed %+v, want the item with a new claim", again)
	}
	w.finish(again[0], tko.WorkReleased, func(f *tko.FinishedWork) { f.Retry = time.Hour })
	w.dueIn(50*time.Minute, 70*time.Minute)
	w.commit(deployment("d", expect(1)))
	w.equal("after new work", w.dueWork(tko.QueuePrepare), []string{"d"})
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
	w.equal("after the last outcome", w.dueWork(tko.QueuePrepare), []string{})

	w.commit(deployment("d", expect(revision)))
	item := w.claim(tko.QueuePrepare, 1, time.Hour)[0]
	w.commit(deployment("d", expect(revision+1)))
	w.finish(item, tko.WorkFailed)
	eventually.True(w, "after a failure: the item is due before the back-off of an hour", func() bool {
		return len(w.claim(tko.QueuePrepare, 1, time.Hour)) == 1
	})
}

func waitingIsWoken(w *world) {
	wakes := []struct {
		why   string
		write record.Write
		wakes bool
	}{
		{"a new template may be the one it waits for", template("t"), true},
		{"a changed template is not new", template("t", expect(1)), false},
		{"a new site may be the one it waits for", site("s"), true},
		{"a changed site may match now", site("s", expect(1)), true},
		{"a plugin may make it work", written(tko.KindPlugin, "prepare|p"), true},
		{"a deployment makes no waiting work due", deployment("other", ready), false},
		{"conditions make no waiting work due", status(siteKey("s")), false},
	}
	w.commit(deployment("d", ready), deployment("waits"))
	item := w.claim(tko.QueuePrepare, 1, time.Minute)[0]
	for _, wake := range wakes {
		w.finish(item, tko.WorkLater, func(f *tko.FinishedWork) { f.Retry = time.Hour })
		w.commit(wake.write)
		if !wake.wakes {
			w.dueIn(50*time.Minute, 70*time.Minute)
			w.commit(deployment("waits", expect(record.Any)))
		}
		var items []tko.WorkItem
		eventually.True(w, wake.why, func() bool {
			items = w.claim(tko.QueuePrepare, 1, time.Minute)
			return len(items) == 1
		})
		item = items[0]
	}
}

func claimedIsWoken(w *world) {
	w.commit(deployment("d"))
	item := w.claim(tko.QueuePrepare, 1, time.Hour)[0]
	w.commit(template("t")) // after the worker looked for it, before its work has ended
	w.finish(item, tko.WorkLater, func(f *tko.FinishedWork) { f.Retry = time.Hour })
	eventually.True(w, "the item is due soon", func() bool { return len(w.claim(tko.QueuePrepare, 1, time.Minute)) == 1 })
}

func schedulePluginEnqueuesSites(w *world) {
	w.commit(site("a"), site("b"), template("t"), deployment("d", ready))
	w.dueWork(tko.QueueSchedule)
	w.commit(written(tko.KindPlugin, "schedule|p"))
	var keys []string
	eventually.True(w, "every site is due", func() bool {
		keys = append(keys, w.dueWork(tko.QueueSchedule)...)
		return len(keys) == 2
	})
	slices.Sort(keys)
	w.equal("sites", keys, []string{"a", "b"})
}

func wrongOutcomeIsInvalid(w *world) {
	w.commit(deployment("d"))
	item := w.claim(tko.QueuePrepare, 1, time.Minute)[0]
	w.failed(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: item, Outcome: "so so"}}, nil), tko.ErrInvalid)
}

func untriggered(w *record.Write) { w.Record.Untriggered = true }

func untriggeredSiteIsNoWork(w *world) {
	scheduled := tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue}
	steps := []struct {
		why   string
		write record.Write
		want  []string
	}{
		{"new", site("s", untriggered), nil},
		{"its package triggers nothing either", site("s", expect(1), withPackage("2"), untriggered), nil},
		{"the same package, whatever is known of its triggers", site("s", expect(2), withPackage("2"), own("a", "b")), nil},
		{"its package may trigger something", site("s", expect(3), withPackage("3")), []string{"s"}},
		{"no longer, and nothing was scheduled", site("s", expect(4), withPackage("4"), untriggered), nil},
		{"conditions", status(siteKey("s"), scheduled), nil},
		{"its conditions may be outdated", site("s", expect(5), withPackage("5"), untriggered, func(w *record.Write) { w.Record.Conditions = []tko.Condition{scheduled} }), []string{"s"}},
		{"a deployment", deployment("d", at("s"), ready), []string{"s"}},
		{"another site without work", site("s2", untriggered), nil},
	}
	for _, step := range steps {
		w.commit(step.write)
		w.equal(step.why, w.dueWork(tko.QueueSchedule), append([]string{}, step.want...))
	}
}

func untriggeredSiteIsClaimed(w *world) {
	w.commit(site("s"))
	held := w.claim(tko.QueueSchedule, 1, time.Hour)
	w.commit(site("s", expect(1), withPackage("2"), untriggered))
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: held[0], Outcome: tko.WorkDone}}, nil))
	w.equal("claimed before the change", w.dueWork(tko.QueueSchedule), []string{"s"})
}

func workSignalsItsQueue(w *world) {
	w.commit(site("first")) // the store's own start may signal, too
	w.dueWork(tko.QueueSchedule)
	prepare, schedule := w.store.WorkSignal(tko.QueuePrepare), w.store.WorkSignal(tko.QueueSchedule)
	w.commit(deployment("d"))
	w.signalled(prepare)
	w.commit(site("s"))
	w.signalled(schedule)
	w.dueWork(tko.QueuePrepare)
	schedule = w.store.WorkSignal(tko.QueueSchedule)
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueSchedule, []string{"s"}, false))
	w.signalled(schedule)
}

func soonWorkSignalsItsQueue(w *world) {
	w.commit(deployment("d"))
	items := w.claim(tko.QueuePrepare, 1, time.Hour)
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: items[0], Outcome: tko.WorkLater, Retry: time.Hour}}, nil))
	signal := w.store.WorkSignal(tko.QueuePrepare)
	w.commit(site("s", untriggered)) // selectors may match it
	w.signalled(signal)
	_, due, err := w.store.ClaimWork(w.ctx(), tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: time.Hour})
	w.ok(err)
	if due.IsZero() || due.After(time.Now().Add(time.Minute)) {
		w.Errorf("the waiting work is due at %s, want within %s", due, record.WakeDelay)
	}
}
