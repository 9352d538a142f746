package krmfn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/krm"
)

// workload is a package with all cases that the functions distinguish.
const workload = `
apiVersion: v1
kind: Namespace
metadata: {name: old}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: old, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "web:1", args: ["yes", "1", "1.50", "0x1F", "null", "~", ""], env: [{name: BIG, value: "1152921504606846976"}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: b}
subjects: [{kind: ServiceAccount, name: default, namespace: old}, {kind: ServiceAccount, name: other, namespace: elsewhere}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: planets.example}
spec: {group: example, scope: Cluster, names: {kind: Planet}}
---
apiVersion: example/v1
kind: Planet
metadata: {name: mars}
spec: {mass: 6.39e23, moons: 1152921504606846977, rings: false, life: null}
---
apiVersion: kind.x-k8s.io/v1alpha4
kind: Cluster
name: without-metadata
`

// set returns the workload with some values changed.
func set(t *testing.T, spec string, change func(find func(kind string) krm.Resource)) krm.Package {
	t.Helper()
	pkg := input(t, spec, workload)
	change(func(kind string) krm.Resource {
		for _, r := range pkg {
			if r.GVK().Kind == kind {
				return r
			}
		}
		t.Fatal(kind)
		return nil
	})
	return pkg
}

type find = func(kind string) krm.Resource

