package retention_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// A database is a store of SQLite, with another connection to its file that sets the times
// of what happened and reads what is left.
type database struct {
	*testing.T
	*relational.Store

	sql *sql.DB
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(other.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return &database{t, s, other}
}

func (d *database) exec(statement string, args ...any) {
	d.Helper()
	if _, err := d.sql.ExecContext(d.Context(), statement, args...); err != nil {
		d.Fatal(err)
	}
}

// read returns the first column of the rows of a query, as text.
func (d *database) read(query string, args ...any) []string {
	d.Helper()
	rows, err := d.sql.QueryContext(d.Context(), query, args...)
	if err != nil {
		d.Fatal(err)
	}
	list := []string{}
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			d.Fatal(err)
		}
		list = append(list, text)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil { //nolint:sqlclosecheck // the test ends if a row can't be read
		d.Fatal(err)
	}
	return list
}

func (d *database) commit(writes ...record.Write) {
	d.Helper()
	if _, err := d.Commit(d.Context(), record.Ungated(writes...)); err != nil {
		d.Fatal(err)
	}
}

// age sets the times of changes: each one is an hour younger than the one before, and the
// newest is half an hour old.
func (d *database) age() {
	d.Helper()
	d.exec("UPDATE change SET updated = ? - ((SELECT position FROM head) - position) * ?", time.Now().Add(-30*time.Minute).UnixMicro(), time.Hour.Microseconds())
}

