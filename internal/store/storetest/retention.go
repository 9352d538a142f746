package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var retentionPromises = []promise{
	{"old changes are removed, except for the newest revisions of existing records", oldRevisionsAreRemoved},
	{"recent changes are retained", recentChangesStay},
	{"without a limit, all revisions of existing records are retained", allRevisionsStay},
	{"a revision is removed once newer ones are old, too", revisionsAreRemovedLater},
	{"a lower limit of revisions also removes revisions that were retained before", fewerRevisionsAreRetained},
	{"the revision of a valid token is retained", tokenRevisionStays},
	{"unused packages and metadata are removed, and can be written again", unusedContentsAreRemoved},
	{"a status with metadata makes no revision, and they are retained with the newest one", statusHasMetadata},
	{"the derivation of a revision is retained with it", derivationsAreRetained},
	{"the owner of a revision is retained with it", ownersAreRetained},
	{"a collection may be interrupted at any time", collectionMayBeInterrupted},
	{"concurrent collections remove each change once", collectedOnceConcurrently},
}

// retain returns a retention of no old changes except for a number of revisions.
func retain(revisions int) record.Retention {
	return record.Retention{Changes: time.Nanosecond, Revisions: revisions}
}

// collect collects once the newest change is old: its time may be an estimate, which is late by
// the way of a request.
func (w *world) collect(keep record.Retention) record.Collected {
	w.Helper()
	eventually.True(w, "the time of the newest change to pass", func() bool {
		_, newest, err := w.store.Past(w.ctx())
		w.ok(err)
		_, _, now, err := w.store.RolloutStates(w.ctx())
		w.ok(err)
		ahead := newest.Time.Sub(now)
		return ahead < 0 || ahead > time.Second // the clock was set back
	})
	done, err := w.store.Collect(w.ctx(), keep)
	w.ok(err)
	if done.Elsewhere {
		w.Fatal("another store is collecting, want none")
	}
	return done
}

// collected compares what a collection removed.
func (w *world) collected(what string, got, want record.Collected) {
	w.Helper()
	if w.embedded {
		want.Metadata, want.Pairs = 0, 0
	}
	w.equal(what, got, want)
}

// revisions returns the retained revisions of a record, up to a revision.
func (w *world) revisions(k record.Key, up int64) []int64 {
	w.Helper()
	list := []int64{}
	for revision := int64(1); revision <= up; revision++ {
		r, err := w.store.Revision(w.ctx(), k, revision)
		if errors.Is(err, tko.ErrNotFound) {
			continue
		}
		w.ok(err)
		if r.Package == nil || r.Metadata == nil {
			w.Errorf("revision %d of %v lacks its content", revision, k)
		}
		list = append(list, revision)
	}
	return list
}

// rewrite writes a site repeatedly.
func (w *world) rewrite(id string, from, to int64) {
	w.Helper()
	for revision := from; revision < to; revision++ {
		w.commit(site(id, expect(revision), withPackage(fmt.Sprint(id, revision)), metadata("n", strconv.FormatInt(revision, 10))))
	}
}

// checkLogStart checks that changes can be read from a position on, and not from before.
func (w *world) checkLogStart(from int64) {
	w.Helper()
	for _, after := range []int64{0, from - 1} {
		if _, err := w.store.Changes(w.ctx(), after, 10); !errors.Is(err, tko.ErrGone) {
			w.Errorf("changes after %d: error is %v", after, err)
		}
	}
	w.equal("changes after it", len(w.changes(from)), 0)
	w.commit(site(fmt.Sprintf("after %d", from)))
	w.equal("changes after another write", w.logged(from), []loggedChange{{tko.OpWritten, fmt.Sprintf("site after %d", from), 1}})
}

