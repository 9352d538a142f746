package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

var retentionPromises = []promise{
	{"what is old goes, but for the newest revisions of what is there", collectOld},
	{"what is not old stays", collectNothing},
	{"all revisions stay of what is there, if none are said to go", collectEntries},
	{"revisions go once newer ones are old, too", collectLater},
	{"fewer revisions are kept from then on", collectMore},
	{"what a token is for stays", collectBesideToken},
	{"packages and metadata go when nothing needs them, and come again", collectContents},
	{"a collection may end at any time", collectInPieces},
	{"several collect at once and everything goes once", collectAtOnce},
}

// now keeps nothing that is older than the moment, but some revisions.
func now(revisions int) catalog.Retention {
	return catalog.Retention{Changes: time.Nanosecond, Revisions: revisions}
}

func (w *world) collect(keep catalog.Retention) catalog.Collected {
	w.Helper()
	done, err := w.store.Collect(w.ctx(), keep)
	w.ok(err)
	if done.Elsewhere {
		w.Fatal("somebody else is collecting")
	}
	return done
}

// kept are the revisions of a record that are answered, up to some.
func (w *world) kept(k catalog.Key, up int64) []int64 {
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

// rewrite writes a site again and again.
func (w *world) rewrite(id string, from, to int64) {
	w.Helper()
	for revision := from; revision < to; revision++ {
		w.commit(site(id, expect(revision), withPackage(fmt.Sprint(id, revision)), metadata("n", strconv.FormatInt(revision, 10))))
	}
}

// oblivious checks that the log says that it is complete from a position only.
func (w *world) oblivious(from int64) {
	w.Helper()
	for _, after := range []int64{0, from - 1} {
		if _, err := w.store.Changes(w.ctx(), after, 10); !errors.Is(err, tko.ErrGone) {
			w.Errorf("changes after %d: error is %v", after, err)
		}
	}
	w.equal("after it", len(w.changes(from)), 0)
	w.commit(site(fmt.Sprintf("after %d", from)))
	w.equal("what comes is told", w.told(from), []told{{tko.OpWritten, fmt.Sprintf("site after %d", from), 1}})
}

func collectOld(w *world) {
	w.rewrite("s", 0, 5)
	w.rewrite("t", 0, 1)
	w.rewrite("gone", 0, 3)
	w.commit(status(siteKey("t"), tko.Condition{Type: "Healthy", Status: tko.ConditionTrue}))
	w.commit(deleted(siteKey("gone")))
	before, head := w.list(catalog.Query{Kind: tko.KindSite, Limit: -1, Fields: catalog.Fields{Package: true}}), w.head()
	done := w.collect(now(2))
	w.equal("collected", done, catalog.Collected{Changes: 3 + 3 + 2, Packages: 6, Metadata: 2, Pairs: 3})
	w.equal("revisions", w.kept(siteKey("s"), 6), []int64{4, 5})
	w.equal("revisions of another", w.kept(siteKey("t"), 2), []int64{1})
	w.equal("revisions of what is gone", w.kept(siteKey("gone"), 4), []int64{})
	w.equal("records", w.list(catalog.Query{Kind: tko.KindSite, Limit: -1, Fields: catalog.Fields{Package: true}}), before)
	w.equal("by metadata", w.ids(catalog.Query{Kind: tko.KindSite, Metadata: values("n", "4"), Limit: -1}), []string{"s"})
	w.oblivious(head)
	w.equal("again", w.collect(now(2)), catalog.Collected{})
	w.rewrite("s", 5, 6)
	w.commit(deleted(siteKey("s")))
	w.commit(site("gone"))
}

func collectNothing(w *world) {
	w.rewrite("s", 0, 5)
	w.commit(deleted(siteKey("s")))
	for _, keep := range []catalog.Retention{{}, {Revisions: 1}, {Changes: time.Hour, Revisions: 1}, {Changes: time.Hour}} {
		w.equal(fmt.Sprint("collected ", keep), w.collect(keep), catalog.Collected{})
	}
	w.equal("revisions", w.kept(siteKey("s"), 5), []int64{1, 2, 3, 4, 5})
	w.equal("log", len(w.changes(0)), 6)
}

func collectEntries(w *world) {
	w.rewrite("s", 0, 4)
	w.rewrite("gone", 0, 2)
	w.commit(deleted(siteKey("gone")), status(siteKey("s")))
	head := w.head()
	w.equal("collected", w.collect(now(0)).Changes, 2+2)
	w.equal("revisions", w.kept(siteKey("s"), 5), []int64{1, 2, 3, 4})
	w.equal("revisions of what is gone", w.kept(siteKey("gone"), 2), []int64{})
	w.oblivious(head)
}

func collectLater(w *world) {
	w.rewrite("s", 0, 3)
	w.equal("collected", w.collect(now(3)), catalog.Collected{})
	w.rewrite("s", 3, 5)
	w.equal("collected of what was looked at", w.collect(now(3)).Changes, 2)
	w.equal("revisions", w.kept(siteKey("s"), 5), []int64{3, 4, 5})
	w.commit(deleted(siteKey("s")))
	w.equal("collected with the deletion", w.collect(now(3)).Changes, 4)
	w.equal("revisions of what is gone", w.kept(siteKey("s"), 5), []int64{})
}

func collectMore(w *world) {
	w.rewrite("s", 0, 6)
	w.rewrite("t", 0, 1)
	w.collect(now(0))
	w.equal("all", len(w.kept(siteKey("s"), 6)), 6)
	w.collect(now(4))
	w.equal("four", w.kept(siteKey("s"), 6), []int64{3, 4, 5, 6})
	w.equal("one", w.collect(now(1)).Changes, 3)
	w.equal("one", w.kept(siteKey("s"), 6), []int64{6})
	w.equal("more again", w.collect(now(9)), catalog.Collected{})
	w.equal("the other", w.kept(siteKey("t"), 2), []int64{1})
}

func collectBesideToken(w *world) {
	w.commit(site("s"))
	w.commit(deployment("d", at("s"), withPackage("as it was")))
	_, _, err := w.store.StartModification(w.ctx(), "d", "token", time.Hour)
	w.ok(err)
	w.commit(deleted(siteKey("s")))
	w.collect(now(1))
	r, err := w.store.Modification(w.ctx(), "token")
	w.ok(err)
	w.equal("package", string(r.Package), "as it was")
	w.commit(deployment("d", expect(2), token("token"), withPackage("as it is")))
	w.collect(now(1))
	w.equal("revisions", w.kept(deploymentKey("d"), 4), []int64{3})
}

func collectContents(w *world) {
	w.commit(template("t", withPackage("shared"), metadata("shared", "yes")))
	for round := range int64(4) {
		for _, text := range []string{"one", "two", "three"} {
			revision := w.one(siteKey("s")).Revision
			w.commit(site("s", expect(revision), withPackage(text), metadata("of", text)))
		}
		w.commit(site("shares", expect(2*round), withPackage("shared"), metadata("shared", "yes")))
		w.commit(site("shares", expect(2*round+1), withPackage("three"), metadata("of", "three")))
		done := w.collect(now(1))
		w.equal(fmt.Sprint("collected in round ", round), []int{done.Packages, done.Metadata, done.Pairs}, []int{2, 2, 3})
		for k, text := range map[catalog.Key]string{siteKey("s"): "three", siteKey("shares"): "three", templateKey("t"): "shared"} {
			w.equal("package", string(w.one(k).Package), text)
		}
		w.equal("by metadata", w.ids(catalog.Query{Kind: tko.KindSite, Metadata: values("of", "three"), Limit: -1}), []string{"s", "shares"})
		w.equal("by metadata that went", w.ids(catalog.Query{Kind: tko.KindSite, Metadata: values("of", "one"), Limit: -1}), []string{})
	}
}

func collectInPieces(w *world) {
	const n = 1300
	w.many(n, "d%04d")
	for _, k := range []string{"a", "b"} {
		w.rewrite(k, 0, 20)
	}
	removed := 0
	for limit := time.Millisecond; ; limit += time.Millisecond {
		ctx, cancel := context.WithTimeout(w.ctx(), limit)
		done, err := w.store.Collect(ctx, now(1))
		cancel()
		removed += done.Changes
		if err == nil {
			break
		}
		w.failed(err, context.DeadlineExceeded)
	}
	w.collect(now(1))
	if removed > 2*19 { // what was cut off during its commit may not have been counted
		w.Errorf("%d were collected, of %d", removed, 2*19)
	}
	for _, k := range []string{"a", "b"} {
		w.equal("revisions", w.kept(siteKey(k), 20), []int64{20})
	}
	w.equal("deployments", len(w.all()), n)
	w.oblivious(w.head())
}

func collectAtOnce(w *world) {
	const n = 700
	w.many(n, "d%04d")
	var writes []catalog.Write
	for _, id := range ids("d%04d", n) {
		writes = append(writes, deployment(id, expect(1), withPackage("another")))
	}
	w.commit(writes...)
	var removed atomic.Int64
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			done, err := w.store.Collect(w.ctx(), now(1))
			if err != nil || done.Elsewhere && done.Changes+done.Packages > 0 {
				w.Errorf("%+v, %v", done, err)
			}
			removed.Add(int64(done.Changes))
		})
	}
	wait.Wait()
	w.equal("collected", removed.Load(), int64(n))
}

