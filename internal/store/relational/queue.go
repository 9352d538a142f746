package relational

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// ClaimWork claims items that are due and not leased.
func (s *Store) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, time.Time, error) {
	if err := decide.CheckTexts("queue", claim.Queue, "worker", claim.Worker); err != nil {
		return nil, time.Time{}, err
	}
	// Most calls find no item: they don't lock.
	var first *int64
	var now, holds int64
	err := s.run(ctx, Statement{
		SQL:  "SELECT {now}, (SELECT min(due) FROM work WHERE queue = $1), CASE WHEN EXISTS (SELECT 1 FROM hold WHERE queue = $1) THEN 1 ELSE 0 END",
		Args: []any{claim.Queue},
		Scan: func(from Row) error { return from.Scan(&now, &first, &holds) },
	})
	if err == nil {
		s.clock.observe(now)
	}
	switch {
	case err != nil:
		return nil, time.Time{}, fault("read due work", err)
	case first == nil:
		return nil, time.Time{}, nil
	case *first > now || claim.Max <= 0:
		return nil, moment(*first), nil
	}
	var items []tko.WorkItem
	id := rand.Text()
	err = s.write(ctx, func(tx Tx) ([]Statement, error) {
		if len(items) > 0 { // chosen by an earlier attempt, whose outcome may be unknown
			if claimed, err := s.claimed(ctx, tx, items); err != nil || len(claimed) > 0 {
				items = claimed
				return nil, err
			}
		}
		items = nil
		update := Statement{
			SQL: "UPDATE work SET claim = $1, claimed = {now}, claimed_generation = generation, " +
				"lease_until = {now} + $2, due = {now} + $2, since = {now}, gathering = 1 WHERE (queue, key) IN (SELECT r.queue, r.key FROM {rows})",
			Args:    []any{id, claim.Lease.Microseconds()},
			Columns: []Column{Text.As("queue"), Text.As("key")},
		}
		kept, released := "0", ""
		if holds != 0 {
			kept, released = keptItem, notHeld
		}
		err := tx.Run(ctx, Statement{
			SQL: "SELECT key, attempt, last_error, cause, " + kept + " FROM work WHERE queue = $1 AND due <= {now}" + released +
				" ORDER BY due, key LIMIT $2 {skip locked}",
			Args: []any{claim.Queue, int64(claim.Max)},
			Scan: func(from Row) error {
				item := tko.WorkItem{Queue: claim.Queue, Claim: id}
				var keep int64
				err := from.Scan(&item.Key, &item.Attempt, &item.LastError, &item.Cause, &keep)
				item.Keep = keep != 0
				items = append(items, item)
				update.Rows = append(update.Rows, []any{item.Queue, item.Key})
				return err
			},
		})
		return []Statement{update}, err
	})
	if err != nil {
		return nil, time.Time{}, fault("claim work", err)
	}
	if len(items) == 0 && holds != 0 { // what is due is held; a release is signalled
		return nil, moment(now).Add(heldPause), nil
	}
	return items, time.Time{}, nil
}

// claimed returns those of items that are claimed in the database.
func (s *Store) claimed(ctx context.Context, tx Tx, items []tko.WorkItem) ([]tko.WorkItem, error) {
	rows := make([][]any, len(items))
	for i, item := range items {
		rows[i] = []any{item.Queue, item.Key, item.Claim}
	}
	held := map[string]bool{}
	err := tx.Run(ctx, lockItems("w.key", rows, func(from Row) error {
		var key string
		err := from.Scan(&key)
		held[key] = true
		return err
	}))
	return slices.DeleteFunc(slices.Clone(items), func(i tko.WorkItem) bool { return !held[i.Key] }), err
}

// itemColumns identify claims.
var itemColumns = []Column{Text.As("queue"), Text.As("key"), Text.As("claim")}

