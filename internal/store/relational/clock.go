package relational

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// clockStep is how far the database's clock may go back without being noticed:
// deadlines are later by no more than that.
const clockStep = time.Second

// A clock notices when the database's clock goes back. Deadlines that were set
// before would be later by as much: tokens and leases would be held, and work
// would wait, for that time.
type clock struct {
	newest atomic.Int64  // the newest time that the database told, in microseconds
	back   chan struct{} // holds one: deadlines are to be capped
}

func newClock() clock { return clock{back: make(chan struct{}, 1)} }

// observe takes a time that the database told. The first one counts as going
// back: what happened before is not known.
func (c *clock) observe(now int64) {
	newest := c.newest.Load()
	if newest != 0 && now >= newest-clockStep.Microseconds() {
		if now > newest {
			c.newest.CompareAndSwap(newest, now) // one of those at the same time is enough
		}
		return
	}
	if !c.newest.CompareAndSwap(newest, now) {
		return
	}
	select {
	case c.back <- struct{}{}:
	default:
	}
}

// watchClock caps deadlines whenever the clock went back.
func (s *Store) watchClock() {
	for {
		select {
		case <-s.clock.back:
		case <-s.ended.Done():
			return
		}
		for s.capDeadlines(s.ended) != nil { // the database is away: then nothing else works, either
			if !sleep(s.ended, maxPause) {
				return
			}
		}
	}
}

// capDeadlines moves deadlines that were set in the future, which is a time
// before the clock went back: each is as long from now as it was from then. It
// may be done at any time, and by several stores.
func (s *Store) capDeadlines(ctx context.Context) error {
	moved := 0
	count := func(from Row) error {
		moved++
		var one int64
		return from.Scan(&one)
	}
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
			Statement{SQL: "UPDATE collector SET until = {now} + $1 WHERE until > {now} + $1", Args: []any{collectLease.Microseconds()}},
		)
		return nil, err
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if moved > 0 {
		s.Wake() // what waits for a deadline must look again
	}
	return nil
}
