package spanner

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

const (
	// collectLease is the duration of a collector's lease.
	collectLease = time.Minute
	// collectBatch is the maximum number of changes, contents or counts that one transaction removes.
	collectBatch = 500
	// revisionBatch is the maximum number of revisions that one transaction removes.
	revisionBatch = 1000
	// collectPause is the length of the pause after a transaction, relative to the transaction's.
	collectPause = 3
	// releaseTimeout limits how long releasing the lease may take.
	releaseTimeout = 5 * time.Second
	// expiredTokenRetention is the retention time of an expired token: meanwhile its use is reported as expired and not as unknown.
	expiredTokenRetention = time.Hour
	// unusedPin is the age from which a pin without a rollout is removed: a plan is written before the state of its rollout.
	unusedPin = time.Hour
)

// errElsewhere is returned if another store collects.
var errElsewhere = errors.New("another store is collecting")

// A collection is one call of Collect.
//
// It examines changes in their order, once they are old enough. It removes them from the log, with the revisions that they make
// superfluous, so that the state as of any position that was not examined can be read. Content that the removed revisions
// had is loose: it is removed if no other revision has it.
type collection struct {
	store  *Store
	id     string // the holder of the lease
	keep   record.Retention
	now    time.Time
	cutoff time.Time // changes since this time are retained
	at     int64     // position up to which changes were examined
	first  bool      // no change was examined before
	done   record.Collected
}

// Collect removes the changes, contents and tokens that need not be retained.
func (s *Store) Collect(ctx context.Context, keep record.Retention) (record.Collected, error) {
	c := &collection{store: s, id: rand.Text(), keep: keep}
	held, err := s.lease(ctx, collectedState, c.id, collectLease)
	if err != nil || !held {
		return record.Collected{Elsewhere: err == nil}, err
	}
	err = c.run(ctx)
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if !errors.Is(err, errElsewhere) { // release the lease even after an error
		_, releaseErr := s.lease(release, collectedState, c.id, -time.Second)
		err = errors.Join(err, releaseErr)
	}
	if errors.Is(err, errElsewhere) {
		c.done.Elsewhere, err = true, nil
	}
	return c.done, err
}

