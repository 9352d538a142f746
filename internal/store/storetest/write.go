package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
)

var writePromises = []promise{
	{"a change is never older than its call", changesHaveTimes},
	{"a write at another revision than expected is a conflict", expectedRevisionIsChecked},
	{"a write at another position than expected is a conflict", expectedPositionIsChecked},
	{"one of many concurrent writers wins", oneWriterWins},
	{"a failed commit leaves no trace", failedLeavesNoTrace},
	{"a commit that fails doesn't fail concurrent commits", failureDoesNotSpread},
	{"writes of one commit see the writes before them", writesInOrder},
	{"keys of one commit must differ", keysMustDiffer},
	{"required records must exist", requiredMustExist},
	{"records that a write was made from must not have changed", staleVersionIsConflict},
	{"a write is refused for the same reasons after another store wrote", refusedAfterOtherWrites},
	{"the parent must be at its revision", parentRevisionIsChecked},
	{"an origin identifies one record", originIdentifiesOneRecord},
	{"an origin identifies one record under concurrency", originIsUniqueConcurrently},
	{"UID, creation time and origin never change", immutableFieldsStay},
	{"a status write changes conditions only", statusChangesConditionsOnly},
	{"attachments are stored with each revision, also if the metadata is equal", attachedIsStored},
	{"the next read sees a commit", commitIsReadAfterwards},
	{"one commit replaces a deployment by another one", replacedInOneCommit},
	{"a deployment with SingleStep is deleted without others, or not at all", deletedInSingleStepOrNotAtAll},
	{"Replaces, Replaced and Base are stored with a deployment", replacesAndBaseAreStored},
}

func singleStep(w record.Write) record.Write {
	w.SingleStep = true
	return w
}

// replacedInOneCommit moves the children of a deployment to the one that replaces it.
func replacedInOneCommit(w *world) {
	w.commit(site("s"), deployment("p"), deployment("old", under("p"), at("s"), ready, origin("o")), deployment("child", under("old")))
	w.commit(deployment("new", under("p"), at("s")))
	head := w.head()
	outcomes := w.commit(
		deployment("new", under("p"), at("s"), ready, expect(1)), deployment("child", under("new"), expect(1)), singleStep(deleted(deploymentKey("old"), expect(1))))
	w.equal("deleted", outcomes[2].Deleted, 1)
	w.equal("more steps", outcomes[2].More, false)
	w.equal("changes", len(w.changes(head)), 3)
	w.equal("deployments", w.ids(record.Query{Kind: tko.KindDeployment, Limit: -1}), []string{"child", "new", "p"})
	w.equal("parent", w.one(deploymentKey("child")).Parent, "new")
	w.equal("children", w.ids(record.Query{Kind: tko.KindDeployment, Parent: "new", Limit: -1}), []string{"child"})
	w.commit(deployment("again", under("p"), origin("o")))
	w.equal("deleted with descendants", w.remove(deploymentKey("new")).Deleted, 2)
}

func deletedInSingleStepOrNotAtAll(w *world) {
	w.commit(deployment("p"), deployment("a", under("p")), deployment("b", under("p")))
	k := deploymentKey("p")
	w.refused(tko.ErrConflict, singleStep(deleted(k)))
	w.refused(tko.ErrConflict, deployment("a", expect(1)), singleStep(deleted(k)))
	w.refused(tko.ErrConflict, deployment("c", under("p")), deployment("a", expect(1)), deployment("b", expect(1)), singleStep(deleted(k)))
	w.refused(tko.ErrConflict, singleStep(deleted(k, expect(2))))
	w.refused(tko.ErrInvalid, site("s"), singleStep(deleted(siteKey("s"))))
	w.equal("children after refused writes", w.ids(record.Query{Kind: tko.KindDeployment, Parent: "p", Limit: -1}), []string{"a", "b"})
	w.equal("a missing record", w.commit(singleStep(deleted(deploymentKey("none"))))[0].Deleted, 0)
	outcomes := w.commit(deployment("a", expect(1)), singleStep(deleted(deploymentKey("b"))), singleStep(deleted(k)))
	w.equal("both were deleted", []int{outcomes[1].Deleted, outcomes[2].Deleted}, []int{1, 1})
}

