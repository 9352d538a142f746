package planner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

func TestUpgradeKeepsEditsAndTheCreationsMerge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("smf:v1", config("a", `image: "1", replicas: "1"`)+config("b", `x: "1"`)+config("gone", `x: "1"`))
	w.template("smf:v2", config("a", `image: "2", replicas: "1"`)+config("b", `x: "2"`)+config("new", `x: "1"`))
	w.site("lagos", nil)
	id := w.deploy("smf:v1", config("b", `x: "mine"`)+config("c", `x: "merged"`), "lagos")
	w.edit(id, set(t, `v1 ConfigMap "a"`, "5", "data", "replicas"))
	w.upgrade("smf:v1", "smf:v2")
	d := w.one()
	want := write(t, read(t, config("a", `image: "2", replicas: "5"`)+config("b", `x: "mine"`)+config("new", `x: "1"`)+config("c", `x: "merged"`)))
	if diff := cmp.Diff(sortedYAML(t, want), sortedYAML(t, after(t, d))); diff != "" || d.Kind != plan.Change {
		t.Errorf("%s\n%s", d.Kind, diff)
	}
	state := d.AfterState.Deployment
	if state.Template != "smf:v2" || state.TemplateRevision != 1 || !state.Prepared || !state.Approved || state.Site != "lagos" {
		t.Errorf("the state after is %+v", state)
	}
	if now := w.deployment(id); now.Template != "smf:v1" {
		t.Error("planning changed the deployment")
	}
}

func sortedYAML(t testing.TB, text string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range read(t, text) {
		all[r.Identity().String()] = write(t, krm.Package{r})
	}
	return all
}

func TestUpgradeReportsConflictsOfTheField(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("smf:v1", config("a", `image: "1"`))
	w.template("smf:v2", config("a", `image: "2"`))
	id := w.deploy("smf:v1", "", "")
	w.edit(id, set(t, `v1 ConfigMap "a"`, "3", "data", "image"))
	w.upgrade("smf:v1", "smf:v2")
	d := w.one()
	if d.Kind != plan.Conflict || len(d.Findings) != 1 || !strings.Contains(d.Findings[0], "data.image") {
		t.Errorf("%s %q", d.Kind, d.Findings)
	}
	for policy, image := range map[merge.Policy]string{merge.KeepTheirs: "3", merge.TakeEdit: "2"} {
		w.spec.Conflicts = policy
		if got := w.one().AfterState.Deployment.Package.Find(krm.Identity{GVK: krm.GVK{Version: "v1", Kind: "ConfigMap"}, Name: "a"}).Text("data", "image"); got != image {
			t.Errorf("%s takes %q", policy, got)
		}
	}
}

var oneGVK = krm.GVK{Group: "a.plugin.nephio.org", Version: "v1", Kind: "One"}

const one = "{apiVersion: a.plugin.nephio.org/v1, kind: One, metadata: {name: one}, spec: {size: 1}}\n---\n"

// generate is a plugin that makes a ConfigMap with the trigger's size.
func generate(target krm.Identity, _ tko.DeploymentID, pkg krm.Package) krm.Package {
	size, _ := pkg.Find(target).Get("spec", "size")
	made := krm.Identity{GVK: krm.GVK{Version: "v1", Kind: "ConfigMap"}, Name: "made"}
	pkg.Find(target).SetPrepared()
	if r := pkg.Find(made); r != nil {
		r.Set(map[string]any{"size": string(rune('0' + size.(int64)))}, "data")
		return pkg
	}
	return append(pkg, krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "made"}, "data": map[string]any{"size": string(rune('0' + size.(int64)))}})
}

