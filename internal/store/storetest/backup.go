package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/store/backup"
)

// An Archiver is a store that can be backed up and restored.
type Archiver interface {
	record.Store
	Archive(ctx context.Context, w io.Writer, program string) (archive.Summary, error)
	Restore(ctx context.Context, r io.Reader, o backup.Restore) (archive.Summary, error)
	CheckComplete(ctx context.Context) error
	Promote(ctx context.Context, p backup.Promotion) (tko.Fence, error)
	SaveSealingKey(ctx context.Context, wrapped []byte, version int64) error
}

// contents returns everything that callers can read from a store, as text, except for
// positions, which a restore changes.
func (w *world) contents() string {
	w.Helper()
	var b strings.Builder
	for _, kind := range []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin} {
		query := record.Query{Kind: kind, Limit: -1, Fields: record.Fields{Package: true, Deployments: true}}
		for _, r := range w.list(query) {
			metadata := *r.Metadata
			r.Metadata = nil
			fmt.Fprintf(&b, "%+v\n  metadata %+v\n", r, metadata)
			for revision := int64(1); revision <= r.Revision; revision++ {
				old, err := w.store.Revision(w.ctx(), r.Key, revision)
				w.ok(err)
				old.Metadata = nil
				fmt.Fprintf(&b, "  revision %+v\n", old)
			}
		}
	}
	find := record.Query{Kind: tko.KindDeployment, Limit: -1, Metadata: values("region", "north")}
	fmt.Fprintln(&b, "north", w.ids(find))
	version, rules, err := w.store.Access(w.ctx())
	w.ok(err)
	fmt.Fprintf(&b, "access %d %s\n", version, rules)
	sources, err := w.store.Sources(w.ctx())
	w.ok(err)
	for _, s := range sources {
		full, err := w.store.Source(w.ctx(), s.Name)
		w.ok(err)
		full.Enqueued, full.Due = false, time.Time{}
		fmt.Fprintf(&b, "source %+v\n", full)
	}
	flights, err := w.store.ApartFlights(w.ctx())
	w.ok(err)
	fmt.Fprintf(&b, "flights of rollouts that keep sites apart %+v\n", flights)
	view := w.view("r")
	fmt.Fprintf(&b, "rollout %+v\n  rows %+v\n  flights %+v\n", view.State, view.Rows, view.Flight)
	fmt.Fprintf(&b, "reach %v\n", w.reached("ann"))
	state, err := w.store.TargetState(w.ctx(), "lagos", "main")
	w.ok(err)
	fmt.Fprintf(&b, "state %+v\n", state)
	records, _, base, err := w.store.Audited(w.ctx(), 0, 1000)
	w.ok(err)
	fmt.Fprintf(&b, "audit after %v\n", base)
	for _, r := range records {
		one, err := r.Record()
		w.ok(err)
		if one.Action != "restore" {
			fmt.Fprintf(&b, "  %s %x\n", r.Text, r.Hash)
		}
	}
	return b.String()
}

// noRights are rules that are stored with rights, and are none.
var noRights = []record.AccessRule{{Kind: "freeze", ID: "f", Doc: []byte(`{"id":"f"}`)}, {Kind: "source", ID: "s", Doc: []byte(`{"name":"s"}`)}}

