package plan_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/plan/plantest"
	"github.com/tko-orchestrator/tko/krm"
)

// placed is a deployment of the template t at the site s.
func placed(name, value string) tko.Put {
	p := deployment(name, value)
	p.Template, p.Site = "t", "s"
	return p
}

// record applies a plan with a recorder, and returns the writes as "verb kind".
func (w *world) record(p *plan.Plan, allow func(write string, n int) error) ([]string, []tko.SourceOperation, error) {
	w.Helper()
	r := &recorder{Client: w.Client, allow: allow}
	done, err := p.Apply(w.Context(), r, "r", w.save)
	kinds := []string{}
	for _, write := range r.writes {
		kinds = append(kinds, strings.Join(strings.Fields(write)[:2], " "))
	}
	return kinds, done, err
}

// Plugins, templates, sites and deployments are written in this order, and removed in the
// opposite one, after all writes.
func TestWritesFollowReferencesAndRemovalsComeLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	old := w.of(plugin("p"), template("t", "1"), site("s", "t"), placed("d", "1"), placed("d2", "1"))
	writes, done, err := w.record(w.plan(old...), nil)
	equal(t, "first writes", []string{"put plugin", "put template", "put site", "put deployment", "put deployment"}, writes)
	if err != nil || len(done) != 5 || done[0].Verb != plan.Create || done[0].Kind != "plugin" || done[0].Revision != "r" || done[0].Time.IsZero() {
		t.Errorf("the operations are %+v, %v", done, err)
	}
	fresh := w.of(plugin("p2"), template("t2", "1"), site("s2", "t2"))
	writes, _, err = w.record(w.plan(fresh...), nil)
	equal(t, "second writes", []string{
		"put plugin", "put template", "put site", "remove deployment", "remove deployment", "remove site", "remove template", "remove plugin",
	}, writes)
	if err != nil {
		t.Error(err)
	}
	equal(t, "inventory", []string{"plugin schedule|p2", "template t2", "site s2"}, names(w.items))
	for _, line := range w.entities() {
		if !strings.HasSuffix(line, " gitops:fleet") {
			t.Errorf("%s: want gitops:fleet as the author", line)
		}
	}
	if s, err := w.Site(t.Context(), "s2", 0); err != nil || s.Stamp.Why != "r" {
		t.Errorf("the reason is %q, want the revision; %v", s.Stamp.Why, err)
	}
}

// An error stops what follows it in the order of kinds. The error names file and entity, the
// inventory has what was done, and the next plan does the rest.
func TestAnErrorStopsTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(plainSite("old"))...)
	manifests := w.of(template("t", "1"), site("s", "t"), placed("d", "1"))
	broken := errors.New("broken")
	writes, done, err := w.record(w.plan(manifests...), func(write string, _ int) error {
		if write == "put site s" {
			return broken
		}
		return nil
	})
	equal(t, "writes", []string{"put template"}, writes)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), `create fleet.yaml: site "s"`) {
		t.Errorf("the error is %v, want one that names the file and the site", err)
	}
	if len(done) != 2 || done[0].Error != "" || !strings.Contains(done[1].Error, "broken") {
		t.Errorf("the operations are %+v", done)
	}
	equal(t, "inventory", []string{"template t", "site old", "site s", "deployment d"}, names(w.items))
	for _, i := range w.items {
		if i.Pending != (i.Name == "s" || i.Name == "d") {
			t.Errorf("%s %s is pending: %t", i.Kind, i.Name, i.Pending)
		}
	}
	writes, _, err = w.record(w.plan(manifests...), nil)
	equal(t, "writes of the next plan", []string{"put site", "put deployment", "remove site"}, writes)
	if err != nil {
		t.Error(err)
	}

	// An entity whose removal failed stays owned.
	_, _, err = w.record(w.plan(manifests[:2]...), func(string, int) error { return broken })
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), `delete deployment "d"`) {
		t.Errorf("the error is %v", err)
	}
	equal(t, "inventory", []string{"template t", "site s", "deployment d"}, names(w.items))
}

