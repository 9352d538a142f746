package authn

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// Claims hold the claims of work.
type Claims interface {
	// WorkClaim returns the claim of an item, and when its lease ends. It returns
	// ErrNotFound if no worker has a lease on the item.
	WorkClaim(ctx context.Context, queue, key string) (claim string, until time.Time, err error)
}

// Plugins authenticates the tokens of plugins. A token is valid as long as the
// lease of the work item that the plugin runs for.
type Plugins struct{ Claims Claims }

// Read returns the identity of a plugin's run.
func (p Plugins) Read(ctx context.Context, token string) (identity.Identity, bool, error) {
	if !strings.HasPrefix(token, identity.PluginTokenPrefix) {
		return identity.Identity{}, false, nil
	}
	t, issued, ok := identity.ReadPluginToken(token)
	if !ok {
		return identity.Identity{}, true, unauthenticated("the plugin's token is malformed: give it as the plugin's input has it")
	}
	run := identity.Plugin{Type: t.Type, Name: t.Name, ID: t.Key}
	switch t.Queue {
	case tko.QueuePrepare:
		run.Kind = tko.KindDeployment
	case tko.QueueSchedule:
		run.Kind = tko.KindSite
	default:
		return identity.Identity{}, true, unauthenticated("the plugin's token is for work that has no plugins")
	}
	claim, until, err := p.Claims.WorkClaim(ctx, t.Queue, t.Key)
	if err != nil && !errors.Is(err, tko.ErrNotFound) && !errors.Is(err, tko.ErrInvalid) {
		return identity.Identity{}, true, err
	}
	if err != nil || !issued(claim) {
		return identity.Identity{}, true, unauthenticated("the plugin's token has ended with the work that it was for")
	}
	return identity.OfPlugin(run, until, ""), true, nil
}
