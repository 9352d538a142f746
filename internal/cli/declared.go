package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// planDeclared checks the manifests of GitOps sources, subscriptions and views on the server,
// each together: sources may name each other.
func planDeclared(ctx context.Context, s *session, manifests []Manifest) ([]step, error) {
	steps := make([]step, len(manifests))
	for i, m := range manifests {
		steps[i].Manifest = m
	}
	for _, one := range declaredKinds {
		if err := one.plan(ctx, s, steps); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// A declaredKind is a kind of what is declared and is no entity, with its steps.
type declaredKind interface {
	plan(ctx context.Context, s *session, steps []step) error     // checks them on the server
	register(ctx context.Context, s *session, steps []step) error // all together: some name others
}

// declaredKinds are in the order in which they are registered.
var declaredKinds = []declaredKind{
	registers[tko.SourceDefinition]{
		of:   func(m Manifest) *tko.SourceDefinition { return m.Source },
		name: func(d tko.SourceDefinition) string { return d.Name },
		put: func(ctx context.Context, s *session, all []tko.SourceDefinition, dryRun bool) ([]registered, error) {
			results, err := s.registerSources(ctx, all, dryRun)
			return outcomes(results, func(r tko.RegisteredSource) registered { return registered{r.Name, r.Created, r.Changed} }), err
		},
		there: func(ctx context.Context, s *session) ([]tko.SourceDefinition, error) { return s.definitions(ctx) },
	},
	registers[tko.Subscription]{
		of:   func(m Manifest) *tko.Subscription { return m.Subscription },
		name: func(one tko.Subscription) string { return one.Name },
		put: func(ctx context.Context, s *session, all []tko.Subscription, dryRun bool) ([]registered, error) {
			results, err := s.registerSubscriptions(ctx, all, dryRun)
			return outcomes(results, func(r tko.RegisteredSubscription) registered { return registered{r.Name, r.Created, r.Changed} }), err
		},
		there: func(ctx context.Context, s *session) ([]tko.Subscription, error) {
			return call(ctx, s, s.Subscriptions)
		},
	},
	registers[tko.View]{
		of:   func(m Manifest) *tko.View { return m.View },
		name: func(v tko.View) string { return v.Name },
		put: func(ctx context.Context, s *session, all []tko.View, dryRun bool) ([]registered, error) {
			results, err := s.registerViews(ctx, all, dryRun)
			return outcomes(results, func(r tko.RegisteredView) registered { return registered{r.Name, r.Created, r.Changed} }), err
		},
		there: func(ctx context.Context, s *session) ([]tko.View, error) { return call(ctx, s, s.Views) },
	},
}

// A registered is what registering something does.
type registered struct {
	name             string
	created, changed bool
}

// outcomes returns what of makes of all.
func outcomes[A, B any](all []A, of func(A) B) []B {
	made := make([]B, len(all))
	for i, one := range all {
		made[i] = of(one)
	}
	return made
}

// registers is how things of a kind are declared.
type registers[T manifester] struct {
	of    func(Manifest) *T
	name  func(T) string
	put   func(ctx context.Context, s *session, all []T, dryRun bool) ([]registered, error) // the results are in the order of all
	there func(ctx context.Context, s *session) ([]T, error)
}

// wanted returns what steps declare, and the index of its step.
func (k registers[T]) wanted(steps []step) (all []T, index []int) {
	for i, one := range steps {
		if it := k.of(one.Manifest); it != nil {
			all, index = append(all, *it), append(index, i)
		}
	}
	return all, index
}

func (k registers[T]) plan(ctx context.Context, s *session, steps []step) error {
	wanted, index := k.wanted(steps)
	if len(wanted) == 0 {
		return nil
	}
	results, err := k.put(ctx, s, wanted, true)
	if err != nil {
		return err
	}
	there, err := k.there(ctx, s)
	if err != nil {
		return err
	}
	before := map[string]manifester{} // none if there was none, or it was deleted meanwhile
	for _, one := range there {
		before[k.name(one)] = one
	}
	for i, r := range results {
		if err := steps[index[i]].registers(r, before[r.name], wanted[i]); err != nil {
			return err
		}
	}
	return nil
}

func (k registers[T]) register(ctx context.Context, s *session, steps []step) error {
	wanted, _ := k.wanted(steps)
	if len(wanted) == 0 {
		return nil
	}
	_, err := k.put(ctx, s, wanted, false)
	return err
}

// A manifester is something that is declared.
type manifester interface{ Manifest() (krm.Resource, error) }

// registers sets what registering something does. before is nil if it isn't there.
func (step *step) registers(does registered, before, after manifester) error {
	switch {
	case does.created:
		step.verb = "create"
		return nil
	case !does.changed:
		return nil
	}
	step.verb = "update"
	if before == nil {
		return nil
	}
	old, beforeErr := before.Manifest()
	wanted, afterErr := after.Manifest()
	if err := errors.Join(beforeErr, afterErr); err != nil {
		return err
	}
	step.details = slices.Collect(krm.Package{old}.Changes(krm.Package{wanted}))
	return nil
}

// registerDeclared registers what steps declare that is no entity.
func (s *session) registerDeclared(ctx context.Context, steps []step) error {
	for _, one := range declaredKinds {
		if err := one.register(ctx, s, steps); err != nil {
			return err
		}
	}
	return nil
}
