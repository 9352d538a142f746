package relational

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// A group is one transaction of commits: the records as the database has them, the
// decisions made on top of them, and the changes still to be written.
type group struct {
	store *Store
	now   time.Time
	read  time.Time // the database's time when the group was loaded under the lock
	head  head

	state    map[record.Key]*row // as decided so far; nil: does not exist
	newest   map[record.Key]int64
	origins  map[originKey]string // IDs
	tokens   map[string]decide.Token
	held     map[string]holder   // deployments with a valid token
	claims   map[claimName]bool  // of work, still valid
	children map[string][]string // of deployments that are deleted in a single step, as the database has them

	base    map[record.Key]*row // records to be written, as the database has them
	changes []change
	started []*tokenCall  // whose tokens are to be written
	ended   []string      // tokens
	caller  *audit.Caller // of the write that is being decided; nil: not recorded
	cause   string        // of the same write
	// Of the same write: it deletes, so that records it changes lose a reference; and it
	// deletes a record that another one replaces.
	orphans, replacing bool
	audits             []audit.Record // without changes
	rollouts           []rolloutChange
	reach              decide.Counts                   // of the causes of calls
	suspended          map[record.Key]*record.Metadata // of records that were suspended, as the database has them
	dirty              bool                            // statements were already run
	news               News                            // of the work that the transaction enqueues
	last               record.Key                      // of the last change of the transaction
	undo               []func()                        // reverts the decisions of the call under way

	recorded bool // the transaction has audit records without changes

	referred   map[record.Key]bool // records to delete on which other records depend, as the database has them
	step       *stepSizer          // if a step of a deletion was decided
	stepSize   int                 // number of records that the step may change
	remaining  int                 // number of records that may still be changed
	dependents dependents          // of the records that the step deletes

	sets map[int64]*record.Metadata // metadata by number, of the last flush; not all of it

	stored     *storedContent // content that need not be written again
	cacheFills []func()       // run after the commit
	written    map[record.Digest]bool
}

// A head is the row of the table head.
type head struct {
	position, epoch, gone, number, collected int64
	access                                   int64      // version of the rules of access
	audited                                  int64      // number of the newest audit record
	rollouts                                 int64      // version of the states of rollouts
	chain                                    audit.Hash // of that record
}

type originKey struct {
	kind   tko.Kind
	origin string
}

// A holder is the holder of a valid modification token.
type holder struct {
	token string
	tko.OpenModification
}

// A claimName identifies a claim of work.
type claimName struct{ queue, key, claim string }

// A change is one entry of the log.
type change struct {
	op     tko.Op
	before row
	after  row // as the log has it; Revision is the record's
	caller *audit.Caller
	cause  string

	orphans   bool // a deletion removed the reference of the record
	replacing bool // the record was deleted because another one replaces it
}

func newGroup(s *Store) *group {
	g := &group{
		store: s, remaining: math.MaxInt, state: map[record.Key]*row{}, newest: map[record.Key]int64{}, origins: map[originKey]string{},
		tokens: map[string]decide.Token{}, held: map[string]holder{}, base: map[record.Key]*row{}, claims: map[claimName]bool{}, written: map[record.Digest]bool{},
		children: map[string][]string{}, referred: map[record.Key]bool{},
		suspended: map[record.Key]*record.Metadata{},
	}
	g.reach.Undo = func(undo func()) { g.undo = append(g.undo, undo) }
	return g
}

func (g *group) changed() bool {
	return len(g.changes) > 0 || len(g.audits) > 0 || len(g.started) > 0 || len(g.ended) > 0 || g.dirty
}

// lockHead locks the head, so that all transactions that write wait for each
// other.
func (s *Store) lockHead(h *head, now *time.Time) Statement {
	return Statement{
		SQL: "SELECT position, epoch, gone, number, collected, access, audited, chain, rollouts, {now} FROM head WHERE one = 1 {for update}",
		Scan: func(from Row) error {
			var at int64
			var chain []byte
			err := from.Scan(&h.position, &h.epoch, &h.gone, &h.number, &h.collected, &h.access, &h.audited, &chain, &h.rollouts, &at)
			h.chain = hashOf(chain)
			*now = moment(at)
			if err == nil {
				s.clock.observe(at)
			}
			return err
		},
	}
}

func (g *group) saveHead() Statement {
	return Statement{
		SQL:  "UPDATE head SET position = $1, " + tallied("$1") + ", epoch = $2, number = $3, audited = $4, chain = $5, rollouts = $6 WHERE one = 1",
		Args: []any{g.head.position, g.head.epoch, g.head.number, g.head.audited, chainValue(g.head), g.head.rollouts},
	}
}

