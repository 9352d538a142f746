package retention

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

const (
	// Lease is the duration of a collector's lease. If the collector dies, it
	// blocks other collectors for this time.
	Lease = time.Minute
	// collectBatch is the maximum number of changes, packages or tokens in one
	// transaction, and surveyBatch of changes in one query.
	collectBatch = 500
	surveyBatch  = 5000
	// collectPause is the length of the pause after a transaction, relative to the
	// transaction's.
	collectPause = 3
	// releaseTimeout limits how long releasing the lease may take.
	releaseTimeout = 5 * time.Second
)

// errElsewhere is returned if another store holds the lease.
var errElsewhere = errors.New("another store is collecting")

// A collection is one call of Collect.
type collection struct {
	store  Store
	id     string // the holder of the lease
	cutoff int64  // changes since this time are retained
	keep   record.Retention
	done   record.Collected

	position  int64  // of the newest change that was examined
	revisions int64  // number of revisions that were retained then
	loose     int64  // changes removed since packages were collected
	longer    string // the ID up to which deployments with policies were examined
}

// expiredTokenRetention is the retention time of an expired token: meanwhile its use
// is reported as expired and not as unknown.
const expiredTokenRetention = time.Hour

// A Store is what a collection uses of a store.
type Store struct {
	Records

	Dialect *sqldb.Dialect
	Run     sqldb.Runner
	// Write runs a transaction that writes. fn returns the statements that end it, and may
	// run more than once.
	Write func(ctx context.Context, fn func(tx sqldb.Tx) ([]sqldb.Statement, error)) error
	// LockHead returns the statement that makes commits wait for the end of a transaction.
	LockHead func() sqldb.Statement
}

// Records are the records of a store.
type Records interface {
	Head(ctx context.Context) (int64, error)
	Get(ctx context.Context, fields record.Fields, keys ...record.Key) ([]record.Record, error)
	Revisions(ctx context.Context, fields record.Fields, wanted ...record.AtRevision) ([]record.Record, error)
}

// Collect removes the changes, contents and tokens that need not be retained.
func Collect(ctx context.Context, s Store, keep record.Retention) (record.Collected, error) {
	c := &collection{store: s, id: rand.Text(), keep: keep}
	err := c.run(ctx)
	if !errors.Is(err, errElsewhere) { // release the lease even after an error
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		err = errors.Join(err, s.Write(ctx, func(sqldb.Tx) ([]sqldb.Statement, error) {
			return []sqldb.Statement{{SQL: "UPDATE collector SET until = 0 WHERE one = 1 AND holder = $1", Args: []any{c.id}}}, nil
		}))
		cancel()
	}
	if errors.Is(err, errElsewhere) {
		c.done.Elsewhere, err = true, nil
	}
	return c.done, err
}

func (c *collection) run(ctx context.Context) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	for _, part := range []func(context.Context) (more bool, err error){c.tokens, c.reach, c.changes, c.longerRetained} {
		for more := true; more; {
			began := time.Now()
			var err error
			if more, err = part(ctx); err != nil {
				return err
			}
			if more {
				if err := pause.For(ctx, collectPause*time.Since(began)); err != nil {
					return err
				}
			}
		}
	}
	if c.loose > 0 {
		return c.dropUnusedContents(ctx)
	}
	return nil
}

// acquireLease takes or extends the lease, unless another store holds it.
func (c *collection) acquireLease(held *bool) sqldb.Statement {
	return sqldb.Statement{
		SQL: "UPDATE collector SET holder = $1, until = {now} + $2 WHERE one = 1 AND (holder = $1 OR until < {now}) " +
			"RETURNING position, revisions, loose",
		Args: []any{c.id, Lease.Microseconds()},
		Scan: func(from sqldb.Row) error {
			*held = true
			return from.Scan(&c.position, &c.revisions, &c.loose)
		},
	}
}

// commit runs a transaction while this collection holds the lease. The context doesn't
// interrupt it: a database might continue it after the lease was released.
func (c *collection) commit(ctx context.Context, fn func(tx sqldb.Tx) ([]sqldb.Statement, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Lease)
	defer cancel()
	return c.store.Write(ctx, func(tx sqldb.Tx) ([]sqldb.Statement, error) {
		held := false
		if err := tx.Run(ctx, c.acquireLease(&held)); err != nil {
			return nil, err
		}
		if !held {
			return nil, errElsewhere
		}
		return fn(tx)
	})
}

