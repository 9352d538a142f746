package relational_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// A history is a store whose changes have times that the test sets: the change at position n
// was made at n seconds. The collector's present is set, too.
type history struct {
	*testing.T
	store *relational.Store
	db    *faulty
	// cutoff is the time, in seconds, up to which changes are old: it replaces what the
	// collector reads from the database's clock.
	cutoff int64
}

const second = 1_000_000

func newHistory(t *testing.T) *history {
	t.Helper()
	s, db := open(t)
	h := &history{T: t, store: s, db: db}
	db.edit = func(s *relational.Statement) {
		if s.SQL == "SELECT {now} - $1 FROM head WHERE one = 1" {
			s.SQL, s.Args = "SELECT CAST($1 AS BIGINT) FROM head WHERE one = 1", []any{h.cutoff}
		}
	}
	return h
}

// age sets the times of all changes.
func (h *history) age() {
	h.Helper()
	if err := h.store.Exec(h.Context(), "UPDATE change SET updated = position * 1000000"); err != nil {
		h.Fatal(err)
	}
}

// collect removes what was made up to a time, in microseconds.
func (h *history) collect(cutoff int64, keep record.Retention) record.Collected {
	h.Helper()
	h.cutoff = cutoff
	keep.Changes = time.Hour
	done, err := h.store.Collect(h.Context(), keep)
	if err != nil {
		h.Fatal(err)
	}
	return done
}

// positions returns the positions of the changes that are retained.
func (h *history) positions() []int64 {
	h.Helper()
	list, err := h.store.Numbers(h.Context(), "SELECT position FROM change ORDER BY position")
	if err != nil {
		h.Fatal(err)
	}
	return list
}

// A change is old from its time on, not before, and what it makes superfluous goes with it:
// conditions and deletions themselves, revisions of deleted records, and the revisions before
// it that are more than are retained.
func TestChangesAreRemovedFromTheirTimeOn(t *testing.T) {
	t.Parallel()
	for _, revisions := range []int{0, 1, 2, 3, 10} {
		h := newHistory(t)
		type entry struct {
			id       string
			op       tko.Op
			revision int64
		}
		var log []entry
		now := map[string]int64{} // current revisions
		add := func(op tko.Op, id string) {
			w := rewritten(tko.KindSite, id, now[id])
			switch op {
			case tko.OpWritten:
				now[id]++
			case tko.OpDeleted:
				w = deleted(tko.KindSite, id)
			default:
				w = record.Write{Op: op, Expect: record.Any, Record: record.Record{Key: w.Record.Key, Conditions: []tko.Condition{{Type: "c", Message: strconv.Itoa(len(log))}}}}
			}
			commit(t, h.store, w)
			log = append(log, entry{id, op, now[id]})
			if op == tko.OpDeleted {
				delete(now, id)
			}
		}
		for i := range 4 {
			add(tko.OpWritten, "often")
			add(tko.OpStatus, "often")
			if i == 0 {
				add(tko.OpWritten, "once")
				add(tko.OpWritten, "deleted")
			}
			add(tko.OpWritten, "sometimes")
			if i == 2 {
				add(tko.OpWritten, "deleted")
				add(tko.OpDeleted, "deleted")
			}
		}
		h.age()
		// gone returns whether a change is gone when those up to a position are old.
		gone := func(n int, old int64) bool {
			e := log[n]
			if int64(n+1) > old {
				return false
			}
			if e.op != tko.OpWritten {
				return true
			}
			for later := n + 1; later < int(old); later++ {
				l := log[later]
				if l.id != e.id {
					continue
				}
				if l.op == tko.OpDeleted || l.op == tko.OpWritten && revisions > 0 && e.revision <= now[e.id]-int64(revisions) {
					return true
				}
			}
			return false
		}
		for old := int64(1); old <= int64(len(log)); old++ {
			for _, cutoff := range []int64{old*second - 1, old * second} {
				h.collect(cutoff, record.Retention{Revisions: revisions})
				examined := cutoff / second
				var want []int64
				for n := range log {
					if !gone(n, examined) {
						want = append(want, int64(n+1))
					}
				}
				if got := h.positions(); !slices.Equal(got, want) {
					t.Fatalf("%d revisions, at %d µs after the change %d: changes %v stay, want %v", revisions, cutoff-old*second, old, got, want)
				}
			}
			if changes, err := h.store.Changes(t.Context(), old-1, 1); err == nil {
				t.Errorf("the log is read from before %d, which was examined: %v", old, changes)
			}
			if _, err := h.store.Changes(t.Context(), old, 1); err != nil {
				t.Errorf("the log after %d isn't read: %v", old, err)
			}
			// Every position that wasn't passed can be read, and has what was then.
			for position := old; position <= int64(len(log)); position++ {
				want := map[string]int64{}
				for _, e := range log[:position] {
					want[e.id] = e.revision
					if e.op == tko.OpDeleted {
						delete(want, e.id)
					}
				}
				keys := []record.Key{}
				for _, id := range []string{"deleted", "often", "once", "sometimes"} {
					keys = append(keys, record.Key{Kind: tko.KindSite, ID: id})
				}
				records, err := h.store.GetAt(t.Context(), position, record.Fields{Package: true}, keys...)
				if err != nil {
					t.Fatalf("%d revisions, of which %d are old: position %d: %v", revisions, old, position, err)
				}
				got := map[string]int64{}
				for _, r := range records {
					if r.Revision != 0 {
						got[r.ID] = r.Revision
					}
				}
				if !maps.Equal(got, want) {
					t.Fatalf("%d revisions, of which %d are old: position %d: %v, want %v", revisions, old, position, got, want)
				}
			}
		}
	}
}

