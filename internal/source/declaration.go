package source

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
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// DeclareSources registers the sources that the repository of another one declares: all of
// them, or none. Those that it declared earlier are marked as undeclared, or, with Prune,
// deleted; their entities stay. It needs the claim of the parent's work: ErrConflict if the
// claim is lost. If the parent is registered, its definition must allow it.
func (s *Keeper) DeclareSources(ctx context.Context, request tko.DeclareSources, claim tko.WorkItem) (tko.DeclaredSources, error) {
	var done tko.DeclaredSources
	if err := errors.Join(checkSourceName(request.Parent), checkSourceClaim(request.Parent, claim)); err != nil {
		return done, err
	}
	ctx, c, err := s.rights.Enter(ctx, "", access.Source)
	if err != nil {
		return done, err
	}
	if holder, _, err := s.store.WorkClaim(ctx, tko.QueueGitOps, request.Parent); err != nil && !errors.Is(err, tko.ErrNotFound) {
		return done, err
	} else if holder != claim.Claim {
		return done, tko.Errorf(tko.ErrConflict, "source %q: the claim of its work is lost", request.Parent)
	}
	sources, subscriptions, declaredViews := splitDeclared(request.Definitions)
	definitions, taken, err := s.checkSources(ctx, sources, request.Parent)
	if err != nil {
		return done, err
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return done, err
	}
	if err := s.permitSourceCredentials(ctx, c, book, definitions); err != nil {
		return done, err
	}
	applied, err := s.appliedSources(ctx, book, request.Parent)
	if err != nil {
		return done, err
	}
	subscribed, err := s.subscriptions.declaredSubscriptions(ctx, c, book, request.Parent, subscriptions)
	if err != nil {
		return done, err
	}
	views, err := s.views.declaredViews(ctx, book, request.Parent, declaredViews)
	if err != nil {
		return done, err
	}
	in := declaring{request: request, definitions: definitions, subscriptions: subscribed, views: views, taken: taken, applied: applied, by: rights.Author(ctx), now: time.Now().UTC().Truncate(time.Second)}
	d, err := in.decide(book)
	if err != nil || request.DryRun || len(d.Put)+len(d.Remove) == 0 {
		return d.done, err
	}
	if d, err = rights.ChangeRules(ctx, s.rights, c, in.decide); err != nil {
		return d.done, err
	}
	return d.done, s.store.EnqueueWork(ctx, tko.QueueGitOps, slices.Concat(d.done.Changed, d.done.Removed), false)
}

// declaring is what a declaration of sources is decided from, in addition to the rules.
type declaring struct {
	request        tko.DeclareSources
	definitions    []tko.SourceDefinition
	subscriptions  []rights.StoredSubscription
	views          []rights.StoredView
	taken, applied map[string]bool
	by             tko.Author
	now            time.Time
}

// A declaration is the decision about sources that a repository declares.
type declaration struct {
	rights.Change

	done tko.DeclaredSources
}

// decide returns how a declaration changes the rules.
func (in declaring) decide(book *rights.Book) (r declaration, err error) {
	if err := mayDeclare(book, in.request.Parent, len(in.definitions)+len(in.subscriptions)+len(in.views)); err != nil {
		return r, err
	}
	var wrong []error
	declared := map[string]bool{}
	for _, d := range in.definitions {
		declared[d.Name] = true
		d.TakeOver = false
		if d.Name == in.request.Parent {
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "source %q declares itself: use another name", d.Name))
			continue
		}
		result, err := defineSource(book, &d, in.taken[d.Name])
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		if !result.Changed {
			continue
		}
		r.done.Changed = append(r.done.Changed, d.Name)
		if err := r.Write(record.RuleSource, d.Name, d, describeDefinition("declared by "+in.request.Parent, d)); err != nil {
			return r, err
		}
	}
	if len(wrong) > 0 {
		return r, tko.Errorf(tko.ErrInvalid, "%s", errors.Join(wrong...).Error()) // an ErrConflict is a lost claim
	}
	for _, d := range book.Sources {
		if d.Parent != in.request.Parent || d.Ending != nil {
			continue
		}
		r.done.Owned++
		if declared[d.Name] {
			continue
		}
		rec := audit.Record{Kind: record.RuleSource, ID: d.Name, Op: "undeclared by " + in.request.Parent, Why: in.by.Why}
		if !in.request.Prune {
			r.done.Kept = append(r.done.Kept, d.Name)
			if d.Undeclared {
				continue
			}
			d.Undeclared = true
		} else {
			r.done.Removed = append(r.done.Removed, d.Name)
			rec.Detail = "deleted, its entities are kept"
			if !in.applied[d.Name] {
				r.EraseSource(book, d.Name)
				r.Records = append(r.Records, rec)
				continue
			}
			d.Ending, d.Updated, d.By = &tko.SourceEnding{Keep: true}, in.now, in.by
		}
		if err := r.Write(record.RuleSource, d.Name, d, rec); err != nil {
			return r, err
		}
	}
	if err := fitSources(book, r.Put); err != nil {
		return r, err
	}
	kept, err := declareSubscriptions(book, &r.Change, in.subscriptions, in)
	if err != nil {
		return r, err
	}
	keptViews, err := declareViews(book, &r.Change, in.views, in)
	r.done.Kept = append(append(r.done.Kept, kept...), keptViews...)
	return r, err
}

// mayDeclare returns an error if the repository of a source may not declare n others: only
// those of settings, whose role decides, and those whose definition allows it. So one that
// is declared can't.
func mayDeclare(b *rights.Book, parent string, n int) error {
	d, registered := b.Definition(parent)
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
func (s *Keeper) appliedSources(ctx context.Context, book *rights.Book, parent string) (map[string]bool, error) {
	applied := map[string]bool{}
	for _, d := range book.Sources {
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
