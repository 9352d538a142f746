package spanner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

const (
	// maxWait is the time after which a commit fails if the database is unavailable or
	// repeatedly ends its transactions.
	maxWait = 30 * time.Second
	// maxCollisions is the number of transactions that may collide on a key of the log.
	maxCollisions = 5
	// chunkBytes is the maximum size of a value of content. Spanner's limit is 10 MiB.
	chunkBytes = 8 << 20
)

// Commit applies writes in one transaction.
func (s *Store) Commit(ctx context.Context, gated record.Gated) ([]record.Outcome, error) {
	writes := gated.Writes()
	if len(writes) == 0 || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	reach := gated.Reach()
	if err := decide.CheckTexts("cause", reach.Cause); err != nil {
		return nil, err
	}
	keys := make(map[record.Key]bool, len(writes))
	for i := range writes {
		w := &writes[i]
		if keys[w.Record.Key] {
			return nil, tko.Errorf(tko.ErrInvalid, "%s %q is written twice in one commit", w.Record.Kind, w.Record.ID)
		}
		keys[w.Record.Key] = true
		if err := decide.CheckWrite(w); err != nil {
			return nil, err
		}
		if w.Claim != nil {
			if err := decide.CheckItem(*w.Claim); err != nil {
				return nil, err
			}
		}
	}
	if len(writes) > maxChanges {
		return nil, tko.Errorf(tko.ErrInvalid, "the commit has %d writes, more than %d: split it", len(writes), maxChanges)
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWait)
	defer cancel()
	work, certain := withCertainty(work)
	t := newTransaction(s, &reach) // also if none begins
	var at time.Time
	for range maxCollisions {
		at, err = s.client.ReadWriteTransaction(work, func(work context.Context, tx *spanner.ReadWriteTransaction) error {
			t = newTransaction(s, &reach)
			t.refused = ctx.Err() // from here on the transaction decides, even if the caller's context ends
			if t.refused == nil && certain.lost.Load() {
				t.refused = unknownOutcome(errRunAgain)
			}
			if t.refused != nil {
				return t.refused
			}
			t.tx = tx
			if err := t.run(work, writes); err != nil {
				return err
			}
			t.sent = true
			return nil
		})
		if spanner.ErrCode(err) != codes.AlreadyExists || t.refused != nil {
			break
		}
	}
	switch {
	case err == nil:
		return t.committed(at), nil
	case certain.lost.Load():
		return nil, unknownOutcome(err)
	case spanner.ErrCode(err) == codes.AlreadyExists && t.refused == nil:
		return nil, fmt.Errorf("%w: %d transactions in a row had the place of another one in the log: try again: %w", tko.ErrUnavailable, maxCollisions, err)
	}
	return nil, t.failure(err)
}

// errRunAgain is why a transaction isn't run again: it would find what it wrote itself.
var errRunAgain = errors.New("the response of the commit was lost")

// unknownOutcome returns the error of a commit of which it isn't known whether it happened: the store was away, and callers read
// again.
func unknownOutcome(err error) error {
	if _, known := errors.AsType[*sqldb.UnknownOutcomeError](err); known {
		return err
	}
	return fmt.Errorf("%w: %w", tko.ErrUnavailable, &sqldb.UnknownOutcomeError{Err: err})
}

// committed returns the outcomes of a transaction that was committed at a time.
func (t *transaction) committed(at time.Time) []record.Outcome {
	for i := range t.outcomes {
		if change, ok := t.changed[i]; ok {
			p := t.placeOf(change)
			p.At = at
			t.outcomes[i].Position = p.position()
			t.store.seen(p.position())
		}
	}
	for _, c := range t.contents {
		t.store.blobs.Put(c.digest, c.data, len(c.data))
	}
	if len(t.changes) > 0 {
		for _, queue := range t.woken {
			t.due[queue] = true
		}
		t.store.wake(t.due)
	}
	return t.outcomes
}

// failure returns the error of a transaction.
func (t *transaction) failure(err error) error {
	if t.refused != nil {
		return t.refused
	}
	return failure("commit", err, t.sent)
}

// failure describes an error of a transaction that was about to be committed, if sent.
func failure(doing string, err error, sent bool) error {
	if sent {
		switch spanner.ErrCode(err) {
		case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable, codes.Unknown, codes.Internal:
			return unknownOutcome(err)
		default:
		}
	}
	if code := spanner.ErrCode(err); code == codes.DeadlineExceeded || code == codes.Unavailable || code == codes.Aborted || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: Spanner didn't commit within %s: try again: %w", tko.ErrUnavailable, maxWait, err)
	}
	return fault(doing, err)
}

// isOfDatabase reports whether an error is one of the database or of a context, and not of a rule.
func isOfDatabase(err error) bool {
	_, isStatus := status.FromError(err) // errors of the client have a status
	return isStatus || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// A step reads in a transaction, and puts what it writes. It may run more than once.
type step func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error

// write runs a step in a transaction without changes of records. A step that runs again after its first run was committed must find
// that out. Errors of rules are returned unchanged.
func (s *Store) write(ctx context.Context, doing string, fn step) error {
	leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWait)
	defer cancel()
	var refused error
	sent := false
	_, err = s.client.ReadWriteTransaction(work, func(work context.Context, tx *spanner.ReadWriteTransaction) error {
		refused = ctx.Err()
		if refused != nil {
			return refused
		}
		m := new(mutations)
		if err := fn(work, tx, m); err != nil {
			if !isOfDatabase(err) {
				refused = err
			}
			return err
		}
		refused = m.check()
		if refused != nil || len(m.list) == 0 {
			return refused
		}
		sent = true
		return tx.BufferWrite(m.list)
	})
	switch {
	case refused != nil:
		return refused
	case err != nil:
		return failure(doing, err, sent)
	}
	return nil
}

// writeOnce is write of a step that can't find out that it was committed: then its outcome is unknown.
func (s *Store) writeOnce(ctx context.Context, doing string, fn step) error {
	var certain *certainty
	ctx, certain = withCertainty(ctx)
	err := s.write(ctx, doing, func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		if certain.lost.Load() {
			return unknownOutcome(errRunAgain)
		}
		return fn(ctx, tx, m)
	})
	if err != nil && certain.lost.Load() {
		return unknownOutcome(err)
	}
	return err
}

// enter waits until a transaction may begin.
func (s *Store) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.lanes <- struct{}{}:
		return func() { <-s.lanes }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