func TestBuiltinFunctionsChangePackagesOrFail(t *testing.T) {
	t.Parallel()
	labels := func(find find) {
		for _, kind := range []string{"Namespace", "Deployment", "Service", "ClusterRoleBinding", "CustomResourceDefinition", "Planet"} {
			find(kind).Set("5g", "metadata", "labels", "part-of")
		}
		find("Deployment").Set("5g", "spec", "selector", "matchLabels", "part-of")
		find("Deployment").Set("5g", "spec", "template", "metadata", "labels", "part-of")
		find("Service").Set("5g", "spec", "selector", "part-of")
	}
	annotations := func(find find) {
		for _, kind := range []string{"Namespace", "Deployment", "Service", "ClusterRoleBinding", "CustomResourceDefinition", "Planet"} {
			find(kind).Set("me", "metadata", "annotations", "example/owner")
		}
		find("Deployment").Set("me", "spec", "template", "metadata", "annotations", "example/owner")
	}
	namespace := func(find find) {
		find("Namespace").Set("core", "metadata", "name")
		find("Deployment").Set("core", "metadata", "namespace")
		find("Service").Set("core", "metadata", "namespace")
		subjects, _ := find("ClusterRoleBinding").Get("subjects")
		krm.Resource(subjects.([]any)[0].(map[string]any)).Set("core", "namespace")
	}
	replicas := func(find find) { find("Deployment").Set(int64(5), "spec", "replicas") }
	replacement := "{source: {kind: X, name: x, fieldPath: spec.replicas}, targets: [{select: {kind: Deployment}, fieldPaths: [spec.replicas]}]}"
	tests := map[string]struct {
		why        string
		function   string
		properties []string
		spec       string
		want       func(find)
		wantErr    string
	}{
		"set-namespace":           {why: "namespaced resources and references to them, but not TKO's resources", function: "builtin:set-namespace", properties: []string{"namespace=spec.namespace"}, spec: "{namespace: core}", want: namespace},
		"SetNamespace":            {why: "its own kind of config", function: "builtin:set-namespace", properties: []string{"_kpt.config=spec"}, spec: "{apiVersion: fn.kpt.dev/v1alpha1, kind: SetNamespace, namespace: core}", want: namespace},
		"set-namespace, no input": {why: "the message contains the remedy", function: "builtin:set-namespace", spec: "{}", wantErr: "its input namespace is missing"},
		"set-labels":              {why: "selectors follow", function: "builtin:set-labels", properties: []string{"part-of=spec.partOf"}, spec: "{partOf: 5g}", want: labels},
		"SetLabels":               {why: "its own kind of config", function: "builtin:set-labels", properties: []string{"_kpt.config=spec"}, spec: "{apiVersion: fn.kpt.dev/v1alpha1, kind: SetLabels, labels: {part-of: 5g}}", want: labels},
		"set-labels, no input":    {why: "the message contains the remedy", function: "builtin:set-labels", spec: "{}", wantErr: "it has no inputs"},
		"set-annotations":         {why: "templates follow", function: "builtin:set-annotations", properties: []string{"example/owner=spec.owner"}, spec: "{owner: me}", want: annotations},
		"image of the catalog":    {why: "it is the same function", function: "gcr.io/kpt-fn/set-namespace:v0.4.1", properties: []string{"namespace=spec.namespace"}, spec: "{namespace: core}", want: namespace},
		"apply-replacements":      {why: "numbers stay numbers", function: "builtin:apply-replacements", properties: []string{"_kpt.config=spec.config"}, spec: "{replicas: 5, config: {apiVersion: fn.kpt.dev/v1alpha1, kind: ApplyReplacements, replacements: [" + replacement + "]}}", want: replicas},
		"replacements as input":   {why: "YAML or JSON", function: "builtin:apply-replacements", properties: []string{"replacements=spec.replacements"}, spec: "{replicas: 5, replacements: [" + replacement + "]}", want: replicas},
		"replacements, malformed": {why: "unknown keys are refused", function: "builtin:apply-replacements", properties: []string{"replacements=spec.replacements"}, spec: "{replacements: [{sauce: {}}]}", wantErr: "replacements are malformed"},
		"replacements, no source": {why: "the message is kustomize's", function: "builtin:apply-replacements", properties: []string{"replacements=spec.replacements"}, spec: "{replacements: [{source: {kind: Nope}, targets: [{select: {kind: X}, fieldPaths: [a]}]}]}", wantErr: "Nope"},
		"replacements, none":      {why: "the message contains the remedy", function: "builtin:apply-replacements", spec: "{}", wantErr: "it has no replacements"},
		"starlark": {
			why: "a program in the config", function: "builtin:starlark", properties: []string{"source=spec.source", "replicas=spec.replicas"},
			spec: `{replicas: 5, source: "for r in ctx.resource_list['items']:\n  if r['kind'] == 'Deployment':\n    r['spec']['replicas'] = int(ctx.resource_list['functionConfig']['data']['replicas'])\n"}`, want: replicas,
		},
		"StarlarkRun": {
			why: "its own kind of config", function: "builtin:starlark", properties: []string{"_kpt.config=spec"},
			spec: `{apiVersion: fn.kpt.dev/v1alpha1, kind: StarlarkRun, params: {replicas: 5}, source: "def run(items, n):\n  for r in items:\n    if r['kind'] == 'Deployment':\n      r['spec']['replicas'] = n\nrun(ctx.resource_list['items'], ctx.resource_list['functionConfig']['params']['replicas'])\n"}`, want: replicas,
		},
		"starlark fails":        {why: "the message is the program's", function: "builtin:starlark", properties: []string{"source=spec.source"}, spec: `{source: "fail('not on', 'Fridays')"}`, wantErr: "source:1:5: fail: not on Fridays"},
		"starlark has results":  {why: "results of a program are read like others", function: "builtin:starlark", properties: []string{"source=spec.source"}, spec: `{source: "ctx.resource_list['results'] = [{'severity': 'error', 'message': 'bad', 'field': {'path': 'spec'}}]"}`, wantErr: "bad (spec)"},
		"starlark is wrong":     {why: "the message has the position", function: "builtin:starlark", properties: []string{"source=spec.source"}, spec: `{source: "a = 1\nb = a.c"}`, wantErr: "source:2:6"},
		"starlark doesn't read": {why: "the message has the position of a syntax error", function: "builtin:starlark", properties: []string{"source=spec.source"}, spec: `{source: "def ("}`, wantErr: "source:1:"},
		"starlark loads":        {why: "files can't be loaded", function: "builtin:starlark", properties: []string{"source=spec.source"}, spec: `{source: "load('/etc/passwd', 'x')"}`, wantErr: `module "/etc/passwd": not found`},
		"starlark is a loop":    {why: "a dict can hold itself", function: "builtin:starlark", properties: []string{"source=spec.source"}, spec: `{source: "d = ctx.resource_list['items'][0]\nd['spec'] = d"}`, wantErr: "deeper than 200"},
		"starlark, a function":  {why: "a resource can't contain a function", function: "builtin:starlark", properties: []string{"source=spec.source"}, spec: `{source: "ctx.resource_list['items'][0]['spec'] = len"}`, wantErr: "builtin_function_or_method"},
		"starlark, large":       {why: "the number exceeds 64 bits", function: "builtin:starlark", properties: []string{"source=spec.source"}, spec: `{source: "ctx.resource_list['items'][0]['spec'] = 1 << 70"}`, wantErr: "does not fit 64 bits"},
		"starlark, no list":     {why: "items must be a list", function: "builtin:starlark", properties: []string{"source=spec.source"}, spec: `{source: "ctx.resource_list['items'] = 'none'"}`, wantErr: "items is a string"},
		"starlark, no source":   {why: "the message contains the remedy", function: "builtin:starlark", spec: "{}", wantErr: "its source is missing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Functions: krmfn.Options{Builtin: true}}))
			pkg, p := input(t, test.spec, workload), function(test.function, test.properties...)
			out, err := prepare(t, r, p, pkg)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got %v, want %q: %s", err, test.wantErr, test.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := set(t, test.spec, test.want)
			want[0].SetPrepared()
			if diff := cmp.Diff(want, out); diff != "" {
				t.Errorf("%s: -want +got:\n%s", test.why, diff)
			}
			again, err := prepare(t, r, p, out)
			if diff := cmp.Diff(out, again); err != nil || diff != "" {
				t.Errorf("the second run changed the package: %v\n%s", err, diff)
			}
		})
	}
}

