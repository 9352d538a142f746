package spanner

import (
	"context"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// keptItem and notHeld are the column and the condition of claims while there are holds.
const (
	keptItem = "EXISTS(SELECT 1 FROM hold AS h WHERE h.queue = w.queue AND h.key IN (w.key, '') AND h.mode = '" + tko.HoldKeep + "')"
	notHeld  = " AND NOT EXISTS(SELECT 1 FROM hold AS h WHERE h.queue = w.queue AND h.key IN (w.key, '') AND h.mode = '" + tko.HoldAll + "')"
)

// heldPause is the time after which a worker that found only held work claims again.
const heldPause = time.Second

// holdBatch is the number of holds that one transaction changes.
const holdBatch = 2000

var holdColumns = []string{"queue", "key", "mode"}

// isHeld reports whether work of a queue is held.
func isHeld(ctx context.Context, from reader, queue string) (held bool, err error) {
	statement := spanner.Statement{SQL: "SELECT EXISTS(SELECT 1 FROM hold AS h WHERE h.queue = @queue)", Params: map[string]any{"queue": queue}}
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error { return row.Column(0, &held) })
	return held, fault("read what is held", err)
}

// Holds returns all holds, sorted by queue, then key.
func (s *Store) Holds(ctx context.Context) (holds []tko.Hold, err error) {
	err = s.client.Single().Read(ctx, "hold", spanner.AllKeys(), holdColumns).Do(func(row *spanner.Row) error {
		var h tko.Hold
		err := row.Columns(&h.Queue, &h.Key, &h.Mode)
		holds = append(holds, h)
		return err
	})
	return holds, fault("read what is held", err)
}

// ReleaseHolds removes those of the holds that exist; in the mode [tko.HoldKeep], it sets their modes. The released work is due at
// once. If sites are released in a store that was restored and not promoted since, that promotes it, before the first one is released.
func (s *Store) ReleaseHolds(ctx context.Context, holds []tko.Hold, mode string) error {
	if len(holds) == 0 {
		return ctx.Err()
	}
	queues, sites := map[string]bool{}, false
	enqueued := map[string][]string{}
	for _, h := range holds {
		if err := decide.CheckTexts("queue", h.Queue, "key", h.Key); err != nil {
			return err
		}
		queues[h.Queue] = true
		sites = sites || h.Queue == tko.QueueSchedule
		if h.Key != "" && mode != tko.HoldKeep { // held work is due already
			enqueued[h.Queue] = append(enqueued[h.Queue], h.Key)
		}
	}
	for part := range slices.Chunk(holds, holdBatch) {
		err := s.write(ctx, "release work", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
			if sites {
				if err := promoteStandby(ctx, tx, m); err != nil {
					return err
				}
			}
			putNews(m)
			return releaseHolds(ctx, tx, m, part, mode)
		})
		if err != nil {
			return err
		}
	}
	s.wake(queues)
	for queue, keys := range enqueued {
		if err := s.EnqueueWork(ctx, queue, keys, false); err != nil {
			return err
		}
	}
	return nil
}

func releaseHolds(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations, holds []tko.Hold, mode string) error {
	keys := make([]spanner.Key, len(holds))
	for i, h := range holds {
		keys[i] = spanner.Key{h.Queue, h.Key}
	}
	return fault("read what is held", tx.Read(ctx, "hold", spanner.KeySetFromKeys(keys...), holdColumns[:2]).Do(func(row *spanner.Row) error {
		var queue, key string
		if err := row.Columns(&queue, &key); err != nil {
			return err
		}
		if mode == tko.HoldKeep {
			m.put("hold", holdColumns, queue, key, mode)
		} else {
			m.remove("hold", spanner.Key{queue, key})
		}
		return nil
	}))
}