// Nothing is created before the inventory that has it is saved.
func TestCreationsAreSavedBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.put(plainSite("adopted"))
	p := w.plan(w.of(plainSite("adopted"), plainSite("s"))...)
	full := errors.New("full")
	before := w.entities()
	if done, err := p.Apply(t.Context(), w.Client, "r", func(context.Context, []tko.SourceItem) error { return full }); !errors.Is(err, full) || len(done) > 0 {
		t.Errorf("the error is %v, %v were done", err, done)
	}
	equal(t, "entities", before, w.entities())
	var saved [][]string
	if _, err := p.Apply(t.Context(), w.Client, "r", func(_ context.Context, items []tko.SourceItem) error {
		list := names(items)
		for i := range list {
			list[i] += fmt.Sprintf(" %t", items[i].Pending)
		}
		saved = append(saved, list)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	equal(t, "saved", [][]string{{"site adopted true", "site s true"}, {"site adopted false", "site s false"}}, saved)

	// What was deleted is known already: it keeps its entry until it is written again.
	w.apply(w.of(plainSite("adopted"), plainSite("s"))...)
	known := slices.Clone(w.items)
	w.remove(tko.KindSite, "s")
	saved = nil
	broken := errors.New("broken")
	if _, _, err := w.record(w.plan(w.of(plainSite("adopted"), plainSite("s"))...), func(string, int) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	equal(t, "inventory after a failed restoration", known, w.items)

	// Without new entities it is saved once, and an error of that is reported.
	saves := 0
	_, err := w.plan(w.of(plainSite("s"))...).Apply(t.Context(), w.Client, "r", func(context.Context, []tko.SourceItem) error {
		saves++
		return full
	})
	_, err2 := w.plan().Apply(t.Context(), w.Client, "r", func(context.Context, []tko.SourceItem) error { return full })
	if !errors.Is(err, full) || saves != 2 && saves != 1 || !errors.Is(err2, full) {
		t.Errorf("%d saves, %v, %v", saves, err, err2)
	}
}

// An entity that is gone when it is removed is no error.
func TestRemovalOfWhatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(plainSite("s"), plainDeployment("d"), plainDeployment("top"))...)
	w.grow("top", 1)
	p := w.plan()
	w.remove(tko.KindSite, "s")
	w.remove(tko.KindDeployment, w.item(tko.KindDeployment, "d").ID)
	w.remove(tko.KindDeployment, w.item(tko.KindDeployment, "top").ID)
	if _, err := p.Apply(t.Context(), w.Client, "r", w.save); err != nil || len(w.items) != 0 {
		t.Errorf("%v, the inventory has %v", err, w.items)
	}
}

// Every reference is checked before anything is written: to entities that don't exist, and
// to those that the revision removes.
func TestReferencesAreChecked(t *testing.T) {
	t.Parallel()
	child := func(parent string) tko.Put {
		p := deployment("child", "1")
		p.Parent = tko.DeploymentID(parent)
		return p
	}
	w := newWorld(t, pruning())
	w.put(template("theirs", "1"))
	w.apply(w.of(template("t", "1"), site("s", "t"), placed("d", "1"), plainDeployment("parent"))...)
	parent := w.item(tko.KindDeployment, "parent").ID
	all := []tko.Put{template("t", "1"), site("s", "t"), placed("d", "1"), plainDeployment("parent")}
	tests := map[string]struct {
		revision []tko.Put
		want     []string // nil: it is valid
	}{
		"an existing template":                    {[]tko.Put{site("new", "theirs")}, nil},
		"a template of the revision":              {[]tko.Put{template("new", "1"), site("new", "new")}, nil},
		"a template that comes later":             {append(all, site("new", "nowhere"), site("newer", "elsewhere")), nil},
		"a removed template":                      {[]tko.Put{site("new", "t")}, []string{`site "new"`, `template "t": not found`}},
		"a removed template of an unchanged site": {[]tko.Put{site("s", "t")}, []string{`site "s"`, `template "t": not found`}},
		"a removed site of unchanged deployments": {[]tko.Put{template("t", "1"), placed("d", "1")}, []string{`deployment "d"`, `site "s": not found`}},
		"a removed site of changed deployments":   {[]tko.Put{template("t", "1"), placed("d", "2")}, []string{`deployment "d"`, `site "s": not found`}},
		"several":                                 {[]tko.Put{site("new", "t"), placed("d", "2")}, []string{`site "new"`, `template "t"`, `deployment "d"`}},
		"a parent":                                {append(all, child(parent)), nil},
		"no parent":                               {append(all, child("nowhere")), []string{`deployment "child"`, `parent deployment "nowhere"`}},
		"a removed parent":                        {append(all[:3:3], child(parent)), []string{`deployment "child"`, `parent deployment "` + parent + `"`}},
		"an invalid package":                      {[]tko.Put{{Kind: tko.KindSite, ID: "x", Package: append(configMap("a", "1"), configMap("a", "2")...)}}, []string{`site "x"`, "ConfigMap"}},
		"an invalid package of a new deployment":  {[]tko.Put{{Kind: tko.KindDeployment, ID: "x", Package: krm.Package{{"apiVersion": "v1", "metadata": map[string]any{"name": "c"}}}}}, []string{`deployment "x"`, "kind"}},
	}
	for name, test := range tests {
		if test.want == nil {
			if _, err := plan.Make(t.Context(), w, w.of(test.revision...), w.items, w.policy); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		t.Log(name)
		w.refused(test.want, w.of(test.revision...)...)
	}
}

// All fields of a manifest may change, and it stays the same deployment; only its parent
// can't, which is an error before anything is written.
func TestChangedManifestIsTheSameDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	base := w.of(template("t", "1"), template("t2", "2"), plainSite("s"), plainSite("s2"), plainDeployment("parent"))
	with := func(p tko.Put) []manifest.Manifest { return append(slices.Clone(base), of(t, p)) }
	w.apply(with(placed("d", "1"))...)
	id, parent := w.item(tko.KindDeployment, "d").ID, w.item(tko.KindDeployment, "parent").ID
	other := placed("d", "2")
	other.Template, other.Site, other.Metadata = "t2", "s2", map[string]string{"a": "b"}
	p := w.apply(with(other)...)
	equal(t, "actions", []string{`update deployment "d"`}, actions(p.Actions))
	d, err := w.Deployment(t.Context(), tko.DeploymentID(id), 0)
	if err != nil || d.Template != "t2" || d.Site != "s2" || d.Metadata["a"] != "b" || w.item(tko.KindDeployment, "d").ID != id {
		t.Errorf("the deployment is %+v, %v", d, err)
	}
	data := map[string]string{}
	for _, r := range d.Package {
		if r.Text("kind") == "ConfigMap" {
			data[r.Name()] = r.Text("data", "k")
		}
	}
	equal(t, "its package", map[string]string{"own": "2", "settings": "2"}, data)
	equal(t, "changes after that", 0, plantest.Changes(w.plan(with(other)...)))
	other.Parent = tko.DeploymentID(parent)
	w.refused([]string{`deployment "d"`, "parent"}, with(other)...)
}

