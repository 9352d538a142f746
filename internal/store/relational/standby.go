package relational

import (
	"context"
	"time"
)

// A Standby is implemented by a [Database] that may have hot standbys: replicas for
// reads, which may be behind it.
//
// A read on a standby first reads the position of the log from the database itself,
// and then uses a standby only in a snapshot that has reached this position. So it
// sees every change that was acknowledged before it began, by any server.
type Standby interface {
	// HasStandby reports whether a standby may be usable.
	HasStandby() bool
	// BeginAt starts a transaction for a list on a standby that has reached a
	// position, or returns nil if there is none soon.
	BeginAt(ctx context.Context, position int64) Tx
	// RunAt runs a statement that reads on a standby that has reached a position.
	// It returns false if there is none, or if the statement failed; Scan may have
	// been called then.
	RunAt(ctx context.Context, position int64, s Statement) (ran bool)
}

// minStandbyGroup is the number of reads of single records from which a standby
// pays: the database itself takes as long to read its position as to read fewer
// records.
const minStandbyGroup = 4

// standbyTime limits the time in which the database must return its position, and a
// standby must respond, before a read uses the database itself.
const standbyTime = 2 * time.Second

// standby returns the standbys, if one may be usable, and the position that a read
// needs.
func (s *Store) standby(ctx context.Context) (standby Standby, position int64) {
	standby, ok := s.base.(Standby)
	if !ok || !standby.HasStandby() {
		return nil, 0
	}
	err := s.db.Run(ctx, Statement{
		SQL:  "SELECT position FROM head WHERE one = 1",
		Scan: func(from Row) error { return from.Scan(&position) },
	})
	if err != nil { // the database itself returns the error
		return nil, 0
	}
	return standby, position
}

// beginList starts the transaction of a list: on a standby, if possible.
func (s *Store) beginList(ctx context.Context) (Tx, error) {
	limited, cancel := context.WithTimeout(ctx, standbyTime)
	defer cancel()
	if standby, position := s.standby(limited); standby != nil {
		if tx := standby.BeginAt(limited, position); tx != nil {
			return tx, nil
		}
	}
	return s.db.Begin(ctx, List)
}

// runOnStandby runs a statement that reads n records on a standby, or returns false.
func (s *Store) runOnStandby(n int, statement Statement) (ran bool) {
	if n < minStandbyGroup {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ended, standbyTime)
	defer cancel()
	standby, position := s.standby(ctx)
	return standby != nil && standby.RunAt(ctx, position, statement)
}