func replacesAndBaseAreStored(w *world) {
	replacing := func(w *record.Write) {
		w.Record.Replaces, w.Record.Replaced, w.Record.Base = []string{"x", "y"}, []string{"u", "v"}, 7
	}
	k := deploymentKey("d")
	check := func(what string) {
		w.Helper()
		r := w.one(k)
		w.equal(what, []any{r.Replaces, r.Replaced, r.Base}, []any{[]string{"x", "y"}, []string{"u", "v"}, int64(7)})
	}
	w.commit(template("t"), deployment("d", replacing, of("t")))
	check("new")
	w.commit(status(k, tko.Condition{Type: "T", Status: tko.ConditionTrue}))
	check("after a status")
	w.commit(deployment("d", replacing, of("t"), expect(1)))
	check("written")
	w.remove(templateKey("t"))
	check("without its template")
	for r, err := range w.store.List(w.ctx(), record.Query{Scope: access.ScopeAll, Kind: tko.KindDeployment, Limit: -1}) {
		w.equal("listed", []any{r.Replaces, r.Replaced, r.Base, err}, []any{[]string{"x", "y"}, []string{"u", "v"}, int64(7), error(nil)})
	}
	w.commit(deployment("d", expect(3)))
	r := w.one(k)
	w.equal("no longer", []any{len(r.Replaces), len(r.Replaced), r.Base}, []any{0, 0, int64(0)})
}

func expectedRevisionIsChecked(w *world) {
	k := siteKey("s")
	w.refused(tko.ErrNotFound, site("s", expect(1)))
	w.refused(tko.ErrNotFound, status(k))
	w.refused(tko.ErrNotFound, record.Write{Op: tko.OpDeleted, Expect: 1, Record: record.Record{Key: k}})
	w.equal("deletion of a missing record", w.commit(deleted(k))[0], record.Outcome{Key: k})
	w.commit(site("s"))
	w.refused(tko.ErrConflict, site("s"))
	w.refused(tko.ErrConflict, site("s", expect(2)))
	w.equal("second", w.commit(site("s", expect(1)))[0].Revision, int64(2))
	w.refused(tko.ErrConflict, site("s", expect(1)))
	w.equal("any", w.commit(site("s", expect(record.Any)))[0].Revision, int64(3))
	w.refused(tko.ErrConflict, record.Write{Op: tko.OpStatus, Expect: 2, Record: record.Record{Key: k}})
	w.refused(tko.ErrConflict, deleted(k, expect(2)))
	w.refused(tko.ErrInvalid, record.Write{Op: "unheard-of", Expect: record.Any, Record: record.Record{Key: k}})
	w.equal("deleted", w.commit(deleted(k, expect(3)))[0].Deleted, 1)
	w.equal("after the deletion", w.one(k), record.Record{Key: k})
}

func oneWriterWins(w *world) {
	const writers, rounds = 16, 10
	w.commit(site("s"))
	for round := int64(1); round <= rounds; round++ {
		var won atomic.Int32
		var wait sync.WaitGroup
		for i := range writers {
			wait.Go(func() {
				_, err := w.store.Commit(w.ctx(), record.Ungated(site("s", expect(round), withPackage(strconv.Itoa(i)))))
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, tko.ErrConflict):
					w.Error(err)
				}
			})
		}
		wait.Wait()
		if won.Load() != 1 {
			w.Fatalf("%d of %d writers won round %d, want one", won.Load(), writers, round)
		}
	}
	w.equal("revision", w.one(siteKey("s")).Revision, int64(rounds+1))
}

func expectedPositionIsChecked(w *world) {
	w.commit(site("s"))
	first := w.one(siteKey("s"))
	w.commit(status(siteKey("s"), tko.Condition{Type: "A", Status: tko.ConditionTrue}))
	for _, write := range []record.Write{site("s", expect(first.Revision)), status(siteKey("s"), tko.Condition{Type: "B"})} {
		write.Position = first.Position
		w.refused(tko.ErrConflict, write)
		write.Position = w.one(siteKey("s")).Position
		w.commit(write)
	}
}