// load locks the head and reads the records, tokens and claims that calls depend
// on.
func (g *group) load(ctx context.Context, tx Tx, calls []*call) error {
	keys := Statement{
		SQL: "SELECT r.k, r.i, CASE WHEN e.id IS NULL THEN " +
			"(SELECT max(c.revision) FROM change c WHERE c.kind = r.k AND c.id = r.i AND c.op = 'written') ELSE 0 END " +
			"FROM {rows} LEFT JOIN entity e ON e.kind = r.k AND e.id = r.i",
		Columns: keyColumns,
		Scan: func(from Row) error {
			var key record.Key
			var kind string
			var newest *int64
			if err := from.Scan(&kind, &key.ID, &newest); err != nil {
				return err
			}
			key.Kind = tko.Kind(kind)
			if newest != nil {
				g.newest[key] = *newest
			}
			return nil
		},
	}
	entities := Statement{SQL: selectRows, Columns: keyColumns, Scan: g.scanEntity}
	origins := Statement{
		SQL:     "SELECT " + selectedEntity + " FROM {rows} CROSS JOIN entity e WHERE {kind of an origin} = r.k AND e.origin = r.o",
		Columns: []Column{Text.As("k"), Text.As("o")},
		Scan:    g.scanEntity,
	}
	tokens := Statement{
		SQL:     "SELECT m.token, m.deployment, m.revision, m.expires FROM {rows} CROSS JOIN modification m WHERE m.token = r.t",
		Columns: []Column{Text.As("t")},
		Scan: func(from Row) error {
			var token string
			var expires int64
			var m decide.Token
			err := from.Scan(&token, &m.Deployment, &m.Revision, &expires)
			m.Expires = moment(expires)
			g.tokens[token] = m
			return err
		},
	}
	held := Statement{
		SQL:     "SELECT " + openColumns + ", m.token FROM {rows} CROSS JOIN modification m WHERE m.deployment = r.i AND m.expires > {now}",
		Columns: []Column{Text.As("i")},
		Scan: func(from Row) error {
			var h holder
			err := scanOpen(from, &h.OpenModification, &h.token)
			g.held[string(h.Deployment)] = h
			return err
		},
	}
	capped := capTokenDeadlines()
	claims := lockItems("w.queue, w.key, w.claim", nil, func(from Row) error {
		var c claimName
		err := from.Scan(&c.queue, &c.key, &c.claim)
		g.claims[c] = true
		return err
	})
	childRows := Statement{
		SQL:     "SELECT e.parent, e.id FROM {rows} CROSS JOIN entity e WHERE e.kind = r.k AND e.parent = r.i AND e.parent <> ''",
		Columns: keyColumns,
		Scan: func(from Row) error {
			var parent, id string
			err := from.Scan(&parent, &id)
			g.children[parent] = append(g.children[parent], id)
			return err
		},
	}
	referrers := g.referrerStatements()
	claimed := map[claimName]bool{}
	need := func(key record.Key, written bool) {
		if _, ok := g.state[key]; !ok {
			g.state[key] = nil
			entities.Rows = append(entities.Rows, []any{string(key.Kind), key.ID})
		}
		if _, ok := g.newest[key]; !ok && written {
			g.newest[key] = 0
			keys.Rows = append(keys.Rows, []any{string(key.Kind), key.ID})
		}
	}
	for _, c := range calls {
		switch t := c.token; {
		case t == nil:
		case t.op == cancelToken:
			tokens.Rows = append(tokens.Rows, []any{t.token})
		default:
			if t.op == startToken {
				need(record.Key{Kind: tko.KindDeployment, ID: t.deployment}, false)
			}
			capped.Rows = append(capped.Rows, []any{t.deployment})
			held.Rows = append(held.Rows, []any{t.deployment})
		}
		for i := range c.writes {
			w := &c.writes[i]
			need(w.Record.Key, w.Op == tko.OpWritten && w.Expect <= record.Absent)
			for _, key := range w.Requires {
				need(key, false)
			}
			for _, version := range w.ReadSet {
				need(version.Key, false)
			}
			if w.Record.Parent != "" && w.ParentRevision != 0 {
				need(record.Key{Kind: w.Record.Kind, ID: w.Record.Parent}, false)
			}
			if w.Record.Origin != "" {
				origins.Rows = append(origins.Rows, []any{string(w.Record.Kind), w.Record.Origin})
			}
			if w.SingleStep && w.Op == tko.OpDeleted && w.Record.Kind == tko.KindDeployment {
				childRows.Rows = append(childRows.Rows, []any{string(w.Record.Kind), w.Record.ID})
			}
			if c.cascades && w.Op == tko.OpDeleted && !w.SingleStep {
				for _, r := range referrers {
					r.add(w.Record.Key)
				}
			}
			if w.Token != "" {
				tokens.Rows = append(tokens.Rows, []any{w.Token})
			}
			if c := w.Claim; c != nil && !claimed[claimOf(*c)] {
				claimed[claimOf(*c)] = true
				claims.Rows = append(claims.Rows, []any{c.Queue, c.Key, c.Claim})
			}
			if w.Record.Kind == tko.KindDeployment && w.Op == tko.OpWritten && w.Expect != record.Absent && w.Token == "" {
				held.Rows = append(held.Rows, []any{w.Record.ID})
			}
		}
	}
	statements := []Statement{g.store.lockHead(&g.head, &g.now), keys, entities, origins, capped, tokens, held, claims, childRows}
	for _, r := range referrers {
		statements = append(statements, r.statement)
	}
	statements = append(statements, g.loadReach(calls)...)
	err := tx.Run(ctx, statements...)
	g.stored = g.store.storedAt(g.head.collected)
	return fault("read what the commit depends on", err)
}

