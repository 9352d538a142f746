package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/entitytest"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/backup"
)

// numbered are the columns that are numbers of metadata and of entries of its index: names that only one archive knows.
var numbered = map[string]map[string]string{
	"metaset":      {"id": "metaset"},
	"entity":       {"metaset": "metaset"},
	"change":       {"metaset": "metaset"},
	"pair":         {"id": "pair"},
	"entity_pair":  {"pair": "pair"},
	"metaset_pair": {"pair": "pair", "metaset": "metaset"},
}

// changedColumns are the columns that a restore changes, with the reason; in the archives of two stores they differ.
var changedColumns = map[string]map[string]string{
	"work": {
		"due": "delays are those of another time", "since": "likewise", "lease_until": "leases are, too", "claim": "likewise", "claimed": "likewise", "claimed_generation": "likewise",
	},
	"collector": {"holder": "the lease is one of another store", "until": "likewise", "loose": "whether content may be unused: the next collection finds out"},
	"notifier":  {"holder": "the lease is one of another store", "until": "likewise"},
}

func backendOf(t *testing.T, data []byte) string {
	t.Helper()
	summary, err := archive.Read(bytes.NewReader(data), archive.Handlers{})
	if err != nil {
		t.Fatal(err)
	}
	return summary.Manifest.Backend
}

