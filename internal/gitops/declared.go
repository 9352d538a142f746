package gitops

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
)

// declareSources has the data controller register, or delete, the sources that a revision
// declares.
func (l *reconciliation) declareSources(ctx context.Context, revision string, r reading, prune, dryRun bool) (tko.DeclaredSources, error) {
	ctx = tko.WithAuthor(ctx, tko.Author{Who: plan.AuthorOf(l.spec.Name), Why: revision})
	d := tko.DeclareSources{Parent: l.spec.Name, Prune: prune, DryRun: dryRun}
	for _, s := range r.sources {
		d.Definitions = append(d.Definitions, s.SourceDefinition)
	}
	done, err := l.controller.client.DeclareSources(ctx, d, l.claim)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		err = l.invalid(tko.Errorf(tko.ErrInvalid, "sources of the revision: the data controller is too old for allowSources: upgrade it"))
	case errors.Is(err, tko.ErrConflict):
		err = fmt.Errorf("%w: %w", errClaim, err)
	case errors.Is(err, tko.ErrInvalid):
		err = l.invalid(fmt.Errorf("sources of the revision: %w", err))
	}
	return done, err
}

// checkDeclared returns an error if the sources that a revision declares can't be
// registered: nothing of it is applied then.
func (l *reconciliation) checkDeclared(ctx context.Context, revision string, r reading) error {
	if len(r.sources) == 0 {
		return nil
	}
	_, err := l.declareSources(ctx, revision, r, false, true)
	return err
}

// declare registers the sources that a revision declares. Those that it declares no longer
// are deleted, if the source has PruneSources, they are within its budget, and the revision
// isn't empty. Their entities stay. It returns notes about those that stay.
func (l *reconciliation) declare(ctx context.Context, revision string, r reading) (notes []string, err error) {
	if !l.spec.AllowSources {
		return nil, l.withdraw(ctx)
	}
	if len(r.sources) == 0 && !l.state.Declares {
		l.source.declared = l.controller.definitions(ctx)
		return nil, nil
	}
	l.state.Declares = true // saved first: a process that is killed meanwhile may have declared them
	if err := l.save(ctx); err != nil {
		return nil, err
	}
	would, err := l.declareSources(ctx, revision, r, l.spec.PruneSources, true)
	if err != nil {
		return nil, err
	}
	prune, remedy := l.spec.PruneSources, "delete it with tko gitops source delete NAME --keep, or declare it again"
	switch n := len(would.Removed); {
	case n == 0:
	case len(r.manifests)+len(r.sources) == 0:
		prune, remedy = false, "an empty revision deletes no sources: "+remedy
	case l.spec.Budget.Over(n, would.Owned):
		prune, remedy = false, fmt.Sprintf("%d of %d are %s: %s", n, would.Owned, l.spec.Budget.Text("entities"), remedy)
	}
	done, err := l.declareSources(ctx, revision, r, prune, false)
	if err != nil {
		return nil, err
	}
	for _, name := range done.Kept {
		if subscription, ok := strings.CutPrefix(name, tko.UndeclaredSubscription); ok {
			notes = append(notes, fmt.Sprintf("subscription %q is no longer declared, and stays: delete it with tko subscription delete %s, or declare it again", subscription, subscription))
			continue
		}
		if view, ok := strings.CutPrefix(name, tko.UndeclaredView); ok {
			notes = append(notes, fmt.Sprintf("view %q is no longer declared, and stays: delete it with tko view delete %s, or declare it again", view, view))
			continue
		}
		notes = append(notes, fmt.Sprintf("source %q is no longer declared, and stays: %s", name, remedy))
	}
	for _, name := range done.Removed {
		l.log.InfoContext(ctx, "deleting a source that is no longer declared: its entities stay", "declared", name)
	}
	l.source.declared = l.controller.definitions(ctx)
	return notes, nil
}

// withdraw makes the sources that this one declared independent of it: it may not declare
// sources any longer, or is being removed.
func (l *reconciliation) withdraw(ctx context.Context) error {
	if !l.state.Declares {
		return nil
	}
	_, err := l.declareSources(ctx, "", reading{}, false, false)
	l.state.Declares = err != nil
	return err
}

// definitions returns the version of the registered sources, after reading those that have
// changed; -1 if that fails.
func (c *Controller) definitions(ctx context.Context) int64 {
	if err := c.refresh(ctx); err != nil {
		return -1
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	return c.version
}

// sameDefinitions reports whether the registered sources have a version.
func (c *Controller) sameDefinitions(ctx context.Context, version int64) bool {
	return version >= 0 && c.definitions(ctx) == version
}
