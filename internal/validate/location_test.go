package validate_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
)

const thingSchema = `{"type": "object", "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
	"spec": {"$ref": "spec.json#/definitions/spec"}}, "additionalProperties": false}`

const specSchema = `{"definitions": {"spec": {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer"}}, "additionalProperties": false}}}`

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSchemasAreReadFromLocations(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "crds/example.com/thing_v1.json"), thingSchema)
	writeFile(t, filepath.Join(dir, "crds/example.com/spec.json"), specSchema)
	writeFile(t, filepath.Join(dir, "v1.30.0-standalone-strict/configmap-v1.json"), `{"type": "object", "required": ["nonsense"]}`)
	writeFile(t, filepath.Join(dir, "crds/example.com/broken_v1.json"), `{"type": `)
	writeFile(t, filepath.Join(dir, "crds/example.com/nothing_v1.json"), `null`)
	writeFile(t, filepath.Join(dir, "crds/example.com/escape_v1.json"), `{"$ref": "http://example.com/x.json"}`)
	writeFile(t, filepath.Join(dir, "secret/x_v1.json"), `{"type": "string"}`)
	crds := filepath.Join(dir, "crds", "{{ .Group }}", "{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json")
	served := func(_ context.Context, url string) ([]byte, error) {
		switch url {
		case "https://schemas.example/example.com/thing_v1.json":
			return []byte(thingSchema), nil
		case "https://schemas.example/example.com/spec.json":
			return []byte(specSchema), nil
		case "https://schemas.example/example.com/down_v1.json":
			return nil, errors.New("connection refused")
		}
		return nil, fs.ErrNotExist
	}
	const remote = "https://schemas.example/{{ .Group }}/{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json"
	tests := map[string]struct {
		why      string
		options  validate.Options
		pkg      string
		complete []string
		partial  []string
		fault    error // of both, if it is not a finding
	}{
		"a catalog of CRDs": {
			why:      "the layout of the public catalogs, with a reference from one file to another",
			options:  validate.Options{SchemaLocations: []string{"default", crds}},
			pkg:      `{apiVersion: example.com/v1, kind: Thing, metadata: {name: t}, spec: {sized: 1}}`,
			complete: []string{`example.com/v1 Thing "t": spec.size: is required`, `example.com/v1 Thing "t": spec.sized: unknown property`},
			partial:  []string{`example.com/v1 Thing "t": spec.sized: unknown property`},
		},
		"remote": {
			why:      "the same, where the operator names an address",
			options:  validate.Options{SchemaLocations: []string{"default", remote}, Fetch: served},
			pkg:      `{apiVersion: example.com/v1, kind: Thing, metadata: {name: t}, spec: {sized: 1}}`,
			complete: []string{`example.com/v1 Thing "t": spec.size: is required`, `example.com/v1 Thing "t": spec.sized: unknown property`},
			partial:  []string{`example.com/v1 Thing "t": spec.sized: unknown property`},
		},
		"remote has none": {
			why:     "a missing schema is not an error",
			options: validate.Options{SchemaLocations: []string{remote}, Fetch: served},
			pkg:     `{apiVersion: example.com/v1, kind: Other, metadata: {name: t}}`,
		},
		"remote is down": {
			why:     "a failed lookup is neither valid nor invalid",
			options: validate.Options{SchemaLocations: []string{remote}, Fetch: served},
			pkg:     `{apiVersion: example.com/v1, kind: Down, metadata: {name: t}}`,
			fault:   tko.ErrBusy,
		},
		"without default": {
			why:     "an operator who names locations without the default doesn't want it",
			options: validate.Options{SchemaLocations: []string{crds}},
			pkg:     `{apiVersion: v1, kind: ConfigMap, metadata: {name: t}, nonsense: 1}`,
		},
		"another version": {
			why:      "the first location that has a schema decides",
			options:  validate.Options{SchemaLocations: []string{dir, "default"}, KubernetesVersion: "1.30.0"},
			pkg:      `{apiVersion: v1, kind: ConfigMap, metadata: {name: t}}`,
			complete: []string{`v1 ConfigMap "t": nonsense: is required`},
		},
		"broken files": {
			why:     "broken schemas are skipped, as in Kubeconform",
			options: validate.Options{SchemaLocations: []string{crds}},
			pkg:     `[{apiVersion: example.com/v1, kind: Broken, name: a}, {apiVersion: example.com/v1, kind: Nothing, name: a}, {apiVersion: example.com/v1, kind: Escape, name: a}]`,
		},
		"a resource that climbs": {
			why:     "the author of a resource must not choose the file that is read",
			options: validate.Options{SchemaLocations: []string{crds}},
			pkg:     `[{apiVersion: example.com/v1, kind: ../../secret/x, name: a}, {apiVersion: "../v1", kind: X, name: b}, {apiVersion: "..%2f/v1", kind: "x?y#z", name: c}]`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := newValidator(t, test.options)
			for range 2 { // the second time from the cache
				for _, complete := range []bool{true, false} {
					want := test.partial
					if complete {
						want = test.complete
					}
					err := v.Validate(t.Context(), tko.Validation{Package: decode(t, test.pkg), Complete: complete})
					if test.fault != nil {
						if !errors.Is(err, test.fault) || errors.Is(err, tko.ErrInvalid) {
							t.Errorf("%s: got %v", test.why, err)
						}
						continue
					}
					if diff := cmp.Diff(want, lines(t, err)); diff != "" {
						t.Errorf("%s\ncomplete %t: (-want +got):\n%s", test.why, complete, diff)
					}
				}
			}
		})
	}
}