func oldRevisionsAreRemoved(w *world) {
	w.rewrite("s", 0, 5)
	w.rewrite("t", 0, 1)
	w.rewrite("gone", 0, 3)
	w.commit(status(siteKey("t"), tko.Condition{Type: "Healthy", Status: tko.ConditionTrue}))
	w.commit(deleted(siteKey("gone")))
	before, head := w.list(record.Query{Kind: tko.KindSite, Limit: -1, Fields: record.Fields{Package: true}}), w.head()
	done := w.collect(retain(2))
	w.collected("collected", done, record.Collected{Changes: 3 + 3 + 2, Packages: 6, Metadata: 2, Pairs: 3})
	w.equal("revisions", w.revisions(siteKey("s"), 6), []int64{4, 5})
	w.equal("revisions of another", w.revisions(siteKey("t"), 2), []int64{1})
	w.equal("revisions of a deleted site", w.revisions(siteKey("gone"), 4), []int64{})
	w.equal("records", w.list(record.Query{Kind: tko.KindSite, Limit: -1, Fields: record.Fields{Package: true}}), before)
	w.equal("by metadata", w.ids(record.Query{Kind: tko.KindSite, Metadata: values("n", "4"), Limit: -1}), []string{"s"})
	w.checkLogStart(head)
	w.equal("again", w.collect(retain(2)), record.Collected{})
	w.rewrite("s", 5, 6)
	w.commit(deleted(siteKey("s")))
	w.commit(site("gone"))
}

func recentChangesStay(w *world) {
	w.rewrite("s", 0, 5)
	w.commit(deleted(siteKey("s")))
	for _, keep := range []record.Retention{{}, {Revisions: 1}, {Changes: time.Hour, Revisions: 1}, {Changes: time.Hour}} {
		w.equal(fmt.Sprint("collected ", keep), w.collect(keep), record.Collected{})
	}
	w.equal("revisions", w.revisions(siteKey("s"), 5), []int64{1, 2, 3, 4, 5})
	w.equal("log", len(w.changes(0)), 6)
}

func allRevisionsStay(w *world) {
	w.rewrite("s", 0, 4)
	w.rewrite("gone", 0, 2)
	w.commit(deleted(siteKey("gone")), status(siteKey("s")))
	head := w.head()
	w.equal("collected", w.collect(retain(0)).Changes, 2+2)
	w.equal("revisions", w.revisions(siteKey("s"), 5), []int64{1, 2, 3, 4})
	w.equal("revisions of a deleted site", w.revisions(siteKey("gone"), 2), []int64{})
	w.checkLogStart(head)
}

func revisionsAreRemovedLater(w *world) {
	w.rewrite("s", 0, 3)
	w.equal("collected", w.collect(retain(3)), record.Collected{})
	w.rewrite("s", 3, 5)
	w.equal("collected of changes examined before", w.collect(retain(3)).Changes, 2)
	w.equal("revisions", w.revisions(siteKey("s"), 5), []int64{3, 4, 5})
	w.commit(deleted(siteKey("s")))
	w.equal("collected with the deletion", w.collect(retain(3)).Changes, 4)
	w.equal("revisions of a deleted site", w.revisions(siteKey("s"), 5), []int64{})
}

func fewerRevisionsAreRetained(w *world) {
	w.rewrite("s", 0, 6)
	w.rewrite("t", 0, 1)
	w.collect(retain(0))
	w.equal("all", len(w.revisions(siteKey("s"), 6)), 6)
	w.collect(retain(4))
	w.equal("four", w.revisions(siteKey("s"), 6), []int64{3, 4, 5, 6})
	w.equal("one", w.collect(retain(1)).Changes, 3)
	w.equal("one", w.revisions(siteKey("s"), 6), []int64{6})
	w.equal("more again", w.collect(retain(9)), record.Collected{})
	w.equal("the other", w.revisions(siteKey("t"), 2), []int64{1})
}

func tokenRevisionStays(w *world) {
	w.commit(site("s"))
	w.commit(deployment("d", at("s"), withPackage("as it was")))
	_, _, err := w.store.StartModification(w.ctx(), "d", "token", time.Hour)
	w.ok(err)
	w.commit(deleted(siteKey("s")))
	w.collect(retain(1))
	r, _, err := w.store.Modification(w.ctx(), "token")
	w.ok(err)
	w.equal("package", string(r.Package), "as it was")
	w.commit(deployment("d", expect(2), token("token"), withPackage("as it is")))
	w.collect(retain(1))
	w.equal("revisions", w.revisions(deploymentKey("d"), 4), []int64{3})
}

