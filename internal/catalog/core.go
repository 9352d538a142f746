package catalog

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// A core is what all parts of a [Service] share. It reads records as their callers may see them, and commits
// writes.
type core struct {
	rights

	shares  *lru.Cache[string, cachedShares]   // by cause
	lineage *lru.Cache[string, cachedForebear] // by deployment
}

// at returns a record with its package, as of a revision; 0 is the current one, or
// that as of the moment of the context (see [tko.WithAsOf]).
// It returns ErrNotFound if there is none.
func (s *core) at(ctx context.Context, key record.Key, revision int64) (record.Record, *caller, error) {
	ctx, c, err := s.enter(ctx, key.Kind, access.Read)
	if err != nil {
		return record.Record{}, nil, err
	}
	r, err := s.atOf(ctx, c, key, revision)
	return r, c, err
}

// read returns the entity of a record with its package, as at does.
func read[T any](ctx context.Context, s *core, key record.Key, revision int64, entity func(*caller, record.Record) (T, error)) (T, error) {
	r, c, err := s.at(ctx, key, revision)
	if err != nil {
		var none T
		return none, err
	}
	return entity(c, r)
}

func (s *core) atOf(ctx context.Context, c *caller, key record.Key, revision int64) (record.Record, error) {
	if revision < 0 {
		return record.Record{}, tko.Errorf(tko.ErrInvalid, "%s %q: the revision %d is negative: use 0 for the current one", key.Kind, key.ID, revision)
	}
	if CheckKey(key) != nil {
		return record.Record{}, missing(key)
	}
	if asOf := tko.AsOfOf(ctx); !asOf.IsZero() {
		if revision > 0 {
			return record.Record{}, tko.Errorf(tko.ErrInvalid, "%s %q: a revision and a moment of the past are given: use one", key.Kind, key.ID)
		}
		return s.past(ctx, c, key, record.Fields{Package: true, Deployments: key.Kind != tko.KindDeployment})
	}
	if revision > 0 {
		r, err := s.store.Revision(ctx, key, revision)
		if err == nil && !c.view().IsAll() { // the record may have been elsewhere then, or be elsewhere now
			var now record.Record
			if now, err = s.get(ctx, record.Fields{}, key); err == nil && (!c.sees(r) || now.Revision != 0 && !c.sees(now)) {
				err = tko.ErrNotFound
			}
		}
		if errors.Is(err, tko.ErrNotFound) {
			if err := checkNewID(key); err != nil {
				return record.Record{}, err
			}
			return record.Record{}, tko.Errorf(tko.ErrNotFound, "%s %q has no revision %d, or it is no longer retained", key.Kind, key.ID, revision)
		}
		return r, err
	}
	return s.getVisible(ctx, c, record.Fields{Package: true, Deployments: key.Kind != tko.KindDeployment, Scope: c.view()}, key)
}

// past returns a record as of the moment of the context. The caller must be allowed to
// read it as it was, and as it is, unless it was deleted.
func (s *core) past(ctx context.Context, c *caller, key record.Key, fields record.Fields) (record.Record, error) {
	position, err := s.asOf(ctx)
	if err != nil {
		return record.Record{}, err
	}
	return s.recordAt(ctx, c, position, key, fields)
}

func (s *core) recordAt(ctx context.Context, c *caller, position int64, key record.Key, fields record.Fields) (record.Record, error) {
	fields.Scope = c.view()
	records, err := s.store.GetAt(ctx, position, fields, key)
	if err != nil {
		return record.Record{}, err
	}
	r, visible := records[0], c.sees(records[0])
	if visible && !c.view().IsAll() {
		now, err := s.get(ctx, record.Fields{}, key)
		if err != nil {
			return record.Record{}, err
		}
		visible = now.Revision == 0 || c.sees(now)
	}
	if !visible {
		return record.Record{}, tko.Errorf(tko.ErrNotFound, "%s %q did not exist as of position %d", key.Kind, key.ID, position)
	}
	return r, nil
}

