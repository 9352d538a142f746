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

// Acting returns what a controller with a role may do as an author whose grant g is.
// Entities that users own it sees and changes as the author may; what belongs to the
// installation it sees and does as its role permits: plugins, conditions and work.
func (g *Grant) Acting(role Role) *Grant {
	if g.all {
		return g
	}
	own := GrantOf(role)
	out := &Grant{Version: g.Version, Until: g.Until, predicates: maps.Clone(g.predicates), rights: own.rights}
	for on, verbs := range derives {
		var terms []Predicate
		for _, v := range verbs {
			terms = append(terms, g.On(v, on.kind))
		}
		out.set(on, union(terms...))
	}
	for _, v := range roles[role] {
		for _, kind := range v.kindsOf() {
			if kind == tko.KindPlugin && v == Read || v == Condition {
				out.set(verbOn{v, kind}, own.On(v, kind))
			}
		}
	}
	out.view = newView(func(kind tko.Kind) Predicate { return out.On(Read, kind) })
	return out
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
	out.view = newView(func(kind tko.Kind) Predicate { return out.On(Read, kind) })
	return out
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