func attachedIsStored(w *world) {
	attached := func(text string, pairs ...string) func(*record.Write) {
		own := own(pairs...)
		return func(x *record.Write) {
			own(x)
			x.Record.Metadata.Attached = []byte(text)
		}
	}
	const one, other, odd = `{"annotations":{"a":"1"}}`, `{"annotations":{"a":"2"}}`, `{"b":1,"a":"é","n":12345678901234567890}`
	deploymentID := deploymentKey("d0")
	w.commit(template("t", inherited("k", "v")))
	w.commit(
		site("a", attached(one, "k", "v")), site("b", own("k", "v")), site("c", attached(one, "k", "v")), site("d", attached(odd, "k", "v")), site("e", attached(one)),
		written(tko.KindPlugin, "validate|p", func(x *record.Write) {
			x.Record.Plugin, x.Record.Metadata = []byte("plugin"), &record.Metadata{Attached: []byte(one)}
		}),
		deployment("d0", of("t"), attached(one, "k", "v")), deployment("d2", of("t"), own("k", "v")),
	)
	has := func(what string, k record.Key, want string) {
		w.Helper()
		w.equal(what, string(w.one(k).Attached()), want)
	}
	has("attached", siteKey("a"), one)
	has("nothing attached, with the same metadata", siteKey("b"), "")
	has("attached to two", siteKey("c"), one)
	has("attached as it was written", siteKey("d"), odd)
	has("attached without metadata", siteKey("e"), one)
	has("attached to a plugin", key(tko.KindPlugin, "validate|p"), one)
	has("attached to a deployment", deploymentID, one)
	has("not attached to the next one", deploymentKey("d2"), "")
	w.commit(site("a", expect(1), attached(other, "k", "v")), site("c", expect(1), own("k", "v")))
	has("changed", siteKey("a"), other)
	has("removed", siteKey("c"), "")
	for revision, want := range map[int64]string{1: one, 2: other} {
		r, err := w.store.Revision(w.ctx(), siteKey("a"), revision)
		w.ok(err)
		w.equal("attached to a revision", string(r.Attached()), want)
	}
	w.equal("selected by metadata", w.ids(record.Query{Kind: tko.KindSite, Metadata: values("k", "v"), Limit: -1}), []string{"a", "b", "c", "d"})
	listed := map[string]string{}
	for _, r := range w.list(record.Query{Kind: tko.KindSite, Limit: -1}) {
		listed[r.ID] = string(r.Attached())
	}
	w.equal("listed", listed, map[string]string{"a": other, "b": "", "c": "", "d": odd, "e": one})
	w.commit(status(siteKey("a"), tko.Condition{Type: "Healthy", Status: tko.ConditionTrue}))
	has("after a status write", siteKey("a"), other)
	w.collect(retain(1))
	has("after a collection", siteKey("a"), other)
	has("of another record after a collection", siteKey("e"), one)
}

func failedLeavesNoTrace(w *world) {
	w.commit(template("t"), site("s", of("t"), metadata("k", "v")), deployment("d", of("t"), at("s"), ready), deployment("c", under("d")))
	w.dueWork(tko.QueuePrepare)
	w.dueWork(tko.QueueSchedule)
	w.commit(site("there"))
	w.dueWork(tko.QueueSchedule)
	before := []record.Record{w.one(templateKey("t")), w.one(siteKey("s")), w.one(deploymentKey("d")), w.one(deploymentKey("c"))}
	w.refused(
		tko.ErrConflict,
		site("new", metadata("k", "v"), origin("o")), site("s", expect(1), metadata("k", "other")), deployment("n", of("t"), at("s"), ready),
		deleted(deploymentKey("d")), deleted(templateKey("t")), written(tko.KindPlugin, "schedule|p"), site("there"),
	)
	after := []record.Record{w.one(templateKey("t")), w.one(siteKey("s")), w.one(deploymentKey("d")), w.one(deploymentKey("c"))}
	w.equal("records", after, before)
	w.equal("new record", w.one(siteKey("new")).Revision, int64(0))
	w.equal("metadata", w.ids(record.Query{Kind: tko.KindSite, Metadata: values("k", "v"), Limit: -1}), []string{"s"})
	w.equal("work to prepare", w.dueWork(tko.QueuePrepare), []string{})
	w.equal("work to schedule", w.dueWork(tko.QueueSchedule), []string{})
	w.equal("the origin is free", w.commit(site("new", origin("o")))[0], record.Outcome{Key: siteKey("new"), Revision: 1, Position: w.head()})
}

