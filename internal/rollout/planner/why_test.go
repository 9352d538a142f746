package planner_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// originOf returns the origin of a field of an entity.
func (w *world) originOf(kind tko.Kind, id, field string) tko.Origin {
	w.t.Helper()
	b, err := w.Blame(w.ctx, tko.BlameRequest{Kind: kind, ID: id, Field: field})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(b.Fields) != 1 {
		w.t.Fatalf("%s names %d fields", field, len(b.Fields))
	}
	return b.Origins[b.Fields[0].Origin]
}

func TestBlameFollowsAFieldIntoItsTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	register := func(who, value string) {
		t.Helper()
		if _, err := w.RegisterTemplate(tko.WithAuthor(w.ctx, tko.Author{Who: who}), tko.Template{ID: "t:v1", Package: read(t, config("c", "x: "+value+", q: same"))}); err != nil {
			t.Fatal(err)
		}
	}
	register("carol", "one")
	register("dave", "two")
	id := w.deploy("t:v1", "", "")
	w.edit(id, set(t, `v1 ConfigMap "c"`, "three", "data", "x"))
	b, err := w.Blame(w.ctx, tko.BlameRequest{Kind: tko.KindDeployment, ID: string(id), Field: `v1 ConfigMap "c" data.x`, History: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range b.Changes {
		line := []string{c.Before + "→" + c.After + " " + text(c.Origin)}
		for _, up := range c.Upstream {
			line = append(line, "←", up.Author.Who, text(up))
		}
		got = append(got, strings.Join(line, " "))
	}
	last := b.Changes[0].Origin.Revision
	want := []string{fmt.Sprintf(`"two"→"three" edit by ann at %d`, last), `→"two" template t:v1@2 at 1 ← dave edit by dave at 2`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	b, err = w.Blame(w.ctx, tko.BlameRequest{Kind: tko.KindDeployment, ID: string(id), Field: `v1 ConfigMap "c" data.q`, History: true})
	if err != nil || len(b.Changes) != 1 || b.Changes[0].Upstream[0].Author.Who != "carol" || b.Changes[0].Upstream[0].Source != tko.SourceCreation {
		t.Errorf("%+v, %v", b.Changes, err)
	}
}

func TestBlameOfAFieldThatWasRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("t:v1", config("c", "x: one, q: two"))
	id := w.deploy("t:v1", "", "")
	w.edit(id, func(p krm.Package) krm.Package {
		data, _ := p.Find(krm.Identity{GVK: krm.ParseGVK("v1", "ConfigMap"), Name: "c"})["data"].(map[string]any)
		delete(data, "x")
		return p
	})
	b, err := w.Blame(w.ctx, tko.BlameRequest{Kind: tko.KindDeployment, ID: string(id), Field: `v1 ConfigMap "c" data.x`, History: true})
	if err != nil || len(b.Changes) != 2 || b.Changes[0].After != "" || b.Changes[0].Origin.Author.Who != "ann" {
		t.Errorf("%+v, %v", b.Changes, err)
	}
	_, err = w.Blame(w.ctx, tko.BlameRequest{Kind: tko.KindDeployment, ID: string(id), Field: `v1 ConfigMap "d" data.q`, History: true})
	if !errors.Is(err, tko.ErrNotFound) || !strings.Contains(err.Error(), `'v1 ConfigMap "c" data.q'`) {
		t.Errorf("a wrong resource: %v", err)
	}
	_, err = w.Blame(w.ctx, tko.BlameRequest{Kind: tko.KindDeployment, ID: string(id), Field: `v1 ConfigMap "c"`, History: true})
	if !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("several fields: %v", err)
	}
}

