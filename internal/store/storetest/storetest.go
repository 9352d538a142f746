// Package storetest is the conformance suite of stores: every promise of
// [record.Store] is a test case, named after the promise. A backend runs all of them
// with one call of [Run].
package storetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A promise is a test case.
type promise struct {
	promise string
	check   func(*world)
}

// Run checks the promises of [record.Store]. open returns an empty store, and closes
// it when the test ends.
func Run(t *testing.T, open func(t *testing.T) record.Store) {
	t.Helper()
	run(t, open, allPromises(), false)
}

// RunPart is Run of the promises that a store keeps so far, by name: the list may only grow. The
// others are logged, so that what a store lacks is in plain sight. The store has the metadata of records within them,
// and lists that hold nothing while they aren't read.
func RunPart(t *testing.T, open func(t *testing.T) record.Store, keeps []string, elsewhere ...string) {
	t.Helper()
	known := map[string]bool{}
	var part []promise
	for _, p := range allPromises() {
		known[p.promise] = true
		if slices.Contains(keeps, p.promise) {
			part = append(part, p)
		} else if !slices.Contains(elsewhere, p.promise) {
			t.Logf("not yet: %s", p.promise)
		}
	}
	for _, name := range keeps {
		if !known[name] {
			t.Errorf("there is no promise %q", name)
		}
	}
	run(t, open, part, true)
}

func allPromises() []promise {
	return slices.Concat(readPromises, listPromises, writePromises, cascadePromises, retentionPromises, pastPromises, feedPromises, tokenPromises, queuePromises, sourcePromises, targetPromises, accessPromises, auditPromises, rolloutPromises, reachPromises, tallyPromises)
}

func run(t *testing.T, open func(t *testing.T) record.Store, promises []promise, embedded bool) {
	t.Helper()
	for _, p := range promises {
		t.Run(p.promise, func(t *testing.T) {
			t.Parallel()
			p.check(&world{T: t, store: open(t), embedded: embedded})
		})
	}
}

// A world is a test with a store.
type world struct {
	*testing.T
	store record.Store
	// embedded stores have the metadata of records within them: they don't collect it by itself. Their lists hold nothing while
	// they aren't read.
	embedded bool
}

func (w *world) ctx() context.Context { return w.Context() }

func key(kind tko.Kind, id string) record.Key { return record.Key{Kind: kind, ID: id} }

func templateKey(id string) record.Key   { return key(tko.KindTemplate, id) }
func siteKey(id string) record.Key       { return key(tko.KindSite, id) }
func deploymentKey(id string) record.Key { return key(tko.KindDeployment, id) }

// written returns a write of a new record with a package, modified by change.
func written(kind tko.Kind, id string, change ...func(*record.Write)) record.Write {
	w := record.Write{Op: tko.OpWritten, Expect: record.Absent, Record: record.Record{Key: key(kind, id), UID: "uid of " + id}}
	withPackage("package of " + id)(&w)
	for _, c := range change {
		c(&w)
	}
	return w
}

func template(id string, change ...func(*record.Write)) record.Write {
	return written(tko.KindTemplate, id, change...)
}

func site(id string, change ...func(*record.Write)) record.Write {
	return written(tko.KindSite, id, change...)
}

func deployment(id string, change ...func(*record.Write)) record.Write {
	return written(tko.KindDeployment, id, change...)
}

func withPackage(text string) func(*record.Write) {
	return func(w *record.Write) { w.Record.Package, w.Record.Digest = []byte(text), sha256.Sum256([]byte(text)) }
}

func of(templateID string) func(*record.Write) {
	return func(w *record.Write) { w.Record.Template = templateID }
}

func at(siteID string) func(*record.Write) {
	return func(w *record.Write) { w.Record.Site = siteID }
}

func under(parent string) func(*record.Write) {
	return func(w *record.Write) { w.Record.Parent = parent }
}

func origin(o string) func(*record.Write) { return func(w *record.Write) { w.Record.Origin = o } }

func ready(w *record.Write) { w.Record.Prepared, w.Record.Approved = true, true }

func expect(revision int64) func(*record.Write) {
	return func(w *record.Write) { w.Expect = revision }
}

func requires(keys ...record.Key) func(*record.Write) {
	return func(w *record.Write) { w.Requires = keys }
}

func token(t string) func(*record.Write) { return func(w *record.Write) { w.Token = t } }

func by(who, why string) func(*record.Write) {
	return func(w *record.Write) { w.Record.Author = tko.Author{Who: who, Why: why} }
}

// metadata sets the metadata of a record. Half of the deployments have it from their
// template alone, which stores may store in another form.
func metadata(pairs ...string) func(*record.Write) {
	own := own(pairs...)
	return func(w *record.Write) {
		own(w)
		if id := w.Record.ID; w.Record.Kind == tko.KindDeployment && id[len(id)-1]%2 == 1 {
			inherited(pairs...)(w)
		}
	}
}

// own sets metadata that is not from a template.
func own(pairs ...string) func(*record.Write) {
	m := &record.Metadata{Effective: map[string]string{}}
	for pair := range slices.Chunk(pairs, 2) {
		m.Effective[pair[0]] = pair[1]
	}
	return func(w *record.Write) { w.Record.Metadata = m }
}