func unusedContentsAreRemoved(w *world) {
	w.commit(template("t", withPackage("shared"), metadata("shared", "yes")))
	for round := range int64(4) {
		for _, text := range []string{"one", "two", "three"} {
			revision := w.one(siteKey("s")).Revision
			w.commit(site("s", expect(revision), withPackage(text), metadata("of", text)))
		}
		w.commit(site("shares", expect(2*round), withPackage("shared"), metadata("shared", "yes")))
		w.commit(site("shares", expect(2*round+1), withPackage("three"), metadata("of", "three")))
		done := w.collect(retain(1))
		w.collected(fmt.Sprint("collected in round ", round), record.Collected{Packages: done.Packages, Metadata: done.Metadata, Pairs: done.Pairs}, record.Collected{Packages: 2, Metadata: 2, Pairs: 3})
		for k, text := range map[record.Key]string{siteKey("s"): "three", siteKey("shares"): "three", templateKey("t"): "shared"} {
			w.equal("package", string(w.one(k).Package), text)
		}
		w.equal("by metadata", w.ids(record.Query{Kind: tko.KindSite, Metadata: values("of", "three"), Limit: -1}), []string{"s", "shares"})
		w.equal("by metadata that went", w.ids(record.Query{Kind: tko.KindSite, Metadata: values("of", "one"), Limit: -1}), []string{})
	}
}

func statusHasMetadata(w *world) {
	noted := func(id, text string, pairs ...string) record.Write {
		of := site(id, metadata(pairs...))
		of.Record.Metadata.Attached = []byte(text)
		of.Op, of.Expect, of.Record.Conditions = tko.OpStatus, record.Any, []tko.Condition{{Type: "C", Status: tko.ConditionTrue}}
		return of
	}
	w.commit(site("s", withPackage("s"), metadata("k", "v")), site("other", withPackage("o"), metadata("n", "1")))
	check := func(where, attached string) {
		w.Helper()
		r := w.one(siteKey("s"))
		w.equal(where+": the record", []any{r.Revision, string(r.Metadata.Attached), string(r.Package), len(r.Conditions)}, []any{int64(1), attached, "s", 1})
		at, err := w.store.Revision(w.ctx(), siteKey("s"), 1)
		w.ok(err)
		w.equal(where+": its revision", string(at.Metadata.Attached), attached)
		w.equal(where+": selected", w.ids(record.Query{Kind: tko.KindSite, Metadata: values("k", "v"), Limit: -1}), []string{"s"})
	}
	before := w.head()
	for i, text := range []string{`{"n":1}`, `{"n":2}`, `{"n":1}`, `{"n":3}`} {
		w.commit(noted("s", text, "k", "v"))
		check(fmt.Sprint("write ", i), text)
		w.rewrite("other", int64(2*i+1), int64(2*i+3))
		w.collect(retain(1))
		check(fmt.Sprint("collected after write ", i), text)
	}
	if _, err := w.store.Changes(w.ctx(), before, 100); !errors.Is(err, tko.ErrGone) {
		w.Errorf("the error of changes that were collected is %v", err)
	}
}

func derivationsAreRetained(w *world) {
	derived := func(text string) func(*record.Write) {
		return func(w *record.Write) {
			w.Record.Derived, w.Record.Derivation = []byte(text), sha256.Sum256([]byte(text))
		}
	}
	content := func(text string) string {
		data, err := w.store.Derivation(w.ctx(), sha256.Sum256([]byte(text)))
		if err != nil {
			return ""
		}
		return string(data)
	}
	w.commit(deployment("d", withPackage("package"), derived("first")))
	w.equal("as it is", w.one(deploymentKey("d")).Derivation, record.Digest(sha256.Sum256([]byte("first"))))
	w.commit(deployment("d", expect(1), withPackage("package 2"), derived("second")))
	again := deployment("d", expect(2), withPackage("package 3"), derived("second"))
	again.Record.Derived = nil // it is known already
	w.commit(again)
	r, err := w.store.Revision(w.ctx(), deploymentKey("d"), 1)
	w.ok(err)
	w.equal("derivation of a revision", r.Derivation, record.Digest(sha256.Sum256([]byte("first"))))
	w.equal("contents", []string{content("first"), content("second")}, []string{"first", "second"})
	w.equal("collected packages and derivations", w.collect(retain(1)).Packages, 2+1)
	w.equal("content after a collection", content("second"), "second")
	w.commit(status(deploymentKey("d"), tko.Condition{Type: "Healthy", Status: tko.ConditionTrue}))
	w.equal("after a change of conditions", w.one(deploymentKey("d")).Derivation, record.Digest(sha256.Sum256([]byte("second"))))
}