// old returns the retention time by which changes up to a position are old.
func (d *database) old(position int64) time.Duration {
	d.Helper()
	head, err := d.Head(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	return time.Duration(head-position)*time.Hour + 15*time.Minute
}

// collect removes what is old, after changes got their times.
func (d *database) collect(old int64, keep record.Retention) record.Collected {
	d.Helper()
	d.age()
	keep.Changes = d.old(old)
	done, err := d.Collect(d.Context(), keep)
	if err != nil || done.Elsewhere {
		d.Fatalf("%+v, %v", done, err)
	}
	return done
}

func keyOf(id string) record.Key {
	return record.Key{Kind: map[byte]tko.Kind{'t': tko.KindTemplate, 's': tko.KindSite, 'd': tko.KindDeployment}[id[0]], ID: id}
}

// written returns a write of a record with content of its own. The policy of a deployment
// is in its metadata, and in the second letter of its ID.
func written(id, uid, content string, expect int64) record.Write {
	r := record.Record{Key: keyOf(id), UID: uid, Package: []byte(content), Digest: sha256.Sum256([]byte(content))}
	r.Metadata = &record.Metadata{Effective: map[string]string{"keep": id[1:2]}}
	return record.Write{Op: tko.OpWritten, Expect: expect, Record: r, Used: true}
}

func deleted(id string) record.Write {
	return record.Write{Op: tko.OpDeleted, Expect: record.Any, Record: record.Record{Key: keyOf(id)}}
}

func condition(id, message string) record.Write {
	return record.Write{Op: tko.OpStatus, Expect: record.Any, Record: record.Record{Key: keyOf(id), Conditions: []tko.Condition{{Type: "Healthy", Message: message}}}}
}

func policy(t *testing.T, name string, keep time.Duration) record.Longer {
	t.Helper()
	value, err := tko.ParseValuePattern(name)
	if err != nil {
		t.Fatal(err)
	}
	return record.Longer{Name: name, Keep: keep, Select: record.Query{Kind: tko.KindDeployment, Scope: access.ScopeAll, Metadata: map[string]tko.Pattern{"keep": value}}}
}

// An entry is a change, as the model has it.
type entry struct {
	id       string
	op       tko.Op
	revision int64
	content  string
}

// A model keeps a log of which it removes what the documentation of retention says.
type model struct {
	log       []entry // from position 1
	gone      map[int64]bool
	now       map[string]int64 // revisions of those that exist
	last      map[string]int64 // newest revisions, also of those that were deleted
	uids      map[string]string
	pins      map[string]bool // of revisions, as "ID@revision"
	examined  int64
	revisions int             // that the last collection retained
	longer    map[string]bool // deployments of which a policy retains what others have no more
	states    []map[string]string
}

func (m *model) add(e entry) {
	if e.op == tko.OpWritten {
		if m.now[e.id] == 0 { // revisions continue those that are still there
			m.last[e.id] = 0
			for i, former := range m.log {
				if former.id == e.id && former.op == tko.OpWritten && !m.gone[int64(i+1)] {
					m.last[e.id] = former.revision
				}
			}
		}
		m.last[e.id]++
		m.now[e.id] = m.last[e.id]
	}
	e.revision = m.last[e.id]
	m.log = append(m.log, e)
	state := map[string]string{}
	if len(m.states) > 0 {
		state = maps.Clone(m.states[len(m.states)-1])
	}
	switch e.op {
	case tko.OpWritten:
		state[e.id] = e.content
	case tko.OpDeleted:
		delete(state, e.id)
		delete(m.now, e.id)
	case tko.OpStatus: // changes no content
	}
	m.states = append(m.states, state)
}

// remove removes the revisions of a record up to one, of the changes that were examined,
// unless they are in use.
func (m *model) remove(id string, up int64) {
	for i, e := range m.log[:m.examined] {
		if e.id == id && e.op == tko.OpWritten && e.revision <= up && !m.pins[fmt.Sprint(id, "@", e.revision)] {
			m.gone[int64(i+1)] = true
		}
	}
}

// policyOf returns the policy of a record; "" if only the general retention is for it.
func policyOf(id string) string {
	if p := id[1:2]; id[0] == 'd' && p != "x" {
		return p
	}
	return ""
}

// collect removes what isn't retained: changes up to old are old, and those up to policies
// are old for a policy.
func (m *model) collect(old int64, revisions int, policies map[string]int64) {
	if revisions != 0 && (m.revisions == 0 || revisions < m.revisions) {
		m.examined = 0
	}
	m.revisions = revisions
	from := m.examined
	m.examined = max(m.examined, old)
	keep := int64(revisions)
	for i := from; i < m.examined; i++ {
		e := m.log[i]
		if m.gone[i+1] {
			continue
		}
		current, p := m.now[e.id], policyOf(e.id)
		over := keep > 0 && current > keep
		switch {
		case e.op == tko.OpStatus:
			m.gone[i+1] = true
		case e.op == tko.OpDeleted && p == "":
			m.gone[i+1] = true
		}
		switch {
		case p != "":
			if over || e.op == tko.OpDeleted {
				m.longer[e.id] = true
			}
		case e.op == tko.OpDeleted && current == 0:
			m.remove(e.id, e.revision)
		case over:
			m.remove(e.id, min(current-keep, e.revision-1))
		}
	}
	for id := range m.longer {
		m.collectLonger(id, keep, min(policies[policyOf(id)], m.examined))
	}
}

// collectLonger removes what a policy doesn't retain.
func (m *model) collectLonger(id string, keep, old int64) {
	superseded, deletedAt := int64(0), int64(0)
	for i, e := range m.log {
		if e.id == id && e.op == tko.OpWritten && int64(i) < old && !m.gone[int64(i+1)] {
			superseded = e.revision
		}
		if e.id == id && e.op == tko.OpDeleted {
			deletedAt = int64(i + 1)
			if int64(i) < old {
				m.gone[int64(i+1)] = true
			}
		}
	}
	limit := superseded - 1
	switch {
	case m.now[id] == 0 && deletedAt <= old:
		limit = superseded
		delete(m.longer, id)
	case m.now[id] != 0 && keep == 0:
		limit = 0
	case m.now[id] != 0:
		limit = min(limit, m.now[id]-keep)
	}
	m.remove(id, limit)
}

// left returns the entries that are retained, as the database has them.
func (m *model) left() []string {
	list := []string{}
	for i, e := range m.log {
		if !m.gone[int64(i+1)] {
			list = append(list, fmt.Sprintf("%d %s %s %d", i+1, e.id, e.op, e.revision))
		}
	}
	return list
}

const entries = "SELECT position || ' ' || id || ' ' || op || ' ' || revision FROM change ORDER BY position"

// TestWhatIsRemovedIsThatOfTheModel makes random changes, and collects them with random
// limits. It compares the log, and all states that can still be read, with a model.
func TestWhatIsRemovedIsThatOfTheModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			m := &model{gone: map[int64]bool{}, now: map[string]int64{}, last: map[string]int64{}, uids: map[string]string{}, pins: map[string]bool{}, longer: map[string]bool{}}
			random := rand.New(rand.NewPCG(seed, 5))
			ids := []string{"ta", "sa", "sb", "dl1", "dl2", "dm1", "dm2", "de1", "dx1", "dx2"}
			removed := map[string]int{}
			for round := range 12 {
				for range 5 {
					d.step(m, random, ids)
				}
				if id := ids[random.IntN(len(ids))]; m.now[id] != 0 { // a rollout needs it
					d.exec("INSERT INTO rollout_pin (rollout, kind, id, revision) VALUES (?, ?, ?, ?)", strconv.Itoa(round), string(keyOf(id).Kind), id, m.now[id])
					m.pins[fmt.Sprint(id, "@", m.now[id])] = true
				}
				size, revisions := int64(len(m.log)), random.IntN(4)
				old := random.Int64N(size + 1)
				before := len(m.gone)
				keep := record.Retention{Revisions: revisions, Longer: []record.Longer{
					policy(t, "l", 1000*time.Hour), policy(t, "m", d.old(max(old-15, -5))), policy(t, "e", time.Minute),
				}}
				done := d.collect(old, keep)
				m.collect(old, revisions, map[string]int64{"m": max(old-15, -5), "e": old})
				if diff := cmp.Diff(m.left(), d.read(entries)); diff != "" {
					t.Fatalf("round %d, %d revisions, up to %d of %d: changes that are retained (-want +got)\n%s\n%v\npinned: %v", round, revisions, old, size, diff, m.log, m.pins)
				}
				if now := len(m.gone); done.Changes != now-before {
					t.Fatalf("round %d: %d changes were removed, but counted as %d", round, now-before, done.Changes)
				}
				d.readAll(m, ids, done.Changes > 0)
			}
			for position := range m.gone {
				e := m.log[position-1]
				removed[string(e.op)+" "+e.id[:2]]++
			}
			for _, kind := range []string{"written dx", "written dm", "written sa", "status dl", "deleted"} {
				if n := strings.Count(fmt.Sprint(removed), kind); n == 0 {
					t.Errorf("no change of the kind %q was removed: %v", kind, removed)
				}
			}
		})
	}
}

