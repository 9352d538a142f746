package krmfn_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/krm"
)

// runTwice runs a function twice, checks that the second run changes nothing,
// and returns the output of the first.
func runTwice(t *testing.T, name string, properties []string, pkg krm.Package) krm.Package {
	t.Helper()
	r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Functions: krmfn.Options{Builtin: true}}))
	p := function(name, properties...)
	out, err := prepareFirst(t, r, p, pkg)
	if err != nil {
		t.Fatal(err)
	}
	again, err := prepareFirst(t, r, p, out)
	if diff := cmp.Diff(out, again); err != nil || diff != "" {
		t.Errorf("the second run changed the package: %v\n%s", err, diff)
	}
	return out
}

const starlarkRun = `
apiVersion: fn.kpt.dev/v1alpha1
kind: StarlarkRun
metadata: {name: x, namespace: here, annotations: {config.kubernetes.io/local-config: "true"}}
source: |
  load("krmfn.star", "krmfn")
  load("json.star", "json")
  def run(items):
    for r in items:
      if krmfn.match_gvk(r, "apps/v1", "Deployment") and krmfn.match_name(r, "web") and krmfn.match_namespace(r, "old"):
        r["spec"]["replicas"] = 5
      if krmfn.match_gvk(r, "apps/v2", "Deployment") or krmfn.match_gvk(r, "v1", "Deployment") or krmfn.match_name(r, "nope"):
        fail("matches too much")
      if krmfn.match_namespace(r, "") and krmfn.match_gvkn(resource=r, apiVersion="v1", kind="Namespace", name="old"):
        r["metadata"]["labels"] = {"seen": json.encode([1])}
  run(ctx.resource_list["items"])
---
`

// Programs of the public catalog can load the module krmfn.star.
func TestStarlarkLoadsKrmfn(t *testing.T) {
	t.Parallel()
	for _, function := range []string{"builtin:starlark", "gcr.io/kpt-fn/starlark:v0.4.3", "ghcr.io/kptdev/krm-functions-catalog/starlark:v0.5.0"} {
		out := runTwice(t, function, []string{"_kpt.config=."}, parse(t, starlarkRun+workload))
		if replicas, _ := out[2].Get("spec", "replicas"); replicas != int64(5) || out[1].Text("metadata", "labels", "seen") != "[1]" {
			t.Errorf("%s: %v", function, out[1:3])
		}
		if !out[0].IsPrepared() {
			t.Error("the trigger isn't prepared")
		}
	}
}

