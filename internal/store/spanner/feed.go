package spanner

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// Windows of time in which the log is read. A window without a full page is followed by one that
// is windowGrowth times as long: sorting everything after a position would cost as much as the
// whole rest of the log.
const (
	firstWindow  = 10 * time.Second
	windowGrowth = 8
)

// changesOf selects the changes of all slots within a window. The slots are a table, so that the
// database seeks in each.
const changesOf = "FROM UNNEST(GENERATE_ARRAY(0, 127)) AS slot JOIN change AS c ON c.shard = slot "

// Changes returns the changes after a position. All slots are read in one strong snapshot: a
// snapshot has every commit up to its timestamp, and later commits have greater timestamps, so no
// change appears before one that was returned.
func (s *Store) Changes(ctx context.Context, after int64, limit int) (changes []tko.Change, err error) {
	if limit <= 0 {
		return nil, ctx.Err()
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	m, err := readMilestones(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	if gone := m.begin(); after < gone {
		return nil, tko.Errorf(tko.ErrGone, "changes up to %d are no longer retained: list again", gone)
	}
	last := placeOf(after)
	window := firstWindow
	for from := last.At; ; {
		until := from.Add(window)
		statement := spanner.Statement{
			SQL: "SELECT " + changeColumns + " " + changesOf +
				"WHERE c.committed >= @from AND c.committed < @until AND (c.committed > @last OR c.shard > @slot OR c.shard = @slot AND c.n > @n) " +
				"ORDER BY c.committed, c.shard, c.n LIMIT @limit",
			Params: map[string]any{"from": from, "until": until, "last": last.At, "slot": last.Slot, "n": last.N, "limit": int64(limit - len(changes))},
		}
		err := snapshot.Query(ctx, statement).Do(func(row *spanner.Row) error {
			c, err := scanChange(row)
			changes = append(changes, c)
			return err
		})
		if err != nil {
			return nil, fault("read changes", err)
		}
		as, err := snapshot.Timestamp()
		if err != nil {
			return nil, fault("read changes", err)
		}
		if len(changes) == limit || until.After(as) {
			break
		}
		from, window = until, windowGrowth*window
	}
	if len(changes) > 0 {
		s.seen(changes[len(changes)-1].Position)
	}
	return changes, nil
}

// changeColumns are the columns that scanChange reads at first.
const changeColumns = "c.shard, c.committed, c.n, c.kind, c.id, c.op, c.revision, c.who, c.why, c.happened"

func scanChange(row *spanner.Row, more ...any) (c tko.Change, err error) {
	var at place
	var kind, op string
	var happened spanner.NullTime
	err = row.Columns(append([]any{&at.Slot, &at.At, &at.N, &kind, &c.ID, &op, &c.Revision, &c.Author.Who, &c.Author.Why, &happened}, more...)...)
	c.Position, c.Kind, c.Op, c.Time = at.position(), tko.Kind(kind), tko.Op(op), at.At.UTC()
	if happened.Valid { // of a restored change: its position may not tell
		c.Time = happened.Time.UTC()
	}
	return c, err
}

// Head returns the position of the newest change.
func (s *Store) Head(ctx context.Context) (int64, error) { return s.newestBut(ctx, 0) }

// BeforeNewest returns the position after which there are the newest n changes.
func (s *Store) BeforeNewest(ctx context.Context, n int) (int64, error) {
	return s.newestBut(ctx, max(0, n))
}

// newestBut returns the position of the newest change but n; if there are fewer, the one up to which changes were collected. It reads
// from the end, at first from the newest change that this store knows.
func (s *Store) newestBut(ctx context.Context, n int) (position int64, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	return s.newestOf(ctx, snapshot, n)
}

// newestOf is newestBut of a snapshot.
func (s *Store) newestOf(ctx context.Context, snapshot reader, n int) (position int64, err error) {
	m, err := readMilestones(ctx, snapshot)
	if err != nil || m.restoring { // what is restored isn't served before it is complete
		return 0, err
	}
	gone := m.begin()
	from := time.Now()
	if known := s.newest.Load(); known != 0 {
		from = placeOf(known).At
	}
	begin := placeOf(gone).At
	for window := firstWindow; ; window *= windowGrowth {
		statement := spanner.Statement{
			SQL:    "SELECT c.shard, c.committed, c.n " + changesOf + "WHERE c.committed >= @from ORDER BY c.committed DESC, c.shard DESC, c.n DESC LIMIT 1 OFFSET @skip",
			Params: map[string]any{"from": from, "skip": int64(n)},
		}
		err := snapshot.Query(ctx, statement).Do(func(row *spanner.Row) error {
			var at place
			err := row.Columns(&at.Slot, &at.At, &at.N)
			position = at.position()
			return err
		})
		if err != nil {
			return 0, fault("read the newest changes", err)
		}
		if position != 0 || !from.After(begin) {
			break
		}
		from = from.Add(-window)
		if from.Before(begin) {
			from = begin
		}
	}
	position = max(position, gone)
	if n == 0 {
		s.seen(position)
	}
	return position, nil
}

// Signal returns a channel that is closed by the next commit.
func (s *Store) Signal() <-chan struct{} {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.asked = true
	return s.signal
}

// WorkSignal returns a channel that is closed when an item of a queue may have become due earlier.
func (s *Store) WorkSignal(queue string) <-chan struct{} {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.asked = true
	signal, ok := s.work[queue]
	if !ok {
		signal = make(chan struct{})
		s.work[queue] = signal
	}
	return signal
}

// wake closes the channels of Signal, and those of WorkSignal for queues; nil for all.
func (s *Store) wake(queues map[string]bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	close(s.signal)
	s.signal, s.asked = make(chan struct{}), false
	for queue, signal := range s.work {
		if queues == nil || queues[queue] {
			close(signal)
			delete(s.work, queue)
		}
	}
	s.asked = len(s.work) > 0
}

// pollInterval is the time after which commits of other stores are noticed.
const pollInterval = 200 * time.Millisecond

// tail wakes the callers of Signal after commits of other stores. Those of this one wake them at
// once. Its last timestamp is that of the snapshot, and never that of the newest change.
func (s *Store) tail(ctx context.Context) {
	last := epochStart
	for pause.For(ctx, pollInterval) == nil {
		s.mutex.Lock()
		asked := s.asked
		s.mutex.Unlock()
		if !asked {
			continue
		}
		as, found, err := s.changedSince(ctx, last)
		if err != nil {
			continue // the reader's own call reports that the database is away
		}
		last = as
		if found {
			s.wake(nil)
		}
	}
}

// changedSince reports whether there are changes, or work that became due without one, after a timestamp, as of the timestamp that it
// returns.
func (s *Store) changedSince(ctx context.Context, last time.Time) (as time.Time, found bool, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	for _, sql := range []string{"SELECT 1 " + changesOf + "WHERE c.committed > @last LIMIT 1", "SELECT 1 FROM news WHERE noted > @last LIMIT 1"} {
		statement := spanner.Statement{SQL: sql, Params: map[string]any{"last": last}}
		err = snapshot.Query(ctx, statement).Do(func(*spanner.Row) error {
			found = true
			return nil
		})
		if err != nil {
			return as, false, err
		}
	}
	as, err = snapshot.Timestamp()
	return as, found, err
}
