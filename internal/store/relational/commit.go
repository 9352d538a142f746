package relational

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// A call is one change that waits for its transaction: writes, the start or the end of
// a modification, or audit records.
type call struct {
	caller   context.Context //nolint:containedctx // ends when the caller stops waiting
	begun    time.Time
	writes   []record.Write
	reach    record.Reach
	cascades bool           // deletes a record on which other records may depend
	token    *tokenCall     // instead of writes
	audits   []audit.Record // instead of writes
	deferred bool           // was not decided by the last transaction, and needs another one
	done     chan struct{}
	outcomes []record.Outcome
	err      error
}

// Limits of one transaction.
const (
	groupCalls  = 64
	groupWrites = 512
)

// maxGather limits the time for which a group waits for more calls.
const maxGather = time.Millisecond

// maxCommit is the duration of a transaction after which its connection is
// considered dead.
const maxCommit = 5 * time.Minute

// Commit applies writes in one transaction.
func (s *Store) Commit(ctx context.Context, gated record.Gated) ([]record.Outcome, error) {
	writes := gated.Writes()
	if len(writes) == 0 {
		return nil, ctx.Err()
	}
	c := &call{writes: writes, reach: gated.Reach()}
	if err := decide.CheckTexts("cause", c.reach.Cause); err != nil {
		return nil, err
	}
	keys := make(map[record.Key]bool, len(writes))
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
	err := s.submit(ctx, c)
	if errors.Is(err, tko.ErrConflict) {
		s.observe(Observer.Conflicted)
	}
	return c.outcomes, err
}

// submit waits until a call is committed, and returns its error.
func (s *Store) submit(ctx context.Context, c *call) (err error) {
	ctx, span := trail.Start(ctx, "store.commit")
	defer func() { trail.End(span, err) }()
	c.caller, c.begun, c.done = ctx, time.Now(), make(chan struct{})
	select {
	case s.calls <- c:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ended.Done():
		return errClosed
	}
	<-c.done // from here on the transaction decides, even if the caller's context ends
	return c.err
}

func checkWrite(w *record.Write) error {
	if w.Claim != nil {
		if err := decide.CheckItem(*w.Claim); err != nil {
			return err
		}
	}
	return decide.CheckWrite(w)
}

// commitCalls commits calls until the store closes: calls that arrive during one
// transaction wait, and all go into the next. Deletions have transactions of their own,
// which alternate with those of the other calls: a step of a deletion may take long, and
// so no other call waits for more than one step.
func (s *Store) commitCalls() {
	commit := func(calls []*call) (deferred []*call) {
		if len(calls) == 0 {
			return nil
		}
		ctx, cancel := context.WithTimeout(s.ended, maxCommit)
		defer cancel()
		s.commitGroup(ctx, calls)
		return slices.DeleteFunc(calls, func(c *call) bool { return !c.deferred })
	}
	for {
		var first *call
		select {
		case first = <-s.calls:
		case <-s.ended.Done():
			return
		}
		var deletions []*call
		for others := s.gather(first, &deletions); ; others = s.gather(nil, &deletions) {
			commit(others)
			if len(deletions) == 0 {
				break
			}
			deletions = commit(deletions)
		}
	}
}

// gather returns the calls that wait for a transaction, and adds deletions to
// *deletions. As long as more calls arrive, it lets the goroutines that are ready to
// run proceed, which may be about to call: on a busy machine, groups become larger and
// cost less, on an idle one nothing is delayed.
func (s *Store) gather(next *call, deletions *[]*call) (others []*call) {
	yielded, began := 0, time.Now()
	for writes := 0; ; {
		switch {
		case next == nil:
		case next.cascades:
			*deletions = append(*deletions, next)
		default:
			others = append(others, next)
		}
		if next != nil {
			writes += len(next.writes)
		}
		if len(others)+len(*deletions) >= groupCalls || writes >= groupWrites {
			return others
		}
		next = nil
		select {
		case next = <-s.calls:
			continue
		default:
		}
		if len(others)+len(*deletions) == yielded || time.Since(began) > maxGather {
			return others
		}
		yielded = len(others) + len(*deletions)
		runtime.Gosched()
	}
}