// A deployment whose site or template another client changed is made again, and one that
// was modified otherwise, as by preparation, is not.
func TestDeploymentsAreRestoredByTheirPlace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		template tko.TemplateID
		site     tko.SiteID
		want     []string
	}{
		"package":  {"t", "s", []string{}},
		"site":     {"t", "s2", []string{`update deployment "d" (its template or site was changed)`}},
		"template": {"t2", "s", []string{`update deployment "d" (its template or site was changed)`}},
	} {
		w := newWorld(t, pruning())
		manifests := w.of(template("t", "1"), template("t2", "1"), plainSite("s"), plainSite("s2"), placed("d", "1"))
		w.apply(manifests...)
		w.put(tko.Put{
			Kind: tko.KindDeployment, ID: w.item(tko.KindDeployment, "d").ID, Template: test.template, Site: test.site,
			Package: configMap("by-ada", "1").WithDeployment(string(test.template), string(test.site), false, false),
		})
		equal(t, name, test.want, actions(w.apply(manifests...).Actions))
		equal(t, name+", after that", 0, plantest.Changes(w.plan(manifests...)))
	}
}

// A change of a template doesn't change sites and deployments. The plan says how many
// deployments keep the earlier revision, without those that it makes again.
func TestChangedTemplateChangesNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(template("t", "1"), template("u", "1"), site("s", "t"), placed("a", "1"), placed("b", "1"), placed("c", "1"))...)
	p := w.apply(w.of(template("t", "2"), template("u", "2"), site("s", "t"), placed("a", "1"), placed("b", "1"), placed("c", "2"))...)
	equal(t, "actions", []string{`update template "t"`, `update template "u"`, `update deployment "c"`}, actions(p.Actions))
	equal(t, "messages", []string{`template "t" changes: 2 deployments made from it keep the earlier revision (tko deployment list --outdated --template-id t)`}, p.Messages)
	yes := true
	outdated := []string{}
	for d, err := range w.Deployments(t.Context(), tko.DeploymentSelect{Outdated: &yes}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		outdated = append(outdated, string(d.ID))
	}
	want := []string{w.item(tko.KindDeployment, "a").ID, w.item(tko.KindDeployment, "b").ID}
	slices.Sort(want)
	equal(t, "outdated", want, outdated)
}

