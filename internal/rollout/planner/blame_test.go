package planner_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// A pipeline is one deployment with what a model expects of its blame. The model goes
// forward: it knows what each step does, and gives the values that it changes an origin.
type pipeline struct {
	*world
	id        tko.DeploymentID
	random    *rand.Rand
	template  string            // the current one
	templates map[string]values // by ID
	merged    values
	values    values              // the deployment's
	origins   map[string]string   // by field
	history   []map[string]string // origins by revision
	rollouts  int
	// properties and revision are the plugin's.
	properties map[string]string
	revision   int64
	undone     bool
	did        map[string]int // steps by name
}

// values are those of the fields of ConfigMaps, by "name/key", of the variables of a
// workload, of the name "nf", and of the Helm values of a chart, of the name "chart".
type values map[string]string

// chartOf is a chart with values, which are nested.
func chartOf(nested map[string]any) krm.Resource {
	return krm.Resource{
		"apiVersion": "workload.nephio.org/v1alpha1", "kind": "HelmChart", "metadata": map[string]any{"name": "chart"},
		"spec": map[string]any{"chart": "nf", "parameters": map[string]any{"image": map[string]any{"settings": nested}}},
	}
}

// chartValues is the path of the values of a chart.
var chartValues = []string{"spec", "parameters", "image", "settings"}

func isChart(r krm.Resource) bool { return r.GVK().Kind == "HelmChart" }

// workloadOf is a workload with variables, which are a list whose elements have keys.
func workloadOf(variables []any) krm.Resource {
	return krm.Resource{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "nf"},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "nf"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "nf"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "nf:1", "env": variables}}},
			},
		},
	}
}

func isWorkload(r krm.Resource) bool { return r.GVK().Group == "apps" }

// variablesOf returns the container of a workload, and its variables.
func variablesOf(r krm.Resource) (container map[string]any, variables []any) {
	containers, _ := r.Get("spec", "template", "spec", "containers")
	list, _ := containers.([]any)
	container, _ = list[0].(map[string]any)
	variables, _ = container["env"].([]any)
	return container, variables
}

func (v values) yaml() string {
	byName := map[string][]string{}
	var variables []any
	chart := map[string]any{}
	for _, field := range slices.Sorted(maps.Keys(v)) {
		name, key, _ := strings.Cut(field, "/")
		if name == "chart" {
			chart[key] = v[field]
			continue
		}
		if name == "nf" {
			variables = append(variables, map[string]any{"name": key, "value": v[field]})
			continue
		}
		byName[name] = append(byName[name], fmt.Sprintf("%s: %q", key, v[field]))
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		text.WriteString(config(name, strings.Join(byName[name], ", ")))
	}
	var others krm.Package
	if len(variables) > 0 {
		others = append(others, workloadOf(variables))
	}
	if len(chart) > 0 {
		others = append(others, chartOf(chart))
	}
	encoded, err := krm.Encode(krm.YAML, others)
	if err != nil {
		panic(err) // it is one that this test made
	}
	text.Write(encoded)
	return text.String()
}

func valuesOf(pkg krm.Package) values {
	v := values{}
	for _, r := range pkg {
		if isWorkload(r) {
			_, variables := variablesOf(r)
			for _, variable := range variables {
				m, _ := variable.(map[string]any)
				v["nf/"+fmt.Sprint(m["name"])] = fmt.Sprint(m["value"])
			}
		}
		data, _ := r.Get("data")
		if isChart(r) {
			data, _ = r.Get(chartValues...)
		}
		m, _ := data.(map[string]any)
		for key, value := range m {
			v[r.Text("metadata", "name")+"/"+key] = fmt.Sprint(value)
		}
	}
	return v
}

// over returns v with the values of other ones.
func (v values) over(other values) values {
	out := maps.Clone(v)
	maps.Copy(out, other)
	return out
}

func (p *pipeline) draw(names ...string) values {
	v := values{}
	for _, name := range names {
		v[name+"/always"] = "x" // so that no ConfigMap disappears
		for key := range 5 {
			if p.random.IntN(3) > 0 {
				v[fmt.Sprintf("%s/k%d", name, key)] = strconv.Itoa(p.random.IntN(3))
			}
		}
	}
	return v
}

// arrive takes the values that the deployment has after a step: those that changed have
// an origin that the step names.
func (p *pipeline) arrive(origin func(field, value string) string) {
	p.t.Helper()
	for revision := int64(len(p.history)); revision <= p.deployment(p.id).Stamp.Revision; revision++ {
		d, err := p.Deployment(p.ctx, p.id, revision)
		if err != nil {
			p.t.Fatal(err)
		}
		next, origins := valuesOf(d.Package), map[string]string{}
		for field, value := range next {
			was, had := p.values[field]
			origins[field] = p.origins[field]
			if !had || was != value {
				origins[field] = fmt.Sprintf("%s at %d", origin(field, value), revision)
			}
		}
		p.values, p.origins = next, origins
		p.history = append(p.history, origins)
	}
}

