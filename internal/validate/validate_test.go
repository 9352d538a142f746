package validate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
)

// lines returns the findings of an error, as users see them.
func lines(t testing.TB, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var invalid *tko.InvalidPackageError
	if !errors.As(err, &invalid) || !errors.Is(err, tko.ErrInvalid) {
		t.Fatalf("not an InvalidPackageError: %v", err)
	}
	var all []string
	for _, f := range invalid.Findings {
		all = append(all, f.String())
	}
	return all
}

type findingsCase struct {
	why      string
	pkg      string
	crds     string
	complete []string // findings of complete validation
	partial  []string // findings of partial validation
}

// registered returns CRDs of templates with these IDs, in the catalog's form.
func registered(t testing.TB, text string, templates ...tko.TemplateID) []tko.CRD {
	t.Helper()
	var crds []tko.CRD
	for _, r := range decode(t, text) {
		crd, err := tko.NewCRD(r)
		if err != nil {
			t.Fatal(err)
		}
		crd.Templates = templates
		crds = append(crds, crd)
	}
	return crds
}

func runFindings(t *testing.T, tests map[string]findingsCase) {
	t.Helper()
	v := newValidator(t, validate.Options{})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := decode(t, test.pkg)
			var crds []tko.CRD
			if test.crds != "" {
				crds = registered(t, test.crds)
			}
			for _, mode := range []struct {
				complete bool
				want     []string
			}{{true, test.complete}, {false, test.partial}} {
				got := lines(t, v.Validate(t.Context(), tko.Validation{Package: p, CRDs: crds, Complete: mode.complete}))
				if diff := cmp.Diff(mode.want, got); diff != "" {
					t.Errorf("%s\ncomplete %t: (-want +got):\n%s", test.why, mode.complete, diff)
				}
			}
		})
	}
}