// fillAll writes some of everything.
func (w *world) fillAll() {
	w.Helper()
	w.commit(template("cu", metadata("region", "north")), site("lagos", metadata("region", "north")), site("oslo"))
	w.commit(written(tko.KindPlugin, "prepare|x", func(c *record.Write) {
		c.Record.Plugin, c.Record.Package, c.Record.Digest = []byte(`{"name":"x"}`), nil, record.Digest{}
	}))
	for i := range 9 {
		id := fmt.Sprint("d", i)
		w.commit(deployment(id, of("cu"), at("lagos"), metadata("region", "north"), by("ann", "because"), origin("origin of "+id), ready))
		w.commit(deployment(id, expect(1), of("cu"), at("lagos"), metadata("region", "south"), withPackage(strings.Repeat("large ", 1000)+id), ready))
		w.commit(status(deploymentKey(id), tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue}))
	}
	w.commit(status(siteKey("lagos"), tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue}))
	w.free(reach("ann", 100), deleted(deploymentKey("d8")))
	w.free(reach("ann", 100), deployment("d7", expect(2), of("cu"), at("lagos"), withPackage("changed at its site"), ready))
	grant := func(r *record.Reach) { r.Grant = map[record.Count]int{record.CountCreated: 5} }
	w.free(reach("ann", 100, derived, grant), deployment("unprepared", under("d0")))
	w.free(reach("author/ann", 100), deployment("d7", expect(3), of("cu"), at("lagos"), metadata("region", "west"), withPackage("counted"), ready))
	rules := append([]record.AccessRule{{Kind: "binding", ID: "b", Doc: []byte(`{"subject":"token:root"}`)}}, noRights...)
	_, err := w.store.ChangeAccess(w.ctx(), 0, rules, nil,
		audit.Record{Caller: audit.Caller{Subject: "token:root"}, Kind: "binding"})
	w.ok(err)
	w.ok(w.store.Audit(w.ctx(), audit.Record{Kind: "login", Detail: "refused"}))
	_, err = w.store.SaveSource(w.ctx(), tko.Source{Name: "fleet", State: []byte("state")}, w.claimSource(time.Hour, "fleet")[0])
	w.ok(err)
	w.rollout("r", 1, execute.Running, rolloutRow("d1"), rolloutRow("d2", func(r *record.RolloutRow) { r.Pins = []plan.Pin{{Kind: tko.KindTemplate, ID: "cu", Revision: 1}} }))
	entry := execute.Entry{Deployment: "d1", Site: "lagos", Rollout: "r", Family: "r", Values: map[string]string{"pair": "p"}, Apart: []string{"pair"}}
	view := w.view("r")
	w.commit(site("oslo", expect(1), changing(record.RolloutWrite{
		Expect: view.Version, Rollout: "r", Number: 1, States: []record.RolloutState{view.State}, Rows: view.Rows[:1], Flight: []execute.Entry{entry},
		Evidence: []tko.RolloutEvidence{{Number: 1, Metric: "errors", Outcome: "Bad"}},
	})))
	_, err = w.store.SaveTargetState(w.ctx(), tko.TargetState{Site: "lagos", Name: "main", State: []byte{0, 1}}, w.claimSite(time.Hour))
	w.ok(err)
}

