package krmfn_test

import (
	"os"
	"testing"

	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/krm"
)

// BenchmarkRuntimes measures a run on a package of seven resources, by runtime.
func BenchmarkRuntimes(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	compile := func(get func() (string, error)) string {
		path, err := get()
		if err != nil {
			b.Fatal(err)
		}
		return path
	}
	decode := func(spec string) krm.Package {
		pkg, err := krm.Decode(krm.YAML, []byte("apiVersion: x.plugin.nephio.org/v1\nkind: X\nmetadata: {name: x}\nspec: "+spec+"\n---\n"+workload), krm.Limits{})
		if err != nil {
			b.Fatal(err)
		}
		return pkg
	}
	runs := map[string]struct {
		argument   string
		properties []string
		spec       string
	}{
		"image":    {container(b), []string{"do=spec.do", "from=spec.from"}, "{do: label, from: here}"},
		"exec":     {"exec:" + compile(program), []string{"do=spec.do", "from=spec.from"}, "{do: label, from: here}"},
		"wasm":     {"wasm:" + compile(wasm), []string{"do=spec.do", "from=spec.from"}, "{do: label, from: here}"},
		"starlark": {"builtin:starlark", []string{"source=spec.source"}, `{source: "ctx.resource_list['items'][1]['metadata']['labels'] = {'from': 'here'}"}`},
		"builtin":  {"builtin:set-labels", []string{"from=spec.from"}, "{from: here}"},
	}
	for name, run := range runs {
		b.Run(name, func(b *testing.B) {
			r := plugin.New(plugin.Options{Programs: []string{"/"}, Functions: krmfn.Options{Self: self}})
			pkg, p := decode(run.spec), function(run.argument, run.properties...)
			if _, _, err := r.Prepare(b.Context(), p, target, "d", pkg); err != nil { // compiles
				b.Fatal(err)
			}
			for b.Loop() {
				if _, _, err := r.Prepare(b.Context(), p, target, "d", pkg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