// collectBehindTheBack collects what a store has just written and deleted, and
// then has that store write it anew: as nobody else wrote, it may well believe that
// it is still there.
func collectBehindTheBack(t *testing.T, open func(t *testing.T) catalog.Store) {
	t.Helper()
	writer, collector := &world{T: t, store: open(t)}, &world{T: t, store: open(t)}
	content := func(w *catalog.Write) { withPackage("rare")(w); metadata("rare", "yes")(w) }
	for i := range 6 {
		first, second := fmt.Sprint("first", i), fmt.Sprint("second", i)
		writer.commit(site(first, content))
		writer.commit(deleted(siteKey(first)))
		done := collector.collect(now(1))
		want := []int{1, 1, 1}
		if i >= 3 { // a record of another kind keeps the content, but not the index
			want = []int{0, 0, 1}
		}
		collector.equal("collected", []int{done.Packages, done.Metadata, done.Pairs}, want)
		writer.commit(site(second, content))
		r := (&world{T: t, store: open(t)}).one(siteKey(second))
		writer.equal("what was collected is written again", []string{string(r.Package), r.Metadata.Effective["rare"]}, []string{"rare", "yes"})
		writer.equal("by metadata", writer.ids(catalog.Query{Kind: tko.KindSite, Metadata: values("rare", "yes"), Limit: -1}), []string{second})
		writer.commit(deleted(siteKey(second)))
		collector.collect(now(1))
		if i == 2 {
			writer.commit(template("keeps", content))
		}
	}
}

