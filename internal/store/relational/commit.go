package relational

import (
	"context"
	"errors"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// A call is one call of Commit that waits for its transaction.
type call struct {
	caller   context.Context //nolint:containedctx // ends when the caller stops waiting
	begun    time.Time
	writes   []catalog.Write
	audits   []audit.Record // without writes
	cascades bool           // deletes a record on which other records may depend
	done     chan struct{}
	outcomes []catalog.Outcome
	err      error
}

// Limits of one transaction.
const (
	groupCalls  = 64
	groupWrites = 512
)

// maxCommit is the duration of a transaction after which its connection is
// considered dead.
const maxCommit = 5 * time.Minute

// maxKey is the maximum length of a metadata key, in bytes: what fits into the
// index.
const maxKey = 1024

// Commit applies writes in one transaction.
func (s *Store) Commit(ctx context.Context, writes ...catalog.Write) ([]catalog.Outcome, error) {
	if len(writes) == 0 {
		return nil, ctx.Err()
	}
	c := &call{caller: ctx, begun: time.Now(), writes: writes, done: make(chan struct{})}
	keys := make(map[catalog.Key]bool, len(writes))
	for i := range writes {
		w := &writes[i]
		if keys[w.Record.Key] {
			return nil, tko.Errorf(tko.ErrInvalid, "%s %q is written twice in one commit", w.Record.Kind, w.Record.ID)
		}
		keys[w.Record.Key] = true
		if err := checkWrite(w); err != nil {
			return nil, err
		}
		c.cascades = c.cascades || w.Op == tko.OpDeleted && !w.SingleStep && w.Record.Kind != tko.KindPlugin
	}
	return s.submit(ctx, c)
}

// submit waits until a call is committed.
func (s *Store) submit(ctx context.Context, c *call) ([]catalog.Outcome, error) {
	select {
	case s.calls <- c:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended.Done():
		return nil, errClosed
	}
	<-c.done // from here on the transaction decides, even if the caller's context ends
	return c.outcomes, c.err
}

func checkWrite(w *catalog.Write) error {
	r := &w.Record
	switch w.Op {
	case tko.OpWritten, tko.OpDeleted, tko.OpStatus:
	default:
		return tko.Errorf(tko.ErrInvalid, "%s %q: unknown change %q", r.Kind, r.ID, w.Op)
	}
	if err := checkTexts("kind", string(r.Kind), "ID", r.ID, "uid", r.UID, "parent", r.Parent, "template", r.Template, "site", r.Site,
		"origin", r.Origin, "author", r.Author.Who, "reason", r.Author.Why, "token", w.Token); err != nil {
		return err
	}
	if w.Claim != nil {
		if err := checkItem(*w.Claim); err != nil {
			return err
		}
	}
	for _, key := range w.Requires {
		if err := checkTexts("kind", string(key.Kind), "ID", key.ID); err != nil {
			return err
		}
	}
	for _, c := range r.Conditions {
		if err := checkTexts("condition", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message); err != nil {
			return err
		}
	}
	if r.Metadata == nil {
		return nil
	}
	for _, pairs := range []map[string]string{r.Metadata.Effective, r.Metadata.Inherited, r.Metadata.Passed, r.Metadata.Labels} {
		for key, value := range pairs {
			if len(key) > maxKey {
				return tko.Errorf(tko.ErrInvalid, "metadata key %.60q… has %d bytes: use at most %d", key, len(key), maxKey)
			}
			if err := checkTexts("metadata key", key, "metadata value", value); err != nil {
				return err
			}
		}
	}
	return nil
}

// commitCalls commits calls until the store closes: calls that arrive during one
// transaction wait, and all go into the next.
func (s *Store) commitCalls() {
	for {
		select {
		case first := <-s.calls:
			ctx, cancel := context.WithTimeout(s.ended, maxCommit)
			s.commitGroup(ctx, s.gather(first))
			cancel()
		case <-s.ended.Done():
			return
		}
	}
}

func (s *Store) gather(first *call) []*call {
	group, writes := []*call{first}, len(first.writes)
	for len(group) < groupCalls && writes < groupWrites {
		select {
		case c := <-s.calls:
			group, writes = append(group, c), writes+len(c.writes)
		default:
			return group
		}
	}
	return group
}

// commitGroup commits calls in one transaction. If that fails as a whole, each
// call is committed alone, so that one doesn't fail the others.
func (s *Store) commitGroup(ctx context.Context, calls []*call) {
	var lost *group
	var last error
	err := s.retryUntil(ctx, calls[len(calls)-1].begun.Add(MaxWait), func() error {
		if lost == nil {
			calls = dropExpired(calls, last)
		}
		last = s.tryGroup(ctx, calls, &lost)
		return last
	})
	if lost != nil && err != nil { // whatever error followed
		err = away(&UnknownOutcomeError{Err: err})
		s.Wake(Everything())
	}
	if err != nil && len(calls) > 1 && lost == nil && !s.db.Transient(err) && ctx.Err() == nil {
		for _, c := range calls {
			s.commitGroup(ctx, []*call{c})
		}
		return
	}
	for _, c := range calls {
		if err != nil {
			c.outcomes, c.err = nil, fault("commit", err)
		}
		close(c.done)
	}
}

// dropExpired ends the calls whose callers stopped waiting, and returns the
// others. No call has been executed yet. last is the error of the last attempt.
func dropExpired(calls []*call, last error) []*call {
	var wanted []*call
	for _, c := range calls {
		switch {
		case c.caller.Err() != nil:
			c.err = c.caller.Err()
		case last != nil && time.Since(c.begun) > MaxWait:
			c.err = fault("commit", away(last))
		default:
			wanted = append(wanted, c)
			continue
		}
		close(c.done)
	}
	return wanted
}

// tryGroup runs calls in one transaction: it reads the records that they depend
// on, decides the calls one after the other, and writes the results. If the
// outcome of the transaction is unknown, it sets lost; the next try first reads
// whether it was committed.
func (s *Store) tryGroup(ctx context.Context, calls []*call, lost **group) error {
	if len(calls) == 0 {
		return nil
	}
	if *lost == nil {
		if written, err := s.tryOptimistic(ctx, calls, lost); written || err != nil {
			return err
		}
	}
	tx, err := s.db.Begin(ctx, Write)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if *lost != nil {
		happened, err := (*lost).wasCommitted(ctx, tx)
		if err != nil {
			return err
		}
		if happened {
			(*lost).fillCaches()
			s.Wake((*lost).news)
			*lost = nil
			return nil
		}
		*lost = nil
	}
	g := newGroup(s)
	if err := g.load(ctx, tx, calls); err != nil {
		return err
	}
	found, began, step := g.head, time.Now(), g.remaining
	for _, c := range calls {
		if c.cascades {
			if err := g.loadDependents(ctx, tx, c); err != nil {
				return err
			}
		}
		c.outcomes, c.err = g.decide(c.writes)
		g.audits = append(g.audits, c.audits...)
	}
	if !g.changed() {
		s.commitCache.updateLocked(g, found)
		return nil
	}
	statements, err := g.flush(ctx, tx.Run)
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx, append(append(statements, g.saveHead()), s.notify(g.news)...)...); err != nil {
		if unknown := (*UnknownOutcomeError)(nil); errors.As(err, &unknown) {
			*lost = g
		}
		return err
	}
	g.fillCaches()
	s.commitCache.updateLocked(g, found)
	s.Wake(g.news)
	if n := step - g.remaining; n > 0 {
		s.stepSizer.observe(n, time.Since(began))
	}
	return nil
}