func TestKubernetesKindsAreCheckedByTheirSchemas(t *testing.T) {
	runFindings(t, map[string]findingsCase{
		"all at once": {
			why: "users fix all errors at once, so each has its resource, path and reason",
			pkg: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, lables: {a: b}}
spec:
  replicas: three
  template: {spec: {containers: [{name: a}, {image: b, imagePullPolicy: Sometimes, ports: [{containerPort: 80, protocol: TPC}], env: [{name: SIZE, value: 1}]}]}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: "80", targetPort: true}]}
`,
			complete: []string{
				`apps/v1 Deployment "web": metadata.lables: unknown property`,
				`apps/v1 Deployment "web": spec.replicas: must be an integer, is a string`,
				`apps/v1 Deployment "web": spec.selector: is required`,
				`apps/v1 Deployment "web": spec.template.spec.containers[1].env[0].value: must be a string, is a number: put it in quotes`,
				`apps/v1 Deployment "web": spec.template.spec.containers[1].imagePullPolicy: must be one of "Always", "IfNotPresent", "Never", is "Sometimes"`,
				`apps/v1 Deployment "web": spec.template.spec.containers[1].name: is required`,
				`apps/v1 Deployment "web": spec.template.spec.containers[1].ports[0].protocol: must be one of "SCTP", "TCP", "UDP", is "TPC"`,
				`v1 Service "web": spec.ports[0].port: must be an integer, is a string`,
				`v1 Service "web": spec.ports[0].targetPort: must be an integer or a string, is a boolean: put it in quotes`,
			},
			partial: []string{
				`apps/v1 Deployment "web": metadata.lables: unknown property`,
				`apps/v1 Deployment "web": spec.replicas: must be an integer, is a string`,
				`apps/v1 Deployment "web": spec.template.spec.containers[1].env[0].value: must be a string, is a number: put it in quotes`,
				`apps/v1 Deployment "web": spec.template.spec.containers[1].imagePullPolicy: must be one of "Always", "IfNotPresent", "Never", is "Sometimes"`,
				`apps/v1 Deployment "web": spec.template.spec.containers[1].ports[0].protocol: must be one of "SCTP", "TCP", "UDP", is "TPC"`,
				`v1 Service "web": spec.ports[0].port: must be an integer, is a string`,
				`v1 Service "web": spec.ports[0].targetPort: must be an integer or a string, is a boolean: put it in quotes`,
			},
		},
		"required is null": {
			why: "a template may use null for values that are set later",
			pkg: `
{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: null}}`,
			complete: []string{`v1 Pod "p": spec.containers: must be a list, is null`},
		},
		"secret": {
			why:      "findings are in logs and conditions, which must not contain secrets",
			pkg:      `{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {password: 12345}}`,
			complete: []string{`v1 Secret "s": data.password: must be a string, is a number: put it in quotes`},
			partial:  []string{`v1 Secret "s": data.password: must be a string, is a number: put it in quotes`},
		},
		"odd keys": {
			why: "paths of findings are readable for all keys",
			pkg: `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {"": 1, "a\nb": 2, tls.crt: 3}}`,
			complete: []string{
				`v1 ConfigMap "c": data."": must be a string, is a number: put it in quotes`,
				`v1 ConfigMap "c": data."a\nb": must be a string, is a number: put it in quotes`,
				`v1 ConfigMap "c": data.tls.crt: must be a string, is a number: put it in quotes`,
			},
			partial: []string{
				`v1 ConfigMap "c": data."": must be a string, is a number: put it in quotes`,
				`v1 ConfigMap "c": data."a\nb": must be a string, is a number: put it in quotes`,
				`v1 ConfigMap "c": data.tls.crt: must be a string, is a number: put it in quotes`,
			},
		},
		"no schema": {
			why: "resources of unknown kinds are valid, also in a group of Kubernetes",
			pkg: `
{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: {a: [1, null]}}
---
{apiVersion: apps/v1, kind: Unheard, metadata: {name: a}, spec: 5}
---
{apiVersion: infra.nephio.org/v1alpha1, kind: Zone, metadata: {name: a}, spec: 5, more: true}
---
{apiVersion: workload.nephio.org/v1alpha1, kind: NFDeployment, metadata: {name: a}, spec: 5}
---
{kind: Cluster, apiVersion: kind.x-k8s.io/v1alpha4, name: root}
`,
		},
	})
}

func TestMalformedIdentitiesAreReported(t *testing.T) {
	v := newValidator(t, validate.Options{})
	tests := map[string]struct {
		why  string
		pkg  krm.Package
		want []string
	}{
		"no kind and a number": {
			why:  "a resource without identity is reported before other checks",
			pkg:  krm.Package{{"apiVersion": "v1"}, {"apiVersion": int64(1), "kind": "A"}, nil},
			want: []string{`v1  "": kind: is missing`, ` A "": apiVersion: must be text, but is the number 1`, `  "": apiVersion: is missing`, `  "": kind: is missing`},
		},
		"twice the same": {
			why: "identities must be unique",
			pkg: krm.Package{
				{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "a"}},
				{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "a"}},
			},
			want: []string{`v1 Namespace "a": is in the package already, as resource 1; rename or remove one of them`},
		},
		"two Deployment resources": {
			why: "a package belongs to one deployment",
			pkg: krm.Package{
				{"apiVersion": "deployment.nephio.org/v1alpha1", "kind": "Deployment", "metadata": map[string]any{"name": "deployment"}},
				{"apiVersion": "deployment.nephio.org/v1alpha1", "kind": "Deployment", "metadata": map[string]any{"name": "other"}},
			},
			want: []string{`deployment.nephio.org/v1alpha1 Deployment "other": is a second Deployment resource, after resource 1; a package has one`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, complete := range []bool{true, false} {
				got := lines(t, v.Validate(t.Context(), tko.Validation{Package: test.pkg, Complete: complete}))
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("%s\ncomplete %t: (-want +got):\n%s", test.why, complete, diff)
				}
			}
		})
	}
}

const crdYAML = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 9}
              color: {type: string, enum: [red, blue], nullable: true}
              name: {type: string, pattern: "^[a-z]+$", maxLength: 5}
              when: {type: string, format: duration}
              address: {type: string, format: ipv4}
              either: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: boolean}}}
              closed: {type: object}
              labels: {type: object, additionalProperties: {type: string}}
              set: {type: array, items: {type: string}, x-kubernetes-list-type: set}
              pod: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              a: {type: string}
              b: {type: string}
            oneOf: [{required: [a]}, {required: [b]}, {not: {anyOf: [{required: [a]}, {required: [b]}]}}]
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - name: v1old
    served: false
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: string}}}}
`

