package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/soak"
)

var pastPromises = []promise{
	{"every read as of every retained position equals a model's", pastEqualsModel},
	{"a position before the oldest one is gone, and one after the newest is invalid", pastIsBounded},
	{"a time is the position of the newest change up to it", timesArePositions},
	{"a record with the ID of a deleted one continues its revisions, whatever was collected", revisionsContinue},
	{"the size of the history counts its changes", historySize},
	{"the revision of the oldest position is retained, however many newer ones there are", oldestStateStays},
	{"a read of a deployment as of an older position equals a model's, or is gone", longerEqualsModel},
	{"the changes of deployments that a policy selects are retained longer", policiesRetainLonger},
	{"a revision that is retained by itself isn't the state as of a later position", loneRevisionIsNotLater},
}

var pastKinds = []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin, tko.KindRollout}

// A pastModel has the records after each position of the log.
type pastModel struct {
	*world

	random *rand.Rand
	states []map[record.Key]record.Record // after each change
	keys   []record.Key                   // that changed
	at     []int64                        // the positions of the changes; 0 is that of no change
	uids   int
	suffix map[string]string // of the IDs of deployments, which are never used again

	batch      int // maximum number of operations in a commit
	operations int
	did        map[string]int // changes by kind and what they did
}

// pastCommits returns the number of commits of a model's log.
func pastCommits(t *testing.T) int {
	t.Helper()
	return soak.Rounds(t, 48, 100)
}

func newPastModel(w *world, seed uint64) *pastModel {
	return &pastModel{
		world: w, random: rand.New(rand.NewPCG(seed, 2)), //nolint:gosec // the same each time
		states: []map[record.Key]record.Record{{}}, keys: []record.Key{{}}, at: []int64{0}, suffix: map[string]string{}, batch: 3, did: map[string]int{},
	}
}

// PastOfALongLog commits a random log of operations of all kinds, 10,000 in make soak or as many as
// TKO_PAST_OPERATIONS says, while old changes are collected. It compares reads as of each
// position with a model: the record that changed there and another one; at some positions
// all records of a kind, and at some all of all kinds, and random queries.
func PastOfALongLog(t *testing.T, store record.Store) {
	t.Helper()
	const collectEach, listEach, checkEach = 500, 50, 1000
	m, operations := newPastModel(&world{T: t, store: store}, 5), soak.Rounds(t, 2500, 10_000)
	m.batch = 16
	if text, ok := os.LookupEnv("TKO_PAST_OPERATIONS"); ok {
		n, err := strconv.Atoi(text)
		m.ok(err)
		operations = n
	}
	oldest := 1
	for wanted := min(collectEach, operations); ; wanted = min(wanted+collectEach, operations) {
		for m.operations < wanted {
			m.step()
		}
		newest := len(m.at) - 1
		for n := oldest; n <= newest && !t.Failed(); n++ {
			changed := m.keys[n]
			m.checkRecords(m.at[n], changed, m.any(changed.Kind))
			switch {
			case n%checkEach == 0:
				m.check(m.at[n])
			case n%listEach == 0:
				m.checkAll(m.at[n], pastKinds[n/listEach%5])
			}
		}
		if t.Failed() || wanted == operations {
			break
		}
		if done := m.collect(retain(2)); done.Changes == 0 {
			t.Errorf("nothing was collected at position %d", m.at[newest])
		}
		if _, err := store.GetAt(t.Context(), m.at[newest]-1, record.Fields{}, siteKey("s0")); !isError(err, tko.ErrGone) {
			t.Errorf("a read before the oldest position: %v", err)
		}
		clear(m.states[:newest])
		oldest = newest
	}
	for _, kind := range pastKinds {
		for _, what := range []string{"created", "changed", "deleted", "status"} {
			if n := m.did[string(kind)+" "+what]; n < soak.Rounds(t, operations/1000, operations/500) {
				t.Errorf("%s %s: %d times only", kind, what, n)
			}
		}
	}
	t.Logf("%d changes: %v", len(m.at)-1, m.did)
}