func ownersAreRetained(w *world) {
	owned := func(text string) func(*record.Write) {
		return func(w *record.Write) { w.Record.Owned, w.Record.Owner = []byte(text), sha256.Sum256([]byte(text)) }
	}
	of := func(r record.Record) string {
		data, err := w.store.Derivation(w.ctx(), r.Owner)
		if err != nil {
			return ""
		}
		return string(data)
	}
	w.commit(deployment("d", withPackage("package"), owned("ann")))
	w.commit(deployment("e", withPackage("package")))
	w.commit(deployment("d", expect(1), withPackage("package 2"), owned("ben")))
	again := deployment("d", expect(2), withPackage("package 3"), owned("ben"))
	again.Record.Owned = nil // it is known already
	w.commit(again)
	r, err := w.store.Revision(w.ctx(), deploymentKey("d"), 1)
	w.ok(err)
	w.equal("owners", []string{of(r), of(w.one(deploymentKey("d"))), of(w.one(deploymentKey("e")))}, []string{"ann", "ben", ""})
	w.equal("collected packages and owners", w.collect(retain(1)).Packages, 1+1) // a cache may still have what was collected
	w.equal("owner after a collection", of(w.one(deploymentKey("d"))), "ben")
	w.commit(status(deploymentKey("d"), tko.Condition{Type: "Healthy", Status: tko.ConditionTrue}))
	w.equal("owner after a change of conditions", of(w.one(deploymentKey("d"))), "ben")
	w.equal("owner in a list", of(w.list(record.Query{Kind: tko.KindDeployment, Limit: -1})[0]), "ben")
}

func collectionMayBeInterrupted(w *world) {
	const n = 1300
	w.many(n, "d%04d")
	for _, k := range []string{"a", "b"} {
		w.rewrite(k, 0, 20)
	}
	removed := 0
	for limit := time.Millisecond; ; limit += time.Millisecond {
		ctx, cancel := context.WithTimeout(w.ctx(), limit)
		done, err := w.store.Collect(ctx, retain(1))
		cancel()
		removed += done.Changes
		if err == nil {
			break
		}
		w.failed(err, context.DeadlineExceeded)
	}
	w.collect(retain(1))
	if removed > 2*19 { // changes of an interrupted commit may not have been counted
		w.Errorf("%d changes were collected, want %d at most", removed, 2*19)
	}
	for _, k := range []string{"a", "b"} {
		w.equal("revisions", w.revisions(siteKey(k), 20), []int64{20})
	}
	w.equal("deployments", len(w.all()), n)
	w.checkLogStart(w.head())
}

func collectedOnceConcurrently(w *world) {
	const n = 700
	w.many(n, "d%04d")
	var writes []record.Write
	for _, id := range ids("d%04d", n) {
		writes = append(writes, deployment(id, expect(1), withPackage("another")))
	}
	w.commit(writes...)
	var removed atomic.Int64
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			done, err := w.store.Collect(w.ctx(), retain(1))
			if err != nil || done.Elsewhere && done.Changes+done.Packages > 0 {
				w.Errorf("%+v, %v", done, err)
			}
			removed.Add(int64(done.Changes))
		})
	}
	wait.Wait()
	w.equal("collected", removed.Load(), int64(n))
}