// What rollouts and modifications need stays, however old, and goes when they are over.
func TestRevisionsInUseStay(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	for revision := range int64(6) {
		commit(t, h.store, rewritten(tko.KindDeployment, "d", revision), rewritten(tko.KindTemplate, "t", revision), rewritten(tko.KindSite, "s", revision))
	}
	for _, sql := range []string{
		"INSERT INTO rollout_pin (rollout, kind, id, revision) VALUES ('r', 'template', 't', 2)",
		"INSERT INTO modification (token, deployment, revision, expires, since, who, why) SELECT 'm', 'd', 3, position + 9000000000000000, 0, '', '' FROM head",
	} {
		if err := h.store.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	h.age()
	retained := func() (list []string) {
		t.Helper()
		for _, kind := range []tko.Kind{tko.KindDeployment, tko.KindTemplate, tko.KindSite} {
			revisions, err := h.store.Numbers(t.Context(), "SELECT revision FROM change WHERE kind = $1 ORDER BY revision", string(kind))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, strings.Trim(fmt.Sprint(revisions), "[]"))
		}
		return list
	}
	h.collect(1000*second, record.Retention{Revisions: 2})
	if diff := cmp.Diff([]string{"3 5 6", "2 5 6", "5 6"}, retained()); diff != "" {
		t.Errorf("revisions that are in use (-want +got)\n%s", diff)
	}
	for _, sql := range []string{"DELETE FROM rollout_pin", "DELETE FROM modification"} {
		if err := h.store.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	h.collect(1000*second, record.Retention{Revisions: 1}) // fewer: everything is examined again
	if diff := cmp.Diff([]string{"6", "6", "6"}, retained()); diff != "" {
		t.Errorf("revisions that were in use (-want +got)\n%s", diff)
	}
}

// Contents are removed when the last change that names them is, whatever kind of content it
// is, and what another record uses stays.
func TestContentsAreRemovedWithTheirLastUse(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	tagged := func(value string) func(*record.Record) {
		return func(r *record.Record) { r.Metadata = &record.Metadata{Effective: map[string]string{"k": value}} }
	}
	shared := func(value string) func(*record.Record) {
		return func(r *record.Record) {
			m := map[string]string{"k": value}
			r.Metadata = &record.Metadata{Effective: m, Inherited: m}
		}
	}
	same := func(r *record.Record) { r.Digest, r.Package = record.Digest{1}, []byte("same") }
	commit(t, h.store, written(tko.KindDeployment, "a", tagged("of a")), written(tko.KindDeployment, "b", tagged("of both"), same))
	commit(t, h.store, written(tko.KindDeployment, "c", tagged("of both"), same), written(tko.KindDeployment, "d", shared("shared")))
	commit(t, h.store, deleted(tko.KindDeployment, "a"), deleted(tko.KindDeployment, "b"), deleted(tko.KindDeployment, "d"))
	h.age()
	count := func() (list []int64) {
		t.Helper()
		for _, table := range []string{"blob", "metaset", "pair", "metaset_pair", "entity_pair"} {
			n, err := h.store.Numbers(t.Context(), "SELECT count(*) FROM "+table)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, n...)
		}
		return list
	}
	if got, want := count(), []int64{3, 3, 3, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("contents before: %v, want %v", got, want)
	}
	h.collect(6*second, record.Retention{}) // the deletions of a and b
	if got, want := count(), []int64{2, 2, 2, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("contents after two deletions: %v, want %v", got, want)
	}
	done := h.collect(7*second, record.Retention{})
	if got, want := count(), []int64{1, 1, 1, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("contents after all deletions: %v, want %v", got, want)
	}
	if done.Packages != 1 || done.Metadata != 1 || done.Pairs != 1 {
		t.Errorf("removed: %+v", done)
	}
	// What was removed is written again, though the store has just known it.
	commit(t, h.store, written(tko.KindDeployment, "e", shared("shared")), written(tko.KindDeployment, "f", tagged("of a")))
	q := everything(tko.KindDeployment)
	q.Fields.Package = true
	q.Metadata = map[string]tko.Pattern{"k": value(t, "*a*")}
	if got, want := listed(t, h.store, q), []string{"e", "f"}; !slices.Equal(got, want) {
		t.Errorf("records with metadata that was removed: %v, want %v", got, want)
	}
}

// Many changes are removed in batches of transactions, each once, although a connection is
// lost in between, and another collector finds that one is at work.
func TestCollectionInBatchesSurvivesLostConnections(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	for revision := range int64(2) {
		for i := range 3 {
			var writes []record.Write
			for n := range 200 {
				writes = append(writes, rewritten(tko.KindSite, fmt.Sprintf("s%d-%03d", i, n), revision))
			}
			commit(t, h.store, writes...)
		}
	}
	h.age()
	for n := 1; ; n++ {
		h.db.arm(n, committed)
		h.collect(int64(n)*40*second, record.Retention{Revisions: 1})
		if failed := h.db.disarm(); failed == 0 || n > 25 {
			break
		}
	}
	h.collect(2000*second, record.Retention{Revisions: 1})
	if got := h.positions(); len(got) != 600 || got[0] != 601 {
		t.Errorf("%d changes stay, from %d", len(got), got[0])
	}
	if err := h.store.Exec(t.Context(), "UPDATE collector SET holder = 'other', until = 9000000000000000 WHERE one = 1"); err != nil {
		t.Fatal(err)
	}
	if done := h.collect(3000*second, record.Retention{Revisions: 1}); !done.Elsewhere {
		t.Errorf("a second collector removed %+v", done)
	}
}
