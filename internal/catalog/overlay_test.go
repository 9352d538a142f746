package catalog_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
)

func things(names ...string) (p krm.Package) {
	for _, name := range names {
		name, value, _ := strings.Cut(name, "=")
		p = append(p, krm.Resource{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": name}, "spec": map[string]any{"value": value}})
	}
	return p
}

// shown returns the names and values of a package of things.
func shown(p krm.Package) (names []string) {
	for _, r := range p {
		names = append(names, r.Name()+"="+r.Text("spec", "value"))
	}
	slices.Sort(names)
	return names
}

func (w *world) apply(p tko.Put) tko.PutResult {
	w.t.Helper()
	p.Manager = "apply"
	try := p
	try.DryRun = true
	said, err := w.PutEntity(w.ctx, try)
	if err != nil {
		w.t.Fatal(err)
	}
	did, err := w.PutEntity(w.ctx, p)
	if err != nil {
		w.t.Fatal(err)
	}
	if said.Changed != did.Changed || said.Created != did.Created || !slices.Equal(said.Changes, did.Changes) || !did.Managed {
		w.t.Errorf("said %+v, did %+v", said, did)
	}
	return did
}

// What others set of a site stays when a manifest that doesn't name it is applied; what an
// earlier apply set goes with its manifest.
func TestApplyKeepsWhatOthersSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("base", "value: t"), "tier", "edge")
	w.template("other", thing("base", "value: o"))
	site := tko.Put{Kind: tko.KindSite, ID: "s", Metadata: map[string]string{"region": "north"}, Package: things("mine=1", "gone=1")}
	w.apply(site)
	others := tko.Site{ID: "s", Template: "t", Metadata: map[string]string{"region": "north", "pair": "a", "timezone": "UTC"}, Package: things("mine=1", "gone=1", "theirs=1")}
	if _, err := w.RegisterSite(w.ctx, others); err != nil {
		t.Fatal(err)
	}
	check := func(what string, template tko.TemplateID, metadata map[string]string, resources ...string) {
		t.Helper()
		s, err := w.Site(w.ctx, "s", 0)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(resources)
		if s.Template != template || !maps.Equal(s.Metadata, metadata) || !slices.Equal(shown(s.Package), resources) {
			t.Errorf("%s: template %q, metadata %v, resources %v", what, s.Template, s.Metadata, shown(s.Package))
		}
	}
	site.Metadata, site.Package = map[string]string{"color": "red"}, things("mine=2")
	changed := w.apply(site)
	check("others set more", "t", map[string]string{"color": "red", "pair": "a", "timezone": "UTC", "tier": "edge"}, "mine=2", "theirs=1", "base=t")
	for _, want := range []string{`metadata.labels.color: "red" added`, `metadata.labels.region: "north" removed`, `Thing "gone": removed`, `Thing "mine": spec.value`} {
		if !strings.Contains(strings.Join(changed.Changes, "\n"), want) {
			t.Errorf("the changes don't say %s: %q", want, changed.Changes)
		}
	}
	if len(changed.Changes) != 4 {
		t.Errorf("changes %q", changed.Changes)
	}
	if again := w.apply(site); again.Changed {
		t.Errorf("the same again: %+v", again)
	}
	w.template("t", thing("base", "value: t2"), "tier", "edge")
	w.apply(site)
	check("a newer template", "t", map[string]string{"color": "red", "pair": "a", "timezone": "UTC", "tier": "edge"}, "mine=2", "theirs=1", "base=t2")
	site.Template = "other"
	w.apply(site)
	site.Template = ""
	w.apply(site)
	check("without a template that was applied", "", map[string]string{"color": "red", "pair": "a", "timezone": "UTC"}, "mine=2", "theirs=1")
	if _, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindSite, ID: "s", Manager: "another", Metadata: map[string]string{"owner": "me"}}); err != nil {
		t.Fatal(err)
	}
	check("by another manager", "", map[string]string{"color": "red", "pair": "a", "timezone": "UTC", "owner": "me"}, "mine=2", "theirs=1")
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Metadata: map[string]string{"color": "red", "x": "1"}, Package: things("mine=2")}); err != nil {
		t.Fatal(err)
	}
	site.Metadata, site.Package = nil, nil
	w.apply(site)
	check("the set outlives writes of others", "", map[string]string{"x": "1"})
	for what, p := range map[string]tko.Put{
		"a deployment":   {Kind: tko.KindDeployment, Name: "d", Manager: "m"},
		"a long manager": {Kind: tko.KindSite, ID: "s", Manager: strings.Repeat("x", 101)},
	} {
		if _, err := w.PutEntity(w.ctx, p); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}

