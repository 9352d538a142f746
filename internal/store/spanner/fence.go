package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/backup"
)

// The rows of the table state about restores.
const (
	fenceState     = "fence"     // the fencing epoch; there is none in a store that was never promoted
	standbyState   = "standby"   // the store was restored, and not promoted since
	restoringState = "restoring" // a restore has begun, and is not complete
	restoredState  = "restored"  // the last restore: its time, and the archive
	goneState      = "gone"      // the position of the last restore, before which clients can't continue
)

// Fence returns the fencing epoch of the store.
func (s *Store) Fence(ctx context.Context) (tko.Fence, error) {
	return readFence(ctx, s.client.Single())
}

func readFence(ctx context.Context, from reader) (f tko.Fence, err error) {
	keys := spanner.KeySetFromKeys(spanner.Key{fenceState}, spanner.Key{standbyState})
	err = from.Read(ctx, "state", keys, []string{"name", "value"}).Do(func(row *spanner.Row) error {
		var name string
		var value spanner.NullInt64
		err := row.Columns(&name, &value)
		if name == standbyState {
			f.Standby = true
		} else {
			f.Epoch = value.Int64
		}
		return err
	})
	return f, fault("read the fencing epoch", err)
}

// Promote raises the fencing epoch of the store beyond that of each store that was promoted before,
// by the clock of the database, and makes a restored store command agents. Agents that have seen it
// refuse all other stores with a lower one.
func (s *Store) Promote(ctx context.Context, p backup.Promotion) (f tko.Fence, err error) {
	if f, err = s.Fence(ctx); err != nil {
		return f, err
	}
	if err := s.CheckComplete(ctx); err != nil {
		return f, err
	}
	if err := s.Audit(ctx, p.Record(f.Epoch)); err != nil {
		return f, err
	}
	made := int64(0) // by a try whose outcome is unknown
	err = s.write(ctx, "promote the store", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		if f, err = readFence(ctx, tx); err != nil || made != 0 && f.Epoch == made {
			return err
		}
		now, err := readNow(ctx, tx)
		f = tko.Fence{Epoch: p.Epoch(f.Epoch, now)}
		made = f.Epoch
		putFence(m, f.Epoch)
		return err
	})
	return f, err
}

func putFence(m *mutations, epoch int64) {
	m.put("state", []string{"name", "value"}, fenceState, epoch)
	m.remove("state", spanner.Key{standbyState})
}

// promoteStandby promotes the store if it was restored and not promoted since.
func promoteStandby(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
	f, err := readFence(ctx, tx)
	if err != nil || !f.Standby {
		return err
	}
	now, err := readNow(ctx, tx)
	putFence(m, backup.Promotion{}.Epoch(f.Epoch, now))
	return err
}
