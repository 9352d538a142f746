package spanner

import (
	"context"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// A logged is a change to be written. Its record has no position yet.
type logged struct {
	op     tko.Op
	before *record.Record // nil: new
	after  *record.Record
	author tko.Author
	cause  string        // of the write
	caller *audit.Caller // of the write; nil: the change isn't audited

	orphans   bool // the write is a deletion: it removed the reference of the record
	replacing bool // the record was deleted because another one replaces it
}

// A transaction is one attempt of a commit. A column with a commit timestamp can't be read in the
// transaction that writes it, so writes see those before them in memory.
type transaction struct {
	store    *Store
	tx       *spanner.ReadWriteTransaction
	reach    *record.Reach                 // how the commit is counted
	now      time.Time                     // of the database; see time
	state    map[record.Key]*record.Record // as decided so far; nil: doesn't exist; without an entry: not read
	newest   map[record.Key]int64          // newest revisions, of records that don't exist
	origins  map[origin]string             // IDs
	tokens   map[string]map[string]issued  // by deployment and token
	placed   map[record.Key]int            // the newest change of records
	begun    map[record.Key]bool           // new records
	wrote    map[record.Key]bool           // records with a new revision
	ended    []issued                      // tokens
	claims   map[itemKey]*item             // that writes need
	cause    string                        // of the write that is being decided, as caller is
	caller   *audit.Caller
	deletes  bool // the write is a deletion; and one of a record that another one replaces
	single   bool
	items    []*item   // of work, as they become
	later    []itemKey // of sites that are all due soon
	requests []itemKey // further work that is due
	rollouts []rolloutChange
	woken    []string        // queues whose waiting items are due soon
	due      map[string]bool // queues with items that are due

	counts    decide.Counts // of the commit's cause
	versions  decide.Versions
	remaining int // records that the commit may change in addition to those of its writes
	changes   []logged
	outcomes  []record.Outcome
	changed   map[int]int // changes by outcomes
	first     int64       // slot
	contents  []content
	stored    map[record.Digest]bool // content that the database has
	refused   error                  // of a rule, or of the caller's context
	sent      bool                   // the transaction was about to be committed
}

type content struct {
	digest record.Digest
	data   []byte
}

// unplaced is the position of a record, or of an epoch, that the transaction itself writes.
const unplaced = -1

func newTransaction(s *Store, reach *record.Reach) *transaction {
	return &transaction{
		store: s, reach: reach, remaining: maxStep, changed: map[int]int{},
		state: map[record.Key]*record.Record{}, newest: map[record.Key]int64{}, origins: map[origin]string{}, tokens: map[string]map[string]issued{},
		placed: map[record.Key]int{}, begun: map[record.Key]bool{}, wrote: map[record.Key]bool{}, due: map[string]bool{},
	}
}

func (t *transaction) run(ctx context.Context, writes []record.Write) error {
	if err := t.load(ctx, writes); err != nil {
		return err
	}
	for i := range writes {
		outcome, err := t.decide(ctx, i, &writes[i])
		if err != nil {
			t.refuse(err)
			return err
		}
		t.outcomes = append(t.outcomes, outcome)
	}
	if err := t.count(ctx); err != nil {
		t.refuse(err)
		return err
	}
	m := new(mutations)
	if err := t.changeRollouts(ctx, m); err != nil {
		t.refuse(err)
		return err
	}
	if err := t.enqueue(ctx); err != nil {
		return err
	}
	if err := t.put(m); err != nil {
		t.refused = err
		return err
	}
	return t.tx.BufferWrite(m.list)
}

// refuse notes an error of a rule: it is returned unchanged, and the transaction isn't run again. Errors of the database,
// which may abort the transaction, are none.
func (t *transaction) refuse(err error) {
	if !isOfDatabase(err) {
		t.refused = err
	}
}

// time returns the database's time, which is read once.
func (t *transaction) time(ctx context.Context) (time.Time, error) {
	var err error
	if t.now.IsZero() {
		t.now, err = readNow(ctx, t.tx)
	}
	return t.now, err
}

// load reads what writes depend on.
func (t *transaction) load(ctx context.Context, writes []record.Write) error {
	var keys, renewed, reattached []record.Key
	var origins []origin
	var held []string
	epoch, rules, rollouts := false, false, false
	for i := range writes {
		w := &writes[i]
		key := w.Record.Key
		keys = append(append(keys, key), w.Requires...)
		for _, version := range w.ReadSet {
			keys = append(keys, version.Key)
		}
		if w.ParentRevision != 0 {
			keys = append(keys, record.Key{Kind: key.Kind, ID: w.Record.Parent})
		}
		if w.Op == tko.OpWritten && w.Expect <= record.Absent {
			renewed = append(renewed, key)
			if w.Record.Origin != "" {
				origins = append(origins, origin{key.Kind, w.Record.Origin})
			}
		}
		if w.Op == tko.OpStatus && w.Record.Metadata != nil {
			reattached = append(reattached, key)
		}
		if key.Kind == tko.KindDeployment && w.Op != tko.OpStatus && w.Expect != record.Absent || w.Token != "" {
			held = append(held, key.ID)
		}
		epoch, rules = epoch || w.Epoch != nil, rules || w.Access != nil
		if w.Rollout != nil {
			rollouts = true
			for _, r := range w.Rollout.Rows { // which get the revisions of their deployments
				keys = append(keys, record.Key{Kind: tko.KindDeployment, ID: string(r.Deployment)})
			}
		}
	}
	var err error
	if t.origins, err = readOrigins(ctx, t.tx, origins); err != nil {
		return err
	}
	for o, id := range t.origins {
		keys = append(keys, record.Key{Kind: o.kind, ID: id})
	}
	if err := t.loadRecords(ctx, keys); err != nil {
		return err
	}
	if rules {
		if t.versions.Access, err = readAccessVersion(ctx, t.tx); err != nil {
			return err
		}
	}
	if rollouts {
		if t.versions.Rollouts, err = readState(ctx, t.tx, rolloutState); err != nil {
			return err
		}
	}
	if epoch {
		if t.versions.Epoch, err = readEpoch(ctx, t.tx); err != nil {
			return err
		}
	}
	for _, key := range reattached { // the steps are in the revision only
		if r := t.state[key]; r != nil {
			revision, err := readRevision(ctx, t.tx, key, r.Revision)
			if err != nil {
				return err
			}
			r.Steps = revision.Steps
		}
	}
	if err := t.loadTokens(ctx, held); err != nil {
		return err
	}
	if err := t.loadContents(ctx, writes); err != nil {
		return err
	}
	if err := t.loadClaims(ctx, writes); err != nil {
		return err
	}
	return t.loadNewest(ctx, slices.DeleteFunc(renewed, func(key record.Key) bool { return t.state[key] != nil }))
}

// loadRecords reads records that aren't known.
func (t *transaction) loadRecords(ctx context.Context, keys []record.Key) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(key record.Key) bool {
		_, known := t.state[key]
		return known
	})
	found, err := readRecords(ctx, t.tx, keys)
	if err != nil {
		return err
	}
	for _, key := range keys {
		t.state[key] = found[key]
	}
	return nil
}