func (c *collection) run(ctx context.Context) error {
	var err error
	if c.now, err = readNow(ctx, c.store.client.Single()); err != nil {
		return err
	}
	c.cutoff = c.now.Add(-c.keep.Changes)
	if c.at, err = readCollected(ctx, c.store.client.Single()); err != nil {
		return err
	}
	c.first = c.at == 0
	parts := []func(context.Context) (more bool, err error){c.tokens, c.reach}
	if c.keep.Changes > 0 {
		parts = append(parts, c.changes, c.fewer(), c.longer())
	}
	for _, part := range append(parts, c.contents) {
		for more := true; more; {
			began := time.Now()
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
	return nil
}

// commit runs a step while this collection holds the lease, which it extends.
func (c *collection) commit(ctx context.Context, doing string, fn step) error {
	return c.store.writeOnce(ctx, doing, func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		holder, _, err := readLease(ctx, tx, collectedState)
		if err != nil {
			return err
		}
		if holder != c.id {
			return errElsewhere
		}
		now, err := readNow(ctx, tx)
		if err != nil {
			return err
		}
		m.put("lease", []string{"name", "holder", "until"}, collectedState, c.id, now.Add(collectLease))
		return fn(ctx, tx, m)
	})
}

// tokens removes tokens that expired long ago.
func (c *collection) tokens(ctx context.Context) (more bool, err error) {
	statement := spanner.Statement{
		SQL:    "SELECT m.deployment, m.token, m.revision, m.since, m.expires, m.who, m.why FROM modification AS m WHERE m.expires < @old LIMIT @most",
		Params: map[string]any{"old": c.now.Add(-expiredTokenRetention), "most": int64(collectBatch)},
	}
	var old []issued
	err = c.store.client.Single().Query(ctx, statement).Do(func(row *spanner.Row) error {
		i, err := scanToken(row)
		old = append(old, i)
		return err
	})
	if err != nil || len(old) == 0 {
		return false, fault("read expired tokens", err)
	}
	err = c.commit(ctx, "remove expired tokens", func(_ context.Context, _ *spanner.ReadWriteTransaction, m *mutations) error {
		for _, i := range old {
			i.remove(m)
		}
		return nil
	})
	if err == nil {
		c.done.Tokens += len(old)
	}
	return len(old) == collectBatch, err
}

// reach removes the counts of causes that have not changed for long.
func (c *collection) reach(ctx context.Context) (more bool, err error) {
	for table, columns := range map[string]string{"reach": "r.shard, r.cause, r.what, 0", "reach_part": "r.shard, r.cause, r.what, r.part", "reach_site": "r.shard, r.cause, r.site, 0"} {
		removed := 0
		err := c.commit(ctx, "remove old counts of causes", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
			removed = 0
			statement := spanner.Statement{
				SQL:    "SELECT " + columns + " FROM " + table + " AS r WHERE r.updated < @old LIMIT @most",
				Params: map[string]any{"old": c.now.Add(-record.ReachRetention).UnixMicro(), "most": int64(collectBatch)},
			}
			return fault("read old counts of causes", tx.Query(ctx, statement).Do(func(row *spanner.Row) error {
				var shard, part int64
				var cause, of string
				if err := row.Columns(&shard, &cause, &of, &part); err != nil {
					return err
				}
				key := spanner.Key{shard, cause, of}
				if table == "reach_part" {
					key = append(key, part)
				}
				m.remove(table, key)
				removed++
				return nil
			}))
		})
		if err != nil {
			return false, err
		}
		more = more || removed == collectBatch
	}
	return more, nil
}

// A limit is the newest revision of a record to be removed.
type limit struct {
	Shard    int64
	Kind, ID string
	Revision int64
}

// readLog returns the next changes that are old enough.
func (c *collection) readLog(ctx context.Context, from reader) (changes []tko.Change, err error) {
	last := placeOf(c.at)
	statement := spanner.Statement{
		SQL: "SELECT " + changeColumns + " " + changesOf +
			"WHERE " + afterPlace + " AND IFNULL(c.happened, c.committed) <= @cutoff ORDER BY c.committed, c.shard, c.n LIMIT @most",
		Params: last.parameters(),
	}
	statement.Params["cutoff"], statement.Params["most"] = c.cutoff, int64(collectBatch)
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		change, err := scanChange(row)
		changes = append(changes, change)
		return err
	})
	return changes, fault("read old changes", err)
}