func TestBlameOfASiteNamesItsTemplateAsItWasThen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("base", config("c", "x: one"))
	register := func() {
		t.Helper()
		if _, err := w.RegisterSite(tko.WithAuthor(w.ctx, tko.Author{Who: "ann"}), tko.Site{ID: "s", Template: "base", Package: read(t, config("own", "z: mine"))}); err != nil {
			t.Fatal(err)
		}
	}
	register()
	w.template("base", config("c", "x: one, q: two"))
	w.template("base", config("c", "x: one, q: two, later: three"))
	if o := w.originOf(tko.KindSite, "s", `v1 ConfigMap "c" data.x`); text(o) != "template base@1 at 1" {
		t.Errorf("x: %s", text(o))
	}
	register()
	for field, want := range map[string]string{"x": "template base@1 at 1", "q": "template base@3 at 2"} {
		if got := text(w.originOf(tko.KindSite, "s", `v1 ConfigMap "c" data.`+field)); got != want {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
	if got := text(w.originOf(tko.KindSite, "s", `v1 ConfigMap "own" data.z`)); got != "creation at 1" {
		t.Errorf("z: %s", got)
	}
	if got := text(w.originOf(tko.KindTemplate, "base", `v1 ConfigMap "c" data.later`)); got != "edit by  at 3" {
		t.Errorf("the template: %s", got)
	}
}

func TestBlameHasNoValueOfASecret(t *testing.T) {
	t.Parallel()
	const canary = "Y2FuYXJ5"
	secret := `{apiVersion: v1, kind: Secret, metadata: {name: s, annotations: {note: "` + canary + `"}}, data: {password: ` + canary + "}}\n---\n"
	w := newWorld(t)
	w.template("t:v1", secret+`{apiVersion: v1, kind: List, metadata: {name: l}, items: [{apiVersion: v1, kind: Secret, metadata: {name: i}, data: {password: `+canary+"}}]}\n---\n"+config("c", `m: '{"apiVersion": "v1", "kind": "Secret", "data": {"a": "`+canary+`"}}'`))
	id := w.deploy("t:v1", "", "")
	w.edit(id, set(t, `v1 Secret "s"`, "b3RoZXI=", "data", "password"))
	w.edit(id, set(t, `v1 Secret "s"`, canary, "data", "password"))
	hidden := 0
	for _, request := range []tko.BlameRequest{
		{Kind: tko.KindDeployment, ID: string(id)},
		{Kind: tko.KindTemplate, ID: "t:v1"},
		{Kind: tko.KindDeployment, ID: string(id), Field: `v1 Secret "s" data.password`, History: true},
	} {
		b, err := w.Blame(w.ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		if all := fmt.Sprintf("%+v", b); strings.Contains(all, canary) || strings.Contains(all, "b3RoZXI") {
			t.Errorf("%s %q has the value of a Secret: %s", request.Kind, request.Field, all)
		}
		for _, f := range b.Fields {
			if f.Hidden {
				hidden++
			}
		}
		if request.History && len(b.Changes) != 3 {
			t.Errorf("%d changes of the Secret", len(b.Changes))
		}
	}
	if hidden != 8 {
		t.Errorf("%d fields are hidden", hidden)
	}
}

func TestReasonThatNamesARolloutIsNoRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(1)
	id := w.RegisterUpgrade(t)
	forged := tko.WithAuthor(w.ctx, tko.Author{Who: "eve", Why: fmt.Sprintf("rollout %q", id)})
	m, err := w.StartModification(forged, ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.EndModification(forged, m.Token, set(t, `v1 ConfigMap "c"`, "forged", "data", "other")(m.Package)); err != nil {
		t.Fatal(err)
	}
	if o := w.originOf(tko.KindDeployment, string(ids[0]), `v1 ConfigMap "c" data.other`); o.Source != tko.SourceEdit || o.Rollout != "" {
		t.Errorf("%+v", o)
	}
}

// RegisterUpgrade registers the rollout of the upgrade.
func (w *world) RegisterUpgrade(t *testing.T) tko.RolloutID {
	t.Helper()
	if _, err := w.RegisterRollout(w.ctx, tko.Rollout{ID: "r", Package: decode(t, upgrade)}); err != nil {
		t.Fatal(err)
	}
	return "r"
}

func TestImpactOfATemplateBeforeItIsChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(3)
	w.RegisterUpgrade(t)
	w.edit(ids[2], set(t, `v1 ConfigMap "c"`, "mine", "data", "version"))
	w.template("top:v1", `{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: t}, spec: {templateId: "t:v1"}}`)
	before := w.deployment(ids[0]).Stamp.Position
	i, err := w.TemplateImpact(w.ctx, tko.TemplateImpactRequest{Template: "t:v1", Package: read(t, config("c", "version: v9, other: x"))})
	if err != nil {
		t.Fatal(err)
	}
	if i.Deployments != 3 || i.DeploymentSites != 3 || i.Same != 0 || i.Sites != 0 {
		t.Errorf("%+v", i)
	}
	if diff := cmp.Diff([]tko.ImpactRevision{{Revision: 1, Deployments: 3}}, i.Revisions); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]tko.ImpactTopology{{Kind: tko.KindTemplate, ID: "top:v1", Resource: `topology.nephio.org/v1alpha1 Template "t"`}}, i.Topologies); diff != "" {
		t.Error(diff)
	}
	if len(i.Rollouts) != 1 || i.Rollouts[0].ID != "r" {
		t.Errorf("rollouts: %+v", i.Rollouts)
	}
	if len(i.Groups) != 2 || i.Groups[0].Kind != "Conflict" || i.Groups[0].Deployments != 1 || i.Groups[0].Examples[0] != ids[2] || len(i.Groups[0].Conflicts) != 1 ||
		i.Groups[1].Deployments != 2 || i.Groups[1].Changes[0].Path != "data.version" || i.Groups[1].Changes[0].After != `"v9"` {
		t.Errorf("groups: %+v", i.Groups)
	}
	if w.deployment(ids[0]).Stamp.Position != before {
		t.Error("the impact changed something")
	}
	i, err = w.TemplateImpact(w.ctx, tko.TemplateImpactRequest{Template: "t:v1"})
	if err != nil || i.Same != 3 || len(i.Groups) != 0 {
		t.Errorf("as it is: %+v, %v", i, err)
	}
}

