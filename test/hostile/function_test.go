package hostile

import (
	"context"
	"fmt"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// registerFunction registers a KRM function, with one input, for resources of a kind.
func (w *world) registerFunction(t *testing.T, kind, argument, input string) {
	t.Helper()
	_, err := w.RegisterPlugin(patient(t), tko.Plugin{
		Type: tko.PluginPrepare, Name: kind, Executor: tko.ExecutorKpt, Arguments: []string{argument},
		Properties: map[string]string{input: "spec." + input}, Triggers: []krm.GVK{{Group: "hostile.example", Version: "v1", Kind: kind}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A failing KRM function, or one with an invalid package, is reported on the
// deployment. The server and its other deployments continue.
func TestFailingFunctionIsReported(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why, argument, input, value string
		want                        string // in the condition
	}{
		"Refuses":  {"with its results", "builtin:starlark", "source", `ctx.resource_list["results"] = [{"severity": "error", "message": "too small", "resourceRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "kept"}, "field": {"path": "data.is"}}]`, `too small (v1 ConfigMap "kept", data.is)`},
		"Fails":    {"with its line", "builtin:starlark", "source", "x = 1\nfail('no')", "source:2:5: fail: no"},
		"Hangs":    {"time is bounded", "builtin:starlark", "source", "while True: pass", "did not end within 10s"},
		"Explodes": {"memory is bounded", "builtin:starlark", "source", "x = [0] * (1 << 29)", "needs more than 268435456 bytes of memory"},
		"Twins":    {"one of them would be lost", "builtin:starlark", "source", `ctx.resource_list["items"] += [ctx.resource_list["items"][0]]`, "already"},
		"Empties":  {"what is there must be valid", "builtin:starlark", "source", `ctx.resource_list["items"] += [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bad"}, "datta": {}}]`, "datta"},
		"Endless":  {"preparation is bounded", "builtin:starlark", "source", `[r["metadata"].update([("name", r["metadata"]["name"][:5] + str(len(ctx.resource_list["items"]) + int(r["metadata"]["name"][5:] or "0")))]) for r in ctx.resource_list["items"] if r["kind"] == "Endless"]`, "still not prepared after"},
		"Missing":  {"its image does not exist", "registry.invalid/no/function:v1", "source", "x", "registry.invalid/no/function:v1"},
		"NoFile":   {"its program does not exist", "exec:/no/such/function", "source", "x", `"/no/such/function" does not exist`},
		"NoModule": {"its module does not exist", "wasm:/no/such/module", "source", "x", "does not exist on this server"},
		"NoInput":  {"it says what is missing", "builtin:set-labels", "slice", "", "lacks spec.slice"},
	}
	w := newWorld(t, "--roles=data,preparer", "--store=sqlite::memory:", "--plugin-timeout=10s", "--retry=10m", "--retry-max=10m", "--kpt-memory=268435456", "--kpt-engine=/bin/false", "--preparer-iterations=10")
	ctx := patient(t)
	deployments := map[string]tko.DeploymentID{}
	for kind, test := range tests {
		w.registerFunction(t, kind, test.argument, test.input)
		resource := krm.Resource{"apiVersion": "hostile.example/v1", "kind": kind, "metadata": map[string]any{"name": "start"}, "spec": map[string]any{}}
		if test.value != "" {
			resource.Set(test.value, "spec", test.input)
		}
		id, err := w.CreateDeployment(ctx, tko.NewDeployment{Template: "kept", Merge: krm.Package{resource}})
		if err != nil {
			t.Fatal(err)
		}
		deployments[kind] = id
	}
	for kind, test := range tests {
		t.Run(kind, func(t *testing.T) {
			condition := w.condition(t, tko.KindDeployment, string(deployments[kind]), tko.ConditionPrepared)
			names(t, condition.Message, "hostile.example/v1 "+kind, test.want)
		})
	}
	w.registerFunction(t, "Good", "builtin:set-labels", "slice")
	good := krm.Resource{"apiVersion": "hostile.example/v1", "kind": "Good", "metadata": map[string]any{"name": "good"}, "spec": map[string]any{"slice": "a"}}
	id, err := w.CreateDeployment(ctx, tko.NewDeployment{Template: "kept", Merge: krm.Package{good}})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a good function prepares", func(ctx context.Context) (bool, string) {
		d, err := w.Deployment(ctx, id, 0)
		for _, r := range d.Package {
			if r.Name() == "kept" && d.Prepared {
				return r.Text("metadata", "labels", "slice") == "a", fmt.Sprint(r)
			}
		}
		return false, fmt.Sprint(d.Stamp.Conditions, err)
	})
	w.goesOn(t)
	w.bounded(t)
}