func failureDoesNotSpread(w *world) {
	w.commit(site("s"))
	var wait sync.WaitGroup
	for i := range 60 {
		wait.Go(func() {
			switch i % 3 {
			case 0:
				if _, err := w.store.Commit(w.ctx(), record.Ungated(site(fmt.Sprintf("x%02d", i)), site("s"))); !errors.Is(err, tko.ErrConflict) {
					w.Errorf("error is %v", err)
				}
			case 1:
				if _, err := w.store.Commit(w.ctx(), record.Ungated(site(fmt.Sprintf("y%02d", i), metadata("n", strconv.Itoa(i))))); err != nil {
					w.Error(err)
				}
			default:
				if _, err := w.store.Commit(w.ctx(), record.Ungated(deleted(siteKey("none")), site(fmt.Sprintf("z%02d", i), requires(siteKey("none"))))); err == nil {
					w.Error("a write was made although a required record is missing")
				}
			}
		})
	}
	wait.Wait()
	w.equal("sites", len(w.ids(record.Query{Kind: tko.KindSite, Limit: -1})), 21)
	w.equal("changes", len(w.changes(0)), 21)
}

func writesInOrder(w *world) {
	outcomes := w.commit(
		template("t"),
		site("s", of("t"), requires(templateKey("t"))),
		deployment("p", requires(siteKey("s"))),
		deployment("c", under("p"), func(x *record.Write) { x.ParentRevision = 1 }, requires(deploymentKey("p"))),
		deleted(siteKey("other")),
	)
	log := w.changes(0)
	for i, outcome := range outcomes[:4] {
		if outcome.Position != log[i].Position || outcome.Revision != 1 {
			w.Errorf("outcome %d is %+v", i, outcome)
		}
	}
	err := w.refusal(tko.ErrInvalid, deleted(siteKey("s")), deployment("n", requires(siteKey("s"))))
	var missing *record.MissingError
	if !errors.As(err, &missing) || missing.Key != siteKey("s") {
		w.Errorf("error is %v", err)
	}
	// A deletion dissociates a record that the same commit wrote before.
	w.commit(deployment("d", of("t"), at("s")), deleted(templateKey("t")), deleted(siteKey("s")))
	d := w.one(deploymentKey("d"))
	w.equal("dissociated", []any{d.Template, d.Site, d.Revision}, []any{"", "", int64(3)})
	w.commit(deployment("e", under("d")), deleted(deploymentKey("d")))
	w.equal("a child created by the same commit", w.one(deploymentKey("e")).Revision, int64(0))
}

func keysMustDiffer(w *world) {
	w.refused(tko.ErrInvalid, site("s"), site("s", expect(1)))
	outcomes, err := w.store.Commit(w.ctx(), record.Ungated())
	if len(outcomes) != 0 || err != nil {
		w.Errorf("no writes: %v, %v", outcomes, err)
	}
}

func requiredMustExist(w *world) {
	w.commit(site("s"))
	err := w.refusal(tko.ErrInvalid, deployment("d", requires(siteKey("s"), templateKey("none"), siteKey("nowhere"))))
	var missing *record.MissingError
	if !errors.As(err, &missing) || missing.Key != templateKey("none") {
		w.Errorf("error is %v, want one for the first missing record", err)
	}
	w.commit(deployment("d", requires(siteKey("s"))))
}

func staleVersionIsConflict(w *world) {
	w.commit(template("t"), site("s"))
	from := func(position int64) func(*record.Write) {
		return func(x *record.Write) { x.ReadSet = []record.Version{{Key: templateKey("t"), Position: position}} }
	}
	validated := func(epoch int64) func(*record.Write) {
		return func(x *record.Write) { x.Epoch = &epoch }
	}
	stale := func(what string, writes ...record.Write) {
		w.Helper()
		if err := (*record.StaleError)(nil); !errors.As(w.refusal(tko.ErrConflict, writes...), &err) {
			w.Errorf("%s: the write is refused without a *StaleError", what)
		}
	}
	old := w.one(templateKey("t")).Position
	w.commit(deployment("a", from(old), validated(0)))
	w.commit(deployment("b", from(old), validated(0)))
	w.commit(template("t", expect(1)))
	now := w.one(templateKey("t")).Position
	stale("a template that was changed", deployment("c", from(old)))
	w.commit(deployment("c", from(now), validated(0)))
	w.commit(written(tko.KindPlugin, "validate|p"))
	epoch, err := w.store.Epoch(w.ctx())
	w.ok(err)
	stale("an epoch that has passed", deployment("d", from(now), validated(0)))
	stale("an epoch that has passed", site("s", expect(1), validated(0)))
	w.commit(deployment("d", from(now), validated(epoch)), site("s", expect(1), validated(epoch)))
	stale("an epoch that passes in the commit", written(tko.KindPlugin, "validate|q"), deployment("e", validated(epoch)))
	w.commit(deleted(templateKey("t")))
	stale("a template that was deleted", deployment("e", from(now)))
	w.equal("revision after refused writes", w.one(deploymentKey("e")).Revision, int64(0))
}

