package relational

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

const (
	// collectLease is how long a collector that died keeps others from it.
	collectLease = time.Minute
	// collectBatch is how many changes, packages, or tokens one transaction
	// looks at, and surveyBatch how many changes one query.
	collectBatch = 500
	surveyBatch  = 5000
	// collectPause is how much longer than a transaction the pause after it is.
	collectPause = 3
	// goodbye is how long giving the lease back may take.
	goodbye = 5 * time.Second
)

// errElsewhere says that another store collects.
var errElsewhere = errors.New("another store is collecting")

// A collection is one call of Collect.
type collection struct {
	store  *Store
	id     string // who collects
	cutoff int64  // changes since then stay
	keep   catalog.Retention
	done   catalog.Collected

	position  int64 // of the newest change that was looked at
	revisions int64 // how many were kept when it was
	loose     int64 // changes removed since packages were collected
}

// Collect removes what need not be kept.
func (s *Store) Collect(ctx context.Context, keep catalog.Retention) (catalog.Collected, error) {
	c := &collection{store: s, id: rand.Text(), keep: keep}
	err := c.run(ctx)
	if !errors.Is(err, errElsewhere) { // let go of it, whatever happened
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		err = errors.Join(err, s.write(ctx, func(Tx) ([]Statement, error) {
			return []Statement{{SQL: "UPDATE collector SET until = 0 WHERE one = 1 AND holder = $1", Args: []any{c.id}}}, nil
		}))
		cancel()
	}
	if errors.Is(err, errElsewhere) {
		c.done.Elsewhere, err = true, nil
	}
	return c.done, fault("collect what need not be kept", err)
}

func (c *collection) run(ctx context.Context) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	for _, part := range []func(context.Context) (more bool, err error){c.tokens, c.changes} {
		for more := true; more; {
			began := time.Now()
			var err error
			if more, err = part(ctx); err != nil {
				return err
			}
			if more {
				if err := pause(ctx, collectPause*time.Since(began)); err != nil {
					return err
				}
			}
		}
	}
	if c.loose > 0 {
		return c.contents(ctx)
	}
	return nil
}

