package relational

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// Limits of counting all entities.
const (
	tallyRest      = time.Minute      // between two counts of a server
	tallyAbandoned = 10 * time.Minute // after which another server begins anew
	tallyChunk     = 2000             // entities that are read at once
	tallyBatch     = 500              // entities whose failures are written in one transaction
	tallyClear     = 2000             // old failures that are removed in one transaction
)

// A tallyCounter is the count of all entities by this server.
type tallyCounter struct {
	mutex   sync.Mutex
	running bool
	ended   time.Time
}

// countInBackground begins to count all entities, unless this server does or has just done.
func (s *Store) countInBackground() {
	c := &s.tallyCounter
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.running || !c.ended.IsZero() && time.Since(c.ended) < tallyRest || s.ended.Err() != nil {
		return
	}
	c.running = true
	s.wait.Go(func() {
		_ = s.countTally(s.ended) // the observer counts failures; the next reader begins again
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.running, c.ended = false, time.Now()
	})
}

// countTally makes the numbers of entities right, if they aren't. Writers go on; only the
// beginning and the end wait for them.
func (s *Store) countTally(ctx context.Context) error {
	begun, err := s.beginTally(ctx)
	if err != nil || begun == "" {
		return err
	}
	sum, follows, err := s.sumTally(ctx, begun)
	if err != nil || !follows {
		return err
	}
	return s.endTally(ctx, begun, sum)
}

// tallyFacts reads whether the numbers follow the log, and since when they are being counted; ""
// if they aren't.
func tallyFacts(follows *bool, begun *string) Statement {
	return Statement{
		SQL: "SELECT h.position, h.tallied, (SELECT count(*) FROM tally WHERE n < 0), (SELECT max(value) FROM state WHERE name = '" + stateTally + "') FROM head h WHERE h.one = 1",
		Scan: func(from Row) error {
			var position, upTo, negative int64
			var since *string
			err := from.Scan(&position, &upTo, &negative, &since)
			*begun = ""
			if since != nil {
				*begun = *since
			}
			*follows = position == upTo && (*begun != "" || negative == 0)
			return err
		},
	}
}

// beginTally empties the numbers, so that commits add to them from now on. It returns the name
// of the count; "" if the numbers are right, or if another server counts.
func (s *Store) beginTally(ctx context.Context) (begun string, err error) {
	for {
		more := false
		err = s.write(ctx, func(tx Tx) (statements []Statement, err error) {
			begun, statements, more, err = s.emptyTally(ctx, tx, begun)
			return statements, err
		})
		if err != nil || !more {
			return begun, fault("begin to count entities", err)
		}
	}
}

// emptyTally removes a part of the old failures, if the numbers are wrong. After the last part, more
// is false, and the statements begin the count. Own is the name of a count that this server has
// begun, whose transaction was perhaps lost.
func (s *Store) emptyTally(ctx context.Context, tx Tx, own string) (begun string, statements []Statement, more bool, err error) {
	var now time.Time
	var follows bool
	var other string
	if err := tx.Run(ctx, s.lockHead(new(head), &now), tallyFacts(&follows, &other)); err != nil {
		return "", nil, false, err
	}
	since, _ := strconv.ParseInt(other, 10, 64)
	if follows && (other == "" || other != own && now.Sub(moment(since)) < tallyAbandoned) {
		return "", nil, false, nil
	}
	removed := 0
	err = tx.Run(ctx, Statement{
		SQL:  "DELETE FROM failure WHERE (kind, what, since, id) IN (SELECT f.kind, f.what, f.since, f.id FROM failure f LIMIT $1) RETURNING what",
		Args: []any{int64(tallyClear)},
		Scan: sqldb.Count(&removed),
	})
	if err != nil || removed == tallyClear {
		return "", nil, true, err
	}
	begun = strconv.FormatInt(micros(now), 10)
	return begun, []Statement{
		{SQL: "DELETE FROM tally"},
		{SQL: "DELETE FROM state WHERE name = '" + stateTally + "'"},
		{SQL: "INSERT INTO state (name, value) VALUES ('" + stateTally + "', $1)", Args: []any{begun}},
		{SQL: "UPDATE head SET tallied = position WHERE one = 1"},
	}, false, nil
}

