package catalog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
)

func TestRegisteringTheSameTwiceWritesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("a", "x: 1"))
	id := w.create(tko.NewDeployment{Template: "t"})
	first, err := w.Template(w.ctx, "t", 0)
	if err != nil {
		t.Fatal(err)
	}

	head := w.head()
	w.template("t", thing("a", "x: 1"))
	if got := w.head(); got != head {
		t.Error("registering the same again wrote a change")
	}

	ctx := tko.WithAuthor(w.ctx, tko.Author{Who: "ada", Why: "new version"})
	revision, err := w.RegisterTemplate(ctx, tko.Template{ID: "t", Package: pkg(t, thing("a", "x: 2"))})
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.Template(w.ctx, "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	if revision != 2 || second.Stamp.Revision != 2 {
		t.Errorf("revision %d, stamp %d: want 2, the second content", revision, second.Stamp.Revision)
	}
	if second.Stamp.UID != first.Stamp.UID || !second.Stamp.Created.Equal(first.Stamp.Created) {
		t.Error("UID and creation time changed: it is still the same template")
	}
	if second.Stamp.Author != (tko.Author{Who: "ada", Why: "new version"}) {
		t.Errorf("author %v: want the author of the write", second.Stamp.Author)
	}
	if diff := cmp.Diff([]tko.DeploymentID{id}, second.Deployments); diff != "" {
		t.Errorf("deployments must stay its (-want +got):\n%s", diff)
	}
	if got, _ := named(w.deployment(id).Package, "a").Get("spec", "x"); got != int64(1) {
		t.Errorf("the deployment has x %v: it keeps what it was made with", got)
	}
	old, err := w.Template(w.ctx, "t", 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := named(old.Package, "a").Get("spec", "x"); got != int64(1) {
		t.Errorf("revision 1 has x %v: want it as it was", got)
	}
	_, err = w.Template(w.ctx, "t", 7)
	wantError(t, err, tko.ErrNotFound, "t", "7")
}

func TestInvalidRegistrationsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	tests := map[string]struct {
		why   string
		do    func() error
		names string
	}{
		"an ID with a space": {
			why:   "IDs have an alphabet",
			do:    func() error { _, err := w.RegisterTemplate(w.ctx, tko.Template{ID: "a b"}); return err },
			names: "a b",
		},
		"an empty site ID": {
			why:   "an ID is not empty",
			do:    func() error { _, err := w.RegisterSite(w.ctx, tko.Site{}); return err },
			names: "site ID",
		},
		"an invalid template": {
			why: "invalid KRM is never stored",
			do: func() error {
				_, err := w.RegisterTemplate(w.ctx, tko.Template{ID: "t", Package: pkg(t, thing("a", "invalid: 1"))})
				return err
			},
			names: "spec.invalid",
		},
		"an incomplete site": {
			why: "sites are validated completely",
			do: func() error {
				_, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Package: pkg(t, thing("a", "picky: 1"))})
				return err
			},
			names: "spec.required",
		},
		"a site of an unknown template": {
			why:   "references to unknown entities are refused",
			do:    func() error { _, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Template: "nowhere"}); return err },
			names: `template "nowhere"`,
		},
		"a resource twice": {
			why: "an identity is one resource",
			do: func() error {
				_, err := w.RegisterTemplate(w.ctx, tko.Template{ID: "t", Package: krm.Package{
					{"apiVersion": "v1", "kind": "A"}, {"apiVersion": "v1", "kind": "A"},
				}})
				return err
			},
			names: "A",
		},
		"two Deployment resources in a template": {
			why: "no deployment could be made from it",
			do: func() error {
				_, err := w.RegisterTemplate(w.ctx, tko.Template{
					ID: "t", Package: pkg(t, state("", "")+strings.Replace(state("", ""), "name: deployment", "name: other", 1)),
				})
				return err
			},
			names: "Deployment",
		},
		"an empty metadata key": {
			why: "it could be neither shown nor selected",
			do: func() error {
				_, err := w.RegisterTemplate(w.ctx, tko.Template{ID: "t", Metadata: map[string]string{"": "x"}})
				return err
			},
			names: "key",
		},
		"a plugin of no type": {
			why: "no executor would run it",
			do: func() error {
				_, err := w.RegisterPlugin(w.ctx, tko.Plugin{Name: "p", Arguments: []string{"x"}})
				return err
			},
			names: `"p"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			head := w.head()
			wantError(t, test.do(), tko.ErrInvalid, test.names)
			if w.head() != head {
				t.Errorf("something was stored: %s", test.why)
			}
		})
	}
}

func TestTemplatesMayLackRequiredFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("a", "picky: 1")+state("", "nephio.org/approve: Manual"))
	if asked := w.validator.take(); len(asked) != 1 || asked[0].Complete {
		t.Errorf("validations %v: want one, partial", asked)
	}
}

func TestSiteIsMergedIntoItsTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("a", "x: 1")+thing("b", "picky: 1")+facts("tier: edge, vendor: t"), "region", "north", "power", "low")
	_, err := w.RegisterSite(w.ctx, tko.Site{
		ID: "s", Template: "t", Metadata: map[string]string{"power": "high"},
		Package: pkg(t, thing("b", "picky: 1, required: 1")+thing("c", "")),
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Site(w.ctx, "s", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Package) != 4 || named(s.Package, "a") == nil || named(s.Package, "c") == nil {
		t.Errorf("the package is %v: want the template's with the given one merged in", s.Package)
	}
	want := map[string]string{"region": "north", "power": "high", "NF.tier": "edge", "NF.vendor": "t"}
	if diff := cmp.Diff(want, s.Metadata); diff != "" {
		t.Errorf("template < package < caller (-want +got):\n%s", diff)
	}
	listed := all(t, w.Sites(w.ctx, tko.SiteSelect{Metadata: map[string]string{"NF.tier": "e*"}}, tko.ListOptions{}))
	if len(listed) != 1 || !cmp.Equal(listed[0].Metadata, s.Metadata) {
		t.Errorf("the list returns %v: want the same as get", listed)
	}

	if _, err := w.DeleteTemplate(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if s, err = w.Site(w.ctx, "s", 0); err != nil || s.Template != "" {
		t.Errorf("the site has the template %q (%v), want none after its deletion", s.Template, err)
	}
}

func TestSiteIsProvisionedOncePerOrigin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("a", ""), "cloud", "G")
	request := tko.NewSite{Origin: "parent/site-1", Template: "t", Metadata: map[string]string{"name": "one"}}
	id, created, err := w.ProvisionSite(w.ctx, request)
	if err != nil || !created || !strings.HasPrefix(string(id), "provisioned/") || len(id) != len("provisioned/")+27 {
		t.Fatalf("%q, created %t, %v: want a new provisioned/KSUID", id, created, err)
	}
	again, created, err := w.ProvisionSite(w.ctx, request)
	if err != nil || created || again != id {
		t.Errorf("%q, created %t, %v: want %q again, exactly once for an origin", again, created, err, id)
	}
	s, err := w.Site(w.ctx, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"type": "provisioned", "cloud": "G", "name": "one"}
	if diff := cmp.Diff(want, s.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	request.Origin = ""
	_, _, err = w.ProvisionSite(w.ctx, request)
	wantError(t, err, tko.ErrInvalid, "origin")
	_, _, err = w.ProvisionSite(w.ctx, tko.NewSite{Origin: "o", Template: "nowhere"})
	wantError(t, err, tko.ErrInvalid, `"nowhere"`)
}

func TestPluginsAreRegisteredReadAndSelected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	trigger := krm.GVK{Group: "g", Version: "v1", Kind: "K"}
	for _, p := range []tko.Plugin{
		{Type: "validate", Name: "free5gc/smf", Arguments: []string{"smf"}, Triggers: []krm.GVK{trigger}},
		{Type: "prepare", Name: "kpt/namespace", Executor: "kpt", Arguments: []string{"image"}, Properties: map[string]string{"namespace": "spec.namespace"}},
		{Type: "prepare", Name: "free5gc/smf", Executor: "command", Arguments: []string{"smf", "-p"}, Triggers: []krm.GVK{trigger}},
	} {
		for range 2 {
			if revision, err := w.RegisterPlugin(w.ctx, p); err != nil || revision != 1 {
				t.Fatalf("%s: revision %d, %v: want 1, also the second time", p.ID(), revision, err)
			}
		}
	}
	got, err := w.Plugin(w.ctx, "validate", "free5gc/smf")
	if err != nil || got.Executor != "command" || !got.Triggered(trigger) || got.Arguments[0] != "smf" {
		t.Errorf("%v, %v: want the registered plugin, with the executor command for an empty one", got, err)
	}

	yes := func(s string) *string { return &s }
	one := 1
	tests := map[string]struct {
		why    string
		sel    tko.PluginSelect
		window tko.Window
		want   string
	}{
		"all":             {why: "sorted by type, then name", want: "prepare|free5gc/smf prepare|kpt/namespace validate|free5gc/smf"},
		"type":            {why: "exactly", sel: tko.PluginSelect{Type: yes("prepare")}, want: "prepare|free5gc/smf prepare|kpt/namespace"},
		"unknown type":    {why: "no plugin has the type", sel: tko.PluginSelect{Type: yes("*")}},
		"name":            {why: "a pattern of the name alone", sel: tko.PluginSelect{Names: []string{"free5gc/*"}}, want: "prepare|free5gc/smf validate|free5gc/smf"},
		"star":            {why: "a single star stays within a part", sel: tko.PluginSelect{Names: []string{"*"}}},
		"names":           {why: "both must match", sel: tko.PluginSelect{Names: []string{"free5gc/*", "**/namespace"}}},
		"executor":        {why: "exactly", sel: tko.PluginSelect{Executor: yes("kpt")}, want: "prepare|kpt/namespace"},
		"trigger":         {why: "one of its triggers", sel: tko.PluginSelect{Trigger: &trigger}, want: "prepare|free5gc/smf validate|free5gc/smf"},
		"trigger, window": {why: "windows count selected plugins", sel: tko.PluginSelect{Trigger: &trigger}, window: tko.Window{Offset: 1, Max: &one}, want: "validate|free5gc/smf"},
		"after":           {why: "a cursor", window: tko.Window{After: "prepare|free5gc/smf", Max: &one}, want: "prepare|kpt/namespace"},
	}
	for name, test := range tests {
		var ids []string
		for _, p := range all(t, w.Plugins(w.ctx, test.sel, tko.ListOptions{Window: test.window})) {
			ids = append(ids, p.ID())
		}
		if diff := cmp.Diff(test.want, strings.Join(ids, " ")); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, test.why, diff)
		}
	}

	if _, err := w.DeletePlugin(w.ctx, "prepare", "kpt/namespace"); err != nil {
		t.Fatal(err)
	}
	_, err = w.DeletePlugin(w.ctx, "prepare", "kpt/namespace")
	wantError(t, err, tko.ErrNotFound, "prepare|kpt/namespace")
	_, err = w.Plugin(w.ctx, "no", "\x00")
	wantError(t, err, tko.ErrNotFound)
	deleted, err := w.PurgePlugins(w.ctx, tko.PluginSelect{Trigger: &trigger}, true)
	if err != nil || deleted.Count != 2 {
		t.Errorf("%v, %v: a dry run would delete 2", deleted, err)
	}
	deleted, err = w.PurgePlugins(w.ctx, tko.PluginSelect{Type: yes("validate")}, false)
	if err != nil || deleted.Count != 1 {
		t.Errorf("%v, %v: want 1 deleted", deleted, err)
	}
}

func TestNewRulesApplyToLaterValidations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	crd := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\n---\n"
	last := func() tko.Validation {
		w.validator.take()
		w.site("s", thing("a", "x: "+string(rune('0'+w.head()%10))))
		asked := w.validator.take()
		if len(asked) != 1 && len(asked) != 2 { // from memory, and if that was out of date again
			t.Fatalf("%d validations, want 1 or 2", len(asked))
		}
		return asked[len(asked)-1]
	}
	if v := last(); len(v.CRDs) != 0 || len(v.Plugins) != 0 || v.Key == "" {
		t.Errorf("%v: nothing is known yet", v)
	}
	w.template("crds", crd)
	w.template("same-crds", crd)
	w.template("none", thing("a", ""))
	if v := last(); len(v.CRDs) != 1 || v.CRDs[0].Name() != "things.example.com" {
		t.Errorf("CRDs %v: want those of templates, equal ones once", v.CRDs)
	}
	before := last().Key
	if _, err := w.RegisterPlugin(w.ctx, tko.Plugin{Type: "validate", Name: "p", Arguments: []string{"p"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RegisterPlugin(w.ctx, tko.Plugin{Type: "prepare", Name: "q", Arguments: []string{"q"}}); err != nil {
		t.Fatal(err)
	}
	if v := last(); len(v.Plugins) != 1 || v.Plugins[0].Name != "p" || v.Key == before {
		t.Errorf("plugins %v, key %q after %q: want the validate plugins, and no cached result from before them", v.Plugins, v.Key, before)
	}
	for _, id := range []tko.TemplateID{"crds", "same-crds"} {
		if _, err := w.DeleteTemplate(w.ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if v := last(); len(v.CRDs) != 0 {
		t.Errorf("CRDs %v: want none, their templates are gone", v.CRDs)
	}
}
