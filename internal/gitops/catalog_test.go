package gitops_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/catalog"
)

func (r *repo) tag(name string, files map[string]string) {
	r.t.Helper()
	r.push(files)
	git(r.t, r.dir, "tag", "-f", "-a", "-m", "version", name)
	git(r.t, r.dir, "push", "-q", "-f", "origin", "refs/tags/"+name)
}

func configMap(value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {v: '" + value + "'}\n"
}

// A catalog registers the packages of the newest tags as templates, reads those that it
// knows not again, and never changes what it registered.
func TestCatalogAddsTemplatesOfVersionsAndNeverChangesThem(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.tag("v1.0.0", map[string]string{"pkgs/core/upf/Kptfile": "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: upf}\n", "pkgs/core/upf/c.yaml": configMap("1"), "README.yaml": "x: y\n"})
	r.tag("v1.9.0", map[string]string{"pkgs/core/upf/c.yaml": configMap("2")})
	r.tag("v1.10.0", map[string]string{"pkgs/core/upf/c.yaml": configMap("3")})
	r.tag("nightly", map[string]string{"pkgs/core/upf/c.yaml": configMap("4")})
	settings := gitops.Settings{Name: "vendor", Git: gitops.GitSettings{URL: r.url}, Path: "pkgs", Catalog: &catalog.Settings{ID: "nephio/{path}:{tag}", Tags: []string{"v*"}, Keep: 2}}
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	owns := func(n int) func(tko.Source) bool {
		return func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue && len(s.Status.Items) == n }
	}
	w.until("vendor", "applied", owns(2))
	if diff := cmp.Diff([]string{"template nephio/core/upf:v1.10.0 1 gitops:vendor", "template nephio/core/upf:v1.9.0 1 gitops:vendor"}, w.entities()); diff != "" {
		t.Fatal(diff)
	}
	before := r.fetches.Load()
	w.settle("vendor")
	if n := r.fetches.Load() - before; before == 0 || n > 0 {
		t.Errorf("a catalog without changes is fetched by %d requests, after %d of the first time: want none", n, before)
	}
	// A version that was moved stays as it was registered; a new one is added, and the
	// oldest stays, although it is none of the newest any more.
	r.tag("v1.10.0", map[string]string{"pkgs/core/upf/c.yaml": configMap("moved")})
	r.tag("v2.0.0", map[string]string{"pkgs/core/upf/c.yaml": configMap("5")})
	w.settle("vendor")
	s := w.until("vendor", "applied", owns(3))
	if diff := cmp.Diff([]string{
		"template nephio/core/upf:v1.10.0 1 gitops:vendor", "template nephio/core/upf:v1.9.0 1 gitops:vendor", "template nephio/core/upf:v2.0.0 1 gitops:vendor",
	}, w.entities()); diff != "" {
		t.Error(diff)
	}
	if text := strings.Join(s.Status.Messages, "\n"); !strings.Contains(text, `template "nephio/core/upf:v1.10.0" stays as it is`) {
		t.Errorf("the messages are %q: want one about the version that was moved", text)
	}
	// A repository without tags, or away, changes nothing.
	r.away.Store(true)
	w.refused("vendor", tko.SourceReasonFetchFailed)
	if n := len(w.entities()); n != 3 {
		t.Errorf("there are %d templates: want 3", n)
	}
}

// With tags of the whole repository, a package within another one is a part of that, and
// makes no template.
func TestPackageWithinAPackageIsAPartOfIt(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	kptfile := "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: p}\n"
	r.tag("v1.0.0", map[string]string{
		"pkgs/core/upf/Kptfile": kptfile, "pkgs/core/upf/c.yaml": configMap("outer"),
		"pkgs/core/upf/charts/redis/Kptfile": kptfile, "pkgs/core/upf/charts/redis/c.yaml": strings.Replace(configMap("inner"), "{name: c}", "{name: inner}", 1),
	})
	settings := gitops.Settings{Name: "vendor", Git: gitops.GitSettings{URL: r.url}, Path: "pkgs", Catalog: &catalog.Settings{ID: "nephio/{path}:{tag}"}}
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	w.until("vendor", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	if diff := cmp.Diff([]string{"template nephio/core/upf:v1.0.0 1 gitops:vendor"}, w.entities()); diff != "" {
		t.Error(diff)
	}
	template, err := w.Template(t.Context(), "nephio/core/upf:v1.0.0", 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range template.Package {
		names = append(names, r.Text("kind")+" "+r.Text("metadata", "name"))
	}
	slices.Sort(names)
	if want := "ConfigMap c, ConfigMap inner, Kptfile p, Kptfile p.charts.redis"; strings.Join(names, ", ") != want {
		t.Errorf("the template has %q: want %q", strings.Join(names, ", "), want)
	}
}

// A branch is a version whose content changes: each content of a package is a template of
// its own, and a commit that changes other packages makes none.
func TestCatalogRegistersEachContentOfABranch(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.tag("v1", map[string]string{"upf/c.yaml": configMap("1"), "amf/c.yaml": configMap("1")})
	git(t, r.dir, "push", "-q", "origin", "HEAD:refs/heads/release/1.0", "HEAD:refs/heads/draft")
	settings := gitops.Settings{Name: "vendor", Git: gitops.GitSettings{URL: r.url}, Catalog: &catalog.Settings{Branches: []string{"main", "release/*"}, Keep: 1}}
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	owns := func(n int) func(tko.Source) bool {
		return func(s tko.Source) bool {
			return ready(s).Status == tko.ConditionTrue && consistent(s).Status == "" && len(s.Status.Items) == n
		}
	}
	versions := func() map[string]int {
		found := map[string]int{}
		for _, entity := range w.entities() {
			id := strings.Fields(entity)[1]
			found[id[:strings.LastIndex(id, "-")]]++
		}
		return found
	}
	w.until("vendor", "applied", owns(4))
	want := map[string]int{"upf:main": 1, "upf:release/1.0": 1, "amf:main": 1, "amf:release/1.0": 1}
	if diff := cmp.Diff(want, versions()); diff != "" {
		t.Fatal(diff)
	}
	r.push(map[string]string{"upf/c.yaml": configMap("2")})
	w.settle("vendor")
	w.until("vendor", "applied again", owns(5))
	want["upf:main"] = 2
	if diff := cmp.Diff(want, versions()); diff != "" {
		t.Errorf("after a commit that changes one package: %s", diff)
	}
	r.push(map[string]string{"upf/c.yaml": configMap("1")})
	w.settle("vendor")
	w.until("vendor", "applied after a revert", owns(5))
	for _, entity := range w.entities() {
		if !strings.HasSuffix(entity, " 1 gitops:vendor") {
			t.Errorf("a template was changed: %s", entity)
		}
	}
}
