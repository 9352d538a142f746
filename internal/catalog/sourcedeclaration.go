package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
)

// DeclareSources registers the sources that the repository of another one declares: all of
// them, or none. Those that it declared earlier are marked as undeclared, or, with Prune,
// deleted; their entities stay. It needs the claim of the parent's work: ErrConflict if the
// claim is lost. If the parent is registered, its definition must allow it.
func (s *SourceRegistry) DeclareSources(ctx context.Context, request tko.DeclareSources, claim tko.WorkItem) (tko.DeclaredSources, error) {
	var done tko.DeclaredSources
	if err := errors.Join(checkSourceName(request.Parent), checkSourceClaim(request.Parent, claim)); err != nil {
		return done, err
	}
	ctx, c, err := s.enter(ctx, "", access.Source)
	if err != nil {
		return done, err
	}
	if holder, _, err := s.store.WorkClaim(ctx, tko.QueueGitOps, request.Parent); err != nil && !errors.Is(err, tko.ErrNotFound) {
		return done, err
	} else if holder != claim.Claim {
		return done, tko.Errorf(tko.ErrConflict, "source %q: the claim of its work is lost", request.Parent)
	}
	definitions, taken, err := s.checkSources(ctx, request.Definitions, request.Parent)
	if err != nil {
		return done, err
	}
	book, err := s.rulesOf(ctx, 0)
	if err != nil {
		return done, err
	}
	applied, err := s.appliedSources(ctx, book, request.Parent)
	if err != nil {
		return done, err
	}
	var records []audit.Record
	decide := func(book *ruleBook) (put, remove []AccessRule, err error) {
		done, records = tko.DeclaredSources{}, nil
		if err := book.mayDeclare(request.Parent, len(definitions)); err != nil {
			return nil, nil, err
		}
		var wrong []error
		declared := map[string]bool{}
		for _, d := range definitions {
			declared[d.Name] = true
			d.TakeOver = false
			if d.Name == request.Parent {
				wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "source %q declares itself: use another name", d.Name))
				continue
			}
			result, err := book.define(&d, taken[d.Name])
			if err != nil {
				wrong = append(wrong, err)
				continue
			}
			if !result.Changed {
				continue
			}
			rule, err := ruleOf(ruleSource, d.Name, d)
			if err != nil {
				return nil, nil, err
			}
			put, done.Changed = append(put, rule), append(done.Changed, d.Name)
			records = append(records, describeDefinition("declared by "+request.Parent, d))
		}
		if len(wrong) > 0 {
			return nil, nil, tko.Errorf(tko.ErrInvalid, "%s", errors.Join(wrong...).Error()) // an ErrConflict is a lost claim
		}
		for _, d := range book.sources {
			if d.Parent != request.Parent || d.Ending != nil {
				continue
			}
			done.Owned++
			if declared[d.Name] {
				continue
			}
			record := audit.Record{Kind: ruleSource, ID: d.Name, Op: "undeclared by " + request.Parent, Why: author(ctx).Why}
			if !request.Prune {
				if done.Kept = append(done.Kept, d.Name); d.Undeclared {
					continue
				}
				d.Undeclared = true
			} else {
				done.Removed = append(done.Removed, d.Name)
				record.Detail = "deleted, its entities are kept"
				if !applied[d.Name] {
					remove, records = append(remove, AccessRule{Kind: ruleSource, ID: d.Name}), append(records, record)
					continue
				}
				d.Ending, d.Updated, d.By = &tko.SourceEnding{Keep: true}, time.Now().UTC().Truncate(time.Second), author(ctx)
			}
			rule, err := ruleOf(ruleSource, d.Name, d)
			if err != nil {
				return nil, nil, err
			}
			put, records = append(put, rule), append(records, record)
		}
		return put, remove, book.fits(put)
	}
	if put, remove, err := decide(book); err != nil || request.DryRun || len(put)+len(remove) == 0 {
		return done, err
	}
	if err := s.changeRules(ctx, c, decide, func() []audit.Record { return records }); err != nil {
		return done, err
	}
	return done, s.store.EnqueueWork(ctx, tko.QueueGitOps, slices.Concat(done.Changed, done.Removed), false)
}

// mayDeclare returns an error if the repository of a source may not declare n others: only
// those of settings, whose role decides, and those whose definition allows it. So one that
// is declared can't.
func (b *ruleBook) mayDeclare(parent string, n int) error {
	d, registered := b.definition(parent)
	if n == 0 || !registered {
		return nil
	}
	var spec struct {
		AllowSources bool `json:"allowSources"`
	}
	if err := json.Unmarshal(d.Spec, &spec); err != nil {
		return fmt.Errorf("the definition of source %q: %w", parent, err)
	}
	switch {
	case d.Ending != nil:
		return tko.Errorf(tko.ErrInvalid, "source %q is being deleted, and declares no others meanwhile", parent)
	case d.Parent != "":
		return tko.Errorf(tko.ErrInvalid, "the repository of source %q declares source %q, which can't declare others: declare them there", d.Parent, parent)
	case !spec.AllowSources:
		return tko.Errorf(tko.ErrInvalid, "source %q may not declare sources: set allowSources: true in its definition, or remove their manifests", parent)
	}
	return nil
}

// appliedSources returns those of the sources that a source declares which the role gitops
// has applied.
func (s *SourceRegistry) appliedSources(ctx context.Context, book *ruleBook, parent string) (map[string]bool, error) {
	applied := map[string]bool{}
	for _, d := range book.sources {
		if d.Parent != parent {
			continue
		}
		source, err := s.store.Source(ctx, d.Name)
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return nil, err
		}
		applied[d.Name] = err == nil && source.Status.Registered
	}
	return applied, nil
}