// changes examines the next changes that are old enough.
func (c *collection) changes(ctx context.Context) (more bool, err error) {
	snapshot := c.store.client.ReadOnlyTransaction()
	defer snapshot.Close()
	if c.at, err = readCollected(ctx, snapshot); err != nil {
		return false, err
	}
	past, err := c.readLog(ctx, snapshot)
	if err != nil || len(past) == 0 {
		return false, err
	}
	keys := make([]record.Key, len(past))
	for i, p := range past {
		keys[i] = record.Key{Kind: p.Kind, ID: p.ID}
	}
	current, err := readRecords(ctx, snapshot, keys)
	if err != nil {
		return false, err
	}
	limits, deployments := map[record.Key]int64{}, map[record.Key]int64{}
	entries := 0 // that aren't revisions
	for i, p := range past {
		if p.Op != tko.OpWritten {
			entries++
		}
		if n := decide.Superseded(p.Op, p.Revision, orNew(current[keys[i]]).Revision, c.keep.Revisions); n > 0 {
			limits[keys[i]] = max(limits[keys[i]], n)
			if p.Kind == tko.KindDeployment {
				deployments[keys[i]] = p.Revision
			}
		}
	}
	if err := c.exempt(ctx, snapshot, current, limits, deployments); err != nil {
		return false, err
	}
	last := past[len(past)-1].Position
	end := placeOf(last)
	// At first, the past ends; then the revisions go. What is interrupted is examined again.
	err = c.commit(ctx, "move the oldest position", func(_ context.Context, _ *spanner.ReadWriteTransaction, m *mutations) error {
		m.put("state", []string{"name", "committed", "slot", "n", "value"}, pastState, end.At, end.Slot, end.N, past[len(past)-1].Time.UnixMicro())
		return nil
	})
	if err == nil {
		err = c.removeRevisions(ctx, limitsOf(limits), last)
	}
	if err != nil {
		return false, err
	}
	err = c.commit(ctx, "remove old changes", func(_ context.Context, _ *spanner.ReadWriteTransaction, m *mutations) error {
		for _, p := range past {
			at := placeOf(p.Position)
			m.remove("change", spanner.Key{at.Slot, at.At, at.N})
		}
		m.put("state", []string{"name", "committed", "slot", "n"}, collectedState, end.At, end.Slot, end.N)
		putChanged(m, mathrand.Int64N(slots), -int64(entries)) //nolint:gosec // spreads writers
		return nil
	})
	if err == nil {
		c.done.Changes += entries
	}
	return len(past) == collectBatch, err
}

// exempt removes the limits of deployments that policies select, and notes them. revisions are those by which deleted ones are judged.
func (c *collection) exempt(ctx context.Context, from reader, current map[record.Key]*record.Record, limits, revisions map[record.Key]int64) error {
	policies, err := c.policies(ctx, from, current, revisions)
	if err != nil {
		return err
	}
	for key := range policies {
		delete(limits, key)
	}
	return c.putLonger(ctx, policies)
}

func limitsOf(limits map[record.Key]int64) []limit {
	list := make([]limit, 0, len(limits))
	for key, revision := range limits {
		list = append(list, limit{shardOf(key.ID), string(key.Kind), key.ID, revision})
	}
	slices.SortFunc(list, func(a, b limit) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Kind, b.Kind)) })
	return list
}

// fewerState is the row of the table state with the number of revisions that are retained.
const fewerState = "revisions"

// fewer returns a part that removes the revisions of changes that were examined when more were retained: of all records that have too
// many, shard by shard. If no change was examined before this collection, there are none.
func (c *collection) fewer() func(ctx context.Context) (more bool, err error) {
	after, done := limit{}, false
	return func(ctx context.Context) (more bool, err error) {
		snapshot := c.store.client.ReadOnlyTransaction()
		defer snapshot.Close()
		before, err := readState(ctx, snapshot, fewerState)
		wanted := int64(c.keep.Revisions)
		if err != nil || before == wanted {
			return false, err
		}
		if lower := wanted != 0 && (before == 0 || wanted < before); !lower || done || c.first {
			return false, c.commit(ctx, "save the number of revisions", func(_ context.Context, _ *spanner.ReadWriteTransaction, m *mutations) error {
				m.put("state", []string{"name", "value"}, fewerState, wanted)
				return nil
			})
		}
		if c.at, err = readCollected(ctx, snapshot); err != nil {
			return false, err
		}
		limits, last, err := c.tooMany(ctx, snapshot, after)
		if err != nil {
			return false, err
		}
		deployments := map[record.Key]int64{}
		var keys []record.Key
		for key := range limits {
			keys = append(keys, key)
			if key.Kind == tko.KindDeployment {
				deployments[key] = 0
			}
		}
		current, err := readRecords(ctx, snapshot, keys)
		if err == nil {
			err = c.exempt(ctx, snapshot, current, limits, deployments)
		}
		if err == nil {
			err = c.removeRevisions(ctx, limitsOf(limits), c.at)
		}
		after, done = last, last.ID == ""
		return err == nil, err
	}
}