func TestUnusableOptionsAreRefused(t *testing.T) {
	tests := map[string]struct {
		why     string
		options validate.Options
		want    string // in the error; "" is none
	}{
		"none":             {"the zero value works", validate.Options{}, ""},
		"embedded version": {"a patch release more or less is the same schemas", validate.Options{KubernetesVersion: "1.37.9"}, ""},
		"other version":    {"validation for a version without schemas must not seem to work", validate.Options{KubernetesVersion: "1.29.0"}, "the schemas of Kubernetes 1.29.0 are not embedded"},
		"template":         {"a template that can't work is found at the start", validate.Options{SchemaLocations: []string{"/x/{{ .Nonsense }}.json"}}, `schema location "/x/{{ .Nonsense }}.json"`},
		"syntax":           {"so is one that can't be read", validate.Options{SchemaLocations: []string{"/x/{{.json"}}, `schema location "/x/{{.json"`},
		"no network":       {"no network access without a Fetch", validate.Options{SchemaLocations: []string{"https://example.com"}}, "reads local schemas only"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := validate.New(test.options)
			if (err != nil) != (test.want != "") || err != nil && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%s: got %v", test.why, err)
			}
		})
	}
}

func FuzzValidate(f *testing.F) {
	for _, text := range []string{
		deploymentYAML, crdYAML, thing(`{size: 1, either: [], free: null, pod: 5}`), `{apiVersion: v1, kind: Secret, metadata: 5}`,
		`{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, spec: {templates: [{sites: [1, null], merge: [5]}, 3]}}`,
		`{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, spec: {url: "://@", credentials: 5}}`,
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {group: g, names: {kind: K}, versions: [{name: v, schema: {openAPIV3Schema: {properties: {a: 5, b: {items: [1], not: 3, allOf: [{}, 4], enum: [], additionalProperties: 7}}}}}]}}`,
	} {
		f.Add([]byte(text))
	}
	v := newValidator(f, validate.Options{})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := krm.Decode(krm.YAML, data, krm.Limits{Bytes: 1 << 16})
		if err != nil {
			return
		}
		before, err := krm.Encode(krm.CBOR, p)
		if err != nil {
			return
		}
		for _, complete := range []bool{true, false} {
			first := v.Validate(t.Context(), tko.Validation{Package: p, Complete: complete})
			if first != nil && !errors.Is(first, tko.ErrInvalid) {
				t.Errorf("an internal error: %v", first)
			}
			again := v.Validate(t.Context(), tko.Validation{Package: p, Complete: complete})
			if (first == nil) != (again == nil) || first != nil && first.Error() != again.Error() {
				t.Errorf("the results differ: %v and %v", first, again)
			}
		}
		after, err := krm.Encode(krm.CBOR, p)
		if err != nil || string(before) != string(after) {
			t.Errorf("the package was changed: %v", err)
		}
	})
}
