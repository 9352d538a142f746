package access_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// equal compares a grant with the rights that it should have, and its view with them.
func equal(t *rapid.T, what string, grant *access.Grant, entities []access.Attributes, may func(access.Verb, access.Attributes) bool) {
	somewhere := false
	for _, verb := range access.AllVerbs() {
		for _, a := range entities {
			want := verb == access.Open || may(verb, a)
			somewhere = somewhere || verb != access.Open && want
			if got := grant.May(verb, a); got != want {
				t.Fatalf("%s: May(%s, %+v) = %t, want %t", what, verb, a, got, want)
			}
			if got := grant.View().Of(a.Kind).Match(a); verb == access.Read && got != want {
				t.Fatalf("%s: the view shows %+v: %t, want %t", what, a, got, want)
			}
		}
	}
	if somewhere && grant.IsNothing() {
		t.Fatalf("%s: the grant is said to permit nothing", what)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// A controller that acts as an author does to entities that users own only what the author
// may do: results that it commits are updates, and sites that it provisions are creations.
func TestControllersMayNoMoreThanTheirAuthors(t *testing.T) {
	t.Parallel()
	kinds := kinds(t)
	derived := map[access.Verb][]access.Verb{access.Commit: {access.Update}, access.Provision: {access.Create}, access.Call: {access.Read}}
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t, kinds)
		author, role := c.grant(present), rapid.SampledFrom(access.Roles()).Draw(t, "role")
		acting := author.Acting(role)
		if !acting.Until.Equal(author.Until) || acting.Version != author.Version || acting.IsAll() {
			t.Fatalf("it is valid until %s at version %d, and permits all: %t", acting.Until, acting.Version, acting.IsAll())
		}
		for _, a := range entitiesOf(t, kinds, c.bindings) {
			for _, verb := range access.AllVerbs() {
				may := acting.May(verb, a)
				switch {
				case verb == access.Open:
				case !verb.Scoped(), verb == access.Condition, verb == access.Read && a.Kind == tko.KindPlugin:
					if may != access.GrantOf(role).May(verb, a) {
						t.Fatalf("%s as an author: May(%s, %+v) = %t, and not as the role permits", role, verb, a, may)
					}
				case may && !slices.ContainsFunc(append(derived[verb], verb), func(v access.Verb) bool { return c.may(present, v, a) }):
					t.Fatalf("%s may %s %+v, and its author may not: %+v", role, verb, a, c)
				case !may && verb == access.Read && slices.Contains(role.Verbs(), verb) && c.may(present, verb, a):
					t.Fatalf("%s doesn't see %+v as its author does: %+v", role, a, c)
				}
			}
		}
		if access.All.Acting(role) != access.All {
			t.Fatal("as an author without limits it has some")
		}
	})
}

func TestGrantsWithinOthersPermitWhatBothDo(t *testing.T) {
	t.Parallel()
	kinds := kinds(t)
	rapid.Check(t, func(t *rapid.T) {
		c, other := drawCall(t, kinds), drawCall(t, kinds)
		g, limit := c.grant(present), other.grant(present)
		within := g.Within(limit)
		if want := earlier(g.Until, limit.Until); !within.Until.Equal(want) {
			t.Fatalf("it is valid until %s, want %s", within.Until, want)
		}
		commits := limit.On(access.Delete, tko.KindDeployment).Empty() // then its commits remove children
		equal(t, "within", within, entitiesOf(t, kinds, slices.Concat(c.bindings, other.bindings)), func(verb access.Verb, a access.Attributes) bool {
			by := verb
			if verb == access.Delete && a.Kind == tko.KindDeployment && commits {
				by = access.Commit
			}
			return c.may(present, verb, a) && other.may(present, by, a)
		})
		if g.Within(access.All) != g {
			t.Fatal("without a limit it has another one")
		}
		nothing := g.Within(access.Compile(1, nil, "", nil, present))
		if !nothing.IsNothing() || !nothing.Same(new(access.Grant)) {
			t.Fatalf("within nothing it permits something: %+v", c)
		}
	})
}

func TestPluginsSeeWhatTheirAuthorsSee(t *testing.T) {
	t.Parallel()
	kinds := kinds(t)
	rapid.Check(t, func(t *rapid.T) {
		c, author := drawCall(t, kinds), drawCall(t, kinds)
		entities := entitiesOf(t, kinds, slices.Concat(c.bindings, author.bindings))
		g := c.grant(present)
		plugin := g.AsPlugin(author.grant(present))
		equal(t, "as a plugin", plugin, entities, func(verb access.Verb, a access.Attributes) bool {
			sees := verb == access.Read && a.Kind == tko.KindPlugin || (verb == access.Read || verb == access.Secret) && author.may(present, verb, a)
			return sees || c.may(present, verb, a)
		})
		if want := earlier(g.Until, author.grant(present).Until); !plugin.Until.Equal(want) {
			t.Fatalf("it is valid until %s, want %s", plugin.Until, want)
		}
		equal(t, "discarding", g.Discarding(), entities, func(verb access.Verb, a access.Attributes) bool {
			return c.may(present, verb, a) || verb == access.Delete && a.Kind == tko.KindDeployment && c.may(present, access.Commit, a)
		})
		equal(t, "the grant itself", g, entities, func(verb access.Verb, a access.Attributes) bool { return c.may(present, verb, a) })
		if again := g.At(9); again.Version != 9 || g.Version != 7 || !again.Same(g) {
			t.Fatalf("the grant at version 9 has the version %d", again.Version)
		}
		role := rapid.SampledFrom(access.Roles()).Draw(t, "role")
		less := call{access.Without(c.bindings, role), c.subject, c.groups}
		equal(t, "without "+string(role), less.grant(present), entities, func(verb access.Verb, a access.Attributes) bool {
			other := c
			other.bindings = slices.DeleteFunc(slices.Clone(c.bindings), func(b access.Binding) bool { return b.Role == role })
			return other.may(present, verb, a)
		})
	})
}