// loadContents reads which of the content that this store has written or read before is still there: old one is collected.
func (t *transaction) loadContents(ctx context.Context, writes []record.Write) error {
	var keys []spanner.Key
	for i := range writes {
		r := &writes[i].Record
		for _, c := range []content{{r.Digest, r.Package}, {r.Derivation, r.Derived}, {r.Owner, r.Owned}} {
			if _, known := t.store.blobs.Get(c.digest); known && c.data != nil {
				keys = append(keys, spanner.Key{c.digest[:], int64(0)})
			}
		}
	}
	t.stored = map[record.Digest]bool{}
	if len(keys) == 0 {
		return nil
	}
	return fault("read which packages are stored", t.tx.Read(ctx, "content", spanner.KeySetFromKeys(keys...), []string{"digest"}).Do(func(row *spanner.Row) error {
		var digest []byte
		err := row.Column(0, &digest)
		if err == nil {
			t.stored[record.Digest(digest)] = true
		}
		return err
	}))
}

// loadNewest reads the newest revisions of records that don't exist: revisions are never used
// again.
func (t *transaction) loadNewest(ctx context.Context, keys []record.Key) error {
	if len(keys) == 0 {
		return nil
	}
	statement := spanner.Statement{
		SQL: "SELECT r.kind, r.id, MAX(r.revision) FROM UNNEST(@keys) AS k " +
			"JOIN revision AS r ON r.shard = k.Shard AND r.kind = k.Kind AND r.id = k.ID GROUP BY r.kind, r.id",
		Params: map[string]any{"keys": parametersOf(keys)},
	}
	return fault("read the newest revisions", t.tx.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var kind, id string
		var revision int64
		err := row.Columns(&kind, &id, &revision)
		t.newest[record.Key{Kind: tko.Kind(kind), ID: id}] = revision
		return err
	}))
}