func pastEqualsModel(w *world) {
	m := newPastModel(w, 1)
	n, collected := pastCommits(w.T), int64(0)
	for i := range n {
		m.step()
		if i == n/3 {
			collected = w.head()
			w.collect(retain(2))
		}
	}
	oldest, newest, err := w.store.Past(w.ctx())
	w.ok(err)
	w.equal("oldest and newest position", []int64{oldest.Position, newest.Position}, []int64{collected, m.at[len(m.at)-1]})
	for i, position := range m.at {
		if position < max(collected, 1) || w.Failed() {
			continue
		}
		m.check(position)
		if i%25 == 0 && position+1 < newest.Position { // a position that no change may have
			m.check(position + 1)
		}
	}
	if _, err := w.store.GetAt(w.ctx(), collected-1, record.Fields{}, siteKey("s0")); !isError(err, tko.ErrGone) {
		w.Errorf("a read before the oldest position: %v", err)
	}
}

func (m *pastModel) state() map[record.Key]record.Record { return m.states[len(m.states)-1] }

// any returns a random key of a kind, of a record that may not exist.
func (m *pastModel) any(kind tko.Kind) record.Key {
	n := map[tko.Kind]int{tko.KindTemplate: 4, tko.KindSite: 6, tko.KindDeployment: 40, tko.KindPlugin: 3, tko.KindRollout: 3}[kind]
	id := fmt.Sprintf("%.1s%02d", kind, m.random.IntN(n))
	return record.Key{Kind: kind, ID: id + m.suffix[id]}
}

// reference returns the ID of a random record of a kind that exists, or "".
func (m *pastModel) reference(kind tko.Kind) string {
	if k := m.any(kind); m.state()[k].Revision != 0 {
		return k.ID
	}
	return ""
}

// step commits random writes, and records the state after each of their changes.
func (m *pastModel) step() {
	writes, given := []record.Write{}, map[record.Key]record.Record{}
	for range 1 + m.random.IntN(m.batch) {
		key := m.any(pastKinds[m.random.IntN(len(pastKinds))])
		if m.random.IntN(2) == 0 {
			key = m.any(tko.KindDeployment)
		}
		if _, ok := given[key]; ok {
			continue
		}
		current := m.state()[key]
		write := m.write(key, current)
		// What a deletion deletes and changes is not written in the same commit.
		if write.Op == tko.OpDeleted && len(writes) > 0 {
			continue
		}
		given[key] = write.Record
		writes = append(writes, write)
		if write.Op == tko.OpDeleted {
			break
		}
	}
	head := m.head()
	m.commit(writes...)
	m.operations += len(writes)
	for _, c := range m.changes(head) {
		next := maps.Clone(m.state())
		key := record.Key{Kind: c.Kind, ID: c.ID}
		what := string(c.Op)
		if c.Op == tko.OpWritten {
			what = map[bool]string{true: "created", false: "changed"}[next[key].Revision == 0]
		}
		m.did[string(c.Kind)+" "+what]++
		switch r, ok := given[key]; {
		case c.Op == tko.OpDeleted:
			delete(next, key)
			if key.Kind == tko.KindDeployment {
				m.uids++
				m.suffix[key.ID[:3]] = fmt.Sprint("-", m.uids)
			}
		case c.Op == tko.OpStatus:
		case ok:
			r.Revision = c.Revision
			next[key] = r
		default: // the record referred to one that is deleted
			r := next[key]
			gone := writes[0].Record.Key
			if r.Template == gone.ID && gone.Kind == tko.KindTemplate {
				r.Template = ""
			}
			if r.Site == gone.ID && gone.Kind == tko.KindSite {
				r.Site = ""
			}
			r.Revision, r.Author = c.Revision, c.Author
			next[key] = r
		}
		m.states, m.keys, m.at = append(m.states, next), append(m.keys, key), append(m.at, c.Position)
	}
}

// stateAt returns the records as of a position.
func (m *pastModel) stateAt(position int64) map[record.Key]record.Record {
	n, found := slices.BinarySearch(m.at, position)
	if !found {
		n--
	}
	return m.states[n]
}

