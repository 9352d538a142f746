package relational

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/store/retention"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// clockStep is the maximum step back of the database's clock that is not detected:
// deadlines may be late by this time.
const clockStep = time.Second

// A clock detects when the database's clock is set back. Deadlines that were set
// before would be late by the same amount: tokens and leases would be held, and work
// would wait, for that time.
type clock struct {
	newest  atomic.Int64  // the newest database time read, in microseconds
	rewound chan struct{} // capacity 1: deadlines must be capped
}

func newClock() clock { return clock{rewound: make(chan struct{}, 1)} }

// observe records a time read from the database. The first one counts as a rewind,
// because earlier times are not known.
func (c *clock) observe(now int64) {
	newest := c.newest.Load()
	if newest != 0 && now >= newest-clockStep.Microseconds() {
		if now > newest {
			c.newest.CompareAndSwap(newest, now) // one of several concurrent observers is enough
		}
		return
	}
	if !c.newest.CompareAndSwap(newest, now) {
		return
	}
	select {
	case c.rewound <- struct{}{}:
	default:
	}
}

// watchClock caps deadlines whenever the clock was set back.
func (s *Store) watchClock() {
	for {
		select {
		case <-s.clock.rewound:
		case <-s.ended.Done():
			return
		}
		for s.capDeadlines(s.ended) != nil { // the database is away
			if pause.For(s.ended, maxPause) != nil {
				return
			}
		}
	}
}

// capDeadlines moves deadlines that were set in the future, which is a time before the
// clock was set back: each is as far from now as it was from that time. It may run at
// any time, in several stores at once.
func (s *Store) capDeadlines(ctx context.Context) error {
	moved := 0
	count := sqldb.Count(&moved)
	err := s.write(ctx, func(tx Tx) ([]Statement, error) {
		moved = 0
		err := tx.Run(
			ctx,
			Statement{
				SQL: "UPDATE work SET due = {now} + (due - since), lease_until = CASE WHEN lease_until > 0 THEN {now} + (lease_until - since) ELSE 0 END, " +
					"claimed = CASE WHEN claimed > {now} THEN {now} ELSE claimed END, since = {now} WHERE since > {now} RETURNING 1",
				Scan: count,
			},
			Statement{SQL: "UPDATE modification SET expires = {now} + (expires - since), since = {now} WHERE since > {now} RETURNING 1", Scan: count},
			Statement{SQL: "UPDATE wake SET at = {now} WHERE at > {now}"},
			Statement{SQL: "UPDATE collector SET until = {now} + $1 WHERE until > {now} + $1", Args: []any{retention.Lease.Microseconds()}},
		)
		return nil, err
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if moved > 0 {
		s.Wake(Everything()) // workers that wait for a deadline must check again
	}
	return nil
}