// tooMany returns the newest revisions to remove of the next records that have too many, and the last record; none if there are no
// more. The state as of where the log begins stays.
func (c *collection) tooMany(ctx context.Context, from reader, after limit) (limits map[record.Key]int64, last limit, err error) {
	statement := spanner.Statement{
		SQL: "SELECT x.shard, x.kind, x.id, MAX(x.revision), e.revision FROM revision AS x JOIN entity AS e ON e.shard = x.shard AND e.kind = x.kind AND e.id = x.id " +
			"WHERE (x.shard > @shard OR x.shard = @shard AND (x.kind > @kind OR x.kind = @kind AND x.id > @id)) AND " + upTo +
			" GROUP BY x.shard, x.kind, x.id, e.revision HAVING COUNT(*) > 1 ORDER BY x.shard, x.kind, x.id LIMIT @most",
		Params: placeOf(c.at).parameters(),
	}
	statement.Params["shard"], statement.Params["kind"], statement.Params["id"], statement.Params["most"] = after.Shard, after.Kind, after.ID, int64(collectBatch)
	n := 0
	limits = map[record.Key]int64{}
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var newest, now int64
		err := row.Columns(&last.Shard, &last.Kind, &last.ID, &newest, &now)
		if revision := decide.Superseded(tko.OpWritten, newest, now, c.keep.Revisions); revision > 0 {
			limits[record.Key{Kind: tko.Kind(last.Kind), ID: last.ID}] = revision
		}
		n++
		return err
	})
	if n < collectBatch {
		last = limit{}
	}
	return limits, last, fault("read records with many revisions", err)
}

// removeRevisions removes revisions up to a position, unless a modification or a rollout needs them.
func (c *collection) removeRevisions(ctx context.Context, limits []limit, position int64) error {
	kept := map[record.AtRevision]bool{}
	for part := range slices.Chunk(limits, collectBatch/4) {
		for {
			n, removed := 0, 0
			err := c.commit(ctx, "remove old revisions", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
				n, removed = 0, 0
				list, err := readRevisionsUpTo(ctx, tx, part, position, kept)
				if err != nil || len(list) == 0 {
					return err
				}
				n = len(list)
				needed, err := c.needed(ctx, tx, m, list)
				if err != nil {
					return err
				}
				for _, r := range list {
					at := record.AtRevision{Key: r.Key, Revision: r.Revision}
					if needed[at] {
						kept[at] = true
						continue
					}
					removed++
					m.remove("revision", spanner.Key{shardOf(r.ID), string(r.Kind), r.ID, r.Revision})
					for _, digest := range []record.Digest{r.Digest, r.Derivation, r.Owner} {
						if digest != (record.Digest{}) {
							m.remove("content_use", spanner.Key{shardOf(r.ID), digest[:], string(r.Kind), r.ID, r.Revision})
							m.put("content_loose", []string{"digest"}, digest[:])
						}
					}
				}
				putChanged(m, mathrand.Int64N(slots), -int64(removed)) //nolint:gosec // spreads writers
				return nil
			})
			if err != nil {
				return err
			}
			c.done.Changes += removed
			if n < revisionBatch {
				break
			}
		}
	}
	return nil
}

// readRevisionsUpTo returns revisions up to limits and a position, without some.
func readRevisionsUpTo(ctx context.Context, from reader, limits []limit, position int64, without map[record.AtRevision]bool) (list []*record.Record, err error) {
	statement := spanner.Statement{
		SQL: "SELECT x.kind, x.id, x.revision, x.committed, x.slot, x.n, x.created, x.updated, x.doc FROM UNNEST(@limits) AS l " +
			"JOIN revision AS x ON x.shard = l.Shard AND x.kind = l.Kind AND x.id = l.ID WHERE x.revision <= l.Revision AND " + upTo + " LIMIT @most",
		Params: placeOf(position).parameters(),
	}
	statement.Params["limits"], statement.Params["most"] = limits, int64(revisionBatch+len(without))
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		r, err := scanRow(row)
		if err == nil && !without[record.AtRevision{Key: r.Key, Revision: r.Revision}] {
			list = append(list, r)
		}
		return err
	})
	return list[:min(len(list), revisionBatch)], fault("read old revisions", err)
}

