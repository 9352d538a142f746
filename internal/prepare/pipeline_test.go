package prepare_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/krm"
)

// blueprint is a kpt package whose pipeline sets values, labels one kind of resources, and
// checks something.
const blueprint = `
{apiVersion: DEPLOYMENT, metadata: {name: deployment}}
---
apiVersion: kpt.dev/v1
kind: Kptfile
metadata: {name: upf, annotations: {config.kubernetes.io/local-config: "true" ANNOTATION}}
pipeline:
  mutators:
  - {image: "ghcr.io/kptdev/krm-functions-catalog/apply-setters:v0.2", configPath: setters.yaml}
  - {image: set-labels:v0.2, configMap: {tier: edge}, selectors: [{kind: Deployment}]}
  validators:
  - {image: "builtin:set-labels", configMap: {broken: "yes"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: setters, annotations: {config.kubernetes.io/local-config: "true"}}
data: {replicas: "4"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: upf}
spec:
  replicas: PLACEHOLDER_REPLICAS # kpt-set: ${replicas}
  selector: {matchLabels: {app: upf}}
  template: {metadata: {labels: {app: upf}}, spec: {containers: [{name: upf, image: "upf:1"}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: upf}}
`

func blueprintWith(annotation string) string {
	return strings.Replace(blueprint, "ANNOTATION", annotation, 1)
}

// functions runs functions of packages as servers do, without a container engine.
func functions() *plugin.Runner {
	return plugin.New(plugin.Options{Functions: krmfn.Options{Builtin: true, Engine: "/nowhere/podman"}})
}

// A deployment of a kpt package whose pipeline was never run is not the package that its author
// meant: with nephio.org/pipeline: Run, its preparation runs the functions.
func TestPipelineOfAKptfileIsRun(t *testing.T) {
	t.Parallel()
	m := newMemory()
	p := prepare.New(m, functions(), prepare.Options{})
	id := m.deploy(t, blueprintWith(", nephio.org/pipeline: Run"))
	settle(t, m, p)
	d := m.get(id)
	if !d.Prepared {
		t.Fatalf("it is not prepared: %s", m.condition(id, tko.ConditionPrepared))
	}
	workload := d.Package.Find(krm.Identity{GVK: krm.ParseGVK("apps/v1", "Deployment"), Name: "upf"})
	if replicas, _ := workload.Get("spec", "replicas"); replicas != int64(4) || workload.Text("metadata", "labels", "tier") != "edge" {
		t.Errorf("the functions have not set the values: %v", workload)
	}
	for _, r := range d.Package {
		switch broken := r.Text("metadata", "labels", "broken"); {
		case broken != "":
			t.Errorf("%s was changed by a validator", r.Identity())
		case r.GVK().Kind == "Namespace" && r.Text("metadata", "labels", "tier") != "":
			t.Errorf("%s was changed by a function that doesn't select it", r.Identity())
		case r.GVK().Kind == "PipelineFunction":
			t.Error("the config of the functions stayed in the package")
		}
	}
	kptfile := d.Package.Find(krm.Identity{GVK: krm.ParseGVK("kpt.dev/v1", "Kptfile"), Name: "upf"})
	if !kptfile.IsPrepared() || kptfile.FunctionsNotRun() != 0 {
		t.Errorf("the Kptfile isn't marked: %v", kptfile)
	}
	commits := m.commits
	settle(t, m, p)
	if m.commits != commits {
		t.Error("the pipeline was run again")
	}
}

// Without the annotation, a pipeline isn't run: packages may be rendered already.
func TestPipelineIsRunOnRequestOnly(t *testing.T) {
	t.Parallel()
	for annotation, notRun := range map[string]int{"": 3, ", nephio.org/pipeline: Skip": 0} {
		m := newMemory()
		id := m.deploy(t, blueprintWith(annotation))
		settle(t, m, prepare.New(m, functions(), prepare.Options{}))
		d := m.get(id)
		kptfile := d.Package.Find(krm.Identity{GVK: krm.ParseGVK("kpt.dev/v1", "Kptfile"), Name: "upf"})
		if !d.Prepared || kptfile.IsPrepared() || kptfile.FunctionsNotRun() != notRun {
			t.Errorf("with %q: prepared %t, %d functions not run, want %d", annotation, d.Prepared, kptfile.FunctionsNotRun(), notRun)
		}
	}
}

// A pipeline that can't be run leaves the package as it is, and the condition says why.
func TestPipelineThatFailsIsReported(t *testing.T) {
	t.Parallel()
	whole := blueprintWith(", nephio.org/pipeline: Run")
	for name, test := range map[string]struct{ from, to, want string }{
		"an image without an engine":   {"set-labels:v0.2", "search-replace:v0.2", "search-replace"},
		"a program that isn't allowed": {"image: set-labels:v0.2", "exec: /bin/true", `function "exec:/bin/true"`},
		"a config that isn't there":    {"setters.yaml", "others.yaml", "Write it as configMap"},
		"arguments of a program":       {"image: set-labels:v0.2", "exec: sh -c true", "exec has arguments"},
		"a pipeline of a folder":       {"{name: upf, annotations: {", "{name: upf, annotations: {tko.nephio.org/folder: sub, ", `the folder "sub"`},
		"neither an image nor a file":  {"image: set-labels:v0.2", "name: x", "either image or exec"},
	} {
		m := newMemory()
		text := strings.Replace(whole, test.from, test.to, 1)
		if name == "a config that isn't there" {
			text = strings.Replace(strings.Replace(whole, test.from, test.to, 1), "metadata: {name: setters,", "metadata: {name: s,", 1)
		}
		if text == whole {
			t.Fatalf("%s: nothing is replaced", name)
		}
		id := m.deploy(t, text)
		before := m.get(id).Package.Clone()
		reconcile(t, prepare.New(m, functions(), prepare.Options{}), id)
		d := m.get(id)
		if says := m.condition(id, tko.ConditionPrepared); d.Prepared || !strings.HasPrefix(says, "False ") || !strings.Contains(says, test.want) || !strings.Contains(says, "Kptfile") {
			t.Errorf("%s: prepared %t, %q, want %q", name, d.Prepared, says, test.want)
		}
		if diff := cmp.Diff(before, d.Package); diff != "" {
			t.Errorf("%s: the package has changed (-before +after):\n%s", name, diff)
		}
	}
}

// What a function returns beyond what it was given can't replace resources that it didn't get,
// such as the state of the deployment.
func TestPipelineReplacesOnlyWhatItGot(t *testing.T) {
	t.Parallel()
	m := newMemory()
	id := m.deploy(t, blueprintWith(", nephio.org/pipeline: Run"))
	r := runner{"pipeline": func(target krm.Identity, pkg krm.Package) (bool, krm.Package, error) {
		if pkg.Find(krm.Identity{GVK: krm.DeploymentGVK, Name: "deployment"}) != nil {
			return false, nil, errors.New("it got the Deployment resource")
		}
		return true, append(pkg, krm.Package(nil).WithDeployment("other", "", true, true)...), nil
	}}
	reconcile(t, prepare.New(m, r, prepare.Options{}), id)
	if says := m.condition(id, tko.ConditionPrepared); m.get(id).Prepared || !strings.Contains(says, "was not given to it") {
		t.Errorf("Prepared is %q", says)
	}
}