// commit commits writes under the claim of the context, and makes users' errors
// of the store's errors.
func (s *core) commit(ctx context.Context, writes ...record.Write) (_ []record.Outcome, err error) {
	if claim, ok := tko.ClaimOf(ctx); ok {
		for i := range writes {
			writes[i].Claim = &claim
		}
	}
	c, ok := callerOf(ctx)
	if !ok {
		return nil, errNotEntered
	}
	if err := s.permitCredentials(ctx, c, writes); err != nil {
		return nil, err
	}
	ctx, span := trail.Start(ctx, "catalog.commit")
	if span.IsRecording() && len(writes) > 0 {
		span.SetAttributes(trail.Kind.String(string(writes[0].Record.Kind)), trail.ID.String(writes[0].Record.ID), trail.Count.Int(len(writes)))
	}
	defer func() { trail.End(span, err) }()
	for i := range writes {
		c.stampOwner(&writes[i])
	}
	cause := trail.Cause(ctx)
	pinned := make([]*int64, len(writes)) // versions of the rules that freezes were read of
	isPinned := false
	for i := range writes {
		pinned[i] = writes[i].Access
		isPinned = isPinned || pinned[i] != nil
	}
	fresh := rulesAge
	reports := !slices.ContainsFunc(writes, func(w record.Write) bool { return w.Op != tko.OpStatus }) // no stop holds reports
	for again := 0; ; again++ {
		book, err := s.rulesOf(ctx, fresh)
		if err != nil {
			return nil, err
		}
		for i := range writes {
			writes[i].Cause = cause
			version := book.Version // with whose stops the write is checked
			if c.bound && s.options.Access == AccessEnforce {
				version = c.grant.Version
			}
			if pinned[i] != nil {
				version = min(version, *pinned[i])
			}
			writes[i].Access = &version
			if reports && !c.bound && pinned[i] == nil {
				writes[i].Access = nil
			}
			if s.options.Audit {
				writes[i].Audit = c.auditCaller(ctx)
			}
		}
		outcomes, err := s.commitReplacing(ctx, book, writes)
		if errors.Is(err, tko.ErrStopped) && fresh != 0 { // the rules may be older than the end of the stop
			fresh = 0
			continue
		}
		if !isPinned && isStale(err) && again < maxAttempts {
			// The rules have changed. If the rights of the caller have not, the commit is
			// still permitted.
			fresh = 0
			now, readErr := s.rulesOf(ctx, 0)
			permitted := !c.bound && readErr == nil && now.Version != book.Version
			if c.bound {
				permitted, readErr = s.renew(ctx, c)
			}
			if readErr != nil {
				return nil, readErr
			}
			if permitted {
				continue
			}
		}
		if err != nil {
			return nil, explain(err)
		}
		return outcomes, nil
	}
}

// explain converts a store's error to an error for users.
func explain(err error) error {
	if exceeded, ok := errors.AsType[*record.ExceededError](err); ok {
		return tko.Errorf(tko.ErrInvalid, "entities were added since they were counted, and at most %d may be changed: check the selection again: %w", exceeded.Limit, err)
	}
	missing, ok := errors.AsType[*record.MissingError](err)
	if !ok {
		return err
	}
	if missing.Deleting {
		return tko.Errorf(tko.ErrInvalid, "%s %q is being deleted: wait until it is deleted, or name another; if the deletion was interrupted, delete it again", missing.Key.Kind, missing.Key.ID)
	}
	if missing.Key.Kind == tko.KindDeployment {
		return tko.Errorf(tko.ErrInvalid, "parent deployment %q does not exist: create it first, or leave the parent out", missing.Key.ID)
	}
	return tko.Errorf(tko.ErrInvalid, "%s %q does not exist: register it first, or name another", missing.Key.Kind, missing.Key.ID)
}

// maxAttempts is the maximum number of times that a change is derived because
// its record has changed.
const maxAttempts = 12

// maxPause is the longest pause before a change is derived again.
const maxPause = 2 * time.Second

// A finalError ends [retry], whatever its kind is.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }

func final(err error) error { return &finalError{err} }

// retry calls f until the result is not a conflict, or is a final error. With
// each conflict, another writer has succeeded. Pauses grow with the time that an
// attempt takes: many writers of one entity on a busy machine would otherwise all
// start again while one of them commits, so that each attempt serves only one.
func retry(ctx context.Context, f func() error) error {
	var err error
	for attempt := range maxAttempts {
		began := time.Now()
		err = f()
		if end, ok := errors.AsType[*finalError](err); ok {
			return end.err
		}
		if !errors.Is(err, tko.ErrConflict) {
			return err
		}
		limit := min(max(time.Millisecond<<min(attempt, 6), time.Duration(attempt)*time.Since(began)), maxPause)
		if pause.For(ctx, pause.Between(0, limit)) != nil {
			return ctx.Err()
		}
	}
	return err
}

// author returns the author of a change, in storable text.
func author(ctx context.Context) tko.Author {
	a := tko.AuthorOf(ctx)
	if c, ok := callerOf(ctx); ok && c.verified { // others may not write under another name
		a.Who = c.identity.Subject
	}
	return tko.Author{Who: plainText(a.Who, 256), Why: plainText(a.Why, 4096)}
}

// plainText returns a text that every database can store: valid UTF-8 without
// NUL, at most limit bytes.
func plainText(text string, limit int) string {
	return printable.Within(printable.Storable(text), limit)
}