func TestExplainSiteOfADeploymentAndOfATemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("nf:v1", config("c", "x: one"))
	w.template("top:v1", `{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: nf}, spec: {templateId: "nf:v1"}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: north}, spec: {select: {metadata: {region: north}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: p}, spec: {templates: [{template: nf, sites: [north]}]}}`)
	w.site("oslo", map[string]string{"region": "north"})
	w.site("rome", map[string]string{"region": "south"})
	id := w.deploy("top:v1", "", "")
	e, err := w.ExplainSite(w.ctx, tko.SiteExplanationRequest{Site: "oslo", Deployment: id})
	if err != nil || len(e.Placements) != 1 || !e.Placements[0].Selected || len(e.Placements[0].Deployments) != 1 || e.Placements[0].Note != "" {
		t.Errorf("%+v, %v", e, err)
	}
	for _, request := range []tko.SiteExplanationRequest{{Site: "rome", Deployment: id}, {Site: "rome", Template: "top:v1"}} {
		e, err = w.ExplainSite(w.ctx, request)
		if err != nil || len(e.Placements) != 1 || e.Placements[0].Selected || len(e.Placements[0].Unmet) != 1 || e.Placements[0].Unmet[0].Wanted != "north" {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if _, err = w.ExplainSite(w.ctx, tko.SiteExplanationRequest{Site: "rome"}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("without a topology: %v", err)
	}
}

func TestBlameNamesEachPluginThatAPlanRan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"first", "second"} {
		kind := strings.ToUpper(name[:1]) + name[1:]
		if _, err := w.RegisterPlugin(w.ctx, tko.Plugin{
			Type: tko.PluginPrepare, Name: name, Executor: tko.ExecutorCommand, Arguments: []string{"x"}, Properties: map[string]string{"_plan": "pure"},
			Triggers: []krm.GVK{krm.ParseGVK("a.plugin.nephio.org/v1alpha1", kind)},
		}); err != nil {
			t.Fatal(err)
		}
		w.plugins[name] = &plugin{do: func(target krm.Identity, _ tko.DeploymentID, pkg krm.Package) krm.Package {
			in := pkg.Find(krm.Identity{GVK: krm.ParseGVK("v1", "ConfigMap"), Name: "in"})
			pkg.Find(target).SetPrepared()
			pkg = slices.DeleteFunc(pkg, func(r krm.Resource) bool { return r.Text("metadata", "name") == name })
			pkg = append(pkg, read(t, config(name, "by: "+in.Text("data", "x")))...)
			if both := pkg.Find(krm.Identity{GVK: krm.ParseGVK("v1", "ConfigMap"), Name: "first"}); name == "second" && both != nil {
				both.Set("second", "data", "touched")
			}
			return pkg
		}}
	}
	for v, x := range map[string]string{"v1": "one", "v2": "two"} {
		w.template("t:"+v, config("in", "x: "+x)+"{apiVersion: a.plugin.nephio.org/v1alpha1, kind: First, metadata: {name: f}}\n---\n{apiVersion: a.plugin.nephio.org/v1alpha1, kind: Second, metadata: {name: s}}")
	}
	id := w.deploy("t:v1", "", "")
	check := func(what string) {
		t.Helper()
		for field, want := range map[string]string{`"first" data.by`: "first", `"first" data.touched`: "second", `"second" data.by`: "second"} {
			if o := w.originOf(tko.KindDeployment, string(id), "v1 ConfigMap "+field); o.Plugin != want || o.PluginRevision != 1 {
				t.Errorf("%s: %s: %+v, want plugin %q at revision 1", what, field, o, want)
			}
		}
	}
	check("prepared")
	w.RegisterUpgrade(t)
	w.advance("r")
	if s := w.status("r"); s.State != "Planned" {
		t.Fatalf("%s: %s", s.State, s.Reason)
	}
	plan, err := w.RolloutPlan(w.ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = plan.Digest })
	w.advance("r")
	if d := w.deployment(id); d.Template != "t:v2" || !d.Prepared {
		t.Fatalf("the upgrade isn't applied: %q", d.Template)
	}
	check("upgraded")
	if o := w.originOf(tko.KindDeployment, string(id), `v1 ConfigMap "in" data.x`); o.Template != "t:v2" || o.Rollout != "r" {
		t.Errorf("the upgrade: %+v", o)
	}
}

