package relational

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// keptItem and notHeld are the column and the condition of claims while there are holds.
const (
	keptItem = "(SELECT count(*) FROM hold h WHERE h.queue = work.queue AND h.key IN (work.key, '') AND h.mode = '" + tko.HoldKeep + "')"
	notHeld  = " AND NOT EXISTS (SELECT 1 FROM hold h WHERE h.queue = work.queue AND h.key IN (work.key, '') AND h.mode = '" + tko.HoldAll + "')"
)

// heldPause is the time after which a worker that found only held work claims again.
const heldPause = time.Second

// Holds returns all holds, sorted by queue, then key.
func (s *Store) Holds(ctx context.Context) (holds []tko.Hold, err error) {
	err = s.run(ctx, Statement{
		SQL: "SELECT queue, key, mode FROM hold ORDER BY queue, key",
		Scan: func(from Row) error {
			var h tko.Hold
			err := from.Scan(&h.Queue, &h.Key, &h.Mode)
			holds = append(holds, h)
			return err
		},
	})
	return holds, fault("read what is held", err)
}

// ReleaseHolds removes those of the holds that exist; in the mode [tko.HoldKeep], it
// sets their modes. The released work is due at once. If sites are released in a store that was
// restored and not promoted since, that promotes it.
func (s *Store) ReleaseHolds(ctx context.Context, holds []tko.Hold, mode string) error {
	if len(holds) == 0 {
		return ctx.Err()
	}
	columns := []Column{Text.As("queue"), Text.As("key")}
	change := sqldb.Delete("hold", columns...)
	if mode == tko.HoldKeep {
		change = Statement{SQL: "UPDATE hold SET mode = $1 WHERE (queue, key) IN (SELECT r.queue, r.key FROM {rows})", Args: []any{mode}, Columns: columns}
	}
	news, sites := News{}, false
	enqueued := map[string][]string{}
	for _, h := range holds {
		if err := decide.CheckTexts("queue", h.Queue, "key", h.Key); err != nil {
			return err
		}
		change.Rows = append(change.Rows, []any{h.Queue, h.Key})
		news.add(h.Queue)
		sites = sites || h.Queue == tko.QueueSchedule
		if h.Key != "" && mode != tko.HoldKeep { // held work is due already
			enqueued[h.Queue] = append(enqueued[h.Queue], h.Key)
		}
	}
	err := s.write(ctx, func(tx Tx) (statements []Statement, err error) {
		if sites {
			if statements, err = s.promoteStandby(ctx, tx); err != nil {
				return nil, err
			}
		}
		return append(append(statements, change), s.notify(news)...), nil
	})
	if err != nil {
		return fault("release work", err)
	}
	s.Wake(news)
	for queue, keys := range enqueued {
		if err := s.EnqueueWork(ctx, queue, keys, false); err != nil {
			return err
		}
	}
	return nil
}
