package validate

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tko-orchestrator/tko/krm"
)

//go:embed schemas/kubernetes.json.gz
var embedded []byte

// objectMeta is the definition of every resource's metadata.
const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// kubernetes holds the embedded schemas. The generator defines their form.
type kubernetes struct {
	Version     string                    `json:"kubernetes"`
	Kinds       map[string]string         `json:"kinds"`
	Definitions map[string]map[string]any `json:"definitions"`

	kindOf map[string]krm.GVK // by definition, for definitions of kinds
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
	k.kindOf = make(map[string]krm.GVK, len(k.Kinds))
	for gvk, name := range k.Kinds {
		apiVersion, kind, _ := strings.Cut(gvk, " ")
		k.kindOf[name] = krm.ParseGVK(apiVersion, kind)
	}
	return &k, nil
})

// A standard compiles the schemas of Kubernetes' kinds on first use. Kinds
// share common definitions.
type standard struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

const standardURL = "tko:///kubernetes.json"

// loadStandard returns the schemas for complete (true) and partial validation.
var loadStandard = map[bool]func() (*standard, error){
	true:  sync.OnceValues(func() (*standard, error) { return newStandard(true) }),
	false: sync.OnceValues(func() (*standard, error) { return newStandard(false) }),
}

func newStandard(complete bool) (*standard, error) {
	k, err := loadKubernetes()
	if err != nil {
		return nil, err
	}
	definitions := map[string]any{}
	for name := range k.kindOf {
		k.expand(name, definitions)
	}
	var document any = map[string]any{"definitions": definitions}
	if !complete {
		document = relax(document)
	}
	c := newCompiler(noLoader{})
	return &standard{compiler: c}, c.AddResource(standardURL, document)
}

func (s *standard) schema(definition string) (*jsonschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compiler.Compile(standardURL + "#/definitions/" + definition)
}

// has reports whether there is a schema of a kind.
func (k *kubernetes) has(gvk krm.GVK) bool { return k.Kinds[gvk.String()] != "" }

// document returns the self-contained schema of one definition, equal to the
// files for Kubeconform's strict mode:
//
//   - an object that names its properties has no others;
//   - a property that is not required may be null;
//   - a Quantity may be a number, an IntOrString is either;
//   - apiVersion and kind have the value of the resource.
//
// An optional enumerated property may also be empty, because the API server
// treats an empty value as absent.
func (k *kubernetes) document(name string) map[string]any {
	definitions := map[string]any{}
	k.expand(name, definitions)
	return map[string]any{"$ref": "#/definitions/" + name, "definitions": definitions}
}

// orNull is the suffix of the variant of a definition that also allows null.
const orNull = ".orNull"

func (k *kubernetes) expand(name string, into map[string]any) {
	if into[name] != nil {
		return
	}
	into[name] = true // reserved, for recursive definitions
	s := k.strict(k.Definitions[name], false, into)
	nullable := k.strict(k.Definitions[name], true, into)
	if gvk, ok := k.kindOf[name]; ok {
		for _, one := range []map[string]any{s, nullable} {
			setEnum(one, "apiVersion", gvk.APIVersion())
			setEnum(one, "kind", gvk.Kind)
		}
	}
	into[name], into[name+orNull] = s, nullable
}

func setEnum(s map[string]any, property, value string) {
	if p, ok := dig(s, "properties", property).(map[string]any); ok {
		p["enum"] = []any{value}
	}
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

// dig returns the value at a path of map keys, or nil.
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