// extend extends the lease if a quarter of it has passed.
func (c *collection) extend(ctx context.Context, since *time.Time) error {
	if time.Since(*since) < Lease/4 {
		return nil
	}
	*since = time.Now()
	return c.commit(ctx, func(sqldb.Tx) ([]sqldb.Statement, error) { return nil, nil })
}

// begin takes the lease. If fewer revisions are retained than before, all changes are
// examined again.
func (c *collection) begin(ctx context.Context) error {
	wanted := int64(c.keep.Revisions)
	return c.commit(ctx, func(tx sqldb.Tx) ([]sqldb.Statement, error) {
		if err := tx.Run(ctx, sqldb.Statement{
			SQL:  "SELECT {now} - $1 FROM head WHERE one = 1",
			Args: []any{c.keep.Changes.Microseconds()},
			Scan: func(from sqldb.Row) error { return from.Scan(&c.cutoff) },
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
		return []sqldb.Statement{{
			SQL:  "UPDATE collector SET position = $1, revisions = $2 WHERE one = 1",
			Args: []any{c.position, c.revisions},
		}}, nil
	})
}

// tokens removes tokens that expired long ago.
func (c *collection) tokens(ctx context.Context) (more bool, err error) {
	removed := 0
	err = c.commit(ctx, func(sqldb.Tx) ([]sqldb.Statement, error) {
		removed = 0
		return []sqldb.Statement{{
			SQL:  "DELETE FROM modification WHERE token IN (SELECT m.token FROM modification m WHERE m.expires < (SELECT {now} - $1) LIMIT $2) RETURNING token",
			Args: []any{expiredTokenRetention.Microseconds(), int64(collectBatch)},
			Scan: sqldb.Count(&removed),
		}}, nil
	})
	if err == nil {
		c.done.Tokens += removed
	}
	return removed == collectBatch, err
}

// reach removes the counts of causes that have not changed for long.
func (c *collection) reach(ctx context.Context) (more bool, err error) {
	counts, parts, sites := 0, 0, 0
	err = c.commit(ctx, func(sqldb.Tx) ([]sqldb.Statement, error) {
		counts, parts, sites = 0, 0, 0
		args := []any{record.ReachRetention.Microseconds(), int64(collectBatch)}
		return []sqldb.Statement{
			{
				SQL:  "DELETE FROM reach WHERE (cause, what) IN (SELECT x.cause, x.what FROM reach x WHERE x.updated < (SELECT {now} - $1) LIMIT $2) RETURNING what",
				Args: args, Scan: sqldb.Count(&counts),
			},
			{
				SQL:  "DELETE FROM reach_part WHERE (cause, what, part) IN (SELECT x.cause, x.what, x.part FROM reach_part x WHERE x.updated < (SELECT {now} - $1) LIMIT $2) RETURNING what",
				Args: args, Scan: sqldb.Count(&parts),
			},
			{
				SQL:  "DELETE FROM reach_site WHERE (cause, site) IN (SELECT x.cause, x.site FROM reach_site x WHERE x.updated < (SELECT {now} - $1) LIMIT $2) RETURNING site",
				Args: args, Scan: sqldb.Count(&sites),
			},
		}, nil
	})
	return slices.Contains([]int{counts, parts, sites}, collectBatch), err
}

// A pastChange is a change that is old enough to be removed, with the state of its
// record.
type pastChange struct {
	position int64
	key      record.Key
	op       tko.Op
	revision int64
	at       int64 // when it was made
	current  int64 // revision of the record; 0 if it was deleted
}

// changes examines the next changes that are old enough. It removes entries of the
// log that are not revisions. It removes a revision when enough newer ones exist and
// one of them was examined, or with the record's deletion. So each change is examined
// once, the revisions that it makes superfluous are removed with it, and the state as
// of any position that was not examined can be read.
func (c *collection) changes(ctx context.Context) (more bool, err error) {
	if c.keep.Changes <= 0 {
		return false, nil
	}
	past, err := c.nextChanges(ctx)
	if err != nil || len(past) == 0 {
		return false, err
	}
	last, lastAt := past[len(past)-1].position, past[len(past)-1].at
	policies, err := c.policiesOf(ctx, past)
	if err != nil {
		return false, err
	}
	var entries []int64
	var longer [][]any
	limits := map[record.Key]int64{}
	for _, p := range past {
		policy := policies[p.key]
		if p.op == tko.OpStatus || p.op == tko.OpDeleted && policy == "" {
			entries = append(entries, p.position)
		}
		switch {
		case policy != "":
			longer = append(longer, []any{p.key.ID, policy})
		default:
			if limit := decide.Superseded(p.op, p.revision, p.current, c.keep.Revisions); limit > 0 {
				limits[p.key] = max(limits[p.key], limit)
			}
		}
	}
	var rows [][]any
	for key, limit := range limits {
		rows = append(rows, []any{string(key.Kind), key.ID, limit})
	}
	slices.SortFunc(rows, func(a, b []any) int { return strings.Compare(a[1].(string), b[1].(string)) }) //nolint:forcetypeassert,errcheck // put there above
	removed := 0
	err = c.commit(ctx, func(tx sqldb.Tx) ([]sqldb.Statement, error) {
		removed = 0
		count := sqldb.Count(&removed)
		if err := tx.Run(
			ctx,
			sqldb.Statement{
				SQL:  "DELETE FROM change WHERE " + c.store.Dialect.In("position", "$1") + " RETURNING position",
				Args: []any{c.store.Dialect.Ints(entries)}, Scan: count,
			},
			removeRevisions(last, rows, count),
			sqldb.Statement{
				SQL:     "INSERT INTO longer (id, policy, changes) SELECT DISTINCT r.i, r.p, 0 FROM {rows} WHERE true ON CONFLICT (id) DO UPDATE SET policy = excluded.policy",
				Columns: []sqldb.Column{sqldb.Text.As("i"), sqldb.Text.As("p")}, Rows: longer,
			},
		); err != nil {
			return nil, err
		}
		return []sqldb.Statement{
			{SQL: "UPDATE collector SET position = $1, loose = loose + $2 WHERE one = 1", Args: []any{last, int64(removed)}},
			{SQL: "UPDATE collector SET past = $1, past_at = $2 WHERE one = 1 AND past < $1", Args: []any{last, lastAt}},
			// Last, because it makes commits wait.
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

// unpinned is the condition that no rollout needs the revision c: to apply it, or to undo
// it.
const unpinned = "NOT EXISTS (SELECT 1 FROM rollout_row p WHERE c.kind = 'deployment' AND p.deployment = c.id AND (p.revision = c.revision OR p.target = c.revision)) " +
	"AND NOT EXISTS (SELECT 1 FROM rollout_pin p WHERE p.kind = c.kind AND p.id = c.id AND p.revision = c.revision)"

// removeRevisions returns the statement that removes revisions up to a position, unless a
// modification or a rollout needs them. The columns of rows are the kind, the ID and the
// newest revision to remove.
func removeRevisions(position int64, rows [][]any, scan func(sqldb.Row) error) sqldb.Statement {
	return sqldb.Statement{
		SQL: "DELETE FROM change WHERE position IN (SELECT c.position FROM {rows} CROSS JOIN change c WHERE c.kind = r.k AND c.id = r.i " +
			"AND c.op = 'written' AND c.revision <= r.v AND c.position <= $1 AND NOT EXISTS (SELECT 1 FROM modification m " +
			"WHERE c.kind = 'deployment' AND m.deployment = c.id AND m.revision = c.revision) AND " + unpinned + ") RETURNING position",
		Args:    []any{position},
		Columns: []sqldb.Column{sqldb.Text.As("k"), sqldb.Text.As("i"), sqldb.Int.As("v")}, Rows: rows, Scan: scan,
	}
}

// nextChanges reads the next changes that are old enough.
func (c *collection) nextChanges(ctx context.Context) ([]pastChange, error) {
	var list []pastChange
	young := false
	err := c.store.Run(ctx, sqldb.Statement{
		SQL: "SELECT c.position, c.updated, c.kind, c.id, c.op, c.revision, e.revision FROM (SELECT position, updated, kind, id, op, revision FROM change " +
			"WHERE position > $1 ORDER BY position LIMIT $2) AS c " +
			"LEFT JOIN entity e ON e.kind = c.kind AND e.id = c.id ORDER BY c.position",
		Args: []any{c.position, int64(collectBatch)},
		Scan: func(from sqldb.Row) error {
			var p pastChange
			var kind, op string
			var current *int64
			err := from.Scan(&p.position, &p.at, &kind, &p.key.ID, &op, &p.revision, &current)
			young = young || p.at > c.cutoff
			if young {
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

// A survey holds the content that the changes up to a position need: packages by the
// first 8 bytes of their digests, and metadata by numbers.
type survey struct {
	position int64
	packages map[uint64]struct{}
	metadata map[int64]struct{}
}

func digestPrefix(digest []byte) uint64 {
	if len(digest) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(digest)
}

// next returns the statement that reads the needs of further changes. The newest
// revision of every record is among the changes, so no other table is read.
func (v *survey) next(limit int, read *int) sqldb.Statement {
	return sqldb.Statement{
		SQL:  "SELECT c.position, c.digest, c.metaset, c.derivation, c.owner FROM change c WHERE c.position > $1 ORDER BY c.position LIMIT $2",
		Args: []any{v.position, int64(limit)},
		Scan: func(from sqldb.Row) error {
			var digest, derivation, owner []byte
			var metaset int64
			*read++
			err := from.Scan(&v.position, &digest, &metaset, &derivation, &owner)
			for _, d := range [][]byte{digest, derivation, owner} {
				if d != nil {
					v.packages[digestPrefix(d)] = struct{}{}
				}
			}
			v.metadata[metaset] = struct{}{}
			return err
		},
	}
}

// scan surveys up to the change that is newest when it begins.
func (v *survey) scan(ctx context.Context, c *collection) error {
	newest, err := c.store.Head(ctx)
	if err != nil {
		return err
	}
	for held := time.Now(); v.position < newest; {
		read, began := 0, time.Now()
		if err := c.store.Run(ctx, v.next(surveyBatch, &read)); err != nil {
			return err
		}
		if read < surveyBatch {
			return nil
		}
		if err := c.extend(ctx, &held); err != nil {
			return err
		}
		if err := pause.For(ctx, collectPause*time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// dropUnusedContents removes the packages and metadata that no change needs.
func (c *collection) dropUnusedContents(ctx context.Context) error {
	loose := c.loose
	v := &survey{packages: map[uint64]struct{}{}, metadata: map[int64]struct{}{}}
	if err := v.scan(ctx, c); err != nil {
		return err
	}
	if err := inBatches(ctx, c, "SELECT b.digest FROM blob b WHERE b.digest > $1 ORDER BY b.digest LIMIT $2", []byte{}, func(batch [][]byte) error {
		return c.dropUnused(ctx, v, batch, nil)
	}); err != nil {
		return err
	}
	if err := inBatches(ctx, c, "SELECT m.id FROM metaset m WHERE m.id > $1 ORDER BY m.id LIMIT $2", math.MinInt64, func(batch []int64) error {
		return c.dropUnused(ctx, v, nil, batch)
	}); err != nil {
		return err
	}
	if err := c.dropUnusedPairs(ctx); err != nil {
		return err
	}
	return c.commit(ctx, func(sqldb.Tx) ([]sqldb.Statement, error) {
		return []sqldb.Statement{{SQL: "UPDATE collector SET loose = loose - $1 WHERE one = 1", Args: []any{loose}}}, nil
	})
}

// inBatches calls drop with the values that a statement reads, after the last one of the
// batch before.
func inBatches[T any](ctx context.Context, c *collection, sql string, after T, drop func([]T) error) error {
	for {
		var batch []T
		read := sqldb.Statement{SQL: sql, Args: []any{after, int64(collectBatch)}, Scan: sqldb.Collect(&batch)}
		if err := c.store.Run(ctx, read); err != nil {
			return err
		}
		if len(batch) > 0 {
			after = batch[len(batch)-1]
			if err := drop(batch); err != nil {
				return err
			}
		}
		if len(batch) < collectBatch {
			return nil
		}
	}
}

// dropUnused removes those of packages and metadata that no change needs. While it
// holds the lock of the head, no commit can begin to need them: it surveys the
// changes committed since the survey, and increments the generation, by which later
// commits notice that their stored content may have been collected.
func (c *collection) dropUnused(ctx context.Context, v *survey, packages [][]byte, metadata []int64) error {
	unneeded := func() (digests [][]any, numbers []int64) {
		for _, d := range packages {
			if _, ok := v.packages[digestPrefix(d)]; !ok {
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
	if err := v.scan(ctx, c); err != nil { // so that few changes are scanned under the lock
		return err
	}
	began := time.Now()
	var digests [][]any
	var numbers []int64
	err := c.commit(ctx, func(tx sqldb.Tx) ([]sqldb.Statement, error) {
		read := 0
		if err := tx.Run(ctx, c.store.LockHead(), v.next(math.MaxInt32, &read)); err != nil {
			return nil, err
		}
		digests, numbers = unneeded()
		if len(digests)+len(numbers) == 0 {
			return nil, nil
		}
		return []sqldb.Statement{
			sqldb.Delete("blob", sqldb.Bytes.As("digest")).With(digests),
			{SQL: "DELETE FROM metaset_pair WHERE " + c.store.Dialect.In("metaset", "$1"), Args: []any{c.store.Dialect.Ints(numbers)}},
			{SQL: "DELETE FROM metaset WHERE " + c.store.Dialect.In("id", "$1"), Args: []any{c.store.Dialect.Ints(numbers)}},
			{SQL: "UPDATE head SET collected = collected + 1 WHERE one = 1"},
		}, nil
	})
	if err != nil {
		return err
	}
	c.done.Packages += len(digests)
	c.done.Metadata += len(numbers)
	return pause.For(ctx, collectPause*time.Since(began))
}

// pairInUse is the condition that a record has an entry of the metadata index. With OFFSET, the
// planner probes for each entry; without it, it reads all records of all entries, and hashes them.
const pairInUse = "(EXISTS (SELECT 1 FROM entity_pair e WHERE e.pair = pair.id LIMIT 1 OFFSET 0) OR EXISTS (SELECT 1 FROM metaset_pair m WHERE m.pair = pair.id LIMIT 1 OFFSET 0))"

// dropUnusedPairs removes the entries of the metadata index that no record has.
func (c *collection) dropUnusedPairs(ctx context.Context) error {
	held := time.Now()
	for id := int64(math.MinInt64); ; {
		read, began := 0, time.Now()
		var loose []int64
		if err := c.store.Run(ctx, sqldb.Statement{
			SQL:  "SELECT pair.id, CASE WHEN " + pairInUse + " THEN 1 ELSE 0 END FROM pair WHERE pair.id > $1 ORDER BY pair.id LIMIT $2",
			Args: []any{id, int64(surveyBatch)},
			Scan: func(from sqldb.Row) error {
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
		if err := pause.For(ctx, collectPause*time.Since(began)); err != nil {
			return err
		}
	}
}

// dropPairs removes those entries that still no record has. As in dropUnused, the lock
// of the head prevents commits from using them, and later commits detect the new generation.
func (c *collection) dropPairs(ctx context.Context, ids []int64) error {
	began := time.Now()
	removed := 0
	err := c.commit(ctx, func(tx sqldb.Tx) ([]sqldb.Statement, error) {
		removed = 0
		if err := tx.Run(ctx, c.store.LockHead(), sqldb.Statement{
			SQL:  "DELETE FROM pair WHERE " + c.store.Dialect.In("pair.id", "$1") + " AND NOT " + pairInUse + " RETURNING id",
			Args: []any{c.store.Dialect.Ints(ids)},
			Scan: sqldb.Count(&removed),
		}); err != nil || removed == 0 {
			return nil, err
		}
		return []sqldb.Statement{{SQL: "UPDATE head SET collected = collected + 1 WHERE one = 1"}}, nil
	})
	if err != nil {
		return err
	}
	c.done.Pairs += removed
	return pause.For(ctx, collectPause*time.Since(began))
}