// pause waits, and fails if the context ends.
func pause(ctx context.Context, d time.Duration) error {
	if !sleep(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// hold takes or extends the lease, which may be another's by now.
func (c *collection) hold(held *bool) Statement {
	return Statement{
		SQL: "UPDATE collector SET holder = $1, until = {now} + $2 WHERE one = 1 AND (holder = $1 OR until < {now}) " +
			"RETURNING position, revisions, loose",
		Args: []any{c.id, collectLease.Microseconds()},
		Scan: func(from Row) error {
			*held = true
			return from.Scan(&c.position, &c.revisions, &c.loose)
		},
	}
}

// commit runs a transaction of the one that collects. It isn't cut off half
// way: a database might go on with it after the lease was given back.
func (c *collection) commit(ctx context.Context, fn func(tx Tx) ([]Statement, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), collectLease)
	defer cancel()
	return c.store.write(ctx, func(tx Tx) ([]Statement, error) {
		held := false
		if err := tx.Run(ctx, c.hold(&held)); err != nil {
			return nil, err
		}
		if !held {
			return nil, errElsewhere
		}
		return fn(tx)
	})
}

// extend extends the lease if that was long ago.
func (c *collection) extend(ctx context.Context, since *time.Time) error {
	if time.Since(*since) < collectLease/4 {
		return nil
	}
	*since = time.Now()
	return c.commit(ctx, func(Tx) ([]Statement, error) { return nil, nil })
}

// begin takes the lease. If fewer revisions are kept than before, all changes
// are looked at again.
func (c *collection) begin(ctx context.Context) error {
	wanted := int64(c.keep.Revisions)
	return c.commit(ctx, func(tx Tx) ([]Statement, error) {
		if err := tx.Run(ctx, Statement{
			SQL:  "SELECT {now} - $1 FROM head WHERE one = 1",
			Args: []any{c.keep.Changes.Microseconds()},
			Scan: func(from Row) error { return from.Scan(&c.cutoff) },
		}); err != nil {
			return nil, err
		}
		if c.keep.Changes <= 0 || wanted == c.revisions {
			return nil, nil
		}
		if wanted != 0 && (c.revisions == 0 || wanted < c.revisions) {
			c.position = 0
		}
		c.revisions = wanted
		return []Statement{{
			SQL:  "UPDATE collector SET position = $1, revisions = $2 WHERE one = 1",
			Args: []any{c.position, c.revisions},
		}}, nil
	})
}

// tokens removes tokens whose time has run out long ago.
func (c *collection) tokens(ctx context.Context) (more bool, err error) {
	removed := 0
	err = c.commit(ctx, func(Tx) ([]Statement, error) {
		removed = 0
		return []Statement{{
			SQL:  "DELETE FROM modification WHERE token IN (SELECT m.token FROM modification m WHERE m.expires < {now} - $1 LIMIT $2) RETURNING token",
			Args: []any{remembered.Microseconds(), int64(collectBatch)},
			Scan: func(from Row) error {
				var token string
				removed++
				return from.Scan(&token)
			},
		}}, nil
	})
	if err == nil {
		c.done.Tokens += removed
	}
	return removed == collectBatch, err
}

// A pastChange is a change that is old enough to go, and what became of its
// record.
type pastChange struct {
	position int64
	key      catalog.Key
	op       tko.Op
	current  int64 // revision; 0: it is gone
}

// changes looks at the next changes that are old enough. Entries of the log
// that are no revision go. A revision of a record goes when enough newer ones
// are there; of one that is gone, with its deletion. So each change is looked at
// once, and what it made superfluous goes with it.
func (c *collection) changes(ctx context.Context) (more bool, err error) {
	if c.keep.Changes <= 0 {
		return false, nil
	}
	past, err := c.past(ctx)
	if err != nil || len(past) == 0 {
		return false, err
	}
	last := past[len(past)-1].position
	var entries []int64
	limits := map[catalog.Key]int64{}
	for _, p := range past {
		if p.op != tko.OpWritten {
			entries = append(entries, p.position)
		}
		switch {
		case p.current == 0 && p.op == tko.OpDeleted:
			limits[p.key] = math.MaxInt64
		case c.keep.Revisions > 0 && p.current > int64(c.keep.Revisions):
			limits[p.key] = p.current - int64(c.keep.Revisions)
		}
	}
	var rows [][]any
	for key, limit := range limits {
		rows = append(rows, []any{string(key.Kind), key.ID, limit})
	}
	slices.SortFunc(rows, func(a, b []any) int { return compareText(a[1].(string), b[1].(string)) }) //nolint:forcetypeassert,errcheck // put there above
	removed := 0
	err = c.commit(ctx, func(tx Tx) ([]Statement, error) {
		removed = 0
		count := func(from Row) error {
			var position int64
			removed++
			return from.Scan(&position)
		}
		if err := tx.Run(
			ctx,
			Statement{
				SQL:  "DELETE FROM change WHERE " + c.store.dialect.In("position", "$1") + " RETURNING position",
				Args: []any{c.store.dialect.Ints(entries)}, Scan: count,
			},
			Statement{
				SQL: "DELETE FROM change WHERE position IN (SELECT c.position FROM {rows} CROSS JOIN change c WHERE c.kind = r.k AND c.id = r.i " +
					"AND c.op = 'written' AND c.revision <= r.v AND c.position <= $1 AND NOT EXISTS (SELECT 1 FROM modification m " +
					"WHERE c.kind = 'deployment' AND m.deployment = c.id AND m.revision = c.revision)) RETURNING position",
				Args:    []any{last},
				Columns: []Column{{"k", Text}, {"i", Text}, {"v", Int}}, Rows: rows, Scan: count,
			},
		); err != nil {
			return nil, err
		}
		return []Statement{
			{SQL: "UPDATE collector SET position = $1, loose = loose + $2 WHERE one = 1", Args: []any{last, int64(removed)}},
			// Last, because that makes those who commit wait.
			{SQL: "UPDATE head SET gone = $1 WHERE one = 1 AND gone < $1", Args: []any{last}},
		}, nil
	})
	if err != nil {
		return false, err
	}
	c.position, c.loose = last, c.loose+int64(removed)
	c.done.Changes += removed
	return len(past) == collectBatch, nil
}

// past reads the next changes that are old enough.
func (c *collection) past(ctx context.Context) ([]pastChange, error) {
	var list []pastChange
	young := false
	err := c.store.run(ctx, Statement{
		SQL: "SELECT c.position, c.updated, c.kind, c.id, c.op, e.revision FROM (SELECT position, updated, kind, id, op FROM change " +
			"WHERE position > $1 ORDER BY position LIMIT $2) AS c " +
			"LEFT JOIN entity e ON e.kind = c.kind AND e.id = c.id ORDER BY c.position",
		Args: []any{c.position, int64(collectBatch)},
		Scan: func(from Row) error {
			var p pastChange
			var kind, op string
			var at int64
			var current *int64
			err := from.Scan(&p.position, &at, &kind, &p.key.ID, &op, &current)
			if young = young || at > c.cutoff; young {
				return err
			}
			p.key.Kind, p.op = tko.Kind(kind), tko.Op(op)
			if current != nil {
				p.current = *current
			}
			list = append(list, p)
			return err
		},
	})
	return list, err
}

// A survey is what the changes up to a position need: packages by the
// beginnings of their digests, and metadata by numbers.
type survey struct {
	position int64
	packages map[uint64]struct{}
	metadata map[int64]struct{}
}

func beginningOf(digest []byte) uint64 {
	if len(digest) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(digest)
}

// next reads what further changes need. Every record has its newest revision
// among them, so that nothing else needs to be looked at.
func (v *survey) next(limit int, read *int) Statement {
	return Statement{
		SQL:  "SELECT c.position, c.digest, c.metaset FROM change c WHERE c.position > $1 ORDER BY c.position LIMIT $2",
		Args: []any{v.position, int64(limit)},
		Scan: func(from Row) error {
			var digest []byte
			var metaset int64
			*read++
			err := from.Scan(&v.position, &digest, &metaset)
			if digest != nil {
				v.packages[beginningOf(digest)] = struct{}{}
			}
			v.metadata[metaset] = struct{}{}
			return err
		},
	}
}

// look surveys up to what is the newest change when it begins.
func (v *survey) look(ctx context.Context, c *collection) error {
	newest, err := c.store.Head(ctx)
	if err != nil {
		return err
	}
	for held := time.Now(); v.position < newest; {
		read, began := 0, time.Now()
		if err := c.store.run(ctx, v.next(surveyBatch, &read)); err != nil {
			return err
		}
		if read < surveyBatch {
			return nil
		}
		if err := c.extend(ctx, &held); err != nil {
			return err
		}
		if err := pause(ctx, collectPause*time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// contents removes the packages and metadata that no change needs.
func (c *collection) contents(ctx context.Context) error {
	loose := c.loose
	v := &survey{packages: map[uint64]struct{}{}, metadata: map[int64]struct{}{}}
	if err := v.look(ctx, c); err != nil {
		return err
	}
	for digest := []byte{}; ; {
		var batch [][]byte
		if err := c.store.run(ctx, Statement{
			SQL:  "SELECT b.digest FROM blob b WHERE b.digest > $1 ORDER BY b.digest LIMIT $2",
			Args: []any{digest, int64(collectBatch)},
			Scan: func(from Row) error {
				var d []byte
				err := from.Scan(&d)
				batch = append(batch, d)
				return err
			},
		}); err != nil {
			return err
		}
		if len(batch) > 0 {
			digest = batch[len(batch)-1]
			if err := c.drop(ctx, v, batch, nil); err != nil {
				return err
			}
		}
		if len(batch) < collectBatch {
			break
		}
	}
	for id := int64(math.MinInt64); ; {
		var batch []int64
		if err := c.store.run(ctx, Statement{
			SQL:  "SELECT m.id FROM metaset m WHERE m.id > $1 ORDER BY m.id LIMIT $2",
			Args: []any{id, int64(collectBatch)},
			Scan: func(from Row) error {
				err := from.Scan(&id)
				batch = append(batch, id)
				return err
			},
		}); err != nil {
			return err
		}
		if err := c.drop(ctx, v, nil, batch); err != nil {
			return err
		}
		if len(batch) < collectBatch {
			break
		}
	}
	if err := c.pairs(ctx); err != nil {
		return err
	}
	return c.commit(ctx, func(Tx) ([]Statement, error) {
		return []Statement{{SQL: "UPDATE collector SET loose = loose - $1 WHERE one = 1", Args: []any{loose}}}, nil
	})
}

// drop removes those packages and metadata that no change needs. With the head
// locked nobody can begin to need them: what was committed since the survey is
// looked at, and whoever comes next finds that packages were collected, and
// forgets which ones it knew to be there.
func (c *collection) drop(ctx context.Context, v *survey, packages [][]byte, metadata []int64) error {
	unneeded := func() (digests [][]any, numbers []int64) {
		for _, d := range packages {
			if _, ok := v.packages[beginningOf(d)]; !ok {
				digests = append(digests, []any{d})
			}
		}
		for _, id := range metadata {
			if _, ok := v.metadata[id]; !ok {
				numbers = append(numbers, id)
			}
		}
		return digests, numbers
	}
	if digests, numbers := unneeded(); len(digests)+len(numbers) == 0 {
		return nil
	}
	if err := v.look(ctx, c); err != nil { // so that little is left to look at
		return err
	}
	began := time.Now()
	var digests [][]any
	var numbers []int64
	err := c.commit(ctx, func(tx Tx) ([]Statement, error) {
		var h head
		var now time.Time
		read := 0
		if err := tx.Run(ctx, c.store.lockHead(&h, &now), v.next(math.MaxInt32, &read)); err != nil {
			return nil, err
		}
		if digests, numbers = unneeded(); len(digests)+len(numbers) == 0 {
			return nil, nil
		}
		return []Statement{
			{SQL: "DELETE FROM blob WHERE digest IN (SELECT r.d FROM {rows})", Columns: []Column{{"d", Bytes}}, Rows: digests},
			{SQL: "DELETE FROM metaset_pair WHERE " + c.store.dialect.In("metaset", "$1"), Args: []any{c.store.dialect.Ints(numbers)}},
			{SQL: "DELETE FROM metaset WHERE " + c.store.dialect.In("id", "$1"), Args: []any{c.store.dialect.Ints(numbers)}},
			{SQL: "UPDATE head SET collected = collected + 1 WHERE one = 1"},
		}, nil
	})
	if err != nil {
		return err
	}
	c.done.Packages += len(digests)
	c.done.Metadata += len(numbers)
	return pause(ctx, collectPause*time.Since(began))
}

// had says that a record has an entry of the metadata index.
const had = "(EXISTS (SELECT 1 FROM entity_pair e WHERE e.pair = pair.id) OR EXISTS (SELECT 1 FROM metaset_pair m WHERE m.pair = pair.id))"

// pairs removes the entries of the metadata index that no record has.
func (c *collection) pairs(ctx context.Context) error {
	held := time.Now()
	for id := int64(math.MinInt64); ; {
		read, began := 0, time.Now()
		var loose []int64
		if err := c.store.run(ctx, Statement{
			SQL:  "SELECT pair.id, CASE WHEN " + had + " THEN 1 ELSE 0 END FROM pair WHERE pair.id > $1 ORDER BY pair.id LIMIT $2",
			Args: []any{id, int64(surveyBatch)},
			Scan: func(from Row) error {
				var used int
				read++
				err := from.Scan(&id, &used)
				if used == 0 {
					loose = append(loose, id)
				}
				return err
			},
		}); err != nil {
			return err
		}
		for batch := range slices.Chunk(loose, collectBatch) {
			if err := c.dropPairs(ctx, batch); err != nil {
				return err
			}
		}
		if read < surveyBatch {
			return nil
		}
		if err := c.extend(ctx, &held); err != nil {
			return err
		}
		if err := pause(ctx, collectPause*time.Since(began)); err != nil {
			return err
		}
	}
}

// dropPairs removes those that still no record has. As with what drop removes,
// nobody can begin to have one with the head locked, and whoever comes next
// forgets which ones it knew.
func (c *collection) dropPairs(ctx context.Context, ids []int64) error {
	began := time.Now()
	removed := 0
	err := c.commit(ctx, func(tx Tx) ([]Statement, error) {
		var h head
		var now time.Time
		removed = 0
		if err := tx.Run(ctx, c.store.lockHead(&h, &now), Statement{
			SQL:  "DELETE FROM pair WHERE " + c.store.dialect.In("pair.id", "$1") + " AND NOT " + had + " RETURNING id",
			Args: []any{c.store.dialect.Ints(ids)},
			Scan: func(from Row) error {
				var id int64
				removed++
				return from.Scan(&id)
			},
		}); err != nil || removed == 0 {
			return nil, err
		}
		return []Statement{{SQL: "UPDATE head SET collected = collected + 1 WHERE one = 1"}}, nil
	})
	if err != nil {
		return err
	}
	c.done.Pairs += removed
	return pause(ctx, collectPause*time.Since(began))
}
