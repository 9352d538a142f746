package access

import (
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// derives are, for the verbs of a controller's results, the verbs of users that permit
// them: a controller that acts as an author may not do more than the author.
var derives = map[verbOn][]Verb{
	{Commit, tko.KindDeployment}: {Update},
	{Provision, tko.KindSite}:    {Provision, Create},
	{Call, tko.KindSite}:         {Call, Read}, // a reconciliation changes nothing
}

// actingVerbs are the verbs that controllers use as authors, in addition to those of their
// roles.
var actingVerbs = map[Role][]verbOn{
	ControllerPrepare: {{Delete, tko.KindDeployment}}, // children that are no longer wanted
	ControllerRollout: {
		{Create, tko.KindDeployment}, {Update, tko.KindDeployment}, {Delete, tko.KindDeployment}, {Approve, tko.KindDeployment},
	},
}

// verbsOf returns the verbs that a controller uses as an author.
func verbsOf(role Role) []verbOn {
	all := slices.Clone(actingVerbs[role])
	for _, v := range roles[role] {
		for _, kind := range v.kindsOf() {
			all = append(all, verbOn{v, kind})
		}
	}
	for on := range derives {
		all = append(all, on)
	}
	return all
}

// isOperators reports whether a verb concerns what belongs to the installation, and not to
// an author.
func (on verbOn) isOperators() bool {
	return on.verb == Condition || on.verb == Read && on.kind == tko.KindPlugin
}

// Acting returns what a controller with a role may do as an author whose grant g is.
// Entities that users own it sees and changes as the author may; what belongs to the
// installation it sees and does as its role permits: plugins, conditions and work.
func (g *Grant) Acting(role Role) *Grant {
	if g.all {
		return g
	}
	own := GrantOf(role)
	out := &Grant{Version: g.Version, Until: g.Until, predicates: map[verbOn]Predicate{}, rights: own.rights}
	for _, on := range verbsOf(role) {
		switch verbs, derived := derives[on]; {
		case on.isOperators():
			out.set(on, own.On(on.verb, on.kind))
		case derived:
			var all []Predicate
			for _, v := range verbs {
				all = append(all, g.On(v, on.kind))
			}
			out.set(on, union(all...))
		default:
			out.set(on, g.On(on.verb, on.kind))
		}
	}
	return out.seeing()
}

// Within returns what both the grant of an author, for which a controller acts, and the
// controller's own grant permit.
func (g *Grant) Within(limit *Grant) *Grant {
	if limit.all {
		return g
	}
	out := &Grant{Version: g.Version, Until: g.Until, predicates: map[verbOn]Predicate{}, rights: map[Verb]bool{}}
	if !limit.Until.IsZero() && (out.Until.IsZero() || limit.Until.Before(out.Until)) {
		out.Until = limit.Until
	}
	for on, p := range g.predicates {
		by := on.verb
		if on == (verbOn{Delete, tko.KindDeployment}) && limit.On(Delete, on.kind).Empty() {
			by = Commit
		}
		out.set(on, intersection(p, limit.On(by, on.kind)))
	}
	for v := range g.rights {
		if limit.rights[v] {
			out.rights[v] = true
		}
	}
	return out.seeing()
}

// Discarding returns the grant of a preparer with the right to delete what it may commit:
// children that it made.
func (g *Grant) Discarding() *Grant {
	if g.all {
		return g
	}
	out := *g
	out.predicates = maps.Clone(g.predicates)
	on := verbOn{Delete, tko.KindDeployment}
	out.set(on, union(g.On(Delete, on.kind), g.On(Commit, on.kind)))
	return &out
}

// pluginVerbs are the verbs on entities that a plugin's run has as its author.
var pluginVerbs = []Verb{Read, Secret}

// AsPlugin returns what a plugin's run may do whose explicit grant g is: that, and to see
// what its author may see.
func (g *Grant) AsPlugin(author *Grant) *Grant {
	if g.all {
		return g
	}
	out := &Grant{Version: g.Version, Until: g.Until, predicates: maps.Clone(g.predicates), rights: g.rights}
	if !author.Until.IsZero() && (out.Until.IsZero() || author.Until.Before(out.Until)) {
		out.Until = author.Until
	}
	for _, v := range pluginVerbs {
		for _, kind := range v.kindsOf() {
			on := verbOn{v, kind}
			out.set(on, union(out.On(v, kind), author.On(v, kind)))
		}
	}
	out.set(verbOn{Read, tko.KindPlugin}, Everything)
	return out.seeing()
}

// seeing sets the view of a grant.
func (g *Grant) seeing() *Grant {
	g.view = newView(func(kind tko.Kind) Predicate { return g.On(Read, kind) })
	return g
}

// set sets a predicate, so that grants of equal rights have equal predicates.
func (g *Grant) set(on verbOn, p Predicate) {
	if delete(g.predicates, on); !p.Empty() {
		g.predicates[on] = p
	}
}

// union returns a predicate that selects what one of some selects.
func union(predicates ...Predicate) Predicate {
	var terms []Term
	for _, p := range predicates {
		if p.all {
			return Everything
		}
		terms = append(terms, p.terms...)
	}
	return predicateOf(terms)
}

// intersection returns a predicate that selects what both select.
func intersection(p, q Predicate) Predicate {
	switch {
	case p.all:
		return q
	case q.all:
		return p
	}
	var terms []Term
	for _, a := range p.terms {
		for _, b := range q.terms {
			if t, ok := a.and(b); ok {
				terms = append(terms, t)
			}
		}
	}
	return predicateOf(terms)
}

// and returns the conditions of both terms; ok is false if nothing matches both.
func (t Term) and(other Term) (both Term, ok bool) {
	both = Term{Metadata: maps.Clone(t.Metadata)}
	for _, field := range []struct {
		a, b *tko.Pattern
		to   **tko.Pattern
	}{{t.ID, other.ID, &both.ID}, {t.Template, other.Template, &both.Template}, {t.Site, other.Site, &both.Site}} {
		switch {
		case field.a == nil:
			*field.to = field.b
		case field.b == nil || isNarrower(field.a, field.b):
			*field.to = field.a
		case isNarrower(field.b, field.a):
			*field.to = field.b
		default:
			return Term{}, false
		}
	}
	for key, value := range other.Metadata {
		if is, has := both.Metadata[key]; has && is != value {
			return Term{}, false
		}
		if both.Metadata == nil {
			both.Metadata = map[string]string{}
		}
		both.Metadata[key] = value
	}
	return both, true
}

// isNarrower reports whether each ID in a range is in another one, too.
func isNarrower(inner, outer *tko.Pattern) bool {
	return (inner.Exact() || !outer.Exact()) && inRange(outer, inner.Prefix())
}

// Without returns the bindings that give none of some roles.
func Without(bindings []Binding, roles ...Role) []Binding {
	return slices.DeleteFunc(slices.Clone(bindings), func(b Binding) bool { return slices.Contains(roles, b.Role) })
}

// Writes reports whether a verb changes entities that users own.
func (v Verb) Writes() bool {
	switch v {
	case Create, Update, Delete, Purge, Approve, Register, Commit, Provision:
		return true
	default:
		return false
	}
}