// commitGroup commits calls in one transaction. If that fails as a whole, each
// call is committed alone, so that one doesn't fail the others.
func (s *Store) commitGroup(ctx context.Context, calls []*call) {
	endSpans := traceTransaction(calls)
	var lost *group
	var last error
	err := s.retryUntil(ctx, calls[len(calls)-1].begun.Add(MaxWait), func() error {
		if lost == nil {
			calls = s.dropExpired(calls, last)
		}
		last = s.tryGroup(ctx, calls, &lost)
		return last
	})
	if lost != nil && err != nil { // whatever error followed
		err = s.away(&UnknownOutcomeError{Err: err})
		s.Wake(Everything())
	}
	if err != nil && len(calls) > 1 && lost == nil && !s.db.Transient(err) && ctx.Err() == nil {
		endSpans()
		for _, c := range calls {
			s.commitGroup(ctx, []*call{c})
		}
		return
	}
	for _, c := range calls {
		if err != nil {
			c.outcomes, c.err, c.deferred = nil, fault("commit", err), false
		}
	}
	endSpans()
	for _, c := range calls {
		if !c.deferred {
			close(c.done)
		}
	}
}

// dropExpired ends the calls whose callers stopped waiting, and returns the
// others. No call has been executed yet. last is the error of the last attempt.
func (s *Store) dropExpired(calls []*call, last error) []*call {
	var wanted []*call
	for _, c := range calls {
		switch {
		case last != nil && (c.caller.Err() != nil || time.Since(c.begun) > MaxWait):
			c.err = fault("commit", s.away(last)) // why it took too long
		case c.caller.Err() != nil:
			c.err = c.caller.Err()
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
		if (*lost).logged() {
			*lost = nil
		}
	}
	for _, c := range calls {
		if c.token != nil && *lost == nil {
			c.token.found = false
		}
	}
	g, sent := newGroup(s), time.Now()
	if err := g.load(ctx, tx, calls); err != nil {
		return err
	}
	g.read, g.now = g.now, s.commitCache.timeOf(g.now)
	*lost = nil // calls that change only tokens see what the lost transaction did
	found, began := g.head, time.Now()
	if err := g.decideAll(ctx, tx, calls); err != nil {
		return err
	}
	if !g.changed() {
		s.commitCache.updateLocked(g, found, sent, began)
		return nil
	}
	statements, err := g.flush(ctx, tx.Run)
	if err != nil {
		return err
	}
	if g.head != found {
		statements = append(append(statements, g.saveHead()), s.notify(g.news)...)
	}
	if err := tx.Commit(ctx, statements...); err != nil {
		if outcomeUnknown(err) {
			*lost = g
		}
		return err
	}
	s.observe(func(o Observer) { o.Committed(len(calls), false) })
	g.fillCaches()
	s.commitCache.updateLocked(g, found, sent, began)
	if g.head != found {
		s.Wake(g.news)
	}
	if g.step != nil {
		g.step.observe(g.stepSize-g.remaining, time.Since(began))
	}
	return nil
}

// decideAll decides calls one after the other, and at last the first deletion that
// changes records that depend on it. It defers other such deletions: each step has a
// transaction of its own.
func (g *group) decideAll(ctx context.Context, tx Tx, calls []*call) error {
	var steps []*call
	for _, c := range calls {
		c.deferred = false
		g.audits = append(g.audits, c.audits...)
		switch {
		case c.token != nil:
			c.err = g.decideToken(c.token)
		case c.cascades && g.hasDependents(c):
			steps = append(steps, c)
		default:
			g.dependents = independent(c)
			c.outcomes, c.err = g.decide(c)
		}
	}
	for i, c := range steps {
		c.deferred = i > 0
		if c.deferred {
			continue
		}
		g.beginStep(c)
		if err := g.loadDependents(ctx, tx, c); err != nil {
			return err
		}
		c.outcomes, c.err = g.decide(c)
	}
	return nil
}

// logged reports whether the group wrote changes to the log.
func (g *group) logged() bool { return g.last != record.Key{} }

// wasCommitted reports whether a group was committed whose outcome was unknown. It
// locks the head, as the lost transaction did, so that transaction has ended. If
// the group was committed, its last change is in the log with its time: another
// writer's change at that position has another time. If it changed only tokens, the log
// doesn't tell.
func (g *group) wasCommitted(ctx context.Context, tx Tx) (happened bool, err error) {
	read, what := Statement{Scan: sqldb.Found(&happened)}, "read whether the commit succeeded"
	switch {
	case g.logged():
		read.SQL = "SELECT position FROM change WHERE position = $1 AND updated = $2 AND kind = $3 AND id = $4"
		read.Args = []any{g.head.position, micros(g.now), string(g.last.Kind), g.last.ID}
	case g.recorded: // the newest audit record has a hash of its own
		read.SQL, what = "SELECT seq FROM audit WHERE seq = $1 AND hash = $2", "read whether the audit records were written"
		read.Args = []any{g.head.audited, chainValue(g.head)}
	default:
		return false, nil
	}
	err = tx.Run(ctx, g.store.lockHead(new(head), new(time.Time)), read)
	return happened, fault(what, err)
}