func (g *group) scanEntity(from Row) error {
	r := new(row)
	if err := r.scanEntity(from); err != nil {
		return err
	}
	g.addRow(r)
	return nil
}

// addRow adds a row as the database has it.
func (g *group) addRow(r *row) {
	g.state[r.Key] = r
	if r.Origin != "" {
		g.origins[originKey{r.Kind, r.Origin}] = r.ID
	}
}

// decide applies the writes of one call, all or none.
func (g *group) decide(c *call) ([]record.Outcome, error) {
	writes := c.writes
	g.undo = g.undo[:0]
	from := len(g.changes)
	outcomes := make([]record.Outcome, len(writes))
	deleted := 0
	for i := range writes {
		outcome, err := g.decideOne(&writes[i])
		deleted += outcome.Deleted
		if most := writes[i].DeleteLimit; err == nil && most != nil && deleted > *most {
			err = &record.ExceededError{Limit: *most}
		}
		if err != nil {
			g.revert()
			return nil, err
		}
		outcomes[i] = outcome
	}
	if err := g.countReach(&c.reach, from); err != nil {
		g.revert()
		return nil, err
	}
	return outcomes, nil
}

// revert undoes the decisions of the call under way.
func (g *group) revert() {
	for _, undo := range slices.Backward(g.undo) {
		undo()
	}
}

func (g *group) decideOne(w *record.Write) (record.Outcome, error) {
	key := w.Record.Key
	current := g.state[key]
	g.caller, g.cause, g.replacing, g.orphans = w.Audit, w.Cause, w.Op == tko.OpDeleted && w.SingleStep, w.Op == tko.OpDeleted
	if current == nil && w.Op == tko.OpWritten && w.Expect <= record.Absent && w.Record.Origin != "" {
		if id, ok := g.origins[originKey{key.Kind, w.Record.Origin}]; ok {
			there := record.Key{Kind: key.Kind, ID: id}
			if r := g.state[there]; r != nil {
				return record.Outcome{Key: there, Revision: r.Revision, Position: r.Position, Existed: true}, nil
			}
		}
	}
	if err := g.check(w, current); err != nil {
		return record.Outcome{}, err
	}
	defer g.decideRollout(w)
	switch w.Op {
	case tko.OpDeleted:
		if w.SingleStep && current != nil {
			return record.Outcome{Key: key, Revision: current.Revision, Deleted: 1, Position: g.remove(w, current)}, nil
		}
		return g.decideDelete(w, current), nil
	case tko.OpStatus:
		after := *current
		after.Conditions = slices.Clone(w.Record.Conditions)
		after.Author = w.Record.Author
		if w.Record.Metadata != nil {
			after.Metadata = w.Record.Metadata
		}
		position := g.change(tko.OpStatus, *current, after)
		return record.Outcome{Key: key, Revision: after.Revision, Position: position}, nil
	default:
		return g.decideWritten(w, current), nil
	}
}