func text(o tko.Origin) string {
	text := o.Source
	if o.Template != "" {
		text += fmt.Sprintf(" %s@%d", o.Template, o.TemplateRevision)
	}
	if o.Source == tko.SourcePreparation {
		text += fmt.Sprintf(" %s@%d of %s", o.Plugin, o.PluginRevision, o.Resource)
	}
	if o.Source == tko.SourceEdit {
		text += " by " + o.Author.Who + o.Author.Why
	}
	return fmt.Sprintf("%s at %d", text, o.Revision)
}

// check compares the blame with the model.
func (p *pipeline) check(what string) {
	p.t.Helper()
	b, err := p.Blame(p.ctx, tko.BlameRequest{Kind: tko.KindDeployment, ID: string(p.id)})
	if err != nil {
		p.t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range b.Fields {
		name, isConfig := strings.CutPrefix(f.Resource, "v1 ConfigMap ")
		key, isData := strings.CutPrefix(f.Path, "data.")
		if isConfig && isData {
			got[strings.Trim(name, `"`)+"/"+key] = text(b.Origins[f.Origin])
		}
		if key, ok := strings.CutPrefix(f.Path, "spec.template.spec.containers[name=main].env[name="); ok && strings.HasSuffix(key, "].value") {
			got["nf/"+strings.TrimSuffix(key, "].value")] = text(b.Origins[f.Origin])
		}
		if key, ok := strings.CutPrefix(f.Path, strings.Join(chartValues, ".")+"."); ok {
			got["chart/"+key] = text(b.Origins[f.Origin])
		}
	}
	if !maps.Equal(got, p.origins) {
		for _, field := range slices.Sorted(maps.Keys(values(p.origins).over(got))) {
			if got[field] != p.origins[field] {
				p.t.Errorf("%s: %s = %s: blame says %q, want %q", what, field, p.values[field], got[field], p.origins[field])
			}
		}
		p.t.FailNow()
	}
	all := merge.Leaves(p.deployment(p.id).Package, nil)
	if len(b.Fields) < len(all) {
		p.t.Errorf("%s: blame has %d fields of %d", what, len(b.Fields), len(all))
	}
	for _, f := range b.Fields {
		if o := b.Origins[f.Origin]; o.Source == tko.SourceUnknown || o.Collected || o.Revision < 1 || o.Revision > p.deployment(p.id).Stamp.Revision {
			p.t.Errorf("%s: %s %s has the origin %+v, but all history is there", what, f.Resource, f.Path, o)
		}
	}
}

func (p *pipeline) run(steps int) {
	p.arrive(func(field, value string) string {
		switch {
		case p.templates[p.template][field] == value:
			return "template " + p.template + "@1"
		case p.merged[field] == value:
			return "merge"
		}
		return "creation"
	})
	p.check("creation")
	for n := range steps {
		what := []func() string{p.person, p.person, p.person, p.plugin, p.upgrade, p.mergeEdit, p.function, p.undo, p.undo}[p.random.IntN(9)]()
		p.did[what]++
		p.check(fmt.Sprintf("step %d, %s", n, what))
	}
}

// person edits some fields, with kubectl at times, which names its field manager.
func (p *pipeline) person() string {
	edit, reason := p.draw("a", "b", "nf", "chart"), ""
	if p.random.IntN(2) == 0 {
		reason = fmt.Sprintf("field manager %q", []string{"kubectl-edit", "ci"}[p.random.IntN(2)])
	}
	p.editFor(p.id, reason, func(pkg krm.Package) krm.Package {
		for _, r := range pkg {
			name := r.Text("metadata", "name")
			if isWorkload(r) {
				p.editVariables(r, edit)
				continue
			}
			at := []string{"data"}
			if isChart(r) {
				at = chartValues
			}
			for _, key := range []string{"k0", "k1", "k2", "k3", "k4"} {
				value, ok := edit[name+"/"+key]
				_, has := r.Get(append(slices.Clip(at), key)...)
				switch {
				case r.GVK().Kind != "ConfigMap" && !isChart(r) || name == "made" || p.random.IntN(2) == 0:
				case ok:
					r.Set(value, append(slices.Clip(at), key)...)
				case has:
					data, _ := r.Get(at...)
					m, _ := data.(map[string]any)
					delete(m, key)
				}
			}
		}
		return pkg
	})
	p.undone = true // what others changed since isn't undone
	p.arrive(func(string, string) string { return "edit by ann" + reason })
	return "edit"
}

// editVariables changes, adds and removes some variables of a workload, and their order.
func (p *pipeline) editVariables(r krm.Resource, edit values) {
	container, before := variablesOf(r)
	left := map[string]string{}
	for field, value := range edit {
		if key, ok := strings.CutPrefix(field, "nf/"); ok && p.random.IntN(2) == 0 {
			left[key] = value
		}
	}
	var after []any
	for _, variable := range before {
		m, _ := variable.(map[string]any)
		name := fmt.Sprint(m["name"])
		if value, ok := left[name]; ok {
			delete(left, name)
			after = append(after, map[string]any{"name": name, "value": value})
		} else if name == "always" || p.random.IntN(4) > 0 {
			after = append(after, m)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		after = append(after, map[string]any{"name": name, "value": left[name]})
	}
	p.random.Shuffle(len(after), func(i, j int) { after[i], after[j] = after[j], after[i] })
	container["env"] = after
}

const trigger = `a.plugin.nephio.org/v1alpha1 One "one"`

// prepared is the origin of what the plugin makes.
func (p *pipeline) prepared() string {
	return fmt.Sprintf("preparation p@%d of %s", p.revision, trigger)
}

// newPlugin registers the plugin, again with other arguments.
func (p *pipeline) newPlugin() {
	p.t.Helper()
	p.revision++
	if _, err := p.RegisterPlugin(p.ctx, tko.Plugin{
		Type: tko.PluginPrepare, Name: "p", Executor: tko.ExecutorCommand, Arguments: []string{strconv.FormatInt(p.revision, 10)}, Properties: p.properties,
		Triggers: []krm.GVK{krm.ParseGVK("a.plugin.nephio.org/v1alpha1", "One")},
	}); err != nil {
		p.t.Fatal(err)
	}
}

// plugin adds what triggers the plugin, or triggers it again, and prepares.
func (p *pipeline) plugin() string {
	if p.random.IntN(2) == 0 {
		p.newPlugin()
	}
	p.edit(p.id, func(pkg krm.Package) krm.Package {
		for i, r := range pkg {
			if r.Identity().String() == trigger {
				r.SetAnnotation(krm.AnnotationPrepared, "")
				pkg[i] = r
				return pkg.WithDeployment(p.template, "", false, false)
			}
		}
		return append(pkg, read(p.t, "{apiVersion: a.plugin.nephio.org/v1alpha1, kind: One, metadata: {name: one}}")...).WithDeployment(p.template, "", false, false)
	})
	p.arrive(func(string, string) string { return "edit by ann" })
	p.preparer.Prepare(p.ctx, tko.WorkItem{Key: string(p.id)})
	p.undone = true
	p.arrive(func(string, string) string { return p.prepared() })
	return "plugin"
}

// rollout does a rollout with one edit, and prepares what it leaves to preparation.
func (p *pipeline) rollout(edit, resources string, origin func(field, value string) string) {
	p.rollouts++
	p.undone = false
	id := tko.RolloutID(fmt.Sprintf("r%d", p.rollouts))
	yaml := fmt.Sprintf("apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {edits: [%s], conflicts: %s}\n", edit, []string{"TakeEdit", "KeepTheirs"}[p.random.IntN(2)]) + "---\n" + resources
	if _, err := p.RegisterRollout(p.ctx, tko.Rollout{ID: id, Package: read(p.t, yaml)}); err != nil {
		p.t.Fatal(err)
	}
	p.advance(id)
	if s := p.status(id); s.State != "Planned" {
		p.t.Fatalf("the rollout is %s: %s", s.State, s.Reason)
	}
	p.start(id)
	p.advance(id)
	p.arrive(origin)
	p.preparer.Prepare(p.ctx, tko.WorkItem{Key: string(p.id)})
	p.arrive(func(string, string) string { return p.prepared() })
	p.settle(p.id)
	p.advance(id)
	p.arrive(func(string, string) string { return p.prepared() })
}

func (p *pipeline) start(id tko.RolloutID) {
	plan, err := p.RolloutPlan(p.ctx, id)
	if err != nil {
		p.t.Fatal(err)
	}
	p.do(id, "start", func(c *tko.RolloutCommand) { c.Plan = plan.Digest })
}

// upgrade upgrades to another template.
func (p *pipeline) upgrade() string {
	from := p.template
	to := fmt.Sprintf("t:v%d", len(p.templates)+1)
	p.templates[to] = p.draw("a", "b", "nf", "chart")
	p.world.template(to, p.templates[to].yaml())
	old, now := p.templates[from].over(p.merged), p.templates[to].over(p.merged)
	p.template = to
	edits, resources := fmt.Sprintf("{upgrade: {to: %q}, select: {templateIdPatterns: [%q]}}", to, from), ""
	if p.random.IntN(2) == 0 {
		edits, resources = edits+", "+mergeOfA, p.resourceA()
	}
	p.rollout(edits, resources, func(field, value string) string {
		switch {
		case strings.HasPrefix(field, "made/"):
			return p.prepared()
		case now[field] == value && old[field] != value:
			return "template " + to + "@1"
		}
		return "rollout"
	})
	return "upgrade"
}

const mergeOfA = `{merge: [{apiVersion: v1, kind: ConfigMap, name: a}], select: {templateIdPatterns: ["t:*"]}}`

func (p *pipeline) resourceA() string {
	return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {nephio.org/merge: Override}}, data: {k%d: "%d"}}`, p.random.IntN(5), p.random.IntN(3))
}

// mergeEdit merges values by a rollout.
func (p *pipeline) mergeEdit() string {
	p.rollout(mergeOfA, p.resourceA(), func(field, _ string) string {
		if strings.HasPrefix(field, "made/") {
			return p.prepared()
		}
		return "rollout"
	})
	return "merge edit"
}

// function runs a KRM function by a rollout, which sets a value of "b", of the chart and of
// the workload.
func (p *pipeline) function() string {
	value := strconv.Itoa(p.random.IntN(3))
	p.plugins["rollout"] = &plugin{do: func(_ krm.Identity, _ tko.DeploymentID, pkg krm.Package) krm.Package {
		for _, r := range pkg {
			if r.Text("metadata", "name") == "b" {
				r.Set(value, "data", "k1")
			}
			if isChart(r) {
				r.Set(value, append(slices.Clip(chartValues), "k2")...)
			}
			if isWorkload(r) {
				container, variables := variablesOf(r)
				container["env"] = append(slices.DeleteFunc(variables, func(v any) bool {
					m, _ := v.(map[string]any)
					return m["name"] == "k1"
				}), map[string]any{"name": "k1", "value": value})
			}
		}
		return pkg
	}}
	p.rollout(`{function: {image: "f:v1"}, select: {templateIdPatterns: ["t:*"]}}`, "", func(field, _ string) string {
		if strings.HasPrefix(field, "made/") {
			return p.prepared()
		}
		return "rollout"
	})
	return "function"
}

// undo undoes the last rollout, if nothing was changed since.
func (p *pipeline) undo() string {
	if p.rollouts == 0 || p.undone {
		return "nothing"
	}
	p.undone = true
	id := tko.RolloutID(fmt.Sprintf("r%d", p.rollouts))
	before := p.deployment(p.id)
	status := p.do(id, "undo")
	undo := id + "-undo"
	p.advance(undo)
	d := p.deployment(p.id)
	if d.Stamp.Revision == before.Stamp.Revision {
		return "nothing to undo, " + status.State
	}
	for n := int64(len(p.history)) - 1; n > 0; n-- { // the revision that is restored
		was, err := p.Deployment(p.ctx, p.id, n)
		if err != nil {
			p.t.Fatal(err)
		}
		if was.Template == d.Template && was.Prepared == d.Prepared && maps.Equal(valuesOf(was.Package), valuesOf(d.Package)) {
			p.values, p.origins, p.template = valuesOf(d.Package), p.history[n], string(d.Template)
			break
		}
	}
	p.history = append(p.history, p.origins)
	p.settle(p.id)
	p.advance(undo)
	p.arrive(func(string, string) string { return "nothing" })
	return "undo"
}

// TestBlameIsRightForEachField generates pipelines of templates, merges, a plugin,
// rollouts and people, and compares the blame with a model after each step.
func TestBlameIsRightForEachField(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			p := &pipeline{world: newWorld(t), random: rand.New(rand.NewPCG(seed, 13)), template: "t:v1", templates: map[string]values{}, history: []map[string]string{nil}, did: map[string]int{}}
			if seed%2 == 0 {
				p.properties = map[string]string{"_plan": "pure"}
			}
			p.newPlugin()
			p.plugins["p"] = &plugin{do: func(target krm.Identity, _ tko.DeploymentID, pkg krm.Package) krm.Package {
				made := values{"made/always": "x"}
				for field, value := range valuesOf(pkg) {
					if name, key, _ := strings.Cut(field, "/"); name == "a" && key != "always" {
						made["made/"+key] = value + value
					}
				}
				pkg = slices.DeleteFunc(pkg, func(r krm.Resource) bool { return r.Text("metadata", "name") == "made" })
				pkg.Find(target).SetPrepared()
				return append(pkg, read(t, made.yaml())...)
			}}
			p.templates["t:v1"] = p.draw("a", "b", "nf", "chart")
			p.merged = p.draw("b", "c")
			p.world.template("t:v1", p.templates["t:v1"].yaml())
			merged := strings.ReplaceAll(p.merged.yaml(), "metadata: {name: b}", `metadata: {name: b, annotations: {nephio.org/merge: Override}}`)
			p.id = p.deploy("t:v1", merged, "")
			p.run(14)
			t.Log(p.did, slices.Sorted(maps.Values(p.origins)))
		})
	}
}