func TestBlameSaysWhereHistoryWasCollected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("t:v1", config("c", `x: one, v: one, z: one`))
	id := w.deploy("t:v1", "", "")
	for n, key := range []string{"x", "v", "x"} {
		w.edit(id, set(t, `v1 ConfigMap "c"`, strconv.Itoa(n), "data", key))
	}
	last := w.deployment(id).Stamp.Revision
	of := func(kind tko.Kind, id, key string) tko.Origin {
		t.Helper()
		return w.originOf(kind, id, `v1 ConfigMap "c" data.`+key)
	}
	if o := of(tko.KindDeployment, string(id), "z"); o.Collected || o.Source != tko.SourceTemplate {
		t.Fatalf("nothing is collected yet, but z is from %+v", o)
	}
	w.template("t:v1", config("c", `x: one, v: two, z: one`))
	w.template("t:v1", config("c", `x: two, v: two, z: one`))
	collector, ok := w.counted.Store.(record.Collector)
	if !ok {
		t.Fatal("the store collects nothing")
	}
	if _, err := collector.Collect(w.ctx, record.Retention{Changes: time.Nanosecond, Revisions: 2}); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"x": fmt.Sprintf("edit by ann at %d", last), "v": fmt.Sprintf("unknown at %d", last-1), "z": fmt.Sprintf("unknown at %d", last-1)} {
		o := of(tko.KindDeployment, string(id), key)
		if got := text(o); got != want || o.Collected != (key != "x") {
			t.Errorf("%s of the deployment: %s, collected: %t; want %s", key, got, o.Collected, want)
		}
	}
	for key, want := range map[string]bool{"x": false, "v": true, "z": true} {
		if o := of(tko.KindTemplate, "t:v1", key); o.Collected != want || (o.Source == tko.SourceUnknown) != want {
			t.Errorf("%s of the template: %+v", key, o)
		}
	}
	b, err := w.Blame(w.ctx, tko.BlameRequest{Kind: tko.KindDeployment, ID: string(id), Field: `v1 ConfigMap "c" data.v`, History: true})
	if err != nil || len(b.Changes) != 1 || !b.Changes[0].Origin.Collected || b.Changes[0].After != `"1"` || b.Changes[0].Before != "" {
		t.Errorf("the history of a collected field: %+v, %v", b.Changes, err)
	}
}