// inherited sets metadata that is from a template only.
func inherited(pairs ...string) func(*record.Write) {
	own := own(pairs...)
	return func(w *record.Write) {
		own(w)
		m := *w.Record.Metadata
		m.Inherited = maps.Clone(m.Effective)
		w.Record.Metadata = &m
	}
}

func deleted(k record.Key, change ...func(*record.Write)) record.Write {
	w := record.Write{Op: tko.OpDeleted, Expect: record.Any, Record: record.Record{Key: k}}
	for _, c := range change {
		c(&w)
	}
	return w
}

func status(k record.Key, conditions ...tko.Condition) record.Write {
	return record.Write{Op: tko.OpStatus, Expect: record.Any, Record: record.Record{Key: k, Conditions: conditions}}
}

// commit commits writes, and ends the test if that fails.
func (w *world) commit(writes ...record.Write) []record.Outcome {
	w.Helper()
	outcomes, err := w.store.Commit(w.ctx(), record.Ungated(writes...))
	if err != nil {
		w.Fatalf("commit: %v", err)
	}
	if len(outcomes) != len(writes) {
		w.Fatalf("%d outcomes of %d writes, want one each", len(outcomes), len(writes))
	}
	return outcomes
}

// refused commits writes, and ends the test unless the error is of the kind want.
func (w *world) refused(want error, writes ...record.Write) {
	w.Helper()
	_ = w.refusal(want, writes...)
}

// refusal is refused, and returns the error.
func (w *world) refusal(want error, writes ...record.Write) error {
	w.Helper()
	before := w.head()
	outcomes, err := w.store.Commit(w.ctx(), record.Ungated(writes...))
	w.failed(err, want)
	if outcomes != nil {
		w.Errorf("a refused commit has outcomes: %v", outcomes)
	}
	if after := w.head(); after != before {
		w.Errorf("a refused commit moved the head from %d to %d", before, after)
	}
	return err
}

func (w *world) failed(err, want error) {
	w.Helper()
	if !isError(err, want) {
		w.Fatalf("error is %v, want the kind %q", err, want)
	}
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) head() int64 {
	w.Helper()
	head, err := w.store.Head(w.ctx())
	w.ok(err)
	return head
}

func (w *world) get(fields record.Fields, keys ...record.Key) []record.Record {
	w.Helper()
	fields.Scope = access.ScopeAll
	records, err := w.store.Get(w.ctx(), fields, keys...)
	w.ok(err)
	if len(records) != len(keys) {
		w.Fatalf("%d records of %d keys, want one each", len(records), len(keys))
	}
	return records
}

// one reads a record with all fields.
func (w *world) one(k record.Key) record.Record {
	w.Helper()
	return w.get(record.Fields{Package: true, Deployments: true}, k)[0]
}

func (w *world) changes(after int64) []tko.Change {
	w.Helper()
	changes, err := w.store.Changes(w.ctx(), after, 10_000)
	w.ok(err)
	return changes
}

// A loggedChange is a change without the fields that differ between runs.
type loggedChange struct {
	Op       tko.Op
	ID       string
	Revision int64
}

func (w *world) logged(after int64) []loggedChange {
	w.Helper()
	var list []loggedChange
	for _, c := range w.changes(after) {
		list = append(list, loggedChange{c.Op, string(c.Kind) + " " + c.ID, c.Revision})
	}
	return list
}

// list returns the records that a query selects, whatever their scope.
func (w *world) list(query record.Query) []record.Record {
	w.Helper()
	query.Scope = access.ScopeAll
	return w.within(query)
}

// within returns the records that a query selects in its scope.
func (w *world) within(query record.Query) []record.Record {
	w.Helper()
	var records []record.Record
	for r, err := range w.store.List(w.ctx(), query) {
		w.ok(err)
		records = append(records, r)
	}
	return records
}

func (w *world) ids(query record.Query) []string {
	w.Helper()
	list := []string{}
	for _, r := range w.list(query) {
		list = append(list, r.ID)
	}
	return list
}

func (w *world) equal(what string, got, want any) {
	w.Helper()
	if reflect.DeepEqual(want, got) { // which is faster
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// dueWork claims and finishes all due work of a queue, and returns its sorted keys.
func (w *world) dueWork(queue string) []string {
	w.Helper()
	items := w.claim(queue, 1000, time.Minute)
	keys := []string{}
	var done []tko.FinishedWork
	for _, item := range items {
		keys = append(keys, item.Key)
		done = append(done, tko.FinishedWork{Item: item, Outcome: tko.WorkDone})
	}
	w.ok(w.store.FinishWork(w.ctx(), done, nil))
	slices.Sort(keys)
	return keys
}

func (w *world) claim(queue string, n int, lease time.Duration) []tko.WorkItem {
	w.Helper()
	items, _, err := w.store.ClaimWork(w.ctx(), tko.ClaimWork{Queue: queue, Worker: "test", Max: n, Lease: lease})
	w.ok(err)
	return items
}

func ids(format string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return list
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