func TestPlansRunPurePluginsOnly(t *testing.T) {
	t.Parallel()
	for properties, test := range map[string]struct {
		properties map[string]string
		runs       int
		unknown    int
		made       string
	}{
		"pure":   {map[string]string{"_plan": "pure"}, 1, 0, "2"},
		"impure": {nil, 0, 1, "1"},
		"reads":  {map[string]string{"_plan": "pure", "_reads": ""}, 1, 0, "2"},
	} {
		t.Run(properties, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.plugin(oneGVK, test.properties, generate)
			w.template("t:v1", one+config("a", `x: "1"`))
			w.template("t:v2", strings.Replace(one, "size: 1", "size: 2", 1)+config("a", `x: "1"`))
			id := w.deploy("t:v1", "", "")
			if !w.deployment(id).Prepared {
				t.Fatal("the deployment isn't prepared")
			}
			w.plugins["p"].runs = 0
			w.upgrade("t:v1", "t:v2")
			d := w.one()
			if w.plugins["p"].runs != test.runs || len(d.Unknown) != test.unknown || d.Kind != plan.Change {
				t.Errorf("%d runs, unknown %q, %s %q", w.plugins["p"].runs, d.Unknown, d.Kind, d.Findings)
			}
			if test.unknown > 0 && d.Unknown[0] != `a.plugin.nephio.org/v1 One "one": known after preparation (plugin "p")` {
				t.Errorf("unknown: %s", d.Unknown[0])
			}
			if !strings.Contains(after(t, d), `size: "`+test.made+`"`) || d.AfterState.Deployment.Prepared != (test.unknown == 0) {
				t.Errorf("prepared %v\n%s", d.AfterState.Deployment.Prepared, after(t, d))
			}
		})
	}
}

func TestPreparationStaysWhereItsInputStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plugin(oneGVK, map[string]string{"_reads": ""}, generate)
	w.template("t:v1", one+config("a", `x: "1"`))
	w.template("t:v2", one+config("a", `x: "2"`))
	id := w.deploy("t:v1", "", "")
	w.edit(id, set(t, `v1 ConfigMap "made"`, "edited", "data", "more"))
	w.plugins["p"].runs = 0
	w.upgrade("t:v1", "t:v2")
	d := w.one()
	if d.Kind != plan.Change || w.plugins["p"].runs != 0 || len(d.Unknown) > 0 || !d.AfterState.Deployment.Prepared {
		t.Errorf("%s %q, unknown %q, %d runs", d.Kind, d.Findings, d.Unknown, w.plugins["p"].runs)
	}
	if text := after(t, d); !strings.Contains(text, `more: edited`) || !strings.Contains(text, `size: "1"`) || !strings.Contains(text, `x: "2"`) {
		t.Error(text)
	}
}

func TestEditedOutputOfChangedInputConflicts(t *testing.T) {
	t.Parallel()
	for name, v2 := range map[string]string{
		"trigger changed": strings.Replace(one, "size: 1", "size: 2", 1),
		"trigger gone":    config("a", `x: "1"`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.plugin(oneGVK, nil, generate)
			w.template("t:v1", one)
			w.template("t:v2", v2)
			id := w.deploy("t:v1", "", "")
			w.edit(id, set(t, `v1 ConfigMap "made"`, "edited", "data", "size"))
			w.upgrade("t:v1", "t:v2")
			if d := w.one(); d.Kind != plan.Conflict || !strings.Contains(strings.Join(d.Findings, "\n"), `"made"`) {
				t.Errorf("%s %q", d.Kind, d.Findings)
			}
		})
	}
}

func TestOutputGoesWithItsTrigger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plugin(oneGVK, nil, generate)
	w.template("t:v1", one+config("a", `x: "1"`))
	w.template("t:v2", config("a", `x: "1"`))
	w.deploy("t:v1", "", "")
	w.upgrade("t:v1", "t:v2")
	d := w.one()
	if d.Kind != plan.Change || strings.Contains(after(t, d), "made") || !d.AfterState.Deployment.Prepared {
		t.Errorf("%s %q\n%s", d.Kind, d.Findings, after(t, d))
	}
}

func TestMergeAndDeleteAndInvalid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("t", config("a", `x: "1"`))
	kept, changed := w.deploy("t", "", ""), w.deploy("t", config("b", `x: "1"`), "")
	w.spec.Edits = []spec.Edit{
		{Merge: read(t, config("a", `x: "1"`)), Select: tko.DeploymentSelect{Templates: []string{"t"}}},
		{Merge: read(t, config("log", `level: debug`)), Select: tko.DeploymentSelect{Metadata: map[string]string{"none": "*"}}},
	}
	for id, d := range w.plan() {
		if d.Kind != plan.Same || d.Before != d.After {
			t.Errorf("%s: %s %q", id, d.Kind, d.Findings)
		}
	}
	w.spec.Edits = []spec.Edit{
		{Merge: read(t, config("log", `level: debug`)), Select: tko.DeploymentSelect{Templates: []string{"t"}}},
		{Merge: read(t, config("log", `level: info`)), Select: tko.DeploymentSelect{Templates: []string{"t"}}},
	}
	all := w.plan()
	if len(all) != 2 || !strings.Contains(after(t, all[kept]), "info") || string(all[kept].Edits) != "\x00\x01" {
		t.Errorf("edits aren't applied in their order: %+v", all[kept].Row)
	}
	w.spec.Edits = []spec.Edit{{Merge: read(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: many}}"), Select: tko.DeploymentSelect{Templates: []string{"t"}}}}
	if d := w.plan()[changed]; d.Kind != plan.Invalid || len(d.Findings) == 0 || !strings.Contains(d.Findings[0], "replicas") {
		t.Errorf("%s %q", d.Kind, d.Findings)
	}
	w.spec.Edits = []spec.Edit{{Delete: true, Select: tko.DeploymentSelect{Templates: []string{"t"}}}}
	if d := w.plan()[changed]; d.Kind != plan.Delete || d.After != (plan.Digest{}) || d.Before == (plan.Digest{}) {
		t.Errorf("%+v", d.Row)
	}
}