// Programs in packages can't exhaust the server's memory or time.
func TestBuiltinProgramsAreLimited(t *testing.T) {
	t.Parallel()
	doubling := strings.Repeat("{source: {kind: X, name: x, fieldPath: spec.bomb}, targets: [{select: {kind: X}, fieldPaths: [spec.bomb.a, spec.bomb.b], options: {create: true}}]},", 40)
	tests := map[string]struct{ function, input, spec, want string }{
		"endless":             {"starlark", "source", `{source: "while True: pass"}`, "did not end within"},
		"a huge list":         {"starlark", "source", `{source: "x = [0] * (1 << 29)"}`, "of memory"},
		"list of a range":     {"starlark", "source", `{source: "x = list(range(1 << 40))"}`, "of memory"},
		"doubling":            {"starlark", "source", `{source: "x = [0]\nwhile True: x = x + x"}`, "of memory"},
		"endless recursion":   {"starlark", "source", `{source: "def f(): f()\nf()"}`, ""},
		"doubling by copying": {"apply-replacements", "replacements", "{bomb: {c: d}, replacements: [" + doubling + "]}", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := time.Minute
			if test.want == "did not end within" {
				limit = time.Second
			}
			r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, PrepareTimeout: limit, Functions: krmfn.Options{Memory: 64 << 20}}))
			began := time.Now()
			_, err := prepare(t, r, function("builtin:"+test.function, test.input+"=spec."+test.input), input(t, test.spec, ""))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			t.Logf("%s: %.300v", time.Since(began), err)
		})
	}
}

// A program that doesn't call Child refuses those functions.
func TestProgrammedFunctionsNeedSelf(t *testing.T) {
	t.Parallel()
	_, err := prepare(t, plugin.New(plugin.Options{Programs: []string{"/"}}), function("builtin:starlark", "source=spec.source"), input(t, "{source: 'x = 1'}", ""))
	if err == nil || !strings.Contains(err.Error(), "this program can't run it") {
		t.Errorf("got %v", err)
	}
}
