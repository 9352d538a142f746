package gate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// The prefixes of causes.
const (
	causeDeployment = "deployment/" // and the ID of a root deployment
	causeSource     = "source/"     // and the name of a source
	causeController = "controller/" // and the role of one of our own controllers
	causeAuthor     = "author/"     // and who makes direct changes
)

// A cause is what commits are counted for.
type cause struct {
	name    string
	derived bool
	window  time.Duration
	sites   time.Duration // window of the sites that a derived cause changes; 0: they aren't counted
}

// windowOf returns the window of a count.
func (c cause) windowOf(count record.Count) time.Duration {
	return record.Reach{Window: c.window, SitesWindow: c.sites}.WindowOf(count)
}

// text describes the cause for users, with the window of a count.
func (c cause) text(count record.Count) string {
	c.window = c.windowOf(count)
	return c.String()
}

// String describes the cause for users.
func (c cause) String() string {
	within := c.window.String()
	if c.window%time.Hour == 0 {
		within = fmt.Sprintf("%d h", int(c.window.Hours()))
	} else if c.window%time.Minute == 0 {
		within = fmt.Sprintf("%d min", int(c.window.Minutes()))
	}
	kind, name, _ := strings.Cut(c.name, "/")
	if name == "" {
		return "within " + within
	}
	if kind+"/" == causeAuthor {
		return fmt.Sprintf("by %q within %s", name, within)
	}
	return fmt.Sprintf("for %s %q within %s", kind, name, within)
}

func rootCause(root string) cause {
	return cause{name: causeDeployment + root, derived: true, window: derivedWindow}
}

type rootKey struct{}

// WithRoot returns a context whose commits are counted for a root deployment.
func WithRoot(ctx context.Context, root string) context.Context {
	return context.WithValue(ctx, rootKey{}, root)
}

// sourceCause returns the cause of what a source changes, in all of its revisions: many
// small ones don't add up to more. A larger revision becomes a rollout as a whole.
func (s *Gate) sourceCause(name string) cause {
	return cause{name: causeSource + name, derived: true, window: derivedWindow, sites: s.settings.Reach.Window}
}

// derivesFromSource reports whether a GitOps source makes the commits.
func derivesFromSource(ctx context.Context) bool {
	c, ok := rights.CallerOf(ctx)
	return ok && (c.Identity.Role() == identity.RoleGitOps || c.Identity.Role() == "") && strings.HasPrefix(rights.Author(ctx).Who, rights.SourceOwner)
}

// causeOf returns the cause of the caller's commits that begin with the record of a key.
func (s *Gate) causeOf(ctx context.Context, first record.Key) (cause, error) {
	if root, ok := ctx.Value(rootKey{}).(string); ok {
		return rootCause(root), nil
	}
	who, role, plugged := rights.Author(ctx).Who, "", ""
	if c, ok := rights.CallerOf(ctx); ok {
		role, plugged = c.Identity.Role(), c.Root
		if p := c.Identity.Plugin; p != nil && p.Kind == tko.KindDeployment {
			plugged = p.ID
		}
	}
	source, isSource := strings.CutPrefix(who, rights.SourceOwner)
	switch {
	case plugged != "":
		root, err := s.RootOf(ctx, plugged)
		return rootCause(root), err
	case rights.IsPreparer(ctx) && first.Kind == tko.KindDeployment:
		root, err := s.RootOf(ctx, first.ID)
		of := rootCause(root)
		if !isProvenPreparer(ctx) {
			of.sites = s.settings.Reach.Window
		}
		return of, err
	case (role == identity.RoleGitOps || role == "") && isSource:
		return s.sourceCause(source), nil
	case role != "":
		return cause{name: causeController + role, derived: true, window: derivedWindow}, nil
	}
	return cause{name: causeAuthor + who, window: s.settings.Reach.Window}, nil
}
