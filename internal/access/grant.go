package access

import (
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A Binding gives a role to a subject or a group, within a scope.
type Binding struct {
	ID      string     `json:"id"`
	Subject string     `json:"subject,omitempty"` // either this
	Group   string     `json:"group,omitempty"`   // or this
	Role    Role       `json:"role"`
	Scope   Scope      `json:"scope,omitzero"`
	Expires time.Time  `json:"expires,omitzero"`
	Reason  string     `json:"reason,omitempty"`
	By      tko.Author `json:"by,omitzero"` // who bound it
	Created time.Time  `json:"created,omitzero"`
}

// A Policy requires explicit approvals of the deployments of a scope, by others
// than those who changed them.
type Policy struct {
	ID        string     `json:"id"`
	Scope     Scope      `json:"scope,omitzero"`
	Approvers int        `json:"approvers"`        // number of persons who must approve, at least 1
	Groups    []string   `json:"groups,omitempty"` // that they are from; empty: any
	Reason    string     `json:"reason,omitempty"`
	By        tko.Author `json:"by,omitzero"`
	Created   time.Time  `json:"created,omitzero"`
}

// Rules are all bindings and policies at one version.
type Rules struct {
	Version  int64
	Bindings []Binding
	Policies []Policy
}

// Limits of bindings.
const (
	// MaxTerms is the maximum number of different scopes of one subject or group.
	MaxTerms = 32
	// MaxRules is the maximum number of bindings, and of policies.
	MaxRules     = 10_000
	maxApprovers = 10
	maxText      = 1024
)

// Check returns ErrInvalid for a binding that isn't complete.
func (b Binding) Check() error {
	switch {
	case (b.Subject == "") == (b.Group == ""):
		return tko.Errorf(tko.ErrInvalid, "a binding is for a subject or for a group: give one of them")
	case len(b.Subject)+len(b.Group) > maxText || !isText(b.Subject+b.Group):
		return tko.Errorf(tko.ErrInvalid, "the subject or group %.40q… is too long, or not plain text", b.Subject+b.Group)
	case roles[b.Role] == nil:
		return tko.Errorf(tko.ErrInvalid, "there is no role %.40q: use one of %s", string(b.Role), roleNames())
	case len(b.Reason) > maxText || !isText(b.Reason):
		return tko.Errorf(tko.ErrInvalid, "the reason has %d bytes: use at most %d bytes of UTF-8", len(b.Reason), maxText)
	}
	if !b.Scope.IsAll() && !slices.ContainsFunc(roles[b.Role], Verb.Scoped) {
		return tko.Errorf(tko.ErrInvalid, "the role %q has no scope: leave the scope out", b.Role)
	}
	return b.Scope.Check()
}

func roleNames() string {
	var names []string
	for _, r := range Roles() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// Check returns ErrInvalid for a policy that isn't complete.
func (p Policy) Check() error {
	switch {
	case p.Approvers < 1 || p.Approvers > maxApprovers:
		return tko.Errorf(tko.ErrInvalid, "a policy with %d approvers: use 1 to %d", p.Approvers, maxApprovers)
	case len(p.Groups) > 100 || len(p.Reason) > maxText || !isText(p.Reason+strings.Join(p.Groups, "")):
		return tko.Errorf(tko.ErrInvalid, "the policy has too many groups, or too long a reason: use at most 100 groups and %d bytes", maxText)
	}
	for _, group := range p.Groups {
		if group == "" || len(group) > maxText {
			return tko.Errorf(tko.ErrInvalid, "the group %.40q of the policy has %d bytes: use 1 to %d", group, len(group), maxText)
		}
	}
	if err := p.Scope.Check(); err != nil {
		return err
	}
	if _, ok := p.Scope.term(tko.KindDeployment); !ok {
		return tko.Errorf(tko.ErrInvalid, "the scope %s of the policy covers no deployments", p.Scope)
	}
	return nil
}

// Covers reports whether the policy is for a deployment.
func (p Policy) Covers(a Attributes) bool {
	t, ok := p.Scope.term(tko.KindDeployment)
	return ok && t.match(a)
}

// For reports whether a binding is for a caller, and valid.
func (b Binding) For(subject string, groups []string, now time.Time) bool {
	if !b.Expires.IsZero() && !now.Before(b.Expires) {
		return false
	}
	return b.Subject != "" && b.Subject == subject || b.Group != "" && slices.Contains(groups, b.Group)
}

type verbOn struct {
	verb Verb
	kind tko.Kind
}

// A Grant is what a caller may do: predicates by verb and kind, compiled from
// the bindings of the caller. It doesn't change. The zero value permits nothing
// but [Open].
type Grant struct {
	Version int64     // of the rules that it was compiled from
	Until   time.Time // when a binding of it expires; zero: never

	all        bool
	predicates map[verbOn]Predicate
	rights     map[Verb]bool
	view       View
}

// All permits everything. It is for installations without rights and for tests.
var All = &Grant{all: true, view: ScopeAll}

// Compile returns the grant of the bindings for a caller.
func Compile(version int64, bindings []Binding, subject string, groups []string, now time.Time) *Grant {
	var own []Binding
	g := &Grant{Version: version}
	for _, b := range bindings {
		if !b.For(subject, groups, now) {
			continue
		}
		own = append(own, b)
		if !b.Expires.IsZero() && (g.Until.IsZero() || b.Expires.Before(g.Until)) {
			g.Until = b.Expires
		}
	}
	return g.with(own)
}

// GrantOf returns the grant of a role without limits.
func GrantOf(role Role) *Grant { return new(Grant).with([]Binding{{Role: role}}) }

// GrantOfRight returns the grant of one right that is not on entities.
func GrantOfRight(v Verb) *Grant {
	g := new(Grant).with(nil)
	g.rights[v] = true
	return g
}

func (g *Grant) with(bindings []Binding) *Grant {
	g.predicates, g.rights = map[verbOn]Predicate{}, map[Verb]bool{}
	terms := map[verbOn][]Term{}
	for _, b := range bindings {
		for _, v := range roles[b.Role] {
			if !v.Scoped() {
				if b.Scope.IsAll() {
					g.rights[v] = true
				}
				continue
			}
			for _, kind := range v.kindsOf() {
				if t, ok := b.Scope.term(kind); ok {
					terms[verbOn{v, kind}] = append(terms[verbOn{v, kind}], t)
				}
			}
		}
	}
	for on, list := range terms {
		g.predicates[on] = predicateOf(list)
	}
	g.view = newView(func(kind tko.Kind) Predicate { return g.On(Read, kind) })
	return g
}

// IsAll reports whether the grant is [All].
func (g *Grant) IsAll() bool { return g.all }

// On returns the predicate of the entities of a kind on which a verb is
// permitted.
func (g *Grant) On(verb Verb, kind tko.Kind) Predicate {
	if g.all {
		return Everything
	}
	return g.predicates[verbOn{verb, kind}]
}

// MayAll reports whether a verb is permitted on all entities of a kind whose IDs match a pattern, also on
// later ones.
func (g *Grant) MayAll(verb Verb, kind tko.Kind, ids tko.Pattern) bool {
	return g.On(verb, kind).covers(Term{ID: &ids})
}

// View returns what the grant permits to read.
func (g *Grant) View() View { return g.view }

// May reports whether a verb is permitted on an entity; for verbs without an
// entity, whether it is permitted.
func (g *Grant) May(verb Verb, a Attributes) bool {
	switch {
	case g.all || verb == Open:
		return true
	case !verb.Scoped():
		return g.rights[verb]
	}
	return g.predicates[verbOn{verb, a.Kind}].Match(a)
}

// Somewhere reports whether a verb is permitted on some entity of a kind.
func (g *Grant) Somewhere(verb Verb, kind tko.Kind) bool {
	if !verb.Scoped() {
		return g.May(verb, Attributes{})
	}
	return !g.On(verb, kind).Empty()
}

// IsNothing reports whether the grant permits nothing but [Open].
func (g *Grant) IsNothing() bool { return !g.all && len(g.predicates) == 0 && len(g.rights) == 0 }

// At returns the grant as of a version of the rules.
func (g *Grant) At(version int64) *Grant {
	own := *g
	own.Version = version
	return &own
}

// Same reports whether two grants permit the same.
func (g *Grant) Same(other *Grant) bool {
	if g.all || other.all {
		return g.all == other.all
	}
	if len(g.predicates) != len(other.predicates) || len(g.rights) != len(other.rights) {
		return false
	}
	for on, p := range g.predicates {
		if q, ok := other.predicates[on]; !ok || p.key != q.key {
			return false
		}
	}
	for v := range g.rights {
		if !other.rights[v] {
			return false
		}
	}
	return true
}

// MayBind returns ErrDenied if a caller with the grant may not bind a role in a
// scope: one binds only what one holds. Holders of bind who have no limits, as
// admins, also bind the roles of controllers, plugins and callers of the
// Kubernetes API, and the rights of their own.
func (g *Grant) MayBind(b Binding) error {
	if g.all {
		return nil
	}
	if !g.rights[Bind] {
		return tko.Errorf(tko.ErrDenied, "bindings need the right bind: ask an administrator")
	}
	unlimited := true
	for _, v := range users {
		for _, kind := range v.kindsOf() {
			unlimited = unlimited && g.On(v, kind).IsAll()
		}
	}
	if unlimited {
		return nil
	}
	for _, v := range roles[b.Role] {
		if !v.Scoped() {
			if !g.rights[v] {
				return tko.Errorf(tko.ErrDenied, "the role %q has the right %s, which you don't hold: one binds only rights that one holds", b.Role, v)
			}
			continue
		}
		for _, kind := range v.kindsOf() {
			t, ok := b.Scope.term(kind)
			if ok && !g.On(v, kind).covers(t) {
				return tko.Errorf(tko.ErrDenied, "the role %q permits to %s %ss in the scope %s, which you may not: one binds only rights and scopes that one holds", b.Role, v, kind, b.Scope)
			}
		}
	}
	return nil
}

// covers reports whether each entity that the term matches is selected by one
// and the same term of the predicate.
func (p Predicate) covers(t Term) bool {
	if p.all {
		return true
	}
	within := func(inner, outer *tko.Pattern) bool {
		if outer == nil {
			return true
		}
		if inner == nil || !inner.Exact() && outer.Exact() {
			return false
		}
		return inRange(outer, inner.Prefix())
	}
	return slices.ContainsFunc(p.terms, func(o Term) bool {
		if !within(t.ID, o.ID) || !within(t.Template, o.Template) || !within(t.Site, o.Site) {
			return false
		}
		for key, value := range o.Metadata {
			if is, ok := t.Metadata[key]; !ok || is != value {
				return false
			}
		}
		return true
	})
}

// IsUnlimitedAdmin reports whether the binding makes an administrator of
// everything for an unlimited time.
func (b Binding) IsUnlimitedAdmin() bool {
	return b.Role == Admin && b.Scope.IsAll() && b.Expires.IsZero() && b.Subject != ""
}