// A starlark image whose program loads other modules runs in the container
// engine.
func TestStarlarkThatNeedsMoreRunsAsAnImage(t *testing.T) {
	t.Parallel()
	engine := filepath.Join(t.TempDir(), "podman")
	if err := os.WriteFile(engine, []byte("#!/bin/sh\necho \"$@\" >>\"$0.log\"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Functions: krmfn.Options{Builtin: true, Engine: engine}}))
	pkg := parse(t, strings.Replace(starlarkRun, `load("json.star", "json")`, `load("encoding/csv.star", "csv")`, 1))
	_, err := prepareFirst(t, r, function("gcr.io/kpt-fn/starlark:v0.4.3", "_kpt.config=."), pkg)
	log, readErr := os.ReadFile(engine + ".log")
	if err == nil || readErr != nil || !strings.Contains(string(log), "gcr.io/kpt-fn/starlark:v0.4.3") {
		t.Errorf("got %v, %v, %s, want a call of the container engine", err, readErr, log)
	}
	_, err = prepareFirst(t, r, function("builtin:starlark", "_kpt.config=."), pkg)
	if err == nil || !strings.Contains(err.Error(), `module "encoding/csv.star": not found: the built-in function has json.star, krmfn.star`) {
		t.Errorf("%v", err)
	}
}

// The triggering resource can be the whole config.
func TestTriggerCanBeTheConfig(t *testing.T) {
	t.Parallel()
	replacements := `
apiVersion: fn.kpt.dev/v1alpha1
kind: ApplyReplacements
metadata: {name: x}
replacements: [{source: {kind: Deployment, fieldPath: metadata.name}, targets: [{select: {kind: Service}, fieldPaths: [spec.selector.app]}]}]
---
`
	out := runTwice(t, "builtin:apply-replacements", []string{"_kpt.config=."}, parse(t, replacements+strings.Replace(workload, "selector: {app: web}, ports", "selector: {app: other}, ports", 1)))
	if out[3].Text("spec", "selector", "app") != "web" {
		t.Errorf("%v: want the name of the Deployment", out[3])
	}
	out = runTwice(t, "builtin:set-namespace", []string{"_kpt.config=."}, parse(t, "{apiVersion: fn.kpt.dev/v1alpha1, kind: SetNamespace, metadata: {name: x}, namespace: core}\n---\n"+workload))
	if out[2].Text("metadata", "namespace") != "core" {
		t.Errorf("%v", out[2])
	}
}

const settable = `
apiVersion: v1
kind: ConfigMap
metadata: {name: setters}
data: {replicas: "4", tag: "1.25", env: "[stage, prod]", port: "8080", host: "", ratio: "0.5", flag: "true"}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels:
    version: v1 # kpt-set: ${tag}
spec:
  replicas: 3 # kpt-set: ${replicas}
  paused: false # kpt-set: ${flag}
  other: current # kpt-set: ${not-given}
  env: # kpt-set: ${env}
  - dev
  flow: [dev] # kpt-set: ${env}
  template:
    spec:
      containers:
      - name: web
        image: "nginx:1.16" # kpt-set: ${image}:${tag}
        port: "80" # kpt-set: ${port}
        host: example.com # kpt-set: ${host}
        ratio: 0.1 # kpt-set: ${ratio}
        args:
        - --port=80 # kpt-set: --port=${port}
        - untouched # an ordinary comment
---
kind: Cluster # without metadata: unchanged
apiVersion: kind.x-k8s.io/v1alpha4
name: edge # kpt-set: ${tag}
`

// Setters, which are comments in YAML, survive in packages and can be applied
// many times.
func TestSettersAreAppliedManyTimes(t *testing.T) {
	t.Parallel()
	for _, function := range []string{"builtin:apply-setters", "gcr.io/kpt-fn/apply-setters:v0.2.0"} {
		out := runTwice(t, function, []string{"_kpt.config=."}, parse(t, settable))
		got := out[1].Clone()
		got.SetAnnotation(krm.AnnotationSetters, "")
		want := parse(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {version: "1.25"}}
spec:
  replicas: 4
  paused: true
  other: current
  env: [stage, prod]
  flow: [stage, prod]
  template: {spec: {containers: [{name: web, image: "nginx:1.25", port: "8080", host: "", ratio: 0.5, args: [--port=8080, untouched]}]}}
`)[0]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if out[2]["name"] != "edge" || out[2]["metadata"] != nil {
			t.Errorf("%v", out[2])
		}
	}
}

func TestUnusableSettersAreRefused(t *testing.T) {
	t.Parallel()
	r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}}))
	for name, test := range map[string]struct{ data, resource, want string }{
		"a value that can't be derived": {"{tag: v2}", "image: nginx # kpt-set: ${image}:${tag}", "give a value for image"},
		"a text for a list":             {"{tag: v2}", "image: [a] # kpt-set: ${tag}", "write it like [a, b]"},
		"a list of several":             {"{tag: v2}", "image: [a] # kpt-set: ${tag}${tag}", "use one name"},
		"no values":                     {"{}", "image: a # kpt-set: ${tag}", "it has no inputs"},
		"setters that are no JSON":      {"{tag: v2}", "image: a", "malformed setters"},
	} {
		pkg := parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: "+test.data+"}\n---\napiVersion: v1\nkind: X\nmetadata: {name: y}\nspec:\n  "+test.resource+"\n")
		if name == "setters that are no JSON" {
			pkg[1].SetAnnotation(krm.AnnotationSetters, "{")
		}
		if _, err := prepareFirst(t, r, function("builtin:apply-setters", "_kpt.config=."), pkg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}