// sumTally returns what is missing in the numbers: those of the entities in a snapshot, less what
// commits have added until then. It also writes the failures of the entities that fail in the
// snapshot; those of others are added by commits. follows is false if the numbers don't follow
// the log any more.
func (s *Store) sumTally(ctx context.Context, begun string) (sum *tallying, follows bool, err error) {
	err = s.retry(ctx, func() error {
		tx, err := s.db.Begin(ctx, List)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		sum = newTallying()
		var count string
		if err := tx.Run(ctx, tallyFacts(&follows, &count)); err != nil {
			return err
		}
		follows = follows && count == begun
		if !follows {
			return nil
		}
		added := Statement{SQL: "SELECT class, n FROM tally", Scan: func(from Row) error {
			var class string
			var n int64
			err := from.Scan(&class, &n)
			sum.classes[class] -= n
			return err
		}}
		if err := tx.Run(ctx, added); err != nil {
			return err
		}
		for _, kind := range []tko.Kind{tko.KindSite, tko.KindDeployment} {
			if err := s.sumKind(ctx, tx, kind, sum); err != nil {
				return err
			}
		}
		return nil
	})
	return sum, follows, fault("count entities", err)
}

// sumKind adds the entities of a kind.
func (s *Store) sumKind(ctx context.Context, tx Tx, kind tko.Kind, sum *tallying) error {
	after := ""
	for {
		read := 0
		var failing []record.Key
		var id, site, conditions text
		r := row{Record: record.Record{Key: record.Key{Kind: kind}}}
		err := tx.Run(ctx, Statement{
			SQL:  "SELECT e.id, e.revision, e.site, e.prepared, e.approved, e.conditions FROM entity e WHERE e.kind = $1 AND e.id > $2 ORDER BY e.id LIMIT $3",
			Args: []any{string(kind), after, int64(tallyChunk)},
			Scan: func(from Row) error {
				read++
				if err := from.Scan(&id, &r.Revision, &site, &r.Prepared, &r.Approved, &conditions); err != nil {
					return err
				}
				r.ID, r.Site = string(id), string(site)
				if err := r.readConditions(string(conditions)); err != nil {
					return err
				}
				sum.add(&r.Record, 1)
				if len(sum.failures) > 0 {
					failing = append(failing, record.Key{Kind: kind, ID: strings.Clone(r.ID)})
					clear(sum.failures)
				}
				return nil
			},
		})
		if err == nil {
			err = s.writeFailures(ctx, failing)
		}
		if err != nil || read < tallyChunk {
			return err
		}
		after = r.ID
	}
}

// writeFailures writes the failures that entities have now: those of a snapshot may have ended.
func (s *Store) writeFailures(ctx context.Context, failing []record.Key) error {
	for batch := range slices.Chunk(failing, tallyBatch) {
		err := s.write(ctx, func(tx Tx) ([]Statement, error) {
			now := newTallying()
			read := Statement{SQL: "SELECT r.k, r.i, e.conditions FROM {rows} CROSS JOIN entity e WHERE e.kind = r.k AND e.id = r.i", Columns: keyColumns}
			for _, key := range batch {
				read.Rows = append(read.Rows, []any{string(key.Kind), key.ID})
			}
			read.Scan = func(from Row) error {
				var r row
				var kind string
				var conditions text
				if err := from.Scan(&kind, &r.ID, &conditions); err != nil {
					return err
				}
				r.Kind = tko.Kind(kind)
				err := r.readConditions(string(conditions))
				now.addFailures(&r.Record, 1)
				return err
			}
			err := tx.Run(ctx, s.lockHead(new(head), new(time.Time)), read)
			return now.failureStatements(), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// endTally adds what is missing in the numbers, if they follow the log since the count has begun.
func (s *Store) endTally(ctx context.Context, begun string, sum *tallying) error {
	return fault("end the count of entities", s.write(ctx, func(tx Tx) ([]Statement, error) {
		var follows bool
		var count string
		if err := tx.Run(ctx, s.lockHead(new(head), new(time.Time)), tallyFacts(&follows, &count)); err != nil {
			return nil, err
		}
		if !follows || count != begun {
			return nil, nil
		}
		return append(sum.statements(), Statement{SQL: "DELETE FROM state WHERE name = '" + stateTally + "'"}), nil
	}))
}