// rewriteCollectedContent collects content that a store has just written and deleted,
// and then lets that store write it again: no other store wrote, so its caches may hold
// the content as stored.
func rewriteCollectedContent(t *testing.T, open func(t *testing.T) record.Store) {
	t.Helper()
	writer, collector := &world{T: t, store: open(t)}, &world{T: t, store: open(t)}
	content := func(w *record.Write) { withPackage("rare")(w); metadata("rare", "yes")(w) }
	for i := range 6 {
		first, second := fmt.Sprint("first", i), fmt.Sprint("second", i)
		writer.commit(site(first, content))
		writer.commit(deleted(siteKey(first)))
		done := collector.collect(retain(1))
		want := []int{1, 1, 1}
		if i >= 3 { // a record of another kind still needs the content, but not the index entry
			want = []int{0, 0, 1}
		}
		collector.equal("collected", []int{done.Packages, done.Metadata, done.Pairs}, want)
		writer.commit(site(second, content))
		r := (&world{T: t, store: open(t)}).one(siteKey(second))
		writer.equal("content that was written again", []string{string(r.Package), r.Metadata.Effective["rare"]}, []string{"rare", "yes"})
		writer.equal("by metadata", writer.ids(record.Query{Kind: tko.KindSite, Metadata: values("rare", "yes"), Limit: -1}), []string{second})
		writer.commit(deleted(siteKey(second)))
		collector.collect(retain(1))
		if i == 2 {
			writer.commit(template("keeps", content))
		}
	}
}

// CollectWhileWriting repeatedly writes a few packages and metadata through two stores
// on one database, while a third one collects unused content. Then it checks with a
// fourth store, with empty caches, that every record has its content. open opens
// another store on the database.
func CollectWhileWriting(t *testing.T, open func(t *testing.T) record.Store) {
	t.Helper()
	rewriteCollectedContent(t, open)
	collector := open(t)
	var writers, others sync.WaitGroup
	const (
		enough = 3
		texts  = 7 // more texts than two writers and their recent sites need at a time
		limit  = eventually.Limit
	)
	var packages, metadataSets atomic.Int64
	stop := make(chan struct{})
	others.Go(func() {
		for {
			done, err := collector.Collect(t.Context(), retain(1))
			if err != nil {
				t.Error(err)
				return
			}
			packages.Add(int64(done.Packages))
			metadataSets.Add(int64(done.Metadata))
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range 2 {
		store := open(t)
		writers.Go(func() {
			w := &world{T: t, store: store}
			id := fmt.Sprint("s", i)
			for n, deadline := int64(0), time.Now().Add(limit); packages.Load() < enough || metadataSets.Load() < enough; n++ {
				if time.Now().After(deadline) {
					t.Errorf("within %v, only %d packages and %d metasets were collected", limit, packages.Load(), metadataSets.Load())
					return
				}
				text := fmt.Sprint("content ", (n/3+int64(i))%texts)
				time.Sleep(10 * time.Millisecond) // otherwise, SQLite starves the collector
				content := func(wr *record.Write) { withPackage(text)(wr); metadata("text", text)(wr) }
				if _, err := store.Commit(w.ctx(), record.Ungated(site(id, expect(n), content))); err != nil {
					t.Error(err)
					return
				}
				// New records are committed optimistically.
				if _, err := store.Commit(w.ctx(), record.Ungated(site(fmt.Sprint(id, "-", n), content))); err != nil {
					t.Error(err)
					return
				}
				if _, err := store.Commit(w.ctx(), record.Ungated(deleted(siteKey(fmt.Sprint(id, "-", n-3))))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	others.Wait()
	fresh := open(t)
	found := 0
	texted := map[string][]string{}
	for r, err := range fresh.List(t.Context(), record.Query{Scope: access.ScopeAll, Kind: tko.KindSite, Limit: -1, Fields: record.Fields{Package: true}}) {
		if err != nil {
			t.Fatal(err)
		}
		found++
		texted[r.Metadata.Effective["text"]] = append(texted[r.Metadata.Effective["text"]], r.ID)
		if diff := cmp.Diff(r.Metadata.Effective, map[string]string{"text": string(r.Package)}); diff != "" {
			t.Errorf("site %s: %s", r.ID, diff)
		}
		if _, err := fresh.Revision(t.Context(), r.Key, r.Revision); err != nil {
			t.Error(err)
		}
	}
	if found < 2*3 {
		t.Errorf("found %d sites, want %d at least", found, 2*3)
	}
	for text, ids := range texted {
		w := &world{T: t, store: fresh}
		w.equal("by metadata", w.ids(record.Query{Kind: tko.KindSite, Metadata: values("text", text), Limit: -1}), ids)
	}
}