// Backups checks that a backup of one store, taken while others write, restored into
// another one, has the same contents; and what clients of the lost store see.
func Backups(t *testing.T, from, to Archiver) { //nolint:funlen // one story
	t.Helper()
	old := &world{T: t, store: from}
	old.fillAll()
	want := old.contents()
	_, _, err := from.StartModification(t.Context(), "d1", "token of a lost client", time.Hour)
	old.ok(err)

	// Others write while the backup is taken.
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	started := make(chan struct{})
	writer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := from.Commit(context.WithoutCancel(ctx), record.Ungated(template(fmt.Sprintf("pair/%d/a", i)), template(fmt.Sprintf("pair/%d/b", i)))); err != nil {
				t.Error(err)
			}
			if i == 3 {
				close(started)
			}
		}
	})
	<-started
	var buffer bytes.Buffer
	summary, err := from.Archive(t.Context(), &buffer, "v1")
	stop()
	writer.Wait()
	old.ok(err)
	lost, err := from.Head(t.Context())
	old.ok(err)

	restored := &world{T: t, store: to}
	got, err := to.Restore(t.Context(), bytes.NewReader(buffer.Bytes()), backup.Restore{})
	restored.ok(err)
	if diff := cmp.Diff(summary, got); diff != "" {
		t.Errorf("summary of the restore (-backup +restore):\n%s", diff)
	}
	checkRowsRestored(t, buffer.Bytes(), to)
	pairs := map[string]int{}
	for _, id := range restored.ids(record.Query{Kind: tko.KindTemplate, Limit: -1}) {
		if name, ok := strings.CutPrefix(id, "pair/"); ok {
			pairs[strings.TrimSuffix(strings.TrimSuffix(name, "/a"), "/b")]++
			_, err := to.Commit(t.Context(), record.Ungated(deleted(templateKey(id))))
			restored.ok(err)
		}
	}
	for i, n := range pairs {
		if n != 2 {
			t.Errorf("the backup has %d records of the transaction %s, want all or none", n, i)
		}
	}
	if len(pairs) < 4 {
		t.Errorf("the backup has %d of the records written before it, want all", len(pairs))
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(restored.contents(), "\n")); diff != "" {
		t.Errorf("contents (-backed up +restored):\n%s", diff)
	}

	head, err := to.Head(t.Context())
	restored.ok(err)
	if head <= lost {
		t.Errorf("the restored store is at position %d, want one after %d, which clients of the lost store know", head, lost)
	}
	for _, after := range []int64{0, summary.Manifest.Position, lost} {
		if changes, err := to.Changes(t.Context(), after, 10); !errors.Is(err, tko.ErrGone) {
			t.Errorf("changes after %d: %d, %v: want ErrGone, so that watchers list again", after, len(changes), err)
		}
	}
	if _, _, err := to.Modification(t.Context(), "token of a lost client"); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("a modification token of the lost store: %v, want ErrNotFound", err)
	}
	records, head2, base, err := to.Audited(t.Context(), 0, 1000)
	restored.ok(err)
	v := audit.NewVerifier(base)
	for _, r := range records {
		restored.ok(v.Next(r))
	}
	restored.ok(v.End(head2))
	if text := string(records[len(records)-1].Text); !strings.Contains(text, "restored") || !strings.Contains(text, summary.Digest) {
		t.Errorf("the last audit record is %s, want the restore with the archive's checksum", text)
	}
	if _, err := to.Restore(t.Context(), bytes.NewReader(buffer.Bytes()), backup.Restore{}); !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a restore into a store that is not empty: %v, want a refusal", err)
	}
	restored.checkHeld()
	if _, ok, err := to.Tally(t.Context()); err != nil {
		t.Error(err)
	} else if ok {
		restored.checkNumbers("of a store that has them before its servers count")
	}
	restored.waitForNumbers(nil)
	restored.checkNumbers("after the restore")
}

// changedByRestore are the tables whose rows a restore changes, with the reason.
var changedByRestore = map[string]string{
	"work":      "leases and delays are those of another time, and each scheduled site is enqueued",
	"audit":     "the restore is recorded",
	"collector": "no server collects yet",
}

// emptyInBackups are the tables of which the store of these tests has no rows.
var emptyInBackups = map[string]string{
	"sealing_key":  "the store of the test is not encrypted",
	"longer":       "no policy retains revisions longer",
	"audit_sink":   "no audit log is exported",
	"subscription": "there are no subscriptions",
}