// RenewWork extends leases.
func (s *Store) RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error) {
	items = slices.Clone(items)
	slices.SortFunc(items, decide.CompareItems)
	rows := make([][]any, len(items))
	for i, item := range items {
		if err := decide.CheckItem(item); err != nil {
			return nil, err
		}
		rows[i] = []any{item.Queue, item.Key, item.Claim}
	}
	type name struct{ queue, key, claim string }
	var held map[name]bool
	err := s.write(ctx, func(tx Tx) ([]Statement, error) {
		held = map[name]bool{}
		if err := tx.Run(ctx, lockItems("w.key", rows, func(from Row) error {
			var key string
			return from.Scan(&key)
		})); err != nil {
			return nil, err
		}
		return []Statement{{
			SQL: "UPDATE work SET lease_until = {now} + $1, due = {now} + $1, since = {now} " +
				"WHERE lease_until > {now} AND (queue, key, claim) IN (SELECT r.queue, r.key, r.claim FROM {rows}) RETURNING queue, key, claim",
			Args:    []any{lease.Microseconds()},
			Columns: itemColumns, Rows: rows,
			Scan: func(from Row) error {
				var n name
				err := from.Scan(&n.queue, &n.key, &n.claim)
				held[n] = true
				return err
			},
		}}, nil
	})
	if err != nil {
		return nil, fault("renew leases", err)
	}
	return slices.DeleteFunc(items, func(i tko.WorkItem) bool { return !held[name{i.Queue, i.Key, i.Claim}] }), nil
}

// WorkClaim returns the claim of an item.
func (s *Store) WorkClaim(ctx context.Context, queue, key string) (claim string, until time.Time, err error) {
	if err := decide.CheckTexts("queue", queue, "key", key); err != nil {
		return "", time.Time{}, err
	}
	var now, end int64
	err = s.run(ctx, Statement{
		SQL:  "SELECT {now}, claim, lease_until FROM work WHERE queue = $1 AND key = $2 AND lease_until > {now}",
		Args: []any{queue, key},
		Scan: func(from Row) error { return from.Scan(&now, &claim, &end) },
	})
	if err != nil {
		return "", time.Time{}, fault("read a claim", err)
	}
	if claim == "" {
		return "", time.Time{}, tko.Errorf(tko.ErrNotFound, "%s %q is not claimed", queue, key)
	}
	// The database's clock may differ from this machine's.
	return claim, time.Now().Add(time.Duration(end-now) * time.Microsecond), nil
}

// WorkOf returns the items of a queue.
func (s *Store) WorkOf(ctx context.Context, queue string) (items []record.QueuedWork, err error) {
	if err := decide.CheckTexts("queue", queue); err != nil {
		return nil, err
	}
	here := time.Now()
	err = s.run(ctx, Statement{
		SQL:  "SELECT key, claimed, lease_until, {now} FROM work WHERE queue = $1 ORDER BY key",
		Args: []any{queue},
		Scan: func(from Row) error {
			var item record.QueuedWork
			var claimed, until, now int64
			if err := from.Scan(&item.Key, &claimed, &until, &now); err != nil {
				return err
			}
			if until > now { // the database's clock may differ from this machine's
				item.Claimed = here.Add(time.Duration(claimed-now) * time.Microsecond)
				item.LeaseUntil = here.Add(time.Duration(until-now) * time.Microsecond)
			}
			items = append(items, item)
			return nil
		},
	})
	return items, fault("read the work of a queue", err)
}

// FailingWork returns the items of a queue that fail.
func (s *Store) FailingWork(ctx context.Context, queue string, most int) (items []tko.FailingWork, err error) {
	if err := decide.CheckTexts("queue", queue); err != nil {
		return nil, err
	}
	here := time.Now()
	err = s.run(ctx, Statement{
		SQL:  "SELECT key, attempt, last_error, due, {now} FROM work WHERE queue = $1 AND attempt > 0 ORDER BY attempt DESC, key LIMIT $2",
		Args: []any{queue, int64(most)},
		Scan: func(from Row) error {
			var item tko.FailingWork
			var due, now int64
			err := from.Scan(&item.Key, &item.Failures, &item.Error, &due, &now)
			item.Due = here.Add(time.Duration(due-now) * time.Microsecond) // the database's clock may differ from this machine's
			items = append(items, item)
			return err
		},
	})
	return items, fault("read the failing work of a queue", err)
}