// Stores commit optimistically: other stores may have written since.
func refusedAfterOtherWrites(w *world) {
	for round := range 4 {
		id := strconv.Itoa(round)
		w.commit(site("s" + id))
		w.commit(site("other" + id))
		w.commit(deployment("d"+id, requires(siteKey("s"+id))))
		w.commit(deleted(siteKey("s" + id)))
		w.refused(tko.ErrInvalid, deployment("e"+id, requires(siteKey("s"+id))))
		w.refused(tko.ErrConflict, site("other"+id))
		w.equal("revision after a deletion", w.commit(site("s" + id))[0].Revision, int64(2))
		w.refused(tko.ErrConflict, site("s"+id))
	}
	w.equal("changes", len(w.changes(0)), 4*5)
}

func parentRevisionIsChecked(w *world) {
	w.commit(deployment("p"))
	child := func(id string, revision int64) record.Write {
		return deployment(id, under("p"), func(x *record.Write) { x.ParentRevision = revision })
	}
	w.refused(tko.ErrConflict, child("c", 2))
	w.commit(child("c", 1))
	w.commit(status(deploymentKey("p"), tko.Condition{}))
	w.commit(child("c2", 1))
	w.commit(deployment("p", expect(1)))
	w.refused(tko.ErrConflict, child("c3", 1))
	w.commit(child("c3", 0))
	w.commit(deleted(deploymentKey("p")))
	w.refused(tko.ErrConflict, child("c4", 2))
}

func originIdentifiesOneRecord(w *world) {
	first := w.commit(deployment("d1", origin("o")))[0]
	want := record.Outcome{Key: deploymentKey("d1"), Revision: 1, Position: first.Position, Existed: true}
	head := w.head()
	w.equal("the same origin", w.commit(deployment("d2", origin("o"), requires(siteKey("none"))))[0], want)
	w.equal("head", w.head(), head)
	w.equal("nothing was written", w.one(deploymentKey("d2")).Revision, int64(0))
	w.refused(tko.ErrConflict, deployment("d1", origin("o")))
	w.commit(site("d1", origin("o")))
	outcomes := w.commit(deployment("d3", origin("p")), deployment("d4", origin("p")), deployment("d5", origin("o")), deployment("d6"), deployment("d7"))
	w.equal("in one commit", []string{outcomes[0].Key.ID, outcomes[1].Key.ID, outcomes[2].Key.ID}, []string{"d3", "d3", "d1"})
	w.equal("existed", []bool{outcomes[0].Existed, outcomes[1].Existed, outcomes[2].Existed}, []bool{false, true, true})
	w.commit(deployment("d1", expect(1)))
	w.equal("still found by its origin", w.commit(deployment("d2", origin("o")))[0].Revision, int64(2))
	w.commit(deleted(deploymentKey("d1")))
	w.equal("after it was deleted", w.commit(deployment("d2", origin("o")))[0].Existed, false)
	w.commit(deleted(deploymentKey("d2")), deployment("d8", origin("o")))
	w.equal("the origin is reused in one commit", w.one(deploymentKey("d8")).Origin, "o")
}

func originIsUniqueConcurrently(w *world) {
	const writers, origins = 16, 20
	var mutex sync.Mutex
	found := map[string]map[string]bool{}
	made := 0
	var wait sync.WaitGroup
	for i := range writers {
		wait.Go(func() {
			for o := range origins {
				name := fmt.Sprintf("o%02d", o)
				outcomes, err := w.store.Commit(w.ctx(), record.Ungated(deployment(fmt.Sprintf("d%02d-%02d", i, o), origin(name))))
				if err != nil {
					w.Error(err)
					return
				}
				mutex.Lock()
				if found[name] == nil {
					found[name] = map[string]bool{}
				}
				found[name][outcomes[0].Key.ID] = true
				if !outcomes[0].Existed {
					made++
				}
				mutex.Unlock()
			}
		})
	}
	wait.Wait()
	for name, set := range found {
		if len(set) != 1 {
			w.Errorf("the origin %s has the records %q, want one", name, sortedKeys(set))
		}
	}
	w.equal("made", made, origins)
	w.equal("stored", len(w.ids(record.Query{Kind: tko.KindDeployment, Limit: -1})), origins)
}