// needed returns the revisions that modifications or rollouts need. Pins without a rollout are removed.
func (c *collection) needed(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations, list []*record.Record) (map[record.AtRevision]bool, error) {
	needed := map[record.AtRevision]bool{}
	var deployments []string
	var pins []spanner.KeySet
	for _, r := range list {
		if r.Kind == tko.KindDeployment && !slices.Contains(deployments, r.ID) {
			deployments = append(deployments, r.ID)
		}
		pins = append(pins, spanner.Key{shardOf(r.ID), string(r.Kind), r.ID, r.Revision}.AsPrefix())
	}
	tokens, err := readTokens(ctx, tx, deployments)
	if err != nil {
		return nil, err
	}
	for id, issued := range tokens {
		for _, i := range issued {
			needed[record.AtRevision{Key: record.Key{Kind: tko.KindDeployment, ID: id}, Revision: i.Revision}] = true
		}
	}
	rollouts := map[string]bool{}
	err = tx.Read(ctx, "rollout", spanner.AllKeys(), []string{"id"}).Do(func(row *spanner.Row) error {
		var id string
		err := row.Column(0, &id)
		rollouts[id] = true
		return err
	})
	if err != nil {
		return nil, fault("read the rollouts", err)
	}
	err = tx.Read(ctx, "rollout_pin", spanner.KeySets(pins...), []string{"kind", "id", "revision", "rollout", "noted"}).Do(func(row *spanner.Row) error {
		var at record.AtRevision
		var kind, rollout string
		var noted time.Time
		if err := row.Columns(&kind, &at.ID, &at.Revision, &rollout, &noted); err != nil {
			return err
		}
		at.Kind = tko.Kind(kind)
		if rollouts[rollout] || noted.After(c.now.Add(-unusedPin)) {
			needed[at] = true
		} else {
			m.remove("rollout_pin", spanner.Key{shardOf(at.ID), kind, at.ID, at.Revision, rollout})
		}
		return nil
	})
	return needed, fault("read the revisions that rollouts need", err)
}

// contents removes the next loose contents that no revision has.
func (c *collection) contents(ctx context.Context) (more bool, err error) {
	var loose [][]byte
	statement := spanner.Statement{SQL: "SELECT l.digest FROM content_loose AS l LIMIT @most", Params: map[string]any{"most": int64(collectBatch)}}
	err = c.store.client.Single().Query(ctx, statement).Do(func(row *spanner.Row) error {
		var digest []byte
		err := row.Column(0, &digest)
		loose = append(loose, digest)
		return err
	})
	if err != nil || len(loose) == 0 {
		return false, fault("read loose packages", err)
	}
	removed := 0
	err = c.commit(ctx, "remove unused packages", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		removed = 0
		used := map[record.Digest]bool{}
		// The ranges that it reads are locked: a commit that begins to use one of the contents waits, and then reads that it is gone.
		statement := spanner.Statement{
			SQL:    "SELECT DISTINCT u.digest FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s CROSS JOIN UNNEST(@digests) AS d JOIN content_use AS u ON u.shard = s AND u.digest = d",
			Params: map[string]any{"digests": loose},
		}
		err := tx.Query(ctx, statement).Do(func(row *spanner.Row) error {
			var digest []byte
			err := row.Column(0, &digest)
			if err == nil {
				used[record.Digest(digest)] = true
			}
			return err
		})
		for _, digest := range loose {
			m.remove("content_loose", spanner.Key{digest})
			if !used[record.Digest(digest)] {
				m.removeRange("content", spanner.Key{digest}.AsPrefix())
				removed++
			}
		}
		return fault("read which packages are used", err)
	})
	if err == nil {
		c.done.Packages += removed
	}
	return len(loose) == collectBatch, err
}