// step commits some changes of different records.
func (d *database) step(m *model, random *rand.Rand, ids []string) {
	d.Helper()
	var writes []record.Write
	for _, n := range random.Perm(len(ids))[:1+random.IntN(3)] {
		id, revision := ids[n], m.now[ids[n]]
		e := entry{id: id, op: tko.OpWritten, content: fmt.Sprint("content ", random.IntN(6))}
		switch what := random.IntN(8); {
		case revision != 0 && what == 0:
			e.op = tko.OpDeleted
			writes = append(writes, deleted(id))
		case revision != 0 && what < 3:
			e.op = tko.OpStatus
			writes = append(writes, condition(id, strconv.Itoa(len(m.log))))
		default:
			if revision == 0 {
				m.uids[id] = fmt.Sprint(id, " since ", len(m.log))
			}
			writes = append(writes, written(id, m.uids[id], e.content, revision))
		}
		m.add(e)
	}
	d.commit(writes...)
}

// readAll compares all states since the newest change that was examined.
func (d *database) readAll(m *model, ids []string, collected bool) {
	d.Helper()
	var keys []record.Key
	for _, id := range ids {
		keys = append(keys, keyOf(id))
	}
	oldest, newest, err := d.Past(d.Context())
	if err != nil || newest.Position != int64(len(m.log)) {
		d.Fatalf("the past is from %d to %d, %v", oldest.Position, newest.Position, err)
	}
	if _, err := d.Changes(d.Context(), oldest.Position, 1); err != nil {
		d.Fatalf("the changes after %d, the oldest position: %v", oldest.Position, err)
	}
	if _, err := d.Changes(d.Context(), oldest.Position-1, 1); oldest.Position > 0 && !errors.Is(err, tko.ErrGone) {
		d.Fatalf("the changes after %d, before the oldest position: %v", oldest.Position-1, err)
	}
	for position := max(oldest.Position, 1); position <= newest.Position; position++ {
		records, err := d.GetAt(d.Context(), position, record.Fields{Package: true}, keys...)
		if err != nil {
			d.Fatalf("as of %d of %d: %v", position, newest.Position, err)
		}
		got := map[string]string{}
		for _, r := range records {
			if r.Revision != 0 {
				got[r.ID] = string(r.Package)
			}
		}
		if diff := cmp.Diff(m.states[position-1], got); diff != "" {
			d.Fatalf("as of %d of %d, of what is retained since %d (-want +got)\n%s\n%v\n%v", position, newest.Position, oldest.Position, diff, d.read(entries), m.log)
		}
	}
	// Each retained revision has its content, and no other content is left after a collection
	// that removed revisions.
	contents := map[string]bool{}
	for i, e := range m.log {
		if e.op != tko.OpWritten || m.gone[int64(i+1)] {
			continue
		}
		contents[e.content] = true
		r, err := d.Revision(d.Context(), keyOf(e.id), e.revision)
		if err != nil || string(r.Package) != e.content {
			d.Fatalf("revision %d of %s: %q, %v, want %q", e.revision, e.id, r.Package, err, e.content)
		}
	}
	if got := d.read("SELECT count(*) FROM blob")[0]; collected && got != strconv.Itoa(len(contents)) {
		d.Fatalf("%s packages are left, want %d", got, len(contents))
	}
}

