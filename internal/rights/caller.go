package rights

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// A Caller is who calls, with its rights.
type Caller struct {
	Identity identity.Identity
	Grant    *access.Grant
	verb     access.Verb // of the request, for the audit log
	// Bound reports that the grant depends on the rules of access, so that commits
	// must check their version.
	Bound bool
	// verified reports that the identity is the author of changes, whatever the
	// caller claims.
	verified  bool
	reporting bool         // what it may not do is reported, and done nevertheless
	Root      string       // the deployment that a plugin works on: it may change its descendants
	author    record.Owner // of the deployment that a plugin works on
	// within is what the author of the deployment may do, to which a plugin's changes of its
	// descendants are limited; nil: they aren't.
	within *access.Grant
	acting *acting // what a controller works for; nil for others, and if it doesn't say so
	claims bool    // the controller must hold the claim of the work on that
	// unnamed is what a controller may write that doesn't say what it works for; nil for
	// others.
	unnamed *access.Grant
	// limit is what a client is bound to that acts as a controller; nil for others.
	limit *access.Grant
}

type callerKey struct{}

// withCaller returns a context with a caller.
func withCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller of a request that was entered.
func CallerOf(ctx context.Context) (*Caller, bool) {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c, c != nil
}

// WithAllRights returns a context in which a caller may do everything.
func WithAllRights(ctx context.Context, c *Caller) context.Context {
	own := *c
	own.Grant, own.Bound, own.unnamed = access.All, false, nil
	return withCaller(ctx, &own)
}

// nothing is what the server's own controllers may write that don't say what they work for.
var nothing = new(access.Grant)

// isBound reports whether a client that acts as a controller is bound to a verb on a record.
func (c *Caller) isBound(verb access.Verb, r record.Record) bool {
	return c.limit == nil || c.limit.May(verb, record.AttributesOf(r))
}

// may reports whether the caller may use a verb on a record.
func (c *Caller) may(verb access.Verb, r record.Record) bool {
	grant := c.Grant
	if c.unnamed != nil && changes(verb) {
		grant = c.unnamed
	}
	return grant.May(verb, record.AttributesOf(r))
}

// controllerGrants are the rights of our own controllers, by role.
var controllerGrants = map[string]*access.Grant{
	identity.RoleServer:    access.All,
	identity.RolePreparer:  access.GrantOf(access.ControllerPrepare),
	identity.RoleScheduler: access.GrantOf(access.ControllerSchedule),
	identity.RoleGitOps:    access.GrantOf(access.ControllerGitOps),
	identity.RoleRollout:   access.GrantOf(access.ControllerRollout),
}

// View returns what the caller may read.
func (c *Caller) View() access.View {
	if c.reporting {
		return access.ScopeAll
	}
	return c.Grant.View()
}

// Scope returns the records of a kind that the caller may select for a verb; other
// kinds as it may read them.
func (c *Caller) Scope(verb access.Verb, kind tko.Kind) access.View {
	if c.reporting {
		return access.ScopeAll
	}
	return c.Grant.View().With(kind, c.Grant.On(verb, kind))
}

// Sees reports whether the caller may read a record. It doesn't see a record that
// doesn't exist.
func (c *Caller) Sees(r record.Record) bool {
	return r.Revision != 0 && (c.Grant.IsAll() || c.reporting || c.acting.is(r) && c.isBound(access.Read, r) || c.Grant.May(access.Read, record.AttributesOf(r)))
}

func (c *Caller) record(ctx context.Context, kind tko.Kind, id string, verb access.Verb, decision, detail string) audit.Record {
	r := audit.Record{Caller: *c.AuditCaller(ctx), Kind: string(kind), ID: id, Detail: detail, Why: Author(ctx).Why}
	r.Action, r.Decision = string(verb), decision
	return r
}

// AuditCaller returns the caller as audit records have it.
func (c *Caller) AuditCaller(ctx context.Context) *audit.Caller {
	i := c.Identity
	a := &audit.Caller{Subject: i.Subject, Authn: i.Authenticator, Claimed: i.Claimed, Source: i.From, Groups: i.Groups, Action: string(c.verb), Request: trail.Request(ctx), Access: c.Grant.Version}
	if a.Subject == "" || i.IsAnonymous() {
		if who := tko.AuthorOf(ctx).Who; a.Claimed == "" && who != "" {
			a.Claimed = who
		}
	}
	return a
}

// Reveals reports whether the caller may see the values of Secrets in a record.
func (c *Caller) Reveals(r record.Record) bool {
	return c.Grant.IsAll() || c.reporting || (c.acting.holds(r) || c.acting.merges(r) && c.Sees(r)) && c.isBound(access.Secret, r) || c.Grant.May(access.Secret, record.AttributesOf(r))
}

// mayConsent reports whether a confirmation of the caller is consent. Plugins and controllers
// have that which users gave to what they work for; the budget of a source is its consent.
func mayConsent(ctx context.Context) bool {
	c, ok := CallerOf(ctx)
	if !ok || c.Identity.Plugin != nil || IsPreparer(ctx) {
		return false
	}
	role := c.Identity.Role()
	return (role == "" || role == identity.RoleGitOps) && (c.acting == nil || c.acting.Kind == tko.KindSource)
}

// IsPreparer reports whether a preparer makes the commits, as far as the caller shows.
func IsPreparer(ctx context.Context) bool {
	role := ""
	if c, ok := CallerOf(ctx); ok {
		role = c.Identity.Role()
	}
	return role == identity.RolePreparer || role == "" && Author(ctx).Who == identity.RolePreparer
}

// WithPlanning returns a context in which a caller plans, which needs plugins and topologies that it may
// not read. It writes nothing.
func WithPlanning(ctx context.Context, c *Caller) context.Context {
	return withCaller(ctx, &Caller{Identity: c.Identity, Grant: access.All, verified: c.verified})
}

// IsUnnamed reports whether the caller is a controller that doesn't say what it works for, and so may
// write nothing.
func (c *Caller) IsUnnamed() bool { return c.unnamed != nil }

// IsHeld reports whether the caller is a controller whose work is held: the rights of its owner aren't
// known, or it has none.
func (c *Caller) IsHeld() bool { return c.acting != nil && c.acting.held != "" }

// IsProvenPreparer reports whether the caller is one of the server's own preparers, or is bound to their
// role and works for a deployment.
func (c *Caller) IsProvenPreparer() bool {
	return c.Identity.Role() == identity.RolePreparer || c.limit != nil && c.acting != nil && c.acting.Kind == tko.KindDeployment
}

// MayAnywhere reports whether the caller may use a verb on every entity of a kind, or only reports what it may not.
func (c *Caller) MayAnywhere(verb access.Verb, kind tko.Kind) bool {
	return c.Grant.IsAll() || c.reporting || c.Grant.On(verb, kind).IsAll()
}

// MayInGeneral reports whether the caller may use a verb that is about no entity, or only reports what it may not.
func (c *Caller) MayInGeneral(verb access.Verb) bool {
	return c.reporting || c.Grant.May(verb, access.Attributes{})
}