func (m *pastModel) write(key record.Key, current record.Record) record.Write {
	switch m.random.IntN(10) {
	case 0, 1:
		if current.Revision != 0 {
			return deleted(key)
		}
	case 2:
		if current.Revision != 0 {
			return status(key, tko.Condition{Type: "Healthy", Status: tko.ConditionTrue, Reason: strconv.Itoa(m.random.IntN(3))})
		}
	}
	m.uids++
	write := written(key.Kind, key.ID, expect(current.Revision), withPackage(fmt.Sprint("package ", m.random.IntN(20))))
	r := &write.Record
	r.UID = fmt.Sprint("uid ", m.uids)
	if current.Revision != 0 {
		r.UID, r.Parent = current.UID, current.Parent
	}
	pairs := []string{}
	for _, k := range []string{"a", "b"} {
		if v := m.random.IntN(4); v > 0 {
			pairs = append(pairs, k, strconv.Itoa(v))
		}
	}
	metadata(pairs...)(&write)
	if m.random.IntN(3) == 0 {
		r.Metadata = &record.Metadata{Effective: r.Metadata.Effective, Labels: map[string]string{"x/l": strconv.Itoa(m.random.IntN(3))}}
	}
	r.Author = tko.Author{Who: "Ann", Why: strconv.Itoa(m.uids)}
	switch key.Kind {
	case tko.KindDeployment:
		r.Prepared, r.Approved, r.Base = m.random.IntN(2) == 0, m.random.IntN(2) == 0, m.random.Int64N(4)
		r.Template, r.Site = m.reference(tko.KindTemplate), m.reference(tko.KindSite)
		if current.Revision == 0 && m.random.IntN(3) == 0 {
			r.Parent = m.reference(tko.KindDeployment)
		}
	case tko.KindSite:
		r.Template = m.reference(tko.KindTemplate)
	case tko.KindTemplate:
		r.CRDs = m.random.IntN(3) == 0
	case tko.KindPlugin, tko.KindRollout, tko.KindSource, tko.KindSubscription:
	}
	return write
}

// A pastRecord is what is compared of a record.
type pastRecord struct {
	Key                         record.Key
	UID, Parent, Template, Site string
	Revision, Base              int64
	Prepared, Approved, CRDs    bool
	Effective, Labels           map[string]string
	Package, Why                string
	Deployments                 []string
	Count                       int
}

func pastRecordOf(r record.Record) pastRecord {
	p := pastRecord{
		Key: r.Key, UID: r.UID, Parent: r.Parent, Template: r.Template, Site: r.Site, Revision: r.Revision, Base: r.Base,
		Prepared: r.Prepared, Approved: r.Approved, CRDs: r.CRDs, Package: string(r.Package), Why: r.Author.Why,
		Deployments: r.Deployments, Count: r.Count, Effective: map[string]string{}, Labels: map[string]string{},
	}
	if r.Metadata != nil {
		maps.Copy(p.Effective, r.Metadata.Effective)
		maps.Copy(p.Labels, r.Metadata.Labels)
	}
	return p
}

// check compares reads as of a position with the model.
func (m *pastModel) check(position int64) {
	for _, kind := range pastKinds {
		m.checkAll(position, kind)
	}
	for range 4 {
		m.compare(m.query(position))
	}
	m.checkRecords(position, m.any(tko.KindSite), m.any(tko.KindDeployment), m.any(tko.KindDeployment), record.Key{Kind: tko.KindSite, ID: "none"})
}

// checkAll compares all records of a kind as of a position with the model.
func (m *pastModel) checkAll(position int64, kind tko.Kind) {
	m.compare(record.Query{Kind: kind, Limit: -1, AsOf: position, Scope: access.ScopeAll, Fields: record.Fields{Package: true, Deployments: true}})
}

// checkRecords compares records as of a position with the model.
func (m *pastModel) checkRecords(position int64, keys ...record.Key) {
	records, err := m.store.GetAt(m.ctx(), position, record.Fields{Package: true}, keys...)
	m.ok(err)
	got, want := []pastRecord{}, []pastRecord{}
	for i, key := range keys {
		r := m.stateAt(position)[key]
		r.Key = key
		got, want = append(got, pastRecordOf(records[i])), append(want, pastRecordOf(r))
	}
	m.equal(fmt.Sprint("records as of ", position), got, want)
}