// namedRows is rowsOf with what numbers stand for instead of them, without metadata that nothing has: the numbers of different stores
// differ, and so does when they remove it.
func namedRows(t *testing.T, data []byte) map[string][]string {
	t.Helper()
	type row = map[string]any
	tables := map[string][]row{}
	_, err := archive.Read(bytes.NewReader(data), archive.Handlers{
		Table: func(t archive.Table) error {
			tables[t.Name] = []row{}
			return nil
		},
		Rows: func(t archive.Table, list [][]any) error {
			for _, values := range list {
				r := row{}
				for i, v := range values {
					r[t.Columns[i].Name] = v
				}
				tables[t.Name] = append(tables[t.Name], r)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]map[any]string{"metaset": {int64(0): "none"}, "pair": {}}
	used := map[string]map[any]bool{"metaset": {}, "pair": {}}
	for _, r := range tables["metaset"] {
		names["metaset"][r["id"]] = fmt.Sprintf("%x", r["digest"])
	}
	for _, r := range tables["pair"] {
		names["pair"][r["id"]] = fmt.Sprintf("%s %s %x", r["kind"], r["key"], r["hash"])
	}
	for table, columns := range numbered {
		for column, of := range columns {
			for _, r := range tables[table] {
				if table != of && (table != "metaset_pair" || of == "pair") {
					used[of][r[column]] = true
				}
			}
		}
	}
	rows := map[string][]string{}
	for table, list := range tables {
		rows[table] = []string{}
		for _, r := range list {
			switch table {
			case "metaset", "pair":
				if !used[table][r["id"]] {
					continue
				}
			case "metaset_pair":
				if !used["metaset"][r["metaset"]] {
					continue
				}
			}
			var columns []string
			for column, value := range r {
				if of := numbered[table][column]; of != "" {
					name, ok := names[of][value]
					if !ok {
						t.Errorf("a row of %s has the unknown %s %v", table, of, value)
					}
					value = name
				}
				if changedColumns[table][column] == "" {
					columns = append(columns, fmt.Sprintf("%s=%v", column, value))
				}
			}
			slices.Sort(columns)
			rows[table] = append(rows[table], strings.Join(columns, " "))
		}
		slices.Sort(rows[table])
	}
	return rows
}

// fillRest writes what fillAll doesn't: something of each table that is empty after it, records with each field, and history of which
// a part is old.
func (w *world) fillRest(by Archiver) {
	w.Helper()
	w.commit(deployment("policy", metadata("region", "kept")), deployment("policy/old", metadata("region", "old")))
	for i := range int64(3) {
		w.commit(deployment("policy", expect(i+1), metadata("region", "kept"), withPackage(fmt.Sprint("policy ", i))), deployment("policy/old", expect(i+1), metadata("region", "old"), withPackage(fmt.Sprint("old ", i))))
	}
	keep := retain(1)
	keep.Longer = []record.Longer{{Name: "kept", Keep: time.Hour, Select: record.Query{Kind: tko.KindDeployment, Scope: access.ScopeAll, Metadata: values("region", "kept")}}}
	w.collect(keep)
	for _, r := range []record.Record{entitytest.Record(entitytest.Fill[tko.Template]()), entitytest.Record(entitytest.Fill[tko.Site]()), entitytest.Record(entitytest.Fill[tko.Deployment]())} {
		w.full(r)
	}
	w.commit(deployment("again"))
	w.commit(deleted(deploymentKey("again")))
	w.commit(deployment("again", metadata("region", "north")))
	w.commit(written(tko.KindRollout, "of rollouts"))
	w.commit(status(deploymentKey("again"), condition("Prepared", "False", "Invalid", 3)))
	attached := w.one(deploymentKey("again"))
	reattach := status(deploymentKey("again"), condition("Prepared", "True", "Prepared", 4))
	m := *attached.Metadata
	m.Labels = map[string]string{"example.com/label": strings.Repeat("long", 100)}
	reattach.Record.Metadata = &m
	w.commit(reattach)
	w.ok(w.store.SaveAuditSink(w.ctx(), "siem", 3))
	held, err := w.store.HoldNotifier(w.ctx(), "one", time.Hour)
	w.ok(err)
	if !held {
		w.Fatal("the notifier's lease isn't free")
	}
	w.ok(w.store.SaveSubscription(w.ctx(), "one", record.SubscriptionState{Name: "tickets", Doc: []byte(`{"at":1}`)}))
	w.ok(by.SaveSealingKey(w.ctx(), []byte("wrapped"), 0))
	_, _, err = w.store.StartModification(w.ctx(), "d1", "token of a lost client", time.Hour)
	w.ok(err)
}

// full writes a record with each field; a deployment's template and site are those of fillAll.
func (w *world) full(r record.Record) {
	w.Helper()
	r.Revision, r.Position, r.Deployments, r.Count = 0, 0, nil, 0
	conditions := r.Conditions
	if r.Kind == tko.KindDeployment {
		r.Parent, r.Template, r.Site, r.Replaces, r.Replaced = "", "cu", "lagos", []string{"d1", "d2"}, nil
	}
	r.Conditions = nil
	w.commit(record.Write{Op: tko.OpWritten, Expect: record.Absent, Record: r})
	for i := range conditions {
		conditions[i].ObservedRevision = 1
	}
	w.commit(status(r.Key, conditions...))
}

// Moves checks that everything that a store has is in another one after a restore, and in the first kind of store again after one more:
// each table of the archives is equal.
func Moves(t *testing.T, from, to, back Archiver) {
	t.Helper()
	w := &world{T: t, store: from}
	w.fillAll()
	w.fillRest(from)
	want := archived(t, from)
	first := namedRows(t, want)
	for table, rows := range first {
		if len(rows) == 0 {
			t.Errorf("the table %s is empty: fill it", table)
		}
	}
	data := want
	for i, next := range []Archiver{to, back} {
		if _, err := next.Restore(t.Context(), bytes.NewReader(data), backup.Restore{}); err != nil {
			t.Fatalf("restore into %s: %v", next.Backend(), err)
		}
		data = archived(t, next)
		got := namedRows(t, data)
		if len(got) != len(first) {
			t.Errorf("the archive of %s has %d tables, want %d", next.Backend(), len(got), len(first))
		}
		for table, rows := range first {
			now := got[table]
			if table == "audit" { // each restore is recorded, at the end
				now = slices.DeleteFunc(slices.Clone(now), func(row string) bool { return strings.Contains(row, `"restore"`) })
				if added := len(got[table]) - len(now); added != i+1 {
					t.Errorf("%d restores are recorded in the audit log of %s, want %d", added, next.Backend(), i+1)
				}
			}
			if diff := cmp.Diff(rows, now); diff != "" {
				t.Errorf("rows of the table %s after a restore into %s (-backed up +restored):\n%s", table, next.Backend(), diff)
			}
		}
	}
}

func archived(t *testing.T, s Archiver) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.Archive(t.Context(), &b, "v1"); err != nil {
		t.Fatalf("back up %s: %v", s.Backend(), err)
	}
	return b.Bytes()
}

// Filled fills a store, and returns its archive.
func Filled(t *testing.T, s Archiver) []byte {
	t.Helper()
	w := &world{T: t, store: s}
	w.fillAll()
	w.fillRest(s)
	return archived(t, s)
}

// HasAll checks that a store has each row of an archive.
func HasAll(t *testing.T, s Archiver, data []byte) {
	t.Helper()
	want, got := namedRows(t, data), namedRows(t, archived(t, s))
	for table, rows := range want {
		missing := slices.DeleteFunc(slices.Clone(rows), func(row string) bool { return slices.Contains(got[table], row) })
		if len(missing) > 0 || len(got[table]) < len(rows) {
			t.Errorf("the table %s has %d rows, want %d; it lacks %q", table, len(got[table]), len(rows), missing)
		}
	}
}