// rowsOf returns the rows of the tables of an archive, as sorted text with the names of
// the columns.
func rowsOf(t *testing.T, data []byte) map[string][]string {
	t.Helper()
	rows := map[string][]string{}
	_, err := archive.Read(bytes.NewReader(data), archive.Handlers{
		Manifest: func(archive.Manifest) error { return nil },
		Table: func(t archive.Table) error {
			rows[t.Name] = []string{}
			return nil
		},
		Rows: func(t archive.Table, list [][]any) error {
			for _, row := range list {
				var b strings.Builder
				for i, v := range row {
					fmt.Fprintf(&b, "%s=%v ", t.Columns[i].Name, v)
				}
				rows[t.Name] = append(rows[t.Name], b.String())
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range rows {
		slices.Sort(list)
	}
	return rows
}

// checkRowsRestored checks that a backup of the restored store has each row of the
// backup that it was restored from.
func checkRowsRestored(t *testing.T, data []byte, to Archiver) {
	t.Helper()
	var again bytes.Buffer
	if _, err := to.Archive(t.Context(), &again, "v1"); err != nil {
		t.Fatal(err)
	}
	want, got := rowsOf(t, data), rowsOf(t, again.Bytes())
	if strings.HasPrefix(to.Backend(), "Spanner") || strings.HasPrefix(backendOf(t, data), "Spanner") { // which name metadata otherwise
		want, got = namedRows(t, data), namedRows(t, again.Bytes())
	}
	for table, rows := range want {
		if _, ok := emptyInBackups[table]; ok != (len(rows) == 0) {
			t.Errorf("the backup of the test has %d rows of the table %s: fill it, or correct the list of empty ones", len(rows), table)
		}
		if _, ok := changedByRestore[table]; ok {
			continue
		}
		if diff := cmp.Diff(rows, got[table]); diff != "" {
			t.Errorf("rows of the table %s (-backed up +restored):\n%s", table, diff)
		}
	}
}

// A SchemaColumn is a column of a table, from the catalog of a database.
type SchemaColumn struct {
	Table, Name string
	Null        bool // it may be NULL
}

// notInBackups are the tables, and columns as TABLE.COLUMN, that a backup lacks, with
// the reason. The list may only become shorter: each entry is something that a restore
// loses unless its reason holds.
var notInBackups = map[string]string{
	"goose_db_version": "the restored store has its own schema; the archive's is in the manifest",
	"modification":     "tokens are rights of clients of the old store",
	"tally":            "entities are counted again after a restore",
	"failure":          "likewise",
	"wake":             "times of wakes of servers; work is enqueued anew",
	"hold":             "a restore holds everything",
	"state":            "facts about the store itself: its schema, and its restores",
	"head.one":         "the key of the only row",
	"head.position":    "in the manifest",
	"head.epoch":       "in the manifest",
	"head.number":      "in the manifest",
	"head.collected":   "in the manifest",
	"head.access":      "in the manifest",
	"head.audited":     "in the manifest",
	"head.chain":       "in the manifest",
	"head.gone":        "a restore moves it beyond all positions that clients may know",
	"head.tallied":     "a restore sets it to no position",
	"head.rollouts":    "a restore moves it beyond the versions of all rows",
}

// mostNotInBackups is the number of entries of notInBackups.
const mostNotInBackups = 18

// BackupHasEveryColumn checks that the tables of a backup are those of the schema, with
// all their columns. Only are tables that no other database has, with the reason why a
// backup lacks them.
func BackupHasEveryColumn(t *testing.T, store Archiver, schema []SchemaColumn, only map[string]string) {
	t.Helper()
	var buffer bytes.Buffer
	if _, err := store.Archive(t.Context(), &buffer, "v1"); err != nil {
		t.Fatal(err)
	}
	saved := map[SchemaColumn]bool{}
	_, err := archive.Read(&buffer, archive.Handlers{
		Manifest: func(archive.Manifest) error { return nil },
		Table: func(t archive.Table) error {
			for _, c := range t.Columns {
				saved[SchemaColumn{t.Name, c.Name, c.Null}] = true
			}
			return nil
		},
		Rows: func(archive.Table, [][]any) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(schema) == 0 {
		t.Fatal("the catalog of the database has no columns")
	}
	excepted := maps.Clone(notInBackups)
	maps.Copy(excepted, only)
	unused := maps.Clone(excepted)
	for _, c := range schema {
		missing := false
		for _, name := range []string{c.Table, c.Table + "." + c.Name} {
			if _, ok := excepted[name]; ok {
				missing = true
				delete(unused, name)
			}
		}
		if saved[c] && missing {
			t.Errorf("%s.%s is in the backup, and an exception, too", c.Table, c.Name)
		}
		if !saved[c] && !missing {
			t.Errorf("the backup lacks the column %s.%s (may be NULL: %v): a restore would lose it. Add it to the tables of package backup", c.Table, c.Name, c.Null)
		}
		delete(saved, c)
	}
	for c := range saved {
		t.Errorf("the backup has %+v, which the schema lacks", c)
	}
	for name := range unused {
		t.Errorf("the schema lacks %s: remove the exception", name)
	}
	if len(notInBackups) != mostNotInBackups {
		t.Errorf("there are %d exceptions and not %d: the list may only become shorter (then lower the number)", len(notInBackups), mostNotInBackups)
	}
}

// OlderBackups checks that columns that an archive of an earlier version lacks are
// derived from the others where they can be.
func OlderBackups(t *testing.T, from, to Archiver) {
	t.Helper()
	w := &world{T: t, store: from}
	w.fillAll()
	want, err := from.ApartFlights(t.Context())
	w.ok(err)
	var buffer, older bytes.Buffer
	_, err = from.Archive(t.Context(), &buffer, "v1")
	w.ok(err)
	without := map[string]string{"flight": "apart", "rollout_row": "version"}
	cut := func(t archive.Table) (archive.Table, int) {
		at := slices.IndexFunc(t.Columns, func(c archive.Column) bool { return c.Name == without[t.Name] })
		if at >= 0 {
			t.Columns = slices.Delete(slices.Clone(t.Columns), at, at+1)
		}
		return t, at
	}
	var out *archive.Writer
	_, err = archive.Read(&buffer, archive.Handlers{
		Manifest: func(m archive.Manifest) (err error) {
			out, err = archive.NewWriter(&older, m)
			return err
		},
		Table: func(t archive.Table) error {
			t, _ = cut(t)
			return out.Table(t)
		},
		Rows: func(t archive.Table, rows [][]any) error {
			_, at := cut(t)
			for _, row := range rows {
				if at >= 0 {
					row = slices.Delete(slices.Clone(row), at, at+1)
				}
				if err := out.Row(row); err != nil {
					return err
				}
			}
			return nil
		},
	})
	w.ok(err)
	_, err = out.Close()
	w.ok(err)
	_, err = to.Restore(t.Context(), &older, backup.Restore{})
	w.ok(err)
	got, err := to.ApartFlights(t.Context())
	w.ok(err)
	if len(want) == 0 || !cmp.Equal(want, got) {
		t.Errorf("flights of rollouts that keep sites apart, after the restore of an older backup: %+v, want %+v", got, want)
	}
}

// checkHeld checks that nothing happens after a restore until it is released.
func (w *world) checkHeld() {
	w.Helper()
	claim := func(queue string) []tko.WorkItem {
		items, _, err := w.store.ClaimWork(w.ctx(), tko.ClaimWork{Queue: queue, Max: 100, Lease: time.Hour, Worker: "w"})
		w.ok(err)
		return items
	}
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueSchedule, []string{"lagos", "oslo"}, false)) // a user changes something
	w.ok(w.store.EnqueueWork(w.ctx(), tko.QueueGitOps, []string{"fleet"}, false))
	sends := func() bool {
		held, err := w.store.HoldNotifier(w.ctx(), "one", time.Hour)
		w.ok(err)
		return held
	}
	if sends() {
		w.Error("messages of subscriptions are sent after the restore, want none until they are released")
	}
	for _, queue := range []string{tko.QueueSchedule, tko.QueuePrepare, tko.QueueGitOps, tko.QueueRollout} {
		if items := claim(queue); len(items) != 0 {
			w.Errorf("work of the queue %s after the restore: %v, want none until it is released", queue, items)
		}
	}
	all, err := w.store.Holds(w.ctx())
	w.ok(err)
	w.equal("holds", all, []tko.Hold{
		{Queue: tko.QueueGitOps, Mode: tko.HoldAll},
		{Queue: tko.QueueNotify, Mode: tko.HoldAll},
		{Queue: tko.QueuePrepare, Mode: tko.HoldAll},
		{Queue: tko.QueueRollout, Mode: tko.HoldAll},
		{Queue: tko.QueueSchedule, Key: "lagos", Mode: tko.HoldAll},
		{Queue: tko.QueueSchedule, Key: "oslo", Mode: tko.HoldAll},
	})
	lagos := all[4:5]
	w.ok(w.store.ReleaseHolds(w.ctx(), lagos, tko.HoldKeep))
	items := claim(tko.QueueSchedule)
	if len(items) != 1 || items[0].Key != "lagos" || !items[0].Keep {
		w.Fatalf("released work is %+v, want that of lagos, which removes nothing", items)
	}
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: items[0], Outcome: tko.WorkDone}}, nil))
	w.ok(w.store.ReleaseHolds(w.ctx(), lagos, ""))
	items = claim(tko.QueueSchedule)
	if len(items) != 1 || items[0].Key != "lagos" || items[0].Keep {
		w.Errorf("work that may remove is %+v, want that of lagos", items)
	}
	if sends() {
		w.Error("the release of a site releases messages, too")
	}
	w.ok(w.store.ReleaseHolds(w.ctx(), all, ""))
	if !sends() {
		w.Error("no messages are sent after the release")
	}
	for queue, key := range map[string]string{tko.QueueSchedule: "oslo", tko.QueuePrepare: "unprepared", tko.QueueGitOps: "fleet"} {
		if items := claim(queue); len(items) != 1 || items[0].Key != key {
			w.Errorf("work of the queue %s after the release: %v, want %s", queue, items, key)
		}
	}
}

