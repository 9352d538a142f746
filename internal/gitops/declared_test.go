package gitops_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// child is the manifest of a source that a repository declares.
func (r *repo) child(name, more string) string {
	return fmt.Sprintf(`
apiVersion: tko.nephio.org/v1alpha1
kind: GitOpsSource
metadata: {name: %s}
spec: {git: {url: %q}, interval: 1h%s}
`, name, r.url, more)
}

// parent registers the source "parent" of a repository, which may declare others.
func (w *world) parent(r *repo, more string) {
	w.Helper()
	d := r.definition("parent")
	d.Spec = []byte(strings.Replace(string(d.Spec), "{", `{"allowSources": true, `+more, 1))
	w.register(d)
}

// definitions returns the definitions by name.
func (w *world) definitions() map[string]tko.SourceDefinition {
	w.Helper()
	found, err := w.SourceDefinitions(w.Context(), 0)
	if err != nil {
		w.Fatal(err)
	}
	all := map[string]tko.SourceDefinition{}
	for _, d := range found.All {
		all[d.Name] = d
	}
	return all
}

func (w *world) templates(ids ...string) {
	w.Helper()
	eventually.NoError(w.TB, "templates "+strings.Join(ids, ", "), func() error {
		var found []string
		for t, err := range w.Templates(w.Context(), tko.TemplateSelect{}, tko.ListOptions{}) {
			if err != nil {
				return err
			}
			found = append(found, string(t.ID))
		}
		if !slices.Equal(found, ids) {
			return fmt.Errorf("there are %v", found)
		}
		return nil
	})
}

// A repository declares sources, which are applied, follow its commits, and stay with their
// entities when their manifests leave it.
func TestRepositoriesDeclareSources(t *testing.T) {
	t.Parallel()
	w := registered(t, 2)[0]
	r, a, b := newRepo(t), newRepo(t), newRepo(t)
	a.push(map[string]string{"a.yaml": template("a", "1")})
	b.push(map[string]string{"a.yaml": template("b", "1")})
	first := r.push(map[string]string{"own.yaml": template("own", "1"), "x.yaml": a.child("x", "")})
	w.parent(r, "")
	w.until("parent", "applied", func(s tko.Source) bool { return s.Status.Applied == first })
	w.templates("a", "own")
	if d := w.definitions()["x"]; d.Parent != "parent" || d.Undeclared || d.By.Who == "test" || d.By.Who == "" {
		t.Errorf("the definition is %+v", d)
	}
	// Changed: another repository, whose templates take the place of the first one's.
	second := r.push(map[string]string{"x.yaml": b.child("x", ", adopt: true")})
	w.sync("parent", second)
	w.templates("b", "own")
	// Users don't change it behind the repository's back.
	if _, err := w.RegisterSources(t.Context(), []tko.SourceDefinition{a.definition("x")}, false); !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), "--take-over") {
		t.Errorf("registering a declared source: %v", err)
	}
	if err := w.DeleteSource(t.Context(), "x", true); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), `source "parent" declares`) {
		t.Errorf("deleting a declared source: %v", err)
	}
	// No longer declared: it stays, until a user deletes it.
	third := r.push(map[string]string{"x.yaml": ""})
	s := w.sync("parent", third)
	if c := consistent(s); c.Status != tko.ConditionFalse || c.Reason != tko.SourceReasonSources || !strings.Contains(c.Message, `source "x" is no longer declared`) {
		t.Errorf("the condition is %+v", c)
	}
	if d := w.definitions()["x"]; !d.Undeclared {
		t.Errorf("the definition is %+v", d)
	}
	fourth := r.push(map[string]string{"x.yaml": b.child("x", ", adopt: true")})
	if s := w.sync("parent", fourth); consistent(s).Type != "" || w.definitions()["x"].Undeclared {
		t.Errorf("declared again: %+v, %+v", s.Status.Conditions, w.definitions()["x"])
	}
	w.sync("parent", r.push(map[string]string{"x.yaml": ""}))
	if err := w.DeleteSource(t.Context(), "x", true); err != nil {
		t.Fatal(err)
	}
	w.ended("x")
	w.templates("b", "own")
	if s := w.resynced("parent"); consistent(s).Type != "" {
		t.Errorf("the condition is still %+v", consistent(s))
	}
}

// ended waits until a source has no definition.
func (w *world) ended(name string) {
	w.Helper()
	eventually.True(w.TB, "the end of "+name, func() bool { _, there := w.definitions()[name]; return !there })
}