// FinishWork ends claims.
func (s *Store) FinishWork(ctx context.Context, items []tko.FinishedWork, backoff func(attempt int) time.Duration) error {
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b tko.FinishedWork) int { return decide.CompareItems(a.Item, b.Item) })
	rows := make([][]any, len(items))
	for i, f := range items {
		if err := decide.CheckFinished(f); err != nil {
			return err
		}
		rows[i] = []any{f.Item.Queue, f.Item.Key, f.Item.Claim}
	}
	if len(items) == 0 {
		return nil
	}
	wake := false
	var news News
	for _, f := range items {
		news.add(f.Item.Queue)
	}
	err := s.write(ctx, func(tx Tx) ([]Statement, error) {
		claims := map[tko.WorkItem]claimed{}
		wakes := map[string]int64{}
		var now int64
		err := tx.Run(
			ctx,
			lockItems("w.queue, w.key, w.attempt, w.generation, w.claimed_generation, w.claimed, w.claim, w.gathering, {now}", rows, func(from Row) error {
				var item tko.WorkItem
				var c claimed
				err := from.Scan(&item.Queue, &item.Key, &c.attempt, &c.generation, &c.seen, &c.at, &item.Claim, &c.gathering, &now)
				claims[item] = c
				return err
			}),
			Statement{
				SQL: "SELECT queue, at FROM wake",
				Scan: func(from Row) error {
					var queue string
					var at int64
					err := from.Scan(&queue, &at)
					wakes[queue] = at
					return err
				},
			},
		)
		if err != nil {
			return nil, err
		}
		statements, more := finish(items, claims, wakes, moment(now), backoff)
		wake = wake || more
		if more {
			statements = append(statements, s.notify(news)...)
		}
		return statements, nil
	})
	if err != nil {
		return fault("finish work", err)
	}
	if wake {
		s.Wake(news)
	}
	return nil
}

// lockItems locks claims and reads columns of them. All transactions that lock several
// items lock them in the order of their keys, as commits do, to avoid deadlocks. The
// order is by expressions, not by columns of the index, so that the few items are
// found and sorted, and not looked for in an index that is read from begin to end.
func lockItems(columns string, rows [][]any, scan func(Row) error) Statement {
	return Statement{
		SQL: "SELECT " + columns + " FROM {rows} CROSS JOIN work w WHERE w.queue = r.queue AND w.key = r.key AND w.claim = r.claim " +
			"ORDER BY w.queue || '', w.key || '' {for update}",
		Columns: itemColumns, Rows: rows, Scan: scan,
	}
}

// A claimed is a claimed item as the database has it.
type claimed struct {
	attempt          int
	generation, seen int64
	at               int64
	gathering        int64 // 0: some of the new work doesn't wait
}

var deleteItems = sqldb.Delete("work", itemColumns...)

// finish decides the next state of items whose claims end. wake is true if some
// are due at once, or earlier than the time that a worker was given.
func finish(items []tko.FinishedWork, claims map[tko.WorkItem]claimed, wakes map[string]int64, now time.Time,
	backoff func(attempt int) time.Duration,
) (statements []Statement, wake bool) {
	remove := deleteItems
	keep := Statement{
		SQL: "UPDATE work SET claim = '', lease_until = 0, due = r.due, since = {now}, attempt = r.attempt, last_error = r.error, " +
			"claimed_generation = claimed_generation - r.released, gathering = r.gathering FROM {rows} " +
			"WHERE work.queue = r.queue AND work.key = r.key AND work.claim = r.claim",
		Columns: append(itemColumns[:3:3], Int.As("due"), Int.As("attempt"), Text.As("error"), Int.As("released"), Int.As("gathering")),
	}
	for _, f := range items {
		item := tko.WorkItem{Queue: f.Item.Queue, Key: f.Item.Key, Claim: f.Item.Claim}
		c, ok := claims[item]
		if !ok {
			continue
		}
		delete(claims, item)
		woken := wakes[item.Queue] >= c.at
		next := decide.Finish(f, decide.Claimed{Attempt: c.attempt, NewWork: c.generation != c.seen, Woken: woken, Urgent: c.generation != c.seen && c.gathering == 0}, now, backoff)
		if next.Gone {
			remove.Rows = append(remove.Rows, []any{item.Queue, item.Key, item.Claim})
			continue
		}
		wake = true
		keep.Rows = append(keep.Rows, []any{item.Queue, item.Key, item.Claim, micros(next.Due), int64(next.Attempt), next.Error, bit(next.Released), bit(next.Gather)})
	}
	return []Statement{remove, keep}, wake
}
