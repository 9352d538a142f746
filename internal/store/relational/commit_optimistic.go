package relational

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A commitCache holds the state of the database after the committer's last
// transaction. It is valid as long as the head has not moved since: a group that
// needs no other state is decided without reads, and written in one round trip that
// fails if the head has moved. Only the committer uses it.
type commitCache struct {
	valid        bool
	head         head
	databaseTime time.Time                     // the database's time
	observedAt   time.Time                     // the local time before databaseTime was read
	newest       time.Time                     // of the changes of the last group
	positions    *lru.Cache[record.Key, int64] // of records

	pause  int // number of groups to commit under the lock
	misses int // failed optimistic commits in a row
}

// Limits of optimistic commits.
const (
	cachedPositions    = 200_000
	maxOptimisticPause = 256
)

// tryOptimistic commits the group of calls without locking the head. It returns
// false, with nothing written, if the head has moved or the commit cache does not
// suffice; the caller then commits under the lock. If the outcome is unknown, it
// sets lost.
func (s *Store) tryOptimistic(ctx context.Context, calls []*call, lost **group) (written bool, err error) {
	cc := &s.commitCache
	if !cc.valid || !optimistic(calls) {
		return false, nil
	}
	if cc.pause > 0 {
		cc.pause--
		return false, nil
	}
	g := newGroup(s)
	g.stored = s.storedAt(cc.head.collected)
	g.head, g.now = cc.head, cc.timeOf(cc.databaseTime.Add(time.Since(cc.observedAt)).Truncate(time.Microsecond))
	if ok, err := g.loadCached(ctx, calls); err != nil || !ok {
		return false, err
	}
	outcomes := make([][]record.Outcome, len(calls))
	for i, c := range calls {
		if outcomes[i], err = g.decide(c); err != nil {
			return false, nil // errors of calls are decided under the lock
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
	sent := time.Now()
	move := Statement{
		// NULL, which the column refuses, fails the transaction if another store has
		// written, or has collected content that is known as stored. A position that
		// is already in the log would fail it, too, but only while the log retains it.
		SQL: "UPDATE head SET position = CASE WHEN position = $1 AND collected = $5 AND access = $6 AND audited = $7 THEN CAST($2 AS bigint) END, " +
			tallied("$2") + ", epoch = $3, number = $4, audited = $8, chain = $9 WHERE one = 1 RETURNING {now}",
		Args: []any{
			cc.head.position, g.head.position, g.head.epoch, g.head.number, cc.head.collected,
			cc.head.access, cc.head.audited, g.head.audited, chainValue(g.head),
		},
		Scan: func(from Row) error {
			var at int64
			err := from.Scan(&at)
			cc.observeTime(moment(at), sent, time.Now())
			return err
		},
	}
	if err := tx.Commit(ctx, append(append([]Statement{move, unusedIDs(calls)}, statements...), s.notify(g.news)...)...); err != nil {
		if outcomeUnknown(err) {
			cc.valid = false
			*lost = g
			return false, err
		}
		if s.db.Transient(err) {
			cc.valid = false
			return false, err
		}
		cc.pause = min(1<<cc.misses, maxOptimisticPause)
		cc.misses = min(cc.misses+1, 16)
		return false, nil // the transaction under the lock returns the error
	}
	cc.misses = 0
	s.observe(func(o Observer) { o.Committed(len(calls), true) })
	g.fillCaches()
	cc.update(g)
	s.Wake(g.news)
	return true, nil
}

// optimistic reports whether all writes of calls create records under IDs that are
// unlikely to exist. Writes with an origin are excluded: they are often repeated.
func optimistic(calls []*call) bool {
	for _, c := range calls {
		if len(c.writes) == 0 || c.reach.Derived || len(c.reach.Grant) > 0 {
			return false
		}
		for i := range c.writes {
			w := &c.writes[i]
			if w.Op != tko.OpWritten || w.Expect != record.Absent || w.Token != "" || w.Record.Origin != "" || w.ParentRevision != 0 || w.Claim != nil || w.Rollout != nil || w.Used {
				return false
			}
		}
	}
	return true
}

// unusedIDs returns the statement that fails the transaction if the log has a revision
// of an earlier record with an ID: revisions continue those. The uniqueness of
// revisions doesn't suffice, because the first ones may have been collected. IDs of new
// deployments are new, unless Used is set. The subquery looks up each ID by itself: a join
// reads the whole log while PostgreSQL has no statistics of a new database.
func unusedIDs(calls []*call) Statement {
	s := Statement{
		SQL: "UPDATE head SET position = NULL WHERE one = 1 AND EXISTS " +
			"(SELECT 1 FROM {rows} WHERE (SELECT max(c.revision) FROM change c WHERE c.kind = r.k AND c.id = r.i AND c.op = 'written') IS NOT NULL)",
		Columns: keyColumns,
	}
	for _, c := range calls {
		for i := range c.writes {
			if key := c.writes[i].Record.Key; key.Kind != tko.KindDeployment {
				s.Rows = append(s.Rows, []any{string(key.Kind), key.ID})
			}
		}
	}
	return s
}

// loadCached is load without the lock. It reads the records that are not cached; ok
// is true if the head is still at the cached position.
func (g *group) loadCached(ctx context.Context, calls []*call) (ok bool, err error) {
	ok = true
	read := Statement{
		SQL:     "SELECT r.k, r.i, h.position, e.position, e.conditions FROM {rows} CROSS JOIN head h LEFT JOIN entity e ON e.kind = r.k AND e.id = r.i",
		Columns: keyColumns,
		Scan: func(from Row) error {
			var key record.Key
			var kind string
			var position int64
			var there *int64
			var conditions text
			if err := from.Scan(&kind, &key.ID, &position, &there, &conditions); err != nil {
				return err
			}
			key.Kind = tko.Kind(kind)
			ok = ok && position == g.head.position
			if there == nil {
				return nil
			}
			r := placeholder(key, *there)
			g.state[key] = r
			return r.readConditions(string(conditions))
		},
	}
	need := func(key record.Key) {
		if _, known := g.state[key]; known {
			return
		}
		g.state[key] = nil
		if position, known := g.store.commitCache.positions.Get(key); known {
			g.state[key] = placeholder(key, position)
			return
		}
		read.Rows = append(read.Rows, []any{string(key.Kind), key.ID})
	}
	for _, c := range calls {
		for i := range c.writes {
			w := &c.writes[i]
			if _, known := g.store.commitCache.positions.Get(w.Record.Key); known {
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
	if len(read.Rows) == 0 {
		return true, nil
	}
	err = g.store.run(ctx, read)
	return ok, err
}

// placeholder returns a row of a record of which only its existence and position
// matter.
func placeholder(key record.Key, position int64) *row {
	return &row{Record: record.Record{Key: key, Revision: 1, Position: position}}
}

// update records the state after a group was committed.
func (cc *commitCache) update(g *group) {
	for key, r := range g.state {
		cc.positions.Drop(key)
		if r != nil && !r.Deleting() {
			cc.positions.Put(key, r.Position, 1)
		}
	}
	cc.head = g.head
	cc.newest = g.now
}

// updateLocked records the state after a group was decided under the lock. If other
// stores have written since the last update, all earlier positions are dropped. The
// database's time of the group was read between two local times.
func (cc *commitCache) updateLocked(g *group, found head, sent, received time.Time) {
	if !cc.valid || cc.head != found {
		cc.positions.Clear()
	}
	cc.valid = true
	cc.update(g)
	cc.observeTime(g.read, sent, received)
}

// maxTimeAge is the age of an observation of the database's time that a later one replaces,
// because the two clocks drift.
const maxTimeAge = 10 * time.Second

// observeTime records the database's time, which was read between two local times. A time that
// is derived from it and the first of them is not too early: a change is never older than its
// request. It is too late by the way of the request at most, so the fastest one counts.
func (cc *commitCache) observeTime(database, sent, received time.Time) {
	expected := cc.databaseTime.Add(received.Sub(cc.observedAt))
	switch {
	case cc.observedAt.IsZero(), sent.Sub(cc.observedAt) > maxTimeAge:
	case database.Add(received.Sub(sent)).Before(expected): // a faster one, or the database's clock was set back
	case database.After(expected): // the database's clock was set forward
	default:
		return
	}
	cc.databaseTime, cc.observedAt = later(cc.databaseTime, database), sent
}

// timeOf returns the time of changes that are made at a database's time: after that of the
// changes before them, unless the clock was set back. Equal times would have no order: a
// deployment of the revision of a template before would not be outdated.
func (cc *commitCache) timeOf(database time.Time) time.Time {
	if ahead := cc.newest.Sub(database); ahead >= 0 && ahead < clockStep {
		return cc.newest.Add(time.Microsecond)
	}
	return database
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
