package relational

import (
	"context"
	"errors"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// A call is one call of Commit.
type call struct {
	writes   []catalog.Write
	cascades bool // deletes something on which others depend
	done     chan struct{}
	outcomes []catalog.Outcome
	err      error
}

// What is put into one transaction at most.
const (
	groupCalls  = 64
	groupWrites = 512
)

// maxCommit is how long a transaction may take before the connection is taken
// for dead.
const maxCommit = 5 * time.Minute

// maxKey is the longest key of metadata: what fits into the index.
const maxKey = 1024

// Commit applies writes in one transaction.
func (s *Store) Commit(ctx context.Context, writes ...catalog.Write) ([]catalog.Outcome, error) {
	if len(writes) == 0 {
		return nil, ctx.Err()
	}
	c := &call{writes: writes, done: make(chan struct{})}
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
		c.cascades = c.cascades || w.Op == tko.OpDeleted && w.Record.Kind != tko.KindPlugin
	}
	select {
	case s.calls <- c:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended.Done():
		return nil, errClosed
	}
	<-c.done // from here on it is decided by the transaction, not by the caller's patience
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
	for _, pairs := range []map[string]string{r.Metadata.Effective, r.Metadata.Inherited, r.Metadata.Passed} {
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

// commitCalls is the committer: while one transaction is under way, the calls
// that come in wait, and all go into the next.
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

// commitGroup runs calls in one transaction. If that fails as a whole, each is
// run alone, so that one doesn't fail the others.
func (s *Store) commitGroup(ctx context.Context, calls []*call) {
	err := s.retry(ctx, func() error { return s.tryGroup(ctx, calls) })
	unknown := (*UnknownOutcomeError)(nil)
	if err != nil && len(calls) > 1 && !errors.As(err, &unknown) && !s.db.Transient(err) && ctx.Err() == nil {
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
	if err == nil {
		s.Wake()
	}
}

// tryGroup runs calls in one transaction: reads what they depend on, decides
// one after the other, and writes what comes of it.
func (s *Store) tryGroup(ctx context.Context, calls []*call) error {
	tx, err := s.db.Begin(ctx, Write)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	g := newGroup(s)
	if err := g.load(ctx, tx, calls); err != nil {
		return err
	}
	began, step := time.Now(), g.left
	for _, c := range calls {
		if c.cascades {
			if err := g.loadDependents(ctx, tx, c); err != nil {
				return err
			}
		}
		c.outcomes, c.err = g.decide(c.writes)
	}
	if !g.changed() {
		return nil
	}
	statements, err := g.flush(ctx, tx)
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx, append(append(statements, g.saveHead()), s.dialect.Notify...)...); err != nil {
		return err
	}
	g.remember()
	if n := step - g.left; n > 0 {
		s.pace.took(n, time.Since(began))
	}
	return nil
}