// existing returns the record that has the origin of a new one.
func (t *transaction) existing(w *record.Write) *record.Record {
	key := w.Record.Key
	if w.Op != tko.OpWritten || w.Expect > record.Absent || w.Record.Origin == "" || t.state[key] != nil {
		return nil
	}
	id, ok := t.origins[origin{key.Kind, w.Record.Origin}]
	if !ok {
		return nil
	}
	return t.state[record.Key{Kind: key.Kind, ID: id}]
}

// decide decides a write, after those before it.
func (t *transaction) decide(ctx context.Context, i int, w *record.Write) (record.Outcome, error) {
	key := w.Record.Key
	t.cause, t.caller, t.deletes, t.single = w.Cause, w.Audit, w.Op == tko.OpDeleted, w.SingleStep
	if r := t.existing(w); r != nil {
		if change, ok := t.placed[r.Key]; ok {
			t.changed[i] = change
		}
		return record.Outcome{Key: r.Key, Revision: r.Revision, Position: r.Position, Existed: true}, nil
	}
	if err := t.check(ctx, w); err != nil {
		return record.Outcome{}, err
	}
	if w.Rollout != nil {
		t.versions.Rollouts++
		t.rollouts = append(t.rollouts, rolloutChange{w.Rollout, t.versions.Rollouts})
	}
	current := t.state[key]
	outcome := record.Outcome{Key: key}
	var err error
	switch w.Op {
	case tko.OpDeleted:
		if current == nil {
			return outcome, nil
		}
		if outcome, err = t.decideDelete(ctx, w, current); err == nil && w.DeleteLimit != nil && t.deleted() > *w.DeleteLimit {
			err = &record.ExceededError{Limit: *w.DeleteLimit}
		}
		if err != nil || outcome.More {
			return outcome, err
		}
	case tko.OpStatus:
		after := *current
		after.Conditions = w.Record.Conditions
		if w.Record.Metadata != nil {
			after.Metadata = w.Record.Metadata
		}
		t.change(tko.OpStatus, current, &after, w.Record.Author)
		outcome.Revision = after.Revision
	default:
		after := w.Record
		if current == nil {
			after.Revision = t.newest[key] + 1
			if after.Origin != "" {
				t.origins[origin{key.Kind, after.Origin}] = key.ID
			}
		} else {
			after.UID, after.Created, after.Origin, after.Revision = current.UID, current.Created, current.Origin, current.Revision+1
		}
		t.change(tko.OpWritten, current, &after, after.Author)
		if w.Token != "" {
			t.endToken(key.ID, w.Token)
		}
		outcome.Revision = after.Revision
	}
	t.changed[i] = t.placed[key]
	return outcome, err
}

// check returns an error if the database, with the writes before this one, isn't as a write expects.
func (t *transaction) check(ctx context.Context, w *record.Write) error {
	token, held, err := t.tokensOf(ctx, w)
	if err != nil {
		return err
	}
	if err := decide.CheckToken(w, token, held, t.now); err != nil {
		return err
	}
	if c := w.Claim; c != nil {
		if i := t.claims[itemKey{c.Queue, c.Key}]; i == nil || i.claim != c.Claim {
			return decide.ClaimLost(*c)
		}
	}
	if err := decide.Check(w, func(k record.Key) *record.Record { return t.state[k] }, t.versions); err != nil {
		return err
	}
	if w.Op == tko.OpDeleted && w.SingleStep && t.state[w.Record.Key] != nil {
		return t.checkSingleStep(ctx, w.Record.Key)
	}
	return nil
}

// change decides a change, and the state of its record.
func (t *transaction) change(op tko.Op, before, after *record.Record, author tko.Author) {
	key := after.Key
	after.Position = unplaced
	t.placed[key] = len(t.changes)
	t.changes = append(t.changes, logged{op: op, before: before, after: after, author: author, cause: t.cause, caller: t.caller, orphans: t.deletes, replacing: t.deletes && t.single})
	switch op {
	case tko.OpDeleted:
		t.state[key], t.newest[key] = nil, before.Revision
	case tko.OpWritten:
		t.begun[key] = t.begun[key] || before == nil
		t.wrote[key] = true
		t.state[key] = after
	default:
		t.state[key] = after
	}
	if decide.MovesEpoch(op, orNew(before), after) {
		t.versions.Epoch = unplaced
	}
}

func orNew(r *record.Record) *record.Record {
	if r == nil {
		return new(record.Record)
	}
	return r
}

// deleted returns the number of records that the writes so far delete.
func (t *transaction) deleted() (n int) {
	for _, c := range t.changes {
		if c.op == tko.OpDeleted {
			n++
		}
	}
	return n
}