// Collect writes few packages and metadata again and again through two stores
// on one database, while a third collects what nothing needs at the moment.
// Then it checks with a fourth, which knows nothing, that all there is has what it
// needs. open opens another store on the database.
func Collect(t *testing.T, open func(t *testing.T) catalog.Store) {
	t.Helper()
	collectBehindTheBack(t, open)
	collector := open(t)
	var writers, others sync.WaitGroup
	const (
		enough = 3
		texts  = 7 // two writers and what lingers need fewer than these at a time
		limit  = 4 * patience
	)
	var packages, metadataSets atomic.Int64
	stop := make(chan struct{})
	others.Go(func() {
		for {
			done, err := collector.Collect(t.Context(), now(1))
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
					t.Errorf("within %v only %d packages and %d metadata sets were collected", limit, packages.Load(), metadataSets.Load())
					return
				}
				text := fmt.Sprint("content ", (n/3+int64(i))%texts)
				time.Sleep(10 * time.Millisecond) // SQLite is not fair to the collector otherwise
				content := func(wr *catalog.Write) { withPackage(text)(wr); metadata("text", text)(wr) }
				if _, err := store.Commit(w.ctx(), site(id, expect(n), content)); err != nil {
					t.Error(err)
					return
				}
				// New records are written in ways of their own.
				if _, err := store.Commit(w.ctx(), site(fmt.Sprint(id, "-", n), content)); err != nil {
					t.Error(err)
					return
				}
				if _, err := store.Commit(w.ctx(), deleted(siteKey(fmt.Sprint(id, "-", n-3)))); err != nil {
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
	for r, err := range fresh.List(t.Context(), catalog.Query{Kind: tko.KindSite, Limit: -1, Fields: catalog.Fields{Package: true}}) {
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
		t.Errorf("%d sites", found)
	}
	for text, ids := range texted {
		w := &world{T: t, store: fresh}
		w.equal("by metadata", w.ids(catalog.Query{Kind: tko.KindSite, Metadata: values("text", text), Limit: -1}), ids)
	}
}