// A grant permits nothing if none of its bindings does, also if a role has rights as a whole
// that a scope doesn't give.
func TestNothingIsPermittedIfNoBindingDoes(t *testing.T) {
	t.Parallel()
	kinds := kinds(t)
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t, kinds)
		g := c.grant(present)
		something := slices.ContainsFunc(access.AllVerbs(), func(v access.Verb) bool {
			return v != access.Open && slices.ContainsFunc(kinds, func(k tko.Kind) bool { return g.Somewhere(v, k) })
		})
		if g.IsNothing() == something {
			t.Fatalf("the grant permits something: %t, and nothing: %t: %+v", something, g.IsNothing(), c)
		}
	})
	scoped := access.Binding{Subject: "s", Role: access.OwnRole, Scope: access.Scope{SiteID: "a"}}
	if g := access.Compile(1, []access.Binding{scoped}, "s", nil, present); !g.IsNothing() {
		t.Error("a right as a whole, within a scope, is something")
	}
}

// Verbs that change entities are granted within scopes: so owners and reach apply to them.
func TestVerbsThatWriteAreWithinScopes(t *testing.T) {
	t.Parallel()
	for _, verb := range access.AllVerbs() {
		if verb.Writes() && !verb.Scoped() {
			t.Errorf("the verb %s writes entities, and has no scope", verb)
		}
	}
	for _, verb := range []access.Verb{access.Read, access.Condition, access.Secret, access.Call} {
		if verb.Writes() {
			t.Errorf("the verb %s is said to write", verb)
		}
	}
}

// A scope within another one covers what both cover, for ranges and for metadata.
func TestScopesWithinOthersCoverWhatBothDo(t *testing.T) {
	t.Parallel()
	entities := []access.Attributes{}
	for _, id := range ids {
		for _, metadata := range []map[string]string{nil, {"k": "v"}, {"k": "w"}, {"l": "v"}, {"k": "v", "l": "v"}, {"k": "w", "l": "v"}} {
			entities = append(
				entities,
				access.Attributes{Kind: tko.KindTemplate, ID: id, Metadata: metadata},
				access.Attributes{Kind: tko.KindSite, ID: id, Template: "a/b", Metadata: metadata},
				access.Attributes{Kind: tko.KindDeployment, Site: id, Template: "a/b", Metadata: metadata},
			)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (list []access.Scope, grant *access.Grant) {
			var bindings []access.Binding
			for range rapid.IntRange(1, 2).Draw(t, name) {
				s := access.Scope{SiteID: rapid.SampledFrom(ranges).Draw(t, "site"), Metadata: map[string]string{}}
				if rapid.IntRange(0, 2).Draw(t, "hasTemplate") == 0 {
					s.TemplateID = rapid.SampledFrom(ranges).Draw(t, "template")
				}
				for _, key := range keys {
					if value := rapid.SampledFrom([]string{"", "v", "w"}).Draw(t, key); value != "" {
						s.Metadata[key] = value
					}
				}
				list = append(list, s)
				bindings = append(bindings, access.Binding{Subject: "s", Role: access.Delegated, Scope: s})
			}
			return list, access.Compile(1, bindings, "s", nil, present)
		}
		some, grant := draw("scopes")
		limits, limit := draw("limits")
		within := grant.Within(limit)
		for _, a := range entities {
			in := func(s access.Scope) bool { return covers(s, a) }
			if got, want := within.May(access.Read, a), slices.ContainsFunc(some, in) && slices.ContainsFunc(limits, in); got != want {
				t.Fatalf("%v within %v: %+v is covered: %t, want %t", some, limits, a, got, want)
			}
		}
	})
}

// What is made of a grant leaves the grant as it was.
func TestGrantsDoNotChange(t *testing.T) {
	t.Parallel()
	for _, role := range access.Roles() {
		grant := access.GrantOf(role)
		for _, other := range access.Roles() {
			limit := access.GrantOf(other)
			_ = grant.Discarding()
			_ = grant.Acting(other)
			_ = grant.Within(limit)
			_ = grant.AsPlugin(limit)
			if !grant.Same(access.GrantOf(role)) || !limit.Same(access.GrantOf(other)) {
				t.Fatalf("the grants of %s and %s were changed", role, other)
			}
		}
	}
}
