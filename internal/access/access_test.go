package access_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// declared returns the values of the constants of a type that the source files of a
// folder declare, sorted.
func declared[T ~string](t *testing.T, folder, typeName string) []T {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var list []T
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if is, ok := spec.Type.(*ast.Ident); !ok || is.Name != typeName {
				return true
			}
			for _, v := range spec.Values {
				if literal, ok := v.(*ast.BasicLit); ok {
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					list = append(list, T(text))
				}
			}
			return true
		})
	}
	slices.Sort(list)
	if len(list) == 0 {
		t.Fatalf("%s declares no constant of the type %s", folder, typeName)
	}
	return list
}

// notInScopes are the kinds that scopes don't select, with the reasons.
var notInScopes = map[tko.Kind]string{
	tko.KindSubscription: "subscriptions are rules of access: the right subscribe is for all of them",
	tko.KindSource:       "sources are settings or rules of access: the rights define and inspect are for all of them",
}

// kinds are the kinds of entities, as the source declares them. A new one is in scopes, or
// has a reason.
func kinds(t *testing.T) []tko.Kind {
	t.Helper()
	all := declared[tko.Kind](t, "../..", "Kind")
	for kind := range notInScopes {
		if !slices.Contains(all, kind) {
			t.Errorf("there is no kind %s: remove its reason", kind)
		}
	}
	return slices.DeleteFunc(all, func(k tko.Kind) bool { return notInScopes[k] != "" })
}

// grants are those of roles without a scope.
var grants = sync.OnceValue(func() map[access.Role]*access.Grant {
	all := map[access.Role]*access.Grant{}
	for _, role := range access.Roles() {
		all[role] = access.GrantOf(role)
	}
	return all
})

// concerns reports whether a role permits a verb on entities of a kind, without a scope.
func concerns(role access.Role, verb access.Verb, kind tko.Kind) bool {
	return !grants()[role].On(verb, kind).Empty()
}

// parse parses patterns, each once.
var parse = func() func(string) (tko.Pattern, error) {
	var known sync.Map
	return func(text string) (tko.Pattern, error) {
		if p, ok := known.Load(text); ok {
			return p.(tko.Pattern), nil
		}
		p, err := tko.ParsePattern(text)
		if err == nil {
			known.Store(text, p)
		}
		return p, err
	}
}()

func TestEachVerbIsDecided(t *testing.T) {
	t.Parallel()
	all := declared[access.Verb](t, ".", "Verb")
	if diff := cmp.Diff(all, access.AllVerbs()); diff != "" {
		t.Fatalf("verbs that are declared, and those that AllVerbs returns; a verb of no role is missing there (-declared +returned)\n%s", diff)
	}
	entities := kinds(t)
	for _, verb := range all {
		if verb == access.Open {
			continue
		}
		for _, role := range access.Roles() {
			if !slices.Contains(role.Verbs(), verb) {
				continue
			}
			if verb.Scoped() && !slices.ContainsFunc(entities, func(k tko.Kind) bool { return concerns(role, verb, k) }) {
				t.Errorf("the role %s has the verb %s, which is for no kind of entity: Scoped and kindsOf must decide", role, verb)
			}
			if !verb.Scoped() && !access.GrantOf(role).May(verb, access.Attributes{}) {
				t.Errorf("the role %s has the verb %s and doesn't permit it", role, verb)
			}
		}
	}
}

func TestRolesPermitTheirVerbsAndNoOthers(t *testing.T) {
	t.Parallel()
	entities := kinds(t)
	if diff := cmp.Diff(declared[access.Role](t, ".", "Role"), access.Roles()); diff != "" {
		t.Fatalf("roles that are declared, and those that have verbs (-declared +returned)\n%s", diff)
	}
	for _, role := range access.Roles() {
		verbs, grant := role.Verbs(), access.GrantOf(role)
		if len(verbs) == 0 {
			t.Errorf("the role %s has no verbs", role)
		}
		for _, verb := range access.AllVerbs() {
			has := verb == access.Open || slices.Contains(verbs, verb)
			somewhere := slices.ContainsFunc(entities, func(k tko.Kind) bool { return grant.Somewhere(verb, k) })
			if somewhere != has {
				t.Errorf("the role %s has the verb %s: %t, and permits it: %t", role, verb, has, somewhere)
			}
		}
		clear(verbs)
		if slices.Contains(role.Verbs(), "") {
			t.Errorf("the verbs of the role %s don't belong to the caller", role)
		}
		if err := (access.Binding{Subject: "s", Role: role}).Check(); err != nil {
			t.Errorf("a binding of the role %s: %v", role, err)
		}
	}
	if verbs := access.Role("none").Verbs(); verbs != nil {
		t.Errorf("an unknown role has the verbs %v", verbs)
	}
}

