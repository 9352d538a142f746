package validate

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/tko-orchestrator/tko/krm"
)

//go:embed schemas/kubernetes.json.gz
var embedded []byte

// objectMeta is the definition of what every resource has under metadata.
const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// kubernetes is the embedded schemas. See the generator for their form.
type kubernetes struct {
	Version     string                    `json:"kubernetes"`
	Kinds       map[string]string         `json:"kinds"`
	Definitions map[string]map[string]any `json:"definitions"`
}

var loadKubernetes = sync.OnceValues(func() (*kubernetes, error) {
	r, err := gzip.NewReader(bytes.NewReader(embedded))
	if err != nil {
		return nil, fmt.Errorf("read the embedded schemas: %w", err)
	}
	var k kubernetes
	if err := json.NewDecoder(r).Decode(&k); err != nil {
		return nil, fmt.Errorf("read the embedded schemas: %w", err)
	}
	return &k, nil
})

// has says whether there is a schema of a kind.
func (k *kubernetes) has(gvk krm.GVK) bool { return k.Kinds[gvk.String()] != "" }

// document is the schema of one definition, complete in itself, as the files
// are that Kubeconform's strict mode reads:
//
//   - an object that names its properties has no others;
//   - what is not required may be null;
//   - a Quantity may be a number, an IntOrString is either;
//   - apiVersion and kind have the value of the resource.
//
// An enumerated property that is optional may also be empty, which is what the
// API server takes for not being there.
func (k *kubernetes) document(name string) map[string]any {
	definitions := map[string]any{}
	k.expand(name, definitions)
	return map[string]any{"$ref": "#/definitions/" + name, "definitions": definitions}
}

// documentOf is the document of a kind.
func (k *kubernetes) documentOf(gvk krm.GVK) map[string]any {
	name := k.Kinds[gvk.String()]
	d := k.document(name)
	root, _ := dig(d, "definitions", name).(map[string]any)
	d["definitions"].(map[string]any)[name] = withValues(root, map[string]string{"apiVersion": gvk.APIVersion(), "kind": gvk.Kind}) //nolint:forcetypeassert // made above
	return d
}

// withValues fixes the values of properties of an object's schema, which is
// not changed.
func withValues(s map[string]any, values map[string]string) map[string]any {
	properties := map[string]any{}
	if old, ok := s["properties"].(map[string]any); ok {
		for key, p := range old {
			properties[key] = p
		}
	}
	for key, value := range values {
		properties[key] = map[string]any{"type": "string", "enum": []any{value}}
	}
	out := map[string]any{}
	for key, v := range s {
		out[key] = v
	}
	out["properties"] = properties
	return out
}

// orNull is the suffix of the definition that may also be null.
const orNull = ".orNull"

func (k *kubernetes) expand(name string, into map[string]any) {
	if into[name] != nil {
		return
	}
	into[name] = true // taken, for definitions that contain themselves
	s := k.strict(k.Definitions[name], false, into)
	nullable := k.strict(k.Definitions[name], true, into)
	into[name], into[name+orNull] = s, nullable
}

func (k *kubernetes) strict(s map[string]any, optional bool, into map[string]any) map[string]any {
	if ref, ok := s["$ref"].(string); ok {
		k.expand(ref, into)
		if optional {
			ref += orNull
		}
		return map[string]any{"$ref": "#/definitions/" + ref}
	}
	out := map[string]any{}
	types := typesOf(s)
	if s["format"] == "date-time" {
		out["format"] = "date-time"
	}
	if enum, ok := s["enum"].([]any); ok {
		enum = slices.Clone(enum)
		if optional {
			enum = append(enum, "", nil)
		}
		out["enum"] = distinct(enum)
	}
	if len(types) > 0 {
		if optional {
			types = append(types, "null")
		}
		out["type"] = types
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := s[key].(map[string]any); ok {
			out[key] = k.strict(inner, true, into)
		}
	}
	required, _ := s["required"].([]any)
	if len(required) > 0 {
		out["required"] = required
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		strict := make(map[string]any, len(properties))
		for key, p := range properties {
			if inner, ok := p.(map[string]any); ok {
				strict[key] = k.strict(inner, !slices.Contains(required, any(key)), into)
			}
		}
		out["properties"] = strict
		if out["additionalProperties"] == nil {
			out["additionalProperties"] = false
		}
	}
	return out
}

func typesOf(s map[string]any) []any {
	switch {
	case s["format"] == "quantity":
		return []any{"string", "number"}
	case s["format"] == "int-or-string":
		return []any{"string", "integer"}
	case s["type"] == nil:
		return nil
	}
	return []any{s["type"]}
}

// dig follows a path of map keys.
func dig(v any, path ...string) any {
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}
