package relational

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// EnqueueWork enqueues work items of a queue, due at once. If missing is true, it
// skips keys that have an item already.
func (s *Store) EnqueueWork(ctx context.Context, queue string, keys []string, missing bool) error {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, strings.Compare)
	keys = slices.Compact(keys)
	enqueue := Statement{SQL: enqueueSQL("r.queue, r.key", "r.cause", "{rows}"), Args: []any{int64(0)}, Columns: []Column{Text.As("queue"), Text.As("key"), Text.As("cause")}}
	if missing {
		enqueue.SQL = enqueueSQL("r.queue, r.key", "r.cause", "{rows}", "NOT EXISTS (SELECT 1 FROM work w WHERE w.queue = r.queue AND w.key = r.key)")
	}
	for _, key := range keys {
		if err := decide.CheckTexts("queue", queue, "key", key); err != nil {
			return err
		}
		enqueue.Rows = append(enqueue.Rows, []any{queue, key, trail.Cause(ctx)})
	}
	if len(keys) == 0 {
		return nil
	}
	var news News
	news.add(queue)
	err := s.write(ctx, func(Tx) ([]Statement, error) { return append([]Statement{enqueue}, s.notify(news)...), nil })
	if err != nil {
		return fault("enqueue work", err)
	}
	s.Wake(news)
	return nil
}

func claimOf(item tko.WorkItem) claimName { return claimName{item.Queue, item.Key, item.Claim} }

// lockClaim locks a claim, so that no other worker can claim the item before the
// transaction ends. It returns an error if the claim has ended.
func lockClaim(ctx context.Context, tx Tx, item tko.WorkItem) error {
	held := false
	err := tx.Run(ctx, lockItems("w.key", [][]any{{item.Queue, item.Key, item.Claim}}, sqldb.Found(&held)))
	if err == nil && !held {
		err = decide.ClaimLost(item)
	}
	return err
}

// Source returns the GitOps source with a name.
func (s *Store) Source(ctx context.Context, name string) (tko.Source, error) {
	if decide.CheckTexts("name", name) != nil {
		return tko.Source{}, errNoSource(name)
	}
	var source tko.Source
	err := s.run(ctx, Statement{
		SQL:  "SELECT " + sourceColumns + ", state FROM source WHERE name = $1",
		Args: []any{name},
		Scan: func(from Row) error { return scanSource(from, &source, &source.State) },
	})
	if err == nil && source.Version == 0 {
		return source, errNoSource(name)
	}
	return source, fault("read a source", err)
}

func errNoSource(name string) error {
	return tko.Errorf(tko.ErrNotFound, "source %q: not found", name)
}

// Sources returns all GitOps sources, sorted by name, without their State.
func (s *Store) Sources(ctx context.Context) ([]tko.Source, error) {
	var sources []tko.Source
	err := s.run(ctx, Statement{
		SQL: "SELECT " + sourceColumns + " FROM source ORDER BY name",
		Scan: func(from Row) error {
			var source tko.Source
			err := scanSource(from, &source)
			sources = append(sources, source)
			return err
		},
	})
	return sources, fault("list sources", err)
}

// sourceColumns are the columns that scanSource reads. A reconciliation has ended
// when the work item waits, unclaimed, and was not enqueued since it was claimed. A
// missing item was finished by a worker that doesn't have the source. The last column is
// since when an item is due; one that is claimed is due when its lease ends.
const sourceColumns = "name, version, updated, status, approved, (SELECT count(*) FROM work w WHERE w.queue = '" + tko.QueueGitOps + "' " +
	"AND w.key = source.name AND w.claim = '' AND w.generation = w.claimed_generation AND w.due > {now}), " +
	"COALESCE((SELECT max(w.due) FROM work w WHERE w.queue = '" + tko.QueueGitOps + "' AND w.key = source.name AND w.due <= {now}), 0)"

func scanSource(from Row, s *tko.Source, more ...any) error {
	var updated, settled, due int64
	var status []byte
	if err := from.Scan(append([]any{&s.Name, &s.Version, &updated, &status, &s.Approved, &settled, &due}, more...)...); err != nil {
		return err
	}
	s.Enqueued = settled == 0
	if due > 0 {
		s.Due = moment(due).In(time.UTC)
	}
	s.Updated = moment(updated).In(time.UTC)
	if err := json.Unmarshal(status, &s.Status); err != nil {
		return fmt.Errorf("the status of source %q: %w", s.Name, err)
	}
	return nil
}

// SaveSource writes a GitOps source and returns its new version.
func (s *Store) SaveSource(ctx context.Context, source tko.Source, claim tko.WorkItem) (version int64, err error) {
	if err := decide.CheckTexts("name", source.Name); err != nil {
		return 0, err
	}
	if err := decide.CheckItem(claim); err != nil {
		return 0, err
	}
	status, err := json.Marshal(source.Status)
	if err != nil {
		return 0, tko.Errorf(tko.ErrInvalid, "the status of source %q can't be encoded: %w", source.Name, err)
	}
	state := source.State
	if state == nil {
		state = []byte{}
	}
	err = s.write(ctx, func(tx Tx) ([]Statement, error) {
		if err := lockClaim(ctx, tx, claim); err != nil {
			return nil, err
		}
		version = 0
		err := tx.Run(ctx, Statement{
			SQL:  "SELECT version FROM source WHERE name = $1",
			Args: []any{source.Name},
			Scan: func(from Row) error { return from.Scan(&version) },
		})
		version++
		return []Statement{{
			SQL: "INSERT INTO source (name, version, updated, status, state, approved) VALUES ($1, $2, {now}, $3, $4, '') " +
				"ON CONFLICT (name) DO UPDATE SET version = excluded.version, updated = excluded.updated, status = excluded.status, state = excluded.state",
			Args: []any{source.Name, version, status, state},
		}}, err
	})
	return version, fault("save a source", err)
}

// ApproveSource sets the digest of the plan that a user approved.
func (s *Store) ApproveSource(ctx context.Context, name, digest string) error {
	if err := decide.CheckTexts("name", name, "digest", digest); err != nil {
		return err
	}
	err := s.write(ctx, func(tx Tx) ([]Statement, error) {
		found := false
		err := tx.Run(ctx, Statement{
			SQL: "UPDATE source SET approved = $1 WHERE name = $2 RETURNING name", Args: []any{digest, name},
			Scan: sqldb.Found(&found),
		})
		if err == nil && !found {
			err = errNoSource(name)
		}
		return nil, err
	})
	return fault("approve a source", err)
}

// ForgetSource removes a GitOps source.
func (s *Store) ForgetSource(ctx context.Context, name string, claim tko.WorkItem) error {
	if err := decide.CheckTexts("name", name); err != nil {
		return err
	}
	if err := decide.CheckItem(claim); err != nil {
		return err
	}
	err := s.write(ctx, func(tx Tx) ([]Statement, error) {
		return []Statement{{SQL: "DELETE FROM source WHERE name = $1", Args: []any{name}}}, lockClaim(ctx, tx, claim)
	})
	return fault("forget a source", err)
}
