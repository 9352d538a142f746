package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
)

func (w *world) views(ctx context.Context) map[string]tko.View {
	w.t.Helper()
	all, err := w.Views(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]tko.View{}
	for _, v := range all {
		found[v.Name] = v
	}
	return found
}

func TestViewsAreSavedByThoseWhoMayAndReadByAllWhoReadAnything(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.bind("cert:ada", access.PublishRole, access.Scope{})
	w.bind("cert:bob", access.Viewer, emea)
	ada, bob := w.as("cert:ada"), w.as("cert:bob")
	one := func(query string) []tko.View { return []tko.View{{Name: "north", Path: "/deployments", Query: query}} }
	results, err := w.RegisterViews(ada, one("state=failing"), true)
	w.is("a dry run", err, nil)
	if len(w.views(bob)) != 0 || !results[0].Created {
		t.Errorf("a dry run: %+v", results)
	}
	w.is("save", second(w.RegisterViews(ada, one("state=failing"), false)), nil)
	if v := w.views(bob)["north"]; v.Address() != "/deployments?state=failing" || v.By.Who != "cert:ada" || v.Problem != "" || v.Created.IsZero() {
		t.Errorf("the view is %+v", v)
	}
	results, err = w.RegisterViews(w.ctx, one("state=failing"), false)
	w.is("the same", err, nil)
	if results[0].Changed || results[0].Created {
		t.Errorf("the same is a change: %+v", results)
	}
	w.is("a viewer saves", second(w.RegisterViews(bob, one("state=waiting"), false)), tko.ErrDenied)
	w.is("a viewer deletes", w.DeleteView(bob, "north"), tko.ErrDenied)
	w.is("a caller without rights reads", second(w.Views(w.as("cert:eve"))), tko.ErrDenied)
	w.is("a link to another host", second(w.RegisterViews(ada, []tko.View{{Name: "x", Path: "//evil.example"}}, false)), tko.ErrInvalid)
	w.is("a wrong filter", second(w.RegisterViews(ada, one("colour=red"), false)), tko.ErrInvalid)
	w.is("a name with a space", second(w.RegisterViews(ada, []tko.View{{Name: "a b", Path: "/"}}, false)), tko.ErrInvalid)
	w.is("twice the same", second(w.RegisterViews(ada, append(one(""), one("")...), false)), tko.ErrInvalid)
	w.is("none", second(w.RegisterViews(ada, nil, false)), tko.ErrInvalid)
	w.is("delete", w.DeleteView(ada, "north"), nil)
	w.is("delete again", w.DeleteView(ada, "north"), tko.ErrNotFound)
}

func TestViewsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	many := func(n int, description string) (all []tko.View) {
		for i := range n {
			all = append(all, tko.View{Name: fmt.Sprintf("v%d", i), Path: "/", Description: description})
		}
		return all
	}
	w.is("too many at once", second(w.RegisterViews(w.ctx, many(501, ""), false)), tko.ErrInvalid)
	w.is("a long description", second(w.RegisterViews(w.ctx, many(1, strings.Repeat("x", 1025)), false)), tko.ErrInvalid)
	w.is("as many as there may be", second(w.RegisterViews(w.ctx, many(500, "x"), false)), nil)
	_, err := w.RegisterViews(w.ctx, []tko.View{{Name: "more", Path: "/"}}, false)
	if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "tko view delete NAME") {
		t.Errorf("one more: %v", err)
	}
	var large []tko.View
	for i := range 300 {
		large = append(large, tko.View{Name: fmt.Sprintf("v%d", i), Path: "/matrix", Query: "rows=" + strings.Repeat("x", 4000)})
	}
	w.is("too large together", second(w.RegisterViews(w.ctx, large, false)), tko.ErrInvalid)
}

// A filter that a later version doesn't have is no reason to lose the view: it says what is wrong.
func TestAViewThatNoLongerParsesSaysWhyAndWhatToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.is("save", second(w.RegisterViews(w.ctx, []tko.View{{Name: "old", Path: "/sites"}}, false)), nil)
	version, rules, err := w.store.Access(t.Context())
	w.is("read the rules", err, nil)
	i := slices.IndexFunc(rules, func(r record.AccessRule) bool { return r.Kind == record.RuleView })
	rules[i].Doc = []byte(strings.Replace(string(rules[i].Doc), `"path":"/sites"`, `"path":"/sites","query":"colour=red"`, 1))
	w.is("write the rules", second(w.store.ChangeAccess(t.Context(), version, rules[i:i+1], nil)), nil)
	v := w.views(w.ctx)["old"]
	if v.Query != "colour=red" || !strings.Contains(v.Problem, `"colour" is unknown`) || !strings.Contains(v.Problem, "change the view, or delete it") {
		t.Errorf("the view is %+v", v)
	}
}

// A repository declares views as it declares sources: with the rights of its owner.
func TestViewsAreDeclaredByRepositoriesOfOwnersWhoMay(t *testing.T) {
	t.Parallel()
	w := newSubscribing(t)
	w.bind("cert:gitops", access.ControllerGitOps, access.Scope{})
	w.bind("cert:ada", access.DefineRole, access.Scope{})
	w.is("register", second(w.RegisterSources(w.as("cert:ada"), []tko.SourceDefinition{source("parent", `{"allowSources": true}`)}, false)), nil)
	claim := w.claimSource("parent")
	declare := func(prune bool, views ...tko.View) (tko.DeclaredSources, error) {
		d := tko.DeclareSources{Parent: "parent", Prune: prune}
		for _, v := range views {
			definition, err := v.Declared()
			w.is("declared", err, nil)
			d.Definitions = append(d.Definitions, definition)
		}
		return w.DeclareSources(w.controller(), d, claim)
	}
	north, south := tko.View{Name: "north", Path: "/sites", Description: "the north"}, tko.View{Name: "south", Path: "/matrix"}
	w.is("an owner without the right", second(declare(false, north)), tko.ErrInvalid)
	w.bind("cert:ada", access.PublishRole, access.Scope{})
	w.is("a wrong one", second(declare(false, tko.View{Name: "x", Path: "/login"})), tko.ErrInvalid)
	w.is("an owner with the right", second(declare(false, north, south)), nil)
	if v := w.views(w.ctx)["north"]; v.Parent != "parent" || v.Description != "the north" {
		t.Errorf("the view is %+v", v)
	}
	w.is("a user changes it", second(w.RegisterViews(w.ctx, []tko.View{{Name: "north", Path: "/"}}, false)), tko.ErrConflict)
	w.is("a user deletes it", w.DeleteView(w.ctx, "north"), tko.ErrInvalid)
	done, err := declare(false, south)
	w.is("one that is no longer declared", err, nil)
	if !slices.Equal(done.Kept, []string{"view/north"}) || len(w.views(w.ctx)) != 2 {
		t.Errorf("it stays: %+v", done)
	}
	w.is("a user takes it over", second(w.RegisterViews(w.ctx, []tko.View{north}, false)), nil)
	w.is("pruning", second(declare(true)), nil)
	if left := w.views(w.ctx); len(left) != 1 || left["north"].Parent != "" {
		t.Errorf("there are %+v", left)
	}
}