// A deletion takes the revisions before it, and not those of a record that was created
// again: it existed at positions that can still be read, though it was deleted since, too.
func TestRevisionsOfARecordThatWasCreatedAgainStay(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"s", "t", "dx"} {
		id += "1"
		d := newDatabase(t)
		d.commit(written(id, "first", "one", 0))
		d.commit(deleted(id))
		d.commit(written(id, "second", "two", 0))
		d.commit(written("sy", "other", "", 0)) // to here it is old
		d.commit(deleted(id))
		done := d.collect(4, record.Retention{Revisions: 1})
		if done.Changes != 2 {
			t.Errorf("%s: %d changes were removed, want the first revision and its deletion", id, done.Changes)
		}
		r, err := d.GetAt(t.Context(), 4, record.Fields{Package: true}, keyOf(id))
		if err != nil || string(r[0].Package) != "two" {
			t.Errorf("%s as of the oldest position: %q, %v", id, r[0].Package, err)
		}
		if done := d.collect(5, record.Retention{Revisions: 1}); done.Changes != 2 {
			t.Errorf("%s: %d changes were removed with the second deletion", id, done.Changes)
		}
	}
}

// What a rollout needs to apply a row, or to undo it, stays as long as its plan does.
func TestRevisionsOfRowsOfRolloutsStay(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for revision := range int64(6) {
		d.commit(written("dx1", "u", fmt.Sprint("d", revision), revision), written("dl1", "v", fmt.Sprint("l", revision), revision))
	}
	rows := []record.RolloutRow{{
		Row: plan.Row{Deployment: "dx1", UID: "u", Revision: 2, Kind: plan.Change}, Progress: execute.Waiting, Target: 4,
		RowDetails: record.RowDetails{Pins: []plan.Pin{{Kind: tko.KindDeployment, ID: "dl1", Revision: 3}}},
	}}
	if err := d.WriteRolloutPlan(t.Context(), "r", 1, rows, []byte("[]")); err != nil {
		t.Fatal(err)
	}
	retained := func() map[string][]string {
		all := map[string][]string{}
		for _, id := range []string{"dx1", "dl1"} {
			all[id] = d.read("SELECT revision FROM change WHERE id = ? ORDER BY revision", id)
		}
		return all
	}
	d.collect(12, record.Retention{Revisions: 1})
	if diff := cmp.Diff(map[string][]string{"dx1": {"2", "4", "6"}, "dl1": {"3", "6"}}, retained()); diff != "" {
		t.Errorf("revisions that a rollout needs (-want +got)\n%s", diff)
	}
	d.exec("DELETE FROM rollout_row")
	d.exec("DELETE FROM rollout_pin")
	d.commit(written("dx1", "u", "d6", 6), written("dl1", "v", "l6", 6))
	d.collect(14, record.Retention{Revisions: 1})
	if diff := cmp.Diff(map[string][]string{"dx1": {"7"}, "dl1": {"7"}}, retained()); diff != "" {
		t.Errorf("revisions that no rollout needs any more (-want +got)\n%s", diff)
	}
}