func TestEachKindOfEntityCanBeInScope(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds(t) {
		scope := access.Scope{Kinds: []tko.Kind{kind}}
		if err := scope.Check(); err != nil {
			t.Errorf("a scope of the kind %s: %v", kind, err)
		}
		view := access.ViewOf(scope)
		for _, other := range kinds(t) {
			if got := view.Of(other); got.IsAll() != (other == kind) || got.Empty() != (other != kind) {
				t.Errorf("a scope of the kind %s and entities of the kind %s: all %t, none %t", kind, other, got.IsAll(), got.Empty())
			}
		}
		if !access.ScopeAll.Of(kind).IsAll() || !access.ViewOf(access.Scope{}).Of(kind).IsAll() {
			t.Errorf("a view of everything doesn't show all of the kind %s", kind)
		}
		if !(access.View{}).Of(kind).Empty() {
			t.Errorf("a view of nothing shows some of the kind %s", kind)
		}
	}
	if !access.ScopeAll.Of("other").Empty() || access.ViewOf(access.Scope{}).Of("other").IsAll() {
		t.Error("entities of an unknown kind are shown")
	}
}

var (
	present = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	// The ranges and IDs are such that a scope has none, one or several of them. The
	// character * occurs in IDs, too.
	ranges = []string{"", "", "a", "a/", "b", "a/**", "a/b**", "a**", "**", `a\*`, `a\*/**`}
	ids    = []string{"a", "b", "A", "a/", "a/b", "a/bc", "a/c", "ab", "a*", "a*/x", "x"}
	keys   = []string{"k", "l"}
	values = []string{"", "v", "w"}
)

func drawMetadata(t *rapid.T) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom(keys), rapid.SampledFrom(values), 0, 2).Draw(t, "metadata")
}

func drawScope(t *rapid.T, kinds []tko.Kind) access.Scope {
	var s access.Scope
	if rapid.IntRange(0, 2).Draw(t, "everything") == 0 {
		return s
	}
	if rapid.Bool().Draw(t, "hasKinds") {
		s.Kinds = rapid.SliceOfN(rapid.SampledFrom(kinds), 1, 3).Draw(t, "kinds")
	}
	s.SiteID = rapid.SampledFrom(ranges).Draw(t, "site")
	s.TemplateID = rapid.SampledFrom(ranges).Draw(t, "template")
	if rapid.Bool().Draw(t, "hasMetadata") {
		s.Metadata = drawMetadata(t)
	}
	return s
}

func drawBinding(t *rapid.T, kinds []tko.Kind) access.Binding {
	b := access.Binding{Role: rapid.SampledFrom(access.Roles()).Draw(t, "role"), Scope: drawScope(t, kinds)}
	if rapid.Bool().Draw(t, "subject") {
		b.Subject = rapid.SampledFrom([]string{"ada", "ada", "bob"}).Draw(t, "name")
	} else {
		b.Group = rapid.SampledFrom([]string{"ops", "ops", "ada", "dev"}).Draw(t, "name")
	}
	if hours := rapid.IntRange(-1, 4).Draw(t, "expires"); hours < 4 {
		b.Expires = present.Add(time.Duration(hours) * time.Hour)
	}
	return b
}

func drawEntity(t *rapid.T, kinds []tko.Kind) access.Attributes {
	a := access.Attributes{
		Kind:     rapid.SampledFrom(kinds).Draw(t, "kind"),
		ID:       rapid.SampledFrom(ids).Draw(t, "id"),
		Metadata: drawMetadata(t),
	}
	related := append([]string{""}, ids...)
	if a.Kind == tko.KindSite || a.Kind == tko.KindDeployment {
		a.Template = rapid.SampledFrom(related).Draw(t, "template")
	}
	if a.Kind == tko.KindDeployment {
		a.Site = rapid.SampledFrom(related).Draw(t, "site")
	}
	return a
}

// within reports whether an ID is in a range, by the pattern's regular expression.
func within(text, id string) bool {
	if text == "" {
		return true
	}
	p, err := parse(text)
	return err == nil && id != "" && p.Match(id)
}