// resynced returns a source after a requested reconciliation.
func (w *world) resynced(name string) tko.Source {
	w.Helper()
	if err := w.controller.Enqueue(w.Context(), name); err != nil {
		w.Fatal(err)
	}
	return w.until(name, "reconciled", func(s tko.Source) bool { return !s.Enqueued })
}

// A revision with a source that can't be declared changes nothing.
func TestRevisionsWithInvalidSourcesChangeNothing(t *testing.T) {
	t.Parallel()
	a := newRepo(t)
	a.push(map[string]string{"a.yaml": template("a", "1")})
	for name, test := range map[string]struct {
		manifest string
		message  string
	}{
		"an unknown field":              {a.child("bad", ", branch: main"), `source "bad"`},
		"a local repository":            {strings.Replace(a.child("bad", ""), a.url, "file:///srv/x", 1), "use a URL of https, http or ssh"},
		"one that declares others":      {a.child("bad", ", allowSources: true"), "can't declare others"},
		"a secret of others":            {strings.Replace(a.child("bad", ""), `url: "http`, `tokenFile: other/token, url: "https`, 1), "its own folder of --gitops-secrets, such as parent/token"},
		"a secret out of the folder":    {strings.Replace(a.child("bad", ""), `url: "http`, `tokenFile: parent/../other/token, url: "https`, 1), "its own folder"},
		"a name that is registered":     {a.child("mine", ""), "it is registered already, by test"},
		"its own name":                  {a.child("parent", ""), "declares itself"},
		"a name that is there twice":    {a.child("bad", "") + "---" + a.child("bad", ", suspend: true"), "remove one"},
		"an unknown version":            {strings.Replace(a.child("bad", ""), "v1alpha1", "v9", 1), "v9"},
		"a source of another's sources": {a.child("theirs", ""), `the repository of source "other" declares it`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := registered(t, 1)[0]
			other := newRepo(t)
			first := other.push(map[string]string{"a.yaml": a.child("theirs", ", suspend: true")})
			mine := a.definition("mine")
			mine.Spec = []byte(strings.Replace(string(mine.Spec), "{", `{"suspend": true, `, 1))
			its := other.definition("other")
			its.Spec = []byte(strings.Replace(string(its.Spec), "{", `{"allowSources": true, `, 1))
			w.register(mine, its)
			w.until("other", "applied", func(s tko.Source) bool { return s.Status.Applied == first })
			before := w.definitions()
			r := newRepo(t)
			r.push(map[string]string{"own.yaml": template("own", "1"), "ok.yaml": a.child("ok", ", suspend: true"), "y.yaml": test.manifest})
			w.parent(r, "")
			w.refused("parent", tko.SourceReasonInvalid, test.message)
			after := w.definitions()
			delete(after, "parent")
			if !maps.EqualFunc(before, after, tko.SourceDefinition.Same) || len(w.entities()) != 0 {
				t.Errorf("there are %+v, and %v", after, w.entities())
			}
		})
	}
}