func TestUpgradeWithoutDerivationEqualsUpgradeWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plugin(oneGVK, map[string]string{"_plan": "pure"}, generate)
	w.template("t:v1", one+config("a", `image: "1", x: "1"`)+config("b", `x: "1"`)+config("deep", `x: "1", z: "1"`))
	w.template("t:v2", strings.Replace(one, "size: 1", "size: 2", 1)+config("a", `image: "2", x: "1"`)+config("b", `x: "2"`)+config("deep", `x: "1", z: "2"`))
	deep := strings.Replace(config("deep", `x: "mine"`), "name: deep", `name: deep, annotations: {nephio.org/merge: Override}`, 1)
	id := w.deploy("t:v1", config("b", `x: "mine"`)+config("c", `x: "1"`)+deep, "")
	w.edit(id, set(t, `v1 ConfigMap "a"`, "edited", "data", "x"))
	w.upgrade("t:v1", "t:v2")
	with := w.one()
	w.forget = true
	without := w.one()
	if diff := cmp.Diff(after(t, with), after(t, without)); diff != "" || with.After != without.After {
		t.Errorf("%s\n%s %q", diff, without.Kind, without.Findings)
	}
	if text := after(t, with); !strings.Contains(text, `size: "2"`) || !strings.Contains(text, "x: edited") || strings.Count(text, "x: mine") != 2 || !strings.Contains(text, `z: "2"`) {
		t.Error(text)
	}
}

func TestUpgradeWithoutATemplateIsAConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("t:v1", config("a", `image: "1"`))
	w.template("t:v2", config("a", `image: "2"`))
	w.deploy("t:v1", "", "")
	w.upgrade("t:v1", "t:v2")
	w.spec.Edits[0].Select = tko.DeploymentSelect{}
	if _, err := w.DeleteTemplate(w.ctx, "t:v1"); err != nil {
		t.Fatal(err)
	}
	if d := w.one(); d.Kind != plan.Conflict || len(d.Findings) != 1 || !strings.Contains(d.Findings[0], "no template") {
		t.Errorf("%s %q", d.Kind, d.Findings)
	}
}

func TestSecondUpgradeStartsFromTheFirst(t *testing.T) {
	t.Parallel()
	for _, forget := range []bool{false, true} {
		w := newWorld(t)
		w.forget = forget
		w.plugin(oneGVK, map[string]string{"_plan": "pure"}, generate)
		for i := range 3 {
			w.template(fmt.Sprintf("t:v%d", i+1), strings.Replace(one, "size: 1", fmt.Sprintf("size: %d", i+1), 1)+config("a", fmt.Sprintf(`image: "%d", x: "1"`, i+1)))
		}
		id := w.deploy("t:v1", config("c", `x: "1"`), "")
		w.edit(id, set(t, `v1 ConfigMap "a"`, "edited", "data", "x"))
		w.upgrade("t:v1", "t:v2")
		first := w.one()
		w.applied = map[tko.DeploymentID]plan.State{id: *first.AfterState}
		w.upgrade("t:v2", "t:v3")
		second := w.one()
		if second.Kind != plan.Change {
			t.Fatalf("%s %q", second.Kind, second.Findings)
		}
		want := strings.NewReplacer(`image: "2"`, `image: "3"`, `size: "2"`, `size: "3"`, "size: 2", "size: 3").Replace(after(t, first))
		if diff := cmp.Diff(want, after(t, second)); diff != "" {
			t.Error(diff)
		}
	}
}