// check returns an error if a write's conditions don't hold.
func (g *group) check(w *record.Write, current *row) error {
	key := w.Record.Key
	if err := g.checkToken(w); err != nil {
		return err
	}
	if w.Claim != nil && !g.claims[claimOf(*w.Claim)] {
		return decide.ClaimLost(*w.Claim)
	}
	versions := decide.Versions{Access: g.head.access, Rollouts: g.head.rollouts, Epoch: g.head.epoch}
	if err := decide.Check(w, g.recordOf, versions); err != nil {
		return err
	}
	if w.SingleStep && w.Op == tko.OpDeleted && current != nil {
		if err := g.checkSingleStep(key); err != nil {
			return err
		}
	}
	return nil
}

// recordOf returns a record as decided so far; nil if it doesn't exist.
func (g *group) recordOf(key record.Key) *record.Record {
	if r := g.state[key]; r != nil {
		return &r.Record
	}
	return nil
}

// checkSingleStep returns an error if other records depend on the record.
func (g *group) checkSingleStep(key record.Key) error {
	if err := decide.CheckSingleKind(key); err != nil {
		return err
	}
	for _, id := range g.children[key.ID] {
		if _, known := g.state[record.Key{Kind: key.Kind, ID: id}]; !known {
			return decide.HasChild(key.ID, id)
		}
	}
	for _, r := range g.state {
		if r != nil && r.Kind == key.Kind && r.Parent == key.ID {
			return decide.HasChild(key.ID, r.ID)
		}
	}
	return nil
}

func (g *group) checkToken(w *record.Write) error {
	return decide.CheckToken(w, g.tokens[w.Token], g.held[w.Record.ID].Expires, g.now)
}

func (g *group) decideWritten(w *record.Write, current *row) record.Outcome {
	key := w.Record.Key
	var before row
	after := row{Record: w.Record}
	after.Updated = g.now
	if after.Metadata == nil {
		after.Metadata = new(record.Metadata)
	}
	if current != nil {
		before = *current
		after.UID, after.Created, after.Origin, after.Revision = current.UID, current.Created, current.Origin, current.Revision+1
	} else {
		after.Created, after.Revision = g.now, g.newest[key]+1
		if after.Origin != "" {
			origin := originKey{key.Kind, after.Origin}
			old, had := g.origins[origin]
			g.undo = append(g.undo, func() {
				if delete(g.origins, origin); had {
					g.origins[origin] = old
				}
			})
			g.origins[origin] = key.ID
		}
	}
	position := g.change(tko.OpWritten, before, after)
	if w.Token != "" {
		g.endToken(w.Token)
	}
	return record.Outcome{Key: key, Revision: after.Revision, Position: position}
}

// endToken ends a known token.
func (g *group) endToken(token string) {
	m, count := g.tokens[token], len(g.ended)
	h, held := g.held[m.Deployment]
	g.undo = append(g.undo, func() {
		g.tokens[token], g.ended = m, g.ended[:count]
		if held {
			g.held[m.Deployment] = h
		}
	})
	g.ended = append(g.ended, token)
	delete(g.tokens, token)
	if h.token == token {
		delete(g.held, m.Deployment)
	}
}

// change appends a change to the log and updates the state of its record.
func (g *group) change(op tko.Op, before, after row) (position int64) {
	key := after.Key
	old, known := g.state[key]
	base, touched := g.base[key]
	oldHead, count := g.head, len(g.changes)
	g.undo = append(g.undo, func() {
		g.head, g.changes = oldHead, g.changes[:count]
		g.base[key] = base
		if !touched {
			delete(g.base, key)
		}
		g.state[key] = old
		if !known {
			delete(g.state, key)
		}
	})
	g.head.position++
	if leave := g.store.gaps; leave != nil {
		g.head.position += leave(g.head.position)
	}
	after.Position = g.head.position
	if decide.MovesEpoch(op, &before.Record, &after.Record) {
		g.head.epoch = after.Position
	}
	g.changes = append(g.changes, change{op: op, before: before, after: after, caller: g.caller, cause: g.cause, orphans: g.orphans, replacing: g.replacing})
	if !touched {
		g.base[key] = old
	}
	switch op {
	case tko.OpDeleted:
		g.state[key] = nil
	case tko.OpStatus: // the record keeps the author of its newest revision
		stays := after
		stays.Author = before.Author
		g.state[key] = &stays
	default:
		g.state[key] = &after
	}
	return after.Position
}

func (c change) String() string {
	return fmt.Sprintf("%d %s %s %q", c.after.Position, c.op, c.after.Kind, c.after.ID)
}