// query returns a random query as of a position.
func (m *pastModel) query(position int64) record.Query {
	q := record.Query{Kind: tko.KindDeployment, Limit: -1, AsOf: position, Scope: access.ScopeAll}
	if m.random.IntN(4) == 0 {
		q.Kind = []tko.Kind{tko.KindSite, tko.KindTemplate}[m.random.IntN(2)]
		q.Fields = record.Fields{Counts: true}
	}
	maybe := func(n int) bool { return m.random.IntN(n) == 0 }
	value := func() map[string]tko.Pattern {
		v := []string{"1", "2", "*"}[m.random.IntN(3)]
		return values([]string{"a", "b"}[m.random.IntN(2)], v)
	}
	if maybe(4) {
		q.IDs = patterns([]string{"d0*", "*1", "s0*"}[m.random.IntN(3)])
	}
	if maybe(3) {
		q.Metadata = value()
	}
	if maybe(8) {
		q.Labels = values("x/l", "1")
	}
	if maybe(6) {
		q.Templates = patterns([]string{m.any(tko.KindTemplate).ID, "t*"}[m.random.IntN(2)])
	}
	if q.Kind == tko.KindDeployment {
		if maybe(3) {
			q.Sites = patterns([]string{m.any(tko.KindSite).ID, "s0*"}[m.random.IntN(2)])
		}
		if maybe(3) {
			q.SiteMetadata = value()
		}
		if maybe(4) {
			q.TemplateMetadata = value()
		}
		if maybe(6) {
			q.Parent = m.any(tko.KindDeployment).ID
		}
		wanted := maybe(2)
		if maybe(5) {
			q.Is = map[string]bool{"prepared": wanted}
		}
		if maybe(5) {
			q.Outdated = &wanted
		}
	}
	if maybe(6) {
		q.Scope = access.ViewOf(access.Scope{Metadata: map[string]string{"a": "1"}})
	}
	if maybe(3) {
		q.After = m.any(q.Kind).ID
	}
	if maybe(3) {
		q.Offset, q.Limit = uint32(m.random.IntN(3)), m.random.IntN(5) //nolint:gosec // small
	}
	return q
}

// compare compares a list with the model.
func (m *pastModel) compare(q record.Query) {
	got, want := []pastRecord{}, []pastRecord{}
	for r, err := range m.store.List(m.ctx(), q) {
		m.ok(err)
		got = append(got, pastRecordOf(r))
	}
	state, now := m.stateAt(q.AsOf), m.state()
	// A record must be in the scope as it was and as it is, unless it was deleted.
	visible := func(r record.Record) bool {
		scope, current := q.Scope.Of(r.Kind), now[r.Key]
		return r.Revision != 0 && scope.Match(record.AttributesOf(r)) && (current.Revision == 0 || scope.Match(record.AttributesOf(current)))
	}
	has := func(kind tko.Kind, id string, patterns map[string]tko.Pattern) bool {
		r := state[record.Key{Kind: kind, ID: id}]
		return len(patterns) == 0 || visible(r) && (&record.Query{Kind: kind, Scope: q.Scope, Metadata: patterns}).Matches(r)
	}
	skip := int(q.Offset)
	keys := slices.SortedFunc(maps.Keys(state), func(a, b record.Key) int { return compareIDs(a.ID, b.ID) })
	for _, key := range keys {
		r := state[key]
		if key.Kind != q.Kind || !visible(r) || !q.Matches(r) || !has(tko.KindSite, r.Site, q.SiteMetadata) || !has(tko.KindTemplate, r.Template, q.TemplateMetadata) {
			continue
		}
		if q.Outdated != nil {
			t := state[record.Key{Kind: tko.KindTemplate, ID: r.Template}]
			if !visible(t) {
				t = record.Record{}
			}
			if r.Base == 0 || len(q.TemplateMetadata) > 0 {
				return // by times, which the model doesn't have
			}
			if (t.Revision > r.Base) != *q.Outdated {
				continue
			}
		}
		if skip > 0 {
			skip--
			continue
		}
		if q.Limit >= 0 && len(want) >= q.Limit {
			break
		}
		p := pastRecordOf(r)
		if !q.Fields.Package {
			p.Package = ""
		}
		for _, d := range keys {
			owned := d.Kind == tko.KindDeployment && (q.Kind == tko.KindSite && state[d].Site == key.ID || q.Kind == tko.KindTemplate && state[d].Template == key.ID)
			if !owned || !visible(state[d]) {
				continue
			}
			if q.Fields.Deployments || q.Fields.Counts {
				p.Count++
			}
			if q.Fields.Deployments {
				p.Deployments = append(p.Deployments, d.ID)
			}
		}
		want = append(want, p)
	}
	m.equal(fmt.Sprintf("as of %d: %+v", q.AsOf, q), got, want)
}