// covers is the documented meaning of a scope, without terms.
func covers(s access.Scope, a access.Attributes) bool {
	if len(s.Kinds) > 0 && !slices.Contains(s.Kinds, a.Kind) {
		return false
	}
	site, template := "", ""
	switch a.Kind {
	case tko.KindTemplate:
		template = a.ID
	case tko.KindSite:
		site, template = a.ID, a.Template
	case tko.KindDeployment:
		site, template = a.Site, a.Template
	case tko.KindPlugin:
		if len(s.Metadata) > 0 {
			return false
		}
	case tko.KindRollout, tko.KindSource, tko.KindSubscription:
	}
	for key, value := range s.Metadata {
		if is, ok := a.Metadata[key]; !ok || is != value {
			return false
		}
	}
	return within(s.SiteID, site) && within(s.TemplateID, template)
}

// witness returns an entity of a kind that is in a scope, if there is one.
func witness(s access.Scope, kind tko.Kind) access.Attributes {
	one := func(text string) string {
		return strings.NewReplacer("**", "", `\`, "").Replace(strings.TrimSuffix(text, "**")) + map[bool]string{true: "x"}[text == "" || text == "**"]
	}
	a := access.Attributes{Kind: kind, ID: "x", Metadata: s.Metadata}
	switch kind {
	case tko.KindTemplate:
		a.ID = one(s.TemplateID)
	case tko.KindSite:
		a.ID, a.Template = one(s.SiteID), one(s.TemplateID)
	case tko.KindDeployment:
		a.Site, a.Template = one(s.SiteID), one(s.TemplateID)
	case tko.KindPlugin, tko.KindRollout, tko.KindSource, tko.KindSubscription:
	}
	return a
}

// A call is a caller with bindings, which are evaluated one by one.
type call struct {
	bindings []access.Binding
	subject  string
	groups   []string
}

func (c call) grant(now time.Time) *access.Grant {
	return access.Compile(7, c.bindings, c.subject, c.groups, now)
}

// may reports whether one of the bindings permits a verb on an entity.
func (c call) may(now time.Time, verb access.Verb, a access.Attributes) bool {
	return verb == access.Open || slices.ContainsFunc(c.bindings, func(b access.Binding) bool {
		own := b.Subject == c.subject && b.Group == "" || b.Subject == "" && slices.Contains(c.groups, b.Group)
		valid := b.Expires.IsZero() || now.Before(b.Expires)
		if !own || !valid || !slices.Contains(b.Role.Verbs(), verb) {
			return false
		}
		if !verb.Scoped() {
			return b.Scope.IsAll()
		}
		return concerns(b.Role, verb, a.Kind) && covers(b.Scope, a)
	})
}

func drawCall(t *rapid.T, kinds []tko.Kind) call {
	var c call
	for range rapid.IntRange(0, 5).Draw(t, "bindings") {
		c.bindings = append(c.bindings, drawBinding(t, kinds))
	}
	c.subject = rapid.SampledFrom([]string{"ada", "ada", "bob", ""}).Draw(t, "subject")
	c.groups = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"ops", "dev", ""}), 0, 3, rapid.ID[string]).Draw(t, "groups")
	return c
}

// entitiesOf returns random entities, and one that is in each scope.
func entitiesOf(t *rapid.T, kinds []tko.Kind, bindings []access.Binding) []access.Attributes {
	var list []access.Attributes
	for range 8 {
		list = append(list, drawEntity(t, kinds))
	}
	for _, b := range bindings {
		for _, kind := range kinds {
			a := witness(b.Scope, kind)
			list = append(list, a)
			for key := range a.Metadata { // almost in the scope
				less := maps.Clone(a.Metadata)
				delete(less, key)
				a.Metadata = less
				list = append(list, a)
			}
		}
	}
	return list
}

func TestGrantsAgreeWithBindingsOneByOne(t *testing.T) {
	t.Parallel()
	kinds, verbs := kinds(t), access.AllVerbs()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t, kinds)
		grant := c.grant(present)
		if grant.Version != 7 || grant.IsAll() {
			t.Fatalf("the grant has the version %d, and permits all: %t", grant.Version, grant.IsAll())
		}
		entities := entitiesOf(t, kinds, c.bindings)
		for _, verb := range verbs {
			somewhere := map[tko.Kind]bool{}
			for _, a := range entities {
				want := c.may(present, verb, a)
				somewhere[a.Kind] = somewhere[a.Kind] || want
				if got := grant.May(verb, a); got != want {
					t.Fatalf("May(%s, %+v) = %t, want %t: %+v", verb, a, got, want, c)
				}
				if got := grant.On(verb, a.Kind).Match(a); verb.Scoped() && got != want {
					t.Fatalf("On(%s).Match(%+v) = %t, want %t: %+v", verb, a, got, want, c)
				}
				if got := grant.View().Of(a.Kind).Match(a); verb == access.Read && got != want {
					t.Fatalf("the view shows %+v: %t, want %t: %+v", a, got, want, c)
				}
			}
			for _, kind := range kinds {
				if got := grant.Somewhere(verb, kind); got != somewhere[kind] && len(c.bindings) > 0 {
					t.Fatalf("Somewhere(%s, %s) = %t, want %t: %+v", verb, kind, got, somewhere[kind], c)
				}
			}
		}
	})
}

// A grant is valid until Until: the same bindings permit the same at any time before.
func TestGrantsHoldUntilTheirFirstBindingExpires(t *testing.T) {
	t.Parallel()
	kinds, verbs := kinds(t), access.AllVerbs()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t, kinds)
		grant := c.grant(present)
		var want time.Time
		for _, b := range c.bindings {
			if b.For(c.subject, c.groups, present) && !b.Expires.IsZero() && (want.IsZero() || b.Expires.Before(want)) {
				want = b.Expires
			}
		}
		if !grant.Until.Equal(want) {
			t.Fatalf("the grant is valid until %s, want %s: %+v", grant.Until, want, c)
		}
		for _, later := range []time.Time{grant.Until.Add(-time.Nanosecond), grant.Until} {
			if later.Before(present) {
				continue
			}
			again := c.grant(later)
			if later.Before(grant.Until) && !again.Same(grant) {
				t.Fatalf("the grant changes before %s: %+v", grant.Until, c)
			}
			for _, a := range entitiesOf(t, kinds, c.bindings) {
				for _, verb := range verbs {
					if got, want := again.May(verb, a), c.may(later, verb, a); got != want {
						t.Fatalf("at %s, May(%s, %+v) = %t, want %t: %+v", later, verb, a, got, want, c)
					}
				}
			}
		}
	})
}

func TestGrantsThatAreTheSamePermitTheSame(t *testing.T) {
	t.Parallel()
	kinds, verbs := kinds(t), access.AllVerbs()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t, kinds)
		grant := c.grant(present)
		again := c
		again.bindings = rapid.Permutation(slices.Concat(c.bindings, c.bindings)).Draw(t, "again")
		if other := again.grant(present); !other.Same(grant) || other.View().Key() != grant.View().Key() {
			t.Fatalf("the order and number of bindings change the grant: %+v", c)
		}
		other := c
		other.bindings = slices.Clone(c.bindings)
		switch change := rapid.IntRange(0, 3).Draw(t, "change"); {
		case change == 0 || len(c.bindings) == 0:
			other.bindings = append(other.bindings, drawBinding(t, kinds))
		case change == 1:
			other.bindings = other.bindings[1:]
		default:
			other.bindings[0].Scope = drawScope(t, kinds)
		}
		changed := other.grant(present)
		for _, a := range entitiesOf(t, kinds, slices.Concat(c.bindings, other.bindings)) {
			if grant.View().Key() == changed.View().Key() && c.may(present, access.Read, a) != other.may(present, access.Read, a) {
				t.Fatalf("views with one key differ on %+v: %+v and %+v", a, c, other)
			}
			for _, verb := range verbs {
				if grant.Same(changed) && c.may(present, verb, a) != other.may(present, verb, a) {
					t.Fatalf("grants are the same and differ on %s of %+v: %+v and %+v", verb, a, c, other)
				}
			}
		}
		if grant.Same(changed) != changed.Same(grant) {
			t.Fatalf("Same depends on the order: %+v and %+v", c, other)
		}
		if grant.Same(access.All) || access.All.Same(grant) || !access.All.Same(access.All) {
			t.Fatalf("the grant of everything is the same as that of %+v", c)
		}
	})
}

// Verbs without an entity are granted as a whole or not at all: a binding with a scope,
// which can't grant them, changes nothing about them.
func TestScopedBindingsAddNoRightsAsAWhole(t *testing.T) {
	t.Parallel()
	scope := access.Scope{TemplateID: "a/**"}
	for _, role := range access.Roles() {
		scoped := access.Compile(1, []access.Binding{{Subject: "s", Role: role, Scope: scope}}, "s", nil, present)
		for _, verb := range role.Verbs() {
			if !verb.Scoped() && scoped.May(verb, access.Attributes{}) {
				t.Errorf("the role %s within a scope grants %s as a whole", role, verb)
			}
		}
		for _, other := range access.Roles() {
			same := !slices.ContainsFunc(access.AllVerbs(), func(v access.Verb) bool {
				return v.Scoped() && slices.Contains(role.Verbs(), v) != slices.Contains(other.Verbs(), v)
			})
			grant := access.Compile(1, []access.Binding{{Subject: "s", Role: other, Scope: scope}}, "s", nil, present)
			if scoped.Same(grant) != same {
				t.Errorf("the roles %s and %s permit the same within a scope: %t, want %t", role, other, !same, same)
			}
		}
	}
}

func TestGrantsWithoutBindings(t *testing.T) {
	t.Parallel()
	var everyone []access.Attributes
	for _, kind := range kinds(t) {
		everyone = append(everyone, access.Attributes{Kind: kind, ID: "x"})
	}
	tests := map[string]struct {
		why   string
		grant *access.Grant
		may   func(access.Verb) bool
		view  bool
	}{
		"zero":        {"a caller without rights still reads about and health", new(access.Grant), func(v access.Verb) bool { return v == access.Open }, false},
		"no bindings": {"likewise", access.Compile(1, nil, "s", nil, present), func(v access.Verb) bool { return v == access.Open }, false},
		"everything":  {"installations without rights", access.All, func(access.Verb) bool { return true }, true},
		"one right":   {"the first administrator's token permits to bind, and nothing else", access.GrantOfRight(access.Bind), func(v access.Verb) bool { return v == access.Open || v == access.Bind }, false},
		"no such role": {
			"a stored binding of a role that this version doesn't know",
			access.Compile(1, []access.Binding{{Subject: "s", Role: "other"}}, "s", nil, present), func(v access.Verb) bool { return v == access.Open }, false,
		},
		"no such scope": {
			"a stored binding whose scope can't be compiled covers nothing, instead of everything",
			access.Compile(1, []access.Binding{{Subject: "s", Role: access.Admin, Scope: access.Scope{SiteID: "a*b"}}, {Subject: "s", Role: access.Admin, Scope: access.Scope{TemplateID: `\`}}}, "s", nil, present),
			func(v access.Verb) bool { return v == access.Open },
			false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, verb := range access.AllVerbs() {
				for _, a := range everyone {
					if got := test.grant.May(verb, a); got != test.may(verb) {
						t.Errorf("May(%s, %s) = %t: %s", verb, a.Kind, got, test.why)
					}
					if got := test.grant.Somewhere(verb, a.Kind); got != test.may(verb) {
						t.Errorf("Somewhere(%s, %s) = %t: %s", verb, a.Kind, got, test.why)
					}
				}
			}
			if test.grant.View().IsAll() != test.view || !test.grant.Same(test.grant) {
				t.Errorf("the view shows everything: %t, want %t: %s", !test.view, test.view, test.why)
			}
		})
	}
}

func TestViewsShowWhatTheirScopesCover(t *testing.T) {
	t.Parallel()
	kinds := kinds(t)
	rapid.Check(t, func(t *rapid.T) {
		scopes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) access.Scope { return drawScope(t, kinds) }), 0, 3).Draw(t, "scopes")
		view := access.ViewOf(scopes...)
		again := access.ViewOf(slices.Concat(rapid.Permutation(scopes).Draw(t, "again"), scopes)...)
		if view.Key() != again.Key() {
			t.Fatalf("the key depends on the order: %q and %q", view.Key(), again.Key())
		}
		replaced := rapid.SampledFrom(kinds).Draw(t, "replaced")
		other := view.With(replaced, access.Everything)
		for range 20 {
			a := drawEntity(t, kinds)
			want := slices.ContainsFunc(scopes, func(s access.Scope) bool { return covers(s, a) })
			p := view.Of(a.Kind)
			if p.Match(a) != want {
				t.Fatalf("%+v is shown: %t, want %t: %v", a, !want, want, scopes)
			}
			if p.IsAll() && p.Empty() || p.Empty() && want || p.IsAll() && (!want || p.Terms() != nil) {
				t.Fatalf("the predicate of %ss is for all: %t, for none: %t: %v", a.Kind, p.IsAll(), p.Empty(), scopes)
			}
			if got := other.Of(a.Kind).Match(a); got != (want || a.Kind == replaced) {
				t.Fatalf("with all %ss, %+v is shown: %t: %v", replaced, a, got, scopes)
			}
		}
	})
}

// One binds what one holds: a permitted binding gives nothing that its giver may not.
func TestBindingsGiveNoMoreThanTheirGiverHolds(t *testing.T) {
	t.Parallel()
	kinds, verbs := kinds(t), access.AllVerbs()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t, kinds)
		c.bindings = append(c.bindings, access.Binding{Subject: c.subject, Role: rapid.SampledFrom(access.Roles()).Draw(t, "role")})
		grant, b := c.grant(present), drawBinding(t, kinds)
		err := grant.MayBind(b)
		if err != nil {
			if !errors.Is(err, tko.ErrDenied) {
				t.Fatalf("the error %v isn't of the kind denied", err)
			}
			return
		}
		if !grant.May(access.Bind, access.Attributes{}) {
			t.Fatalf("a caller without the right bind binds %+v: %+v", b, c)
		}
		unlimited := true // an administrator, who also binds roles of controllers
		for _, verb := range []access.Verb{access.Read, access.Create, access.Update, access.Delete, access.Purge, access.Approve, access.Call, access.Register} {
			for _, kind := range kinds {
				unlimited = unlimited && (!slices.ContainsFunc(access.Roles(), func(r access.Role) bool { return concerns(r, verb, kind) }) || grant.On(verb, kind).IsAll())
			}
		}
		given := call{[]access.Binding{{Subject: "x", Role: b.Role, Scope: b.Scope}}, "x", nil}
		for _, a := range entitiesOf(t, kinds, given.bindings) {
			for _, verb := range verbs {
				if !unlimited && given.may(present, verb, a) && !c.may(present, verb, a) {
					t.Fatalf("the binding %+v gives %s of %+v, which its giver may not: %+v", b, verb, a, c)
				}
			}
		}
	})
}

// The right to bind alone binds no role, which all have other rights, and administrators
// bind all roles.
func TestRightToBindAloneBindsNoRole(t *testing.T) {
	t.Parallel()
	for _, role := range access.Roles() {
		b := access.Binding{Subject: "s", Role: role}
		if err := access.GrantOfRight(access.Bind).MayBind(b); !errors.Is(err, tko.ErrDenied) {
			t.Errorf("the right to bind alone binds the role %s: %v", role, err)
		}
		if err := new(access.Grant).MayBind(b); !errors.Is(err, tko.ErrDenied) {
			t.Errorf("a caller without rights binds the role %s: %v", role, err)
		}
		for what, grant := range map[string]*access.Grant{"everything": access.All, "the administrator's": access.GrantOf(access.Admin)} {
			if err := grant.MayBind(b); err != nil {
				t.Errorf("the grant %s doesn't bind the role %s: %v", what, role, err)
			}
		}
	}
}

// A scope that a predicate covers has no entity that the predicate doesn't select, and a
// scope is covered by itself, and by what is wider.
func TestCoveredScopesHaveNothingElse(t *testing.T) {
	t.Parallel()
	kinds := kinds(t)
	rapid.Check(t, func(t *rapid.T) {
		inner, outer := drawScope(t, kinds), drawScope(t, kinds)
		for _, kind := range kinds {
			p := access.ViewOf(outer).Of(kind)
			if p.Covers(inner, kind) {
				entities := []access.Attributes{witness(inner, kind)}
				for range 20 {
					a := drawEntity(t, []tko.Kind{kind})
					if rapid.Bool().Draw(t, "labelled") {
						a.Metadata = inner.Metadata
					}
					entities = append(entities, a)
				}
				for _, a := range entities {
					if covers(inner, a) && !covers(outer, a) {
						t.Fatalf("%s covers %s of %ss, except for %+v", outer, inner, kind, a)
					}
				}
			}
			own := access.ViewOf(inner).Of(kind)
			if !own.Empty() && !own.Covers(inner, kind) {
				t.Fatalf("%s doesn't cover itself, of %ss", inner, kind)
			}
			narrow := inner
			narrow.Metadata = map[string]string{"narrow": "yes"}
			maps.Copy(narrow.Metadata, inner.Metadata)
			if !own.Empty() && kind != tko.KindPlugin && !own.Covers(narrow, kind) {
				t.Fatalf("%s doesn't cover %s, of %ss", inner, narrow, kind)
			}
		}
	})
}