// Only changes of templates outdate deployments, not those of a site of the same name.
func TestSitesOutdateNoDeployments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(template("t", "1"), site("s", "t"), plainSite("t"), placed("a", "1"))...)
	p := w.plan(w.of(template("t", "1"), site("s", "t"), site("t", "", "region", "west"), placed("a", "1"))...)
	equal(t, "actions", []string{`update site "t"`}, actions(p.Actions))
	equal(t, "messages", 0, len(p.Messages))
}

// The plan doesn't depend on the order of manifests and items.
func TestPlansAreDeterministic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	puts := append(numbered(8, plainSite, "s"), plainDeployment("a"), plainDeployment("b"))
	w.apply(w.of(puts...)...)
	w.policy.Budget.Count, w.policy.Budget.Percent = 0, 0
	first := w.plan(w.of(puts[7:9]...)...)
	slices.Reverse(w.items)
	second := w.plan(w.of(puts[8], puts[7])...)
	if first.Asks == "" || first.Asks != second.Asks {
		t.Errorf("the digests are %q and %q", first.Asks, second.Asks)
	}
	equal(t, "held", actions(first.Held), actions(second.Held))
	equal(t, "items", first.Items, second.Items)
}

// With a rollout, changes and removals of deployments are its content. Removals of other
// entities follow it; all else is applied at once.
func TestRolloutTakesDeployments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(template("t", "1"), plainSite("s"), placed("a", "1"), placed("b", "1"), plainSite("gone"))...)
	a, b := w.item(tko.KindDeployment, "a"), w.item(tko.KindDeployment, "b")
	changed := placed("a", "2")
	changed.Metadata, changed.Package = map[string]string{"k": "v"}, nil
	manifests := w.of(template("t", "2"), plainSite("s"), changed, placed("c", "1"))
	p := w.plan(manifests...)
	rollout, waiting := p.Deployments()
	equal(t, "rollout", []string{`update deployment "a"`, `create deployment "c"`, `delete deployment "b"`}, actions(rollout))
	equal(t, "at once", []string{`update template "t"`}, actions(p.Actions))
	equal(t, "waiting", 1, waiting)
	resources := []any{map[string]any(configMap("own", "1")[0])}
	equal(t, "manifests", []any{
		map[string]any{
			"name": "a", "origin": "fleet/a", "before": a.Digest, "digest": manifests[2].Digest, "deploymentId": a.ID, "templateId": "t", "siteId": "s", "metadata": map[string]any{"k": "v"},
		},
		map[string]any{"name": "c", "origin": "fleet/c", "digest": manifests[3].Digest, "templateId": "t", "siteId": "s", "package": map[string]any{"resources": resources}},
		map[string]any{"name": "b", "origin": "fleet/b", "before": b.Digest, "deploymentId": b.ID, "absent": true},
	}, manifestsOf(t, p, rollout))

	w.items[slices.IndexFunc(w.items, func(i tko.SourceItem) bool { return i.Name == "b" })].Digest = ""
	p = w.plan(w.of(template("t", "1"), plainSite("s"), placed("a", "1"))...)
	rollout, _ = p.Deployments()
	if m, _ := manifestsOf(t, p, rollout)[0].(map[string]any); m["before"] != plan.Unknown {
		t.Errorf("the manifest of an unknown digest is %v", m)
	}

	// A plan names no rollout: its own changes may be of another one.
	w.items[len(w.items)-1].Rollout = "gitops/fleet/1"
	for _, i := range w.plan(w.of(template("t", "1"), plainSite("s"), placed("a", "1"))...).Items {
		if i.Rollout != "" {
			t.Errorf("%s %s is changed by %q", i.Kind, i.Name, i.Rollout)
		}
	}

	// If no deployment changes, all actions stay.
	p = w.plan(w.of(template("t", "1"), plainSite("s"), placed("a", "1"), placed("b", "1"))...)
	p.Actions = slices.DeleteFunc(p.Actions, func(a plan.Action) bool { return a.Kind == tko.KindDeployment })
	before := actions(p.Actions)
	rollout, waiting = p.Deployments()
	if len(rollout) != 0 || waiting != 1 || len(before) != 1 {
		t.Errorf("the rollout has %v, %d wait, of %v", rollout, waiting, before)
	}
	equal(t, "actions", before, actions(p.Actions))
}

func manifestsOf(t *testing.T, p *plan.Plan, actions []plan.Action) []any {
	t.Helper()
	list, err := p.Manifests(actions)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