// Tokens go an hour after they expired, also if the history is retained; the revision of a
// token stays with it.
func TestTokensGoAnHourAfterTheyExpired(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why     string
		expires time.Duration // from now
		removed bool
	}{
		"valid":           {"its holder may finish", time.Hour, false},
		"just expired":    {"its holder gets the error that it has expired", -time.Minute, false},
		"almost an hour":  {"likewise", -time.Hour + 30*time.Second, false},
		"over an hour":    {"it is unknown from now on", -time.Hour - 30*time.Second, true},
		"a long time ago": {"likewise", -1000 * time.Hour, true},
	}
	d := newDatabase(t)
	for name, test := range tests {
		id := "dx" + name
		d.commit(written(id, "u", "first", 0))
		if _, _, err := d.StartModification(t.Context(), id, name, time.Hour); err != nil {
			t.Fatal(err)
		}
		d.commit(condition(id, "x"))
		d.exec("UPDATE modification SET expires = ? WHERE token = ?", time.Now().Add(test.expires).UnixMicro(), name)
	}
	for name, test := range tests {
		if test.expires < 0 {
			d.commit(written("dx"+name, "u", "second", 1))
		}
	}
	done, err := d.Collect(t.Context(), record.Retention{}) // all changes are retained
	if err != nil || done != (record.Collected{Tokens: 2}) {
		t.Errorf("removed: %+v, %v", done, err)
	}
	tokens := d.read("SELECT token FROM modification")
	for name, test := range tests {
		if slices.Contains(tokens, name) == test.removed {
			t.Errorf("the token %s is there: %t: %s", name, !test.removed, test.why)
		}
	}
	head, err := d.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.collect(head, record.Retention{Revisions: 1})
	for name, test := range tests {
		want := []string{"1", "2"}
		switch {
		case test.removed:
			want = []string{"2"}
		case test.expires > 0:
			want = []string{"1"}
		}
		if got := d.read("SELECT revision FROM change WHERE id = ? AND op = 'written' ORDER BY revision", "dx"+name); !slices.Equal(got, want) {
			t.Errorf("of the token %s, the revisions %v are there, want %v", name, got, want)
		}
	}
}

// One collector works at a time. It ends its lease when it ends, also if its context does.
func TestOneCollectorHoldsTheLease(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for revision := range int64(3) {
		d.commit(written("sa", "u", strconv.FormatInt(revision, 10), revision))
	}
	keep := record.Retention{Changes: time.Nanosecond, Revisions: 1}
	d.exec("UPDATE collector SET holder = 'another', until = ?", time.Now().Add(time.Hour).UnixMicro())
	if done, err := d.Collect(t.Context(), keep); err != nil || done != (record.Collected{Elsewhere: true}) {
		t.Errorf("while another one works: %+v, %v", done, err)
	}
	if got := d.read("SELECT holder FROM collector"); !slices.Equal(got, []string{"another"}) || len(d.read(entries)) != 3 {
		t.Errorf("the lease of another one is held by %v, %d changes are left", got, len(d.read(entries)))
	}
	d.exec("UPDATE collector SET until = ?", time.Now().Add(-time.Second).UnixMicro())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if done, err := d.Collect(ended, keep); !errors.Is(err, context.Canceled) || done.Changes > 0 {
		t.Errorf("with a context that has ended: %+v, %v", done, err)
	}
	if done, err := d.Collect(t.Context(), keep); err != nil || done.Elsewhere || done.Changes != 2 {
		t.Errorf("when the lease of another one has expired: %+v, %v", done, err)
	}
	if got := d.read("SELECT until FROM collector"); !slices.Equal(got, []string{"0"}) {
		t.Errorf("the lease is held until %v after the collection", got)
	}
	if done, err := d.Collect(t.Context(), keep); err != nil || done != (record.Collected{}) {
		t.Errorf("again: %+v, %v", done, err)
	}
}

