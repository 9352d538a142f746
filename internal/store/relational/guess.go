package relational

import (
	"context"
	"errors"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// A memory is what the committer knows of the database from its own last
// transaction. All of it holds as long as the head is where it was then: so a
// group that needs no more is decided without asking, and written in one round
// trip that fails if the head has moved. It is the committer's alone.
type memory struct {
	good    bool
	head    head
	now     time.Time                  // the database's time,
	then    time.Time                  // and ours, when we were told
	present *cache[catalog.Key, int64] // positions of records

	pause  int // how many groups not to guess for
	missed int // guesses in a row
}

// The bounds of guessing.
const (
	cachedPositions = 200_000
	maxGuessPause   = 256
)

// guess says whether a group was decided and written from memory; if not,
// nothing was written, and it is to be done under the lock. If the outcome is
// unknown, lost is set.
func (s *Store) guess(ctx context.Context, calls []*call, lost **group) (written bool, err error) {
	m := &s.memory
	if !m.good || !guessable(calls) {
		return false, nil
	}
	if m.pause > 0 {
		m.pause--
		return false, nil
	}
	g := newGroup(s)
	g.known = s.knownSince(m.head.collected)
	g.head, g.now = m.head, m.now.Add(time.Since(m.then)).Truncate(time.Microsecond)
	if ok, err := g.recall(ctx, calls); err != nil || !ok {
		return false, err
	}
	outcomes := make([][]catalog.Outcome, len(calls))
	for i, c := range calls {
		if outcomes[i], err = g.decide(c.writes); err != nil {
			return false, nil // a refusal is decided under the lock
		}
	}
	statements, err := g.flush(ctx, s.run)
	if err != nil {
		return false, err
	}
	for i, c := range calls {
		c.outcomes, c.err = outcomes[i], nil
	}
	tx, err := s.db.Begin(ctx, Write)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	move := Statement{
		// NULL, which head refuses, ends the transaction: others wrote, or
		// collected what is known to be there. Positions that others have taken
		// would end it, too, but only as long as the log keeps them.
		SQL: "UPDATE head SET position = CASE WHEN position = $1 AND collected = $5 THEN CAST($2 AS bigint) END, epoch = $3, number = $4 " +
			"WHERE one = 1 RETURNING {now}",
		Args: []any{m.head.position, g.head.position, g.head.epoch, g.head.number, m.head.collected},
		Scan: func(from Row) error {
			var at int64
			err := from.Scan(&at)
			m.now, m.then = laterOf(m.now, moment(at)), time.Now()
			return err
		},
	}
	if err := tx.Commit(ctx, append(append([]Statement{move}, statements...), s.dialect.Notify...)...); err != nil {
		if unknown := (*UnknownOutcomeError)(nil); errors.As(err, &unknown) {
			m.good = false
			*lost = g
			return false, err
		}
		if s.db.Transient(err) {
			m.good = false
			return false, err
		}
		m.pause = min(1<<m.missed, maxGuessPause)
		m.missed = min(m.missed+1, 16)
		return false, nil // what is wrong, the transaction under the lock says
	}
	m.missed = 0
	g.remember()
	m.note(g)
	return true, nil
}

// guessable are calls that only write what is new, under an ID that nobody is
// likely to have taken. Origins are made to be taken again.
func guessable(calls []*call) bool {
	for _, c := range calls {
		for i := range c.writes {
			w := &c.writes[i]
			if w.Op != tko.OpWritten || w.Expect != catalog.Absent || w.Token != "" || w.Record.Origin != "" || w.ParentRevision != 0 || w.Claim != nil {
				return false
			}
		}
	}
	return true
}

// recall is load without the lock: what isn't remembered is looked up, and
// belongs to the head that is remembered if that still is the database's.
func (g *group) recall(ctx context.Context, calls []*call) (ok bool, err error) {
	ok = true
	look := Statement{
		SQL:     "SELECT r.k, r.i, h.position, e.position, e.conditions FROM {rows} CROSS JOIN head h LEFT JOIN entity e ON e.kind = r.k AND e.id = r.i",
		Columns: []Column{{"k", Text}, {"i", Text}},
		Scan: func(from Row) error {
			var key catalog.Key
			var kind string
			var position int64
			var there *int64
			var conditions text
			if err := from.Scan(&kind, &key.ID, &position, &there, &conditions); err != nil {
				return err
			}
			key.Kind = tko.Kind(kind)
			if ok = ok && position == g.head.position; there == nil {
				return nil
			}
			r := standIn(key, *there)
			g.state[key] = r
			return r.readConditions(string(conditions))
		},
	}
	need := func(key catalog.Key) {
		if _, known := g.state[key]; known {
			return
		}
		g.state[key] = nil
		if position, known := g.store.memory.present.get(key); known {
			g.state[key] = standIn(key, position)
			return
		}
		look.Rows = append(look.Rows, []any{string(key.Kind), key.ID})
	}
	for _, c := range calls {
		for i := range c.writes {
			w := &c.writes[i]
			if _, known := g.store.memory.present.get(w.Record.Key); known {
				return false, nil
			}
			g.state[w.Record.Key] = nil
			for _, key := range w.Requires {
				need(key)
			}
			for _, version := range w.ReadSet {
				need(version.Key)
			}
		}
	}
	if len(look.Rows) == 0 {
		return true, nil
	}
	err = g.store.run(ctx, look)
	return ok, err
}

// standIn is a row of which nothing but its being there, and staying, matters.
func standIn(key catalog.Key, position int64) *row {
	return &row{Record: catalog.Record{Key: key, Revision: 1, Position: position}}
}

// note takes what a group found or left in the database, once it is committed.
func (m *memory) note(g *group) {
	for key, r := range g.state {
		m.present.drop(key)
		if r != nil && !r.Deleting() {
			m.present.put(key, r.Position, 1)
		}
	}
	m.head = g.head
}

// noteLocked takes what a group saw and did under the lock. If others had
// written meanwhile, nothing older is worth anything.
func (m *memory) noteLocked(g *group, found head) {
	if !m.good || m.head != found {
		m.present.clear()
	}
	m.good = true
	m.note(g)
	m.now, m.then = laterOf(m.now, g.now), time.Now()
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