func thing(spec string) string {
	return crdYAML + "---\n{apiVersion: example.com/v1, kind: Thing, metadata: {name: t}, spec: " + spec + "}\n"
}

func TestCustomResourcesAreCheckedByTheirCRDs(t *testing.T) {
	runFindings(t, map[string]findingsCase{
		"fits": {
			why: "all keywords of structural schemas",
			pkg: thing(`{size: 3, color: null, name: abc, when: 1h30m, address: 10.0.0.1, either: 50%, free: {x: [1]}, labels: {a: b}, set: [a, b], pod: {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {}}, a: x}`),
		},
		"lacks": {
			why:      "required properties are required only in complete packages",
			pkg:      thing(`{pod: {}}`),
			complete: []string{`example.com/v1 Thing "t": spec.pod.apiVersion: is required`, `example.com/v1 Thing "t": spec.pod.kind: is required`, `example.com/v1 Thing "t": spec.size: is required`},
		},
		"values": {
			why: "existing values are checked in both modes",
			pkg: thing(`{size: 10, color: green, name: ABC, when: soon, address: 10.0.0.300, either: [1], set: [a, a]}`),
			complete: []string{
				`example.com/v1 Thing "t": spec.address: is not a valid ipv4`,
				`example.com/v1 Thing "t": spec.color: must be one of "red", "blue", is "green"`,
				`example.com/v1 Thing "t": spec.either: must be an integer or a string, is a list`,
				`example.com/v1 Thing "t": spec.name: does not match the pattern ^[a-z]+$`,
				`example.com/v1 Thing "t": spec.set: has the same item twice, at 0 and 1`,
				`example.com/v1 Thing "t": spec.size: must be at most 9`,
				`example.com/v1 Thing "t": spec.when: is not a valid duration`,
			},
			partial: []string{
				`example.com/v1 Thing "t": spec.address: is not a valid ipv4`,
				`example.com/v1 Thing "t": spec.color: must be one of "red", "blue", is "green"`,
				`example.com/v1 Thing "t": spec.either: must be an integer or a string, is a list`,
				`example.com/v1 Thing "t": spec.name: does not match the pattern ^[a-z]+$`,
				`example.com/v1 Thing "t": spec.set: has the same item twice, at 0 and 1`,
				`example.com/v1 Thing "t": spec.size: must be at most 9`,
				`example.com/v1 Thing "t": spec.when: is not a valid duration`,
			},
		},
		"unknown": {
			why: "the API server refuses unknown properties under strict field validation; below preserve-unknown-fields, known properties are still checked",
			pkg: thing(`{size: 1, sizes: 2, closed: {x: 1}, free: {known: 5}, labels: {a: 1}}`),
			complete: []string{
				`example.com/v1 Thing "t": spec.closed.x: unknown property`,
				`example.com/v1 Thing "t": spec.free.known: must be a boolean, is a number`,
				`example.com/v1 Thing "t": spec.labels.a: must be a string, is a number: put it in quotes`,
				`example.com/v1 Thing "t": spec.sizes: unknown property`,
			},
			partial: []string{
				`example.com/v1 Thing "t": spec.closed.x: unknown property`,
				`example.com/v1 Thing "t": spec.free.known: must be a boolean, is a number`,
				`example.com/v1 Thing "t": spec.labels.a: must be a string, is a number: put it in quotes`,
				`example.com/v1 Thing "t": spec.sizes: unknown property`,
			},
		},
		"null": {
			why:      "a complete resource has null only where the schema is nullable",
			pkg:      thing(`{size: 1, name: null}`),
			complete: []string{`example.com/v1 Thing "t": spec.name: must be a string, is null`},
		},
		"alternatives": {
			why:      "alternatives that differ only in required properties are distinguishable only in complete packages",
			pkg:      thing(`{size: 1, a: x, b: z}`),
			complete: []string{`example.com/v1 Thing "t": spec: matches more than one of the alternatives of which exactly one is allowed`},
		},
		"metadata": {
			why:      "metadata has the same schema for every resource",
			pkg:      crdYAML + `--- {apiVersion: example.com/v1, kind: Thing, metadata: {name: t, label: {}}, spec: {size: 1}, extra: 1}`,
			complete: []string{`example.com/v1 Thing "t": extra: unknown property`, `example.com/v1 Thing "t": metadata.label: unknown property`},
			partial:  []string{`example.com/v1 Thing "t": extra: unknown property`, `example.com/v1 Thing "t": metadata.label: unknown property`},
		},
		"not served": {
			why: "a version that isn't served has no schema",
			pkg: crdYAML + `--- {apiVersion: example.com/v1old, kind: Thing, metadata: {name: t}, spec: 5}`,
		},
		"known from elsewhere": {
			why:      "CRDs of registered templates apply, too",
			pkg:      `{apiVersion: example.com/v1, kind: Thing, metadata: {name: t}, spec: {size: x}}`,
			crds:     crdYAML,
			complete: []string{`example.com/v1 Thing "t": spec.size: must be an integer, is a string`},
			partial:  []string{`example.com/v1 Thing "t": spec.size: must be an integer, is a string`},
		},
		"the package's own wins": {
			why:  "a package may contain a newer CRD than the registered one",
			pkg:  strings.Replace(crdYAML, "size: {type: integer, minimum: 1, maximum: 9}", "size: {type: string}", 1) + `--- {apiVersion: example.com/v1, kind: Thing, metadata: {name: t}, spec: {size: x}}`,
			crds: crdYAML,
		},
		"broken": {
			why: "a CRD that the API server would refuse is reported at its path, and its resources aren't checked by it",
			pkg: strings.Replace(crdYAML, `pattern: "^[a-z]+$", maxLength: 5}`, `pattern: "[", maxLength: -1}`, 1) + `--- {apiVersion: example.com/v1, kind: Thing, metadata: {name: t}, spec: 5}`,
			complete: []string{
				"apiextensions.k8s.io/v1 CustomResourceDefinition \"things.example.com\": spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.name.maxLength: must be a whole number, 0 or more",
				"apiextensions.k8s.io/v1 CustomResourceDefinition \"things.example.com\": spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.name.pattern: is not a regular expression: error parsing regexp: missing closing ]: `[`",
			},
			partial: []string{
				"apiextensions.k8s.io/v1 CustomResourceDefinition \"things.example.com\": spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.name.maxLength: must be a whole number, 0 or more",
				"apiextensions.k8s.io/v1 CustomResourceDefinition \"things.example.com\": spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.name.pattern: is not a regular expression: error parsing regexp: missing closing ]: `[`",
			},
		},
		"for a kind of Kubernetes": {
			why: "CRDs can't redefine kinds of Kubernetes or TKO",
			pkg: `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: deployments.apps}
spec: {group: apps, scope: Namespaced, names: {plural: deployments, kind: Deployment}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.topology.nephio.org}
spec: {group: topology.nephio.org, scope: Namespaced, names: {plural: sites, kind: Site}, versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {x: 1, selector: {}, template: {spec: {containers: [{name: a}]}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: s}, spec: {siteId: a, x: 1}}
`,
			complete: []string{`apps/v1 Deployment "d": spec.x: unknown property`, `topology.nephio.org/v1alpha1 Site "s": spec.x: unknown property`},
			partial:  []string{`apps/v1 Deployment "d": spec.x: unknown property`, `topology.nephio.org/v1alpha1 Site "s": spec.x: unknown property`},
		},
	})
}