// Contents go with the last change that names them, and what is left is what is used.
func TestMetadataGoesWithItsLastUse(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	tagged := func(id, value string, expect int64) record.Write {
		w := written(id, "u of "+id, "same", expect)
		w.Record.Metadata = &record.Metadata{Effective: map[string]string{"k": value}, Inherited: map[string]string{"k": value}}
		return w
	}
	for revision, value := range []string{"a", "b", "c"} {
		d.commit(tagged("dx1", value, int64(revision)))
	}
	d.commit(tagged("dx2", "a", 0))
	done := d.collect(4, record.Retention{Revisions: 1})
	if want := (record.Collected{Changes: 2, Metadata: 1, Pairs: 1}); done != want {
		t.Errorf("removed %+v, want %+v: the metadata b, and nothing that another deployment has", done, want)
	}
	d.commit(deleted("dx2"))
	d.commit(tagged("dx3", "b", 0)) // written again after it was removed
	done = d.collect(6, record.Retention{Revisions: 1})
	if want := (record.Collected{Changes: 2, Metadata: 1, Pairs: 1}); done != want {
		t.Errorf("removed %+v, want %+v: the metadata a", done, want)
	}
	records, err := d.Get(t.Context(), record.Fields{Package: true}, keyOf("dx1"), keyOf("dx3"))
	if err != nil {
		t.Fatal(err)
	}
	for i, value := range []string{"c", "b"} {
		if r := records[i]; string(r.Package) != "same" || r.Metadata.Effective["k"] != value {
			t.Errorf("%s has the package %q and the metadata %v", r.ID, r.Package, r.Metadata)
		}
	}
}

// A package that was removed is stored again when it is written again, though the store has
// just known it.
func TestRemovedPackagesAreStoredAgain(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for revision := range int64(6) {
		content := []string{"even", "odd"}[revision%2]
		d.commit(written("sa", "u", content, revision))
		if done := d.collect(revision+1, record.Retention{Revisions: 1}); done.Packages != int(min(revision, 1)) {
			t.Errorf("revision %d: removed %+v", revision+1, done)
		}
		r, err := d.Revision(t.Context(), keyOf("sa"), revision+1)
		if err != nil || string(r.Package) != content {
			t.Fatalf("revision %d: %q, %v, want %q", revision+1, r.Package, err, content)
		}
	}
}

// Counts of causes go a while after their last change, and not before: until then, all that
// one cause changes is counted together.
func TestCountsOfCausesGoAfterTheirLastChange(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for name, age := range map[string]time.Duration{"new": 0, "young": record.ReachRetention - time.Minute, "old": record.ReachRetention + time.Minute} {
		at := time.Now().Add(-age).UnixMicro()
		d.exec("INSERT INTO reach (cause, what, n, consent, since, updated) VALUES (?, 'x', 1, 0, 0, ?)", name, at)
		d.exec("INSERT INTO reach_part (cause, what, part, n, consent, updated) VALUES (?, 'x', 1, 1, 0, ?)", name, at)
		d.exec("INSERT INTO reach_site (cause, site, updated) VALUES (?, 's', ?)", name, at)
	}
	d.exec("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1100) " + // more than one transaction removes
		"INSERT INTO reach_site (cause, site, updated) SELECT 'old', CAST(i AS TEXT), 0 FROM n")
	if _, err := d.Collect(t.Context(), record.Retention{}); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"reach", "reach_part", "reach_site"} {
		if got := d.read("SELECT DISTINCT cause FROM " + table + " ORDER BY cause"); !slices.Equal(got, []string{"new", "young"}) {
			t.Errorf("the table %s has the causes %v", table, got)
		}
	}
}