func immutableFieldsStay(w *world) {
	w.commit(site("s", origin("o")))
	first := w.one(siteKey("s"))
	w.commit(site("s", expect(1), func(x *record.Write) {
		x.Record.UID, x.Record.Origin, x.Record.Created, x.Record.Revision, x.Record.Position = "other", "other", time.Unix(0, 0), 99, 99
	}))
	second := w.one(siteKey("s"))
	w.equal("immutable fields", []any{second.UID, second.Origin, second.Created}, []any{first.UID, first.Origin, first.Created})
	if second.Updated.Before(first.Updated) || second.Revision != 2 || second.Position <= first.Position || second.Position != w.head() {
		w.Errorf("updated %v after %v, revision %d, position %d after %d", second.Updated, first.Updated, second.Revision, second.Position, first.Position)
	}
}

func statusChangesConditionsOnly(w *world) {
	k := deploymentKey("d")
	w.commit(site("s"))
	w.commit(deployment("d", at("s"), ready, metadata("k", "v"), by("Ann", "")), deployment("u"))
	w.dueWork(tko.QueuePrepare)
	w.dueWork(tko.QueueSchedule)
	before, head := w.one(k), w.head()
	condition := tko.Condition{Type: tko.ConditionHealthy, Status: tko.ConditionTrue, LastTransition: time.Unix(5, 0).UTC()}
	write := status(k, condition)
	write.Record.Author = tko.Author{Who: "controller"}
	outcome := w.commit(write, status(deploymentKey("u"), condition), status(siteKey("s"), condition))[0]
	position := w.changes(head)[0].Position
	w.equal("outcome", outcome, record.Outcome{Key: k, Revision: 1, Position: position})
	after := w.one(k)
	want := before
	want.Conditions, want.Position = []tko.Condition{condition}, position
	w.equal("record", after, want)
	w.equal("log", w.logged(head)[0], loggedChange{tko.OpStatus, "deployment d", 1})
	w.equal("author in the log", w.changes(head)[0].Author.Who, "controller")
	// Controllers write conditions: if that enqueued work, they would loop forever.
	w.equal("work to prepare", w.dueWork(tko.QueuePrepare), []string{})
	w.equal("work to schedule", w.dueWork(tko.QueueSchedule), []string{})
	w.commit(status(k))
	after = w.one(k)
	if after.Conditions != nil {
		w.Errorf("conditions are %v", after.Conditions)
	}
	_, err := w.store.Revision(w.ctx(), k, 1)
	w.ok(err)
}

func commitIsReadAfterwards(w *world) {
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for n := range 20 {
				id := fmt.Sprintf("s%d-%d", i, n)
				outcomes, err := w.store.Commit(w.ctx(), record.Ungated(site(id)))
				if err != nil {
					w.Error(err)
					return
				}
				records, err := w.store.Get(w.ctx(), record.Fields{}, siteKey(id))
				if err != nil || records[0].Position != outcomes[0].Position {
					w.Errorf("%s is not read after its commit: %v", id, err)
				}
				if head, err := w.store.Head(w.ctx()); err != nil || head < outcomes[0].Position {
					w.Errorf("the head is %d, want %d at least: %v", head, outcomes[0].Position, err)
				}
			}
		})
	}
	wait.Wait()
	ctx, cancel := context.WithTimeout(w.ctx(), time.Minute)
	defer cancel()
	if _, err := w.store.Commit(ctx, record.Ungated(site("s"))); err != nil {
		w.Error(err)
	}
}

// A change that seems to be older than its request is shown as of a moment before its client
// asked for it.
func changesHaveTimes(w *world) {
	early, late := time.Duration(0), time.Duration(0)
	for i := range 150 {
		called := time.Now().Truncate(time.Microsecond)
		w.commit(template(fmt.Sprint("t", i), withPackage(strings.Repeat("x", 10_000+i))))
		returned := time.Now()
		at := w.one(templateKey(fmt.Sprint("t", i))).Updated
		early, late = max(early, called.Sub(at)), max(late, at.Sub(returned))
	}
	if early > 0 || late > time.Second { // an estimate is late by the way of one request at most
		w.Errorf("changes have times up to %s before their calls, and up to %s after their results", early, late)
	}
}