func TestPluginsCheckTheResourcesOfTheirTriggers(t *testing.T) {
	pods := krm.GVK{Version: "v1", Kind: "Pod"}
	pod := func(name string) krm.Resource {
		return krm.Resource{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name}}
	}
	plugins := []tko.Plugin{
		{Type: tko.PluginValidate, Name: "a", Triggers: []krm.GVK{pods}},
		{Type: tko.PluginValidate, Name: "b", Triggers: []krm.GVK{pods, {Version: "v1", Kind: "Service"}}},
		{Type: tko.PluginPrepare, Name: "c", Triggers: []krm.GVK{pods}},
	}
	tests := map[string]struct {
		why   string
		pkg   krm.Package
		fails map[string]error
		none  bool
		want  []string
		runs  []string
	}{
		"valid": {
			why:  "every plugin of the type checks every resource of its triggers",
			pkg:  krm.Package{pod("one"), pod("two")},
			runs: []string{"a one", "a two", "b one", "b two"},
		},
		"refused": {
			why: "findings name plugin and resource once, in the order of the package",
			pkg: krm.Package{pod("one"), pod("two")},
			fails: map[string]error{
				"b one": errors.New(`plugin "validate|b" for v1 Pod "one": no IPv6`), "a two": errors.New("timed out after 30s"), "a one": errors.New("too small"),
			},
			runs: []string{"a one", "a two", "b one", "b two"},
			want: []string{`v1 Pod "one": plugin "validate|a": too small`, `v1 Pod "one": plugin "validate|b": no IPv6`, `v1 Pod "two": plugin "validate|a": timed out after 30s`},
		},
		"after the schemas": {
			why:  "a plugin may rely on the schema",
			pkg:  krm.Package{pod("one"), {"apiVersion": "v1", "kind": "Service", "spec": int64(5)}},
			want: []string{`v1 Service "": spec: must be a map, is a number`},
		},
		"no runner": {
			why:  "a resource that a plugin must check is invalid without the plugin",
			pkg:  krm.Package{pod("one")},
			none: true,
			want: []string{`v1 Pod "one": plugin "validate|a": can't run here: this program runs no plugins`, `v1 Pod "one": plugin "validate|b": can't run here: this program runs no plugins`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			runner := &fakeRunner{fails: test.fails}
			o := validate.Options{Plugins: runner}
			if test.none {
				o.Plugins = nil
			}
			err := newValidator(t, o).Validate(t.Context(), tko.Validation{Package: test.pkg, Plugins: plugins})
			if diff := cmp.Diff(test.want, lines(t, err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
			slices.Sort(runner.runs)
			if diff := cmp.Diff(test.runs, runner.runs); diff != "" {
				t.Errorf("%s: runs (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

type fakeRunner struct {
	mu       sync.Mutex
	runs     []string
	fails    map[string]error
	programs map[string]string // by name of the plugin
}

func (r *fakeRunner) Program(p tko.Plugin) string { return p.Name + r.programs[p.Name] }

func (r *fakeRunner) Validate(_ context.Context, p tko.Plugin, target krm.Identity, _ krm.Package, _ bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := p.Name + " " + target.Name
	r.runs = append(r.runs, run)
	return r.fails[run]
}

// A result is cached by key and completeness, unless a plugin refused.
func TestResultsAreCachedUntilAPluginChanges(t *testing.T) {
	runner := &fakeRunner{fails: map[string]error{"bad p": errors.New("crashed")}}
	v := newValidator(t, validate.Options{Plugins: runner})
	pods := []krm.GVK{{Version: "v1", Kind: "Pod"}}
	good := tko.Plugin{Type: tko.PluginValidate, Name: "good", Triggers: pods}
	bad := tko.Plugin{Type: tko.PluginValidate, Name: "bad", Triggers: pods}
	pod := decode(t, `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {}}`)
	for _, step := range []struct {
		why    string
		ask    tko.Validation
		want   []string
		counts int // runs up to this step
	}{
		{"the first time", tko.Validation{Package: pod, Plugins: []tko.Plugin{good}, Key: "1"}, nil, 1},
		{"remembered", tko.Validation{Package: pod, Plugins: []tko.Plugin{good}, Key: "1"}, nil, 1},
		{"no key, no memory", tko.Validation{Package: pod, Plugins: []tko.Plugin{good}}, nil, 2},
		{"complete is another question", tko.Validation{Package: pod, Plugins: []tko.Plugin{good}, Key: "1", Complete: true}, []string{`v1 Pod "p": spec.containers: is required`}, 2},
		{"a refusal", tko.Validation{Package: pod, Key: "4", Complete: true}, []string{`v1 Pod "p": spec.containers: is required`}, 2},
		{"refusals are remembered", tko.Validation{Key: "4", Complete: true}, []string{`v1 Pod "p": spec.containers: is required`}, 2},
		{"but not a plugin's", tko.Validation{Package: pod, Plugins: []tko.Plugin{bad}, Key: "2"}, []string{`v1 Pod "p": plugin "validate|bad": crashed`}, 3},
		{"which is asked again", tko.Validation{Package: pod, Plugins: []tko.Plugin{bad}, Key: "2"}, []string{`v1 Pod "p": plugin "validate|bad": crashed`}, 4},
	} {
		if diff := cmp.Diff(step.want, lines(t, v.Validate(t.Context(), step.ask))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.why, diff)
		}
		if len(runner.runs) != step.counts {
			t.Errorf("%s: %d runs, want %d", step.why, len(runner.runs), step.counts)
		}
	}
	runner.programs = map[string]string{"good": " as it is now", "bad": " as it is now"}
	service := decode(t, `{apiVersion: v1, kind: Service, metadata: {name: s}}`)
	for range 2 {
		_ = v.Validate(t.Context(), tko.Validation{Package: pod, Plugins: []tko.Plugin{good}, Key: "1"})
		_ = v.Validate(t.Context(), tko.Validation{Package: service, Plugins: []tko.Plugin{bad}, Key: "3"})
	}
	if len(runner.runs) != 5 {
		t.Errorf("got %d runs after the program changed, want one more", len(runner.runs))
	}
}

// A canceled validation has no result.
func TestCanceledValidationIsNotCached(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v := newValidator(t, validate.Options{})
	err := v.Validate(ctx, tko.Validation{Package: decode(t, deploymentYAML), Key: "k"})
	if !errors.Is(err, context.Canceled) || errors.Is(err, tko.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if err := v.Validate(t.Context(), tko.Validation{Package: decode(t, deploymentYAML), Key: "k"}); err != nil {
		t.Errorf("later: %v", err)
	}
}

// The error stays readable for any number of findings.
func TestErrorsAreBoundedInNumberAndLength(t *testing.T) {
	data := map[string]any{}
	for i := range 5000 {
		data[fmt.Sprintf("k%04d", i)] = int64(1)
	}
	data[strings.Repeat("é", 100_000)] = int64(1)
	p := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": data}}
	got := lines(t, newValidator(t, validate.Options{}).Validate(t.Context(), tko.Validation{Package: p}))
	if len(got) != 1001 || !strings.Contains(got[1000], "more findings are omitted") {
		t.Errorf("got %d, the last is %q", len(got), got[len(got)-1])
	}
	for _, line := range got {
		if len(line) > 2000 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

// A plugin that hangs costs its time limit once, not once for each resource.
func TestHangingPluginRunsForOneResourceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newValidator(t, validate.Options{Plugins: hangingRunner{}, PluginsAtOnce: 1})
		var p krm.Package
		for i := range 1000 {
			p = append(p, krm.Resource{"apiVersion": "example.com/v1", "kind": "Thing", "name": strconv.Itoa(i)})
		}
		begin := time.Now()
		got := lines(t, v.Validate(t.Context(), tko.Validation{Package: p, Plugins: []tko.Plugin{{Type: tko.PluginValidate, Name: "slow", Triggers: []krm.GVK{p[0].GVK()}}}}))
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("took %s", took)
		}
		want := []string{
			`example.com/v1 Thing "0": plugin "validate|slow": timed out after 30s`,
			`example.com/v1 Thing "1": plugin "validate|slow": did not run, because it failed slowly for another resource`,
		}
		if diff := cmp.Diff(want, got[:2]); diff != "" || len(got) != 1000 {
			t.Errorf("%d findings (-want +got):\n%s", len(got), diff)
		}
	})
}

type hangingRunner struct{}

func (hangingRunner) Program(tko.Plugin) string { return "" }

func (hangingRunner) Validate(context.Context, tko.Plugin, krm.Identity, krm.Package, bool) error {
	time.Sleep(30 * time.Second)
	return errors.New("timed out after 30s")
}

// Concurrent validations succeed, for the same kinds and for others.
func TestConcurrentValidationsSucceed(t *testing.T) {
	v := newValidator(t, validate.Options{})
	crds := registered(t, crdYAML)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for _, kind := range []string{"Pod", "Service", "ConfigMap", "Secret", "Namespace"} {
				p := krm.Package{
					{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "a"}, "nonsense": int64(i)},
					{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}, "spec": int64(i)},
				}
				err := v.Validate(context.Background(), tko.Validation{Package: p, CRDs: crds, Complete: i%2 == 0, Key: fmt.Sprint(kind, i%4)})
				var invalid *tko.InvalidPackageError
				if !errors.As(err, &invalid) || len(invalid.Findings) < 2 {
					t.Errorf("%s: got %v", kind, err)
				}
			}
		})
	}
	group.Wait()
}