// Over random states and manifests, a dry run says what the apply does, and nothing that others
// set is removed.
func TestApplySaysWhatItDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, catalog.Options{})
			r := rand.New(rand.NewPCG(seed, 1))
			some := func(of []string) (out []string) {
				for _, one := range of {
					if r.IntN(2) == 0 {
						out = append(out, fmt.Sprintf("%s=%d", one, r.IntN(2)))
					}
				}
				return out
			}
			metadata := func(of []string) map[string]string {
				m := map[string]string{}
				for _, one := range some(of) {
					key, value, _ := strings.Cut(one, "=")
					m[key] = value
				}
				return m
			}
			templates := []tko.TemplateID{"", "t1", "t2"}
			kind := []tko.Kind{tko.KindSite, tko.KindTemplate}[r.IntN(2)]
			named := map[string]bool{} // by the last apply
			for range 30 {
				switch r.IntN(4) {
				case 0:
					w.template(string(templates[1+r.IntN(2)]), thing("base", fmt.Sprintf("value: %d", r.IntN(3))), "inherited", strconv.Itoa(r.IntN(2)))
					continue
				case 1: // others add to it
					before := Content(w, kind)
					p := tko.Put{Kind: kind, ID: "x", Metadata: maps.Clone(before.metadata), Package: before.pkg, Template: before.template}
					if p.Metadata == nil {
						p.Metadata = map[string]string{}
					}
					p.Metadata[fmt.Sprint("others", r.IntN(3))] = strconv.Itoa(r.IntN(3))
					p.Package = append(slices.DeleteFunc(slices.Clone(p.Package), func(r krm.Resource) bool { return r.Name() == "theirs" }), things(fmt.Sprintf("theirs=%d", r.IntN(3)))...)
					if _, err := w.PutEntity(w.ctx, p); err != nil {
						t.Fatal(err)
					}
					continue
				}
				p := tko.Put{Kind: kind, ID: "x", Metadata: metadata([]string{"a", "b", "c"}), Package: things(some([]string{"one", "two", "three"})...)}
				if id := templates[r.IntN(3)]; id != "" && kind == tko.KindSite {
					if _, err := w.Template(w.ctx, id, 0); err == nil {
						p.Template = id
					}
				}
				before := Content(w, kind)
				did := w.apply(p)
				after := Content(w, kind)
				if equal := before.text() == after.text(); did.Created == before.there || !did.Created && (len(did.Changes) == 0) != equal {
					t.Errorf("changes %q from\n%s to\n%s", did.Changes, before.text(), after.text())
				}
				for key, value := range before.metadata {
					if strings.HasPrefix(key, "others") && after.metadata[key] != value {
						t.Errorf("%s of others became %q", key, after.metadata[key])
					}
				}
				if theirs := thingOf(before.pkg, "theirs"); theirs != nil && thingOf(after.pkg, "theirs") == nil {
					t.Error("a resource of others was removed")
				}
				for name := range named {
					if kept := thingOf(after.pkg, name); kept != nil && thingOf(p.Package, name) == nil {
						t.Errorf("%s stays, and the manifest no longer names it", name)
					}
				}
				named = map[string]bool{}
				for _, one := range p.Package {
					named[one.Name()] = true
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

type entityContent struct {
	there    bool
	template tko.TemplateID
	metadata map[string]string
	pkg      krm.Package
}

func (c entityContent) text() string {
	return fmt.Sprint(c.template, c.metadata, shown(c.pkg))
}

func Content(w *world, kind tko.Kind) (c entityContent) {
	if kind == tko.KindSite {
		if s, err := w.Site(w.ctx, "x", 0); err == nil {
			c = entityContent{true, s.Template, s.Metadata, s.Package}
		}
		return c
	}
	if t, err := w.Template(w.ctx, "x", 0); err == nil {
		c = entityContent{true, "", t.Metadata, t.Package}
	}
	return c
}

func thingOf(p krm.Package, name string) krm.Resource {
	for _, r := range p {
		if r.Name() == name {
			return r
		}
	}
	return nil
}