// wasCommitted reports whether a group was committed whose outcome was unknown. It
// locks the head, as the lost transaction did, so that transaction has ended. If
// the group was committed, its last change is in the log with its time: another
// writer's change at that position has another time.
func (g *group) wasCommitted(ctx context.Context, tx Tx) (happened bool, err error) {
	var h head
	var now time.Time
	if g.last == (catalog.Key{}) { // only audit records: the newest one has a hash of its own
		err = tx.Run(ctx, g.store.lockHead(&h, &now), Statement{
			SQL:  "SELECT seq FROM audit WHERE seq = $1 AND hash = $2",
			Args: []any{g.head.audited, chainValue(g.head)},
			Scan: func(from Row) error {
				happened = true
				return from.Scan(new(int64))
			},
		})
		return happened, fault("read whether the audit records were written", err)
	}
	err = tx.Run(ctx, g.store.lockHead(&h, &now), Statement{
		SQL:  "SELECT position FROM change WHERE position = $1 AND updated = $2 AND kind = $3 AND id = $4",
		Args: []any{g.head.position, micros(g.now), string(g.last.Kind), g.last.ID},
		Scan: func(from Row) error {
			happened = true
			return from.Scan(new(int64))
		},
	})
	return happened, fault("read whether the commit succeeded", err)
}