func compareIDs(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func pastIsBounded(w *world) {
	w.commit(site("a"))
	w.rewrite("s", 0, 4)
	head := w.head()
	w.collect(retain(1))
	w.rewrite("s", 4, 6)
	for position, want := range map[int64]error{head - 1: tko.ErrGone, w.head() + 1: tko.ErrInvalid} {
		_, err := w.store.GetAt(w.ctx(), position, record.Fields{}, siteKey("s"))
		if !isError(err, want) {
			w.Errorf("a record as of %d: %v, want %v", position, err, want)
		}
		for _, err := range w.store.List(w.ctx(), record.Query{Kind: tko.KindSite, Limit: -1, AsOf: position, Scope: access.ScopeAll}) {
			if !isError(err, want) {
				w.Errorf("a list as of %d: %v, want %v", position, err, want)
			}
		}
	}
	w.equal("as of the oldest", len(w.list(record.Query{Kind: tko.KindSite, Limit: -1, AsOf: head})), 2)
}

func timesArePositions(w *world) {
	positionAt := func(t time.Time) int64 {
		w.Helper()
		position, err := w.store.PositionAt(w.ctx(), t)
		w.ok(err)
		return position
	}
	w.equal("of an empty log", positionAt(time.Now()), int64(0))
	w.rewrite("s", 0, 20)
	w.commit(deleted(siteKey("s")))
	newest := map[time.Time]int64{}
	changes := w.changes(0)
	for _, c := range changes {
		newest[c.Time] = c.Position
	}
	for t, position := range newest {
		w.equal("at a change", positionAt(t), position)
	}
	w.equal("before the first", positionAt(changes[0].Time.Add(-time.Microsecond)), int64(0))
	w.equal("after the last", positionAt(changes[len(changes)-1].Time.Add(time.Hour)), w.head())
	w.collect(retain(1))
	w.equal("after a collection", positionAt(changes[len(changes)-1].Time), w.head())
	if _, err := w.store.PositionAt(w.ctx(), changes[0].Time); !isError(err, tko.ErrGone) {
		w.Errorf("the position of a time that isn't retained: %v", err)
	}
}

func oldestStateStays(w *world) {
	w.rewrite("s", 0, 3)
	head := w.head()
	w.collect(record.Retention{Changes: time.Nanosecond, Revisions: 10})
	w.rewrite("s", 3, 8)
	w.equal("retained", w.revisions(siteKey("s"), 8), []int64{1, 2, 3, 4, 5, 6, 7, 8})
	r, err := w.store.GetAt(w.ctx(), head, record.Fields{}, siteKey("s"))
	w.ok(err)
	w.equal("revision as of the oldest position", r[0].Revision, int64(3))
}

func revisionsContinue(w *world) {
	w.rewrite("s", 0, 4)
	w.collect(retain(1))
	w.commit(deleted(siteKey("s")))
	w.commit(site("other"))
	w.equal("revision of the new one", w.commit(site("s"))[0].Revision, int64(5))
	w.equal("its next revision", w.commit(site("s", expect(5)))[0].Revision, int64(6))
}

func historySize(w *world) {
	w.rewrite("s", 0, 4)
	size, err := w.store.HistorySize(w.ctx())
	w.ok(err)
	w.equal("changes", size.Changes, int64(4))
	if size.Bytes < 0 || size.DatabaseBytes < size.Bytes {
		w.Errorf("the sizes are %+v", size)
	}
}