// Without allowSources, and below a declared source, manifests of sources are refused.
func TestOnlySourcesThatMayDeclareOthers(t *testing.T) {
	t.Parallel()
	w := registered(t, 1)[0]
	r, child, leaf := newRepo(t), newRepo(t), newRepo(t)
	child.push(map[string]string{"a.yaml": leaf.child("leaf", "")})
	r.push(map[string]string{"a.yaml": all(template("own", "1"), child.child("child", ""))})
	w.register(r.definition("parent"))
	w.refused("parent", tko.SourceReasonInvalid, "set allowSources: true")
	if len(w.definitions()) != 1 || len(w.entities()) != 0 {
		t.Errorf("there are %+v, and %v", w.definitions(), w.entities())
	}
	w.parent(r, "")
	w.until("parent", "ready", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	w.refused("child", tko.SourceReasonInvalid, "set allowSources: true")
	if _, there := w.definitions()["leaf"]; there {
		t.Error("a declared source declared another one")
	}
	// It loses the permission: what it declared stays, and is the users'.
	r.push(map[string]string{"a.yaml": template("own", "1")})
	w.register(r.definition("parent"))
	w.until("parent", "without permission", func(s tko.Source) bool {
		return ready(s).Status == tko.ConditionTrue && w.definitions()["child"].Undeclared
	})
	if err := w.DeleteSource(t.Context(), "child", true); err != nil {
		t.Fatal(err)
	}
	w.ended("child")
}

// With pruneSources, sources that are no longer declared are deleted, within the budget, and
// keep their entities. An empty revision deletes none.
func TestUndeclaredSourcesArePruned(t *testing.T) {
	t.Parallel()
	w := registered(t, 1)[0]
	r := newRepo(t)
	files := map[string]string{"own.yaml": template("own", "1")}
	want := []string{}
	for _, name := range []string{"a", "b", "c", "d"} {
		child := newRepo(t)
		child.push(map[string]string{"a.yaml": template(name, "1")})
		files[name+".yaml"] = child.child(name, "")
		want = append(want, name)
	}
	r.push(files)
	w.parent(r, `"pruneSources": true, "budget": {"percent": 30, "entities": 1}, `)
	w.templates(append(want, "own")...)
	w.sync("parent", r.push(map[string]string{"a.yaml": ""}))
	w.ended("a")
	w.templates(append(want, "own")...)
	if _, err := w.Source(t.Context(), "a"); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("the deleted source: %v", err)
	}
	s := w.sync("parent", r.push(map[string]string{"b.yaml": "", "c.yaml": ""}))
	if c := consistent(s); !strings.Contains(c.Message, `source "b" is no longer declared`) || !strings.Contains(c.Message, "2 of 3 are more than the budget allows") {
		t.Errorf("beyond the budget: %+v", c)
	}
	if got := slices.Sorted(maps.Keys(w.definitions())); !slices.Equal(got, []string{"b", "c", "d", "parent"}) {
		t.Errorf("there are %v", got)
	}
	for name := range files {
		files[name] = ""
	}
	files["README.md"] = "moved"
	s = w.sync("parent", r.push(files))
	if c := consistent(s); !strings.Contains(c.Message, `source "d" is no longer declared`) || !strings.Contains(c.Message, "an empty revision deletes no sources") {
		t.Errorf("of an empty revision: %+v", c)
	}
	if len(w.definitions()) != 4 {
		t.Errorf("there are %v", w.definitions())
	}
}

// The sources that a deleted source declared stay, and their entities, and are the users'.
func TestDeclaredSourcesOutliveTheirParent(t *testing.T) {
	t.Parallel()
	w := registered(t, 1)[0]
	r, a := newRepo(t), newRepo(t)
	a.push(map[string]string{"a.yaml": template("a", "1")})
	r.push(map[string]string{"own.yaml": all(template("own", "1"), a.child("x", ""))})
	w.parent(r, `"pruneSources": true, `)
	w.templates("a", "own")
	if err := w.DeleteSource(tko.WithConfirmation(t.Context(), 1), "parent", false); err != nil {
		t.Fatal(err)
	}
	w.ended("parent")
	w.templates("a")
	if d := w.definitions()["x"]; !d.Undeclared {
		t.Errorf("the definition is %+v", d)
	}
	w.sync("x", a.push(map[string]string{"b.yaml": template("b", "1")}))
	w.templates("a", "b")
	w.register(a.definition("x"))
	if d := w.definitions()["x"]; d.Parent != "" || d.Undeclared {
		t.Errorf("registered by a user, the definition is %+v", d)
	}
}

// A source in settings declares others, too; one that a user takes over isn't stolen back.
func TestSourcesInSettingsDeclareSources(t *testing.T) {
	t.Parallel()
	w := registered(t, 1)[0]
	r, a := newRepo(t), newRepo(t)
	a.push(map[string]string{"a.yaml": template("a", "1")})
	first := r.push(map[string]string{"x.yaml": a.child("x", "")})
	settings := start(t, w.Client, gitops.Options{Worker: "settings", Sources: []gitops.Spec{spec(t, gitops.Settings{Name: "parent", Git: gitops.GitSettings{URL: r.url}, AllowSources: true})}})
	settings.until("parent", "applied", func(s tko.Source) bool { return s.Status.Applied == first })
	w.templates("a")
	taken := a.definition("x")
	taken.TakeOver = true
	w.register(taken)
	if d := w.definitions()["x"]; d.Parent != "" {
		t.Errorf("taken over: %+v", d)
	}
	settings.refused("parent", tko.SourceReasonInvalid, `source "x": it is registered already`)
	if err := w.DeleteSource(t.Context(), "x", true); err != nil {
		t.Fatal(err)
	}
	settings.until("parent", "ready", func(s tko.Source) bool {
		if err := settings.controller.Enqueue(t.Context(), "parent"); err != nil {
			t.Fatal(err)
		}
		return ready(s).Status == tko.ConditionTrue && w.definitions()["x"].Parent == "parent"
	})
}