// DamagedBackups checks that archives that were cut or changed are refused, that a store
// in which one was begun says so, and that a later restore succeeds.
func DamagedBackups(t *testing.T, from, to Archiver) {
	t.Helper()
	w := &world{T: t, store: from}
	w.fillAll()
	var good bytes.Buffer
	_, err := from.Archive(t.Context(), &good, "v1")
	w.ok(err)
	size := good.Len()
	damaged := map[string][]byte{
		"empty":              {},
		"another file":       []byte("PK\x03\x04 this is a zip"),
		"a newer format":     append([]byte("tko-backup 2\n"), good.Bytes()[13:]...),
		"without its end":    good.Bytes()[:size-1],
		"half of it":         good.Bytes()[:size/2],
		"its beginning":      good.Bytes()[:20],
		"with more at end":   append(bytes.Clone(good.Bytes()), good.Bytes()[13:]...),
		"one byte is edited": flipped(good.Bytes(), size/2),
	}
	for name, data := range damaged {
		if _, err := archive.Read(bytes.NewReader(data), archive.Handlers{}); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("verify an archive, %s: %v, want ErrInvalid", name, err)
		}
		if _, err := to.Restore(t.Context(), bytes.NewReader(data), backup.Restore{}); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("restore an archive, %s: %v, want ErrInvalid", name, err)
		}
		if head, err := to.Head(t.Context()); head != 0 || err != nil {
			t.Errorf("after an archive, %s: the head is %d, %v: want 0", name, head, err)
		}
	}
	if err := to.CheckComplete(t.Context()); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "tko-server restore") {
		t.Errorf("a store with an incomplete restore: %v, want an error with the remedy", err)
	}
	_, err = to.Restore(t.Context(), bytes.NewReader(good.Bytes()), backup.Restore{WithoutAccess: true})
	w.ok(err)
	w.ok(to.CheckComplete(t.Context()))
	if version, rules, err := to.Access(t.Context()); version == 0 || !cmp.Equal(rules, noRights) || err != nil {
		t.Errorf("a restore without rights has version %d of %+v, %v: want freezes and sources, and nothing else", version, rules, err)
	}
}

func flipped(data []byte, at int) []byte {
	data = bytes.Clone(data)
	data[at] ^= 0x40
	return data
}
