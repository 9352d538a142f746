package rights

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// At returns a record with its package, as of a revision; 0 is the current one, or
// that as of the moment of the context (see [tko.WithAsOf]).
// It returns ErrNotFound if there is none.
func (s *Authorizer) At(ctx context.Context, key record.Key, revision int64) (record.Record, *Caller, error) {
	ctx, c, err := s.Enter(ctx, key.Kind, access.Read)
	if err != nil {
		return record.Record{}, nil, err
	}
	r, err := s.AtOf(ctx, c, key, revision)
	return r, c, err
}

// Read returns the entity of a record with its package, as [Authorizer.At] does.
func Read[T any](ctx context.Context, s *Authorizer, key record.Key, revision int64, entity func(*Caller, record.Record) (T, error)) (T, error) {
	r, c, err := s.At(ctx, key, revision)
	if err != nil {
		var none T
		return none, err
	}
	return entity(c, r)
}

// List streams the entities of a query that the caller may see, as of the moment of the context
// (see [tko.WithAsOf]). err, if not nil, is why there is no query, and what the stream ends with.
func List[T any](ctx context.Context, s *Authorizer, query record.Query, err error, entity func(*Caller, record.Record) (T, error)) iter.Seq2[T, error] {
	return record.Stream(func(yield func(T) bool) error {
		if err != nil {
			return err
		}
		ctx, w, err := s.Reads(ctx, query.Kind)
		if err != nil {
			return err
		}
		query.Scope = w.Caller().View()
		if query.AsOf, err = s.reader.AsOf(ctx); err != nil {
			return err
		}
		return s.Each(ctx, w, query, func(r record.Record) (bool, error) {
			e, err := entity(w.Caller(), r)
			return err == nil && yield(e), err
		})
	})
}

// AtOf is [Authorizer.At] for a caller whose call has begun.
func (s *Authorizer) AtOf(ctx context.Context, c *Caller, key record.Key, revision int64) (record.Record, error) {
	if revision < 0 {
		return record.Record{}, tko.Errorf(tko.ErrInvalid, "%s %q: the revision %d is negative: use 0 for the current one", key.Kind, key.ID, revision)
	}
	if record.CheckKey(key) != nil {
		return record.Record{}, record.Missing(key)
	}
	if asOf := tko.AsOfOf(ctx); !asOf.IsZero() {
		if revision > 0 {
			return record.Record{}, tko.Errorf(tko.ErrInvalid, "%s %q: a revision and a moment of the past are given: use one", key.Kind, key.ID)
		}
		return s.Past(ctx, c, key, record.Fields{Package: true, Deployments: key.Kind != tko.KindDeployment})
	}
	if revision > 0 {
		r, err := s.store.Revision(ctx, key, revision)
		if err == nil && !c.View().IsAll() { // the record may have been elsewhere then, or be elsewhere now
			var now record.Record
			if now, err = s.reader.One(ctx, record.Fields{}, key); err == nil && (!c.Sees(r) || now.Revision != 0 && !c.Sees(now)) {
				err = tko.ErrNotFound
			}
		}
		if errors.Is(err, tko.ErrNotFound) {
			if err := record.CheckNewID(key); err != nil {
				return record.Record{}, err
			}
			return record.Record{}, tko.Errorf(tko.ErrNotFound, "%s %q has no revision %d, or it is no longer retained", key.Kind, key.ID, revision)
		}
		return r, err
	}
	return s.GetVisible(ctx, c, record.Fields{Package: true, Deployments: key.Kind != tko.KindDeployment, Scope: c.View()}, key)
}

// Past returns a record as of the moment of the context. The caller must be allowed to
// read it as it was, and as it is, unless it was deleted.
func (s *Authorizer) Past(ctx context.Context, c *Caller, key record.Key, fields record.Fields) (record.Record, error) {
	position, err := s.reader.AsOf(ctx)
	if err != nil {
		return record.Record{}, err
	}
	return s.RecordAt(ctx, c, position, key, fields)
}

// RecordAt is [Authorizer.Past] as of a position.
func (s *Authorizer) RecordAt(ctx context.Context, c *Caller, position int64, key record.Key, fields record.Fields) (record.Record, error) {
	fields.Scope = c.View()
	records, err := s.store.GetAt(ctx, position, fields, key)
	if err != nil {
		return record.Record{}, err
	}
	r, visible := records[0], c.Sees(records[0])
	if visible && !c.View().IsAll() {
		now, err := s.reader.One(ctx, record.Fields{}, key)
		if err != nil {
			return record.Record{}, err
		}
		visible = now.Revision == 0 || c.Sees(now)
	}
	if !visible {
		return record.Record{}, tko.Errorf(tko.ErrNotFound, "%s %q did not exist as of position %d", key.Kind, key.ID, position)
	}
	return r, nil
}

// Commit commits writes under the claim of the context, and makes users' errors
// of the store's errors.
func (s *Authorizer) Commit(ctx context.Context, writes ...record.Write) (_ []record.Outcome, err error) {
	if claim, ok := tko.ClaimOf(ctx); ok {
		for i := range writes {
			writes[i].Claim = &claim
		}
	}
	c, ok := CallerOf(ctx)
	if !ok {
		return nil, ErrNotEntered
	}
	if err := s.PermitCredentials(ctx, c, writes); err != nil {
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
	fresh := Age
	reports := !slices.ContainsFunc(writes, func(w record.Write) bool { return w.Op != tko.OpStatus }) // no stop holds reports
	for again := 0; ; again++ {
		book, err := s.RulesOf(ctx, fresh)
		if err != nil {
			return nil, err
		}
		for i := range writes {
			writes[i].Cause = cause
			version := book.Version // with whose stops the write is checked
			if c.Bound && s.settings.Access == Enforce {
				version = c.Grant.Version
			}
			if pinned[i] != nil {
				version = min(version, *pinned[i])
			}
			writes[i].Access = &version
			if reports && !c.Bound && pinned[i] == nil {
				writes[i].Access = nil
			}
			if s.settings.Audit {
				writes[i].Audit = c.AuditCaller(ctx)
			}
		}
		outcomes, err := s.replacing(ctx, book, writes)
		if errors.Is(err, tko.ErrStopped) && fresh != 0 { // the rules may be older than the end of the stop
			fresh = 0
			continue
		}
		if !isPinned && record.IsStale(err) && again < record.MaxAttempts {
			// The rules have changed. If the rights of the caller have not, the commit is
			// still permitted.
			fresh = 0
			now, readErr := s.RulesOf(ctx, 0)
			permitted := !c.Bound && readErr == nil && now.Version != book.Version
			if c.Bound {
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
			return nil, record.Explain(err)
		}
		return outcomes, nil
	}
}

// Author returns the author of a change, in storable text.
func Author(ctx context.Context) tko.Author {
	a := tko.AuthorOf(ctx)
	if c, ok := CallerOf(ctx); ok && c.verified { // others may not write under another name
		a.Who = c.Identity.Subject
	}
	return tko.Author{Who: printable.Kept(a.Who, 256), Why: printable.Kept(a.Why, 4096)}
}
