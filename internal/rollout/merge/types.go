package merge

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

//go:embed kubernetes.json.gz
var embedded []byte

// A Type says how values merge. A nil Type is unknown: maps are merged by key, lists
// are whole. A Type doesn't change after it was made, and may refer to itself.
type Type struct {
	atomic   bool // of a map: it is merged as a whole
	set      bool // of a list: its elements are a set of scalars
	keys     []string
	defaults map[string]any // of keys
	fields   map[string]*Type
	values   *Type // of the keys of a map that fields doesn't name
	items    *Type
	ref      *Type // if set, everything else but atomic is there
}

func (t *Type) resolve() *Type {
	for t != nil && t.ref != nil && !t.atomic {
		t = t.ref
	}
	return t
}

func (t *Type) field(name string) *Type {
	if t == nil {
		return nil
	}
	if f, ok := t.fields[name]; ok {
		return f.resolve()
	}
	return t.values.resolve()
}

// Types returns the type of a kind, or nil if it isn't known. An implementation is
// safe for concurrent use.
type Types interface {
	Type(gvk krm.GVK) *Type
}

// A TypeMap holds the types of kinds, such as those of CRDs.
type TypeMap map[krm.GVK]*Type

// Type returns the type of a kind, or nil.
func (m TypeMap) Type(gvk krm.GVK) *Type { return m[gvk].resolve() }

// First returns Types that ask each of list in turn.
func First(list ...Types) Types { return first(list) }

type first []Types

func (f first) Type(gvk krm.GVK) *Type {
	for _, one := range f {
		if t := one.Type(gvk); t != nil {
			return t
		}
	}
	return nil
}

// The form of the embedded file, which the generator in gen writes.
type (
	document struct {
		Kinds map[string]string `json:"kinds"`
		Types map[string]*node  `json:"types"`
	}
	node struct {
		Ref      string           `json:"ref"`
		Atomic   bool             `json:"atomic"`
		Set      bool             `json:"set"`
		Keys     []string         `json:"keys"`
		Defaults map[string]any   `json:"defaults"`
		Fields   map[string]*node `json:"fields"`
		Values   *node            `json:"values"`
		Items    *node            `json:"items"`
	}
)

var loadKubernetes = sync.OnceValues(func() (TypeMap, error) {
	r, err := gzip.NewReader(bytes.NewReader(embedded))
	if err != nil {
		return nil, fmt.Errorf("read the embedded list types: %w", err)
	}
	var d document
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return nil, fmt.Errorf("read the embedded list types: %w", err)
	}
	named := make(map[string]*Type, len(d.Types))
	for name := range d.Types {
		named[name] = &Type{}
	}
	for name, n := range d.Types {
		*named[name] = *n.typed(named)
	}
	kinds := make(TypeMap, len(d.Kinds))
	for text, name := range d.Kinds {
		apiVersion, kind, _ := bytes.Cut([]byte(text), []byte(" "))
		kinds[krm.ParseGVK(string(apiVersion), string(kind))] = named[name]
	}
	return kinds, nil
})

func (n *node) typed(named map[string]*Type) *Type {
	if n == nil {
		return nil
	}
	t := &Type{atomic: n.Atomic, set: n.Set, keys: n.Keys, defaults: plainDefaults(n.Defaults), ref: named[n.Ref], values: n.Values.typed(named), items: n.Items.typed(named)}
	if n.Fields != nil {
		t.fields = make(map[string]*Type, len(n.Fields))
		for name, f := range n.Fields {
			t.fields[name] = f.typed(named)
		}
	}
	return t
}

// plainDefaults returns defaults with the number types of resources.
func plainDefaults(defaults map[string]any) map[string]any {
	for key, v := range defaults {
		if f, ok := v.(float64); ok && f == float64(int64(f)) {
			defaults[key] = int64(f)
		}
	}
	return defaults
}

// Kubernetes returns the types of Kubernetes' own kinds, which this build embeds.
func Kubernetes() (Types, error) { return loadKubernetes() }

var crdGVK = krm.GVK{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Custom returns the types of the kinds that the CRDs in packages define. A CRD that
// comes later replaces an earlier one of the same kind. Other resources and malformed
// schemas are ignored.
func Custom(packages ...krm.Package) TypeMap {
	m := TypeMap{}
	for _, p := range packages {
		for _, r := range p {
			if r.GVK() != crdGVK {
				continue
			}
			versions, _ := get(map[string]any(r), "spec", "versions").([]any)
			for _, v := range versions {
				gvk := krm.GVK{Group: r.Text("spec", "group"), Kind: r.Text("spec", "names", "kind")}
				gvk.Version, _ = get(v, "name").(string)
				if s, ok := get(v, "schema", "openAPIV3Schema").(map[string]any); ok && gvk.Version != "" && gvk.Kind != "" {
					m[gvk] = ofSchema(s, maxSchemaDepth)
				}
			}
		}
	}
	return m
}

// maxSchemaDepth limits the depth of the schemas of CRDs. What is deeper is unknown.
const maxSchemaDepth = 100

// ofSchema returns the type of an OpenAPI schema of a CRD. Types of list and map are
// those that x-kubernetes-list-type and x-kubernetes-map-type name.
func ofSchema(s map[string]any, depth int) *Type {
	if depth == 0 || s == nil {
		return nil
	}
	t := &Type{atomic: s["x-kubernetes-map-type"] == "atomic"}
	items, _ := s["items"].(map[string]any)
	switch s["x-kubernetes-list-type"] {
	case "set":
		t.set = true
	case "map":
		names, _ := s["x-kubernetes-list-map-keys"].([]any)
		for _, name := range names {
			key, ok := name.(string)
			if !ok {
				t.keys = nil
				break
			}
			t.keys = append(t.keys, key)
			if v, ok := lookup(items, "properties", key, "default"); ok {
				if t.defaults == nil {
					t.defaults = map[string]any{}
				}
				t.defaults[key] = v
			}
		}
	}
	t.items = ofSchema(items, depth-1)
	if properties, ok := s["properties"].(map[string]any); ok {
		t.fields = make(map[string]*Type, len(properties))
		for name, p := range properties {
			inner, _ := p.(map[string]any)
			t.fields[name] = ofSchema(inner, depth-1)
		}
	}
	if more, ok := s["additionalProperties"].(map[string]any); ok {
		t.values = ofSchema(more, depth-1)
	}
	return t
}

func get(v any, path ...string) any {
	found, _ := lookup(v, path...)
	return found
}

func lookup(v any, path ...string) (found any, ok bool) {
	for _, key := range path {
		m, isMap := v.(map[string]any)
		if !isMap {
			return nil, false
		}
		v, ok = m[key]
		if !ok {
			return nil, false
		}
	}
	return v, true
}

// byKey reports whether the type is a list that is merged by keys or as a set.
func (t *Type) byKey() bool { return t != nil && (t.set || len(t.keys) > 0) }

// metadataType is the type of metadata in kinds that aren't known.
var metadataType = sync.OnceValue(func() *Type {
	return &Type{fields: map[string]*Type{
		"finalizers":      {set: true},
		"ownerReferences": {keys: []string{"uid"}},
	}}
})

// typeOf returns the type of a resource; its metadata always has the type that
// Kubernetes gives it.
func typeOf(types Types, gvk krm.GVK) *Type {
	var t *Type
	if types != nil {
		t = types.Type(gvk)
	}
	if t.field("metadata") != nil && len(t.field("metadata").fields) > 0 {
		return t
	}
	with := &Type{fields: map[string]*Type{"metadata": metadataType()}}
	if t != nil {
		with.values = t.values
		for name, f := range t.fields {
			if name != "metadata" {
				with.fields[name] = f
			}
		}
	}
	return with
}

// keyOf returns the key of an element of a list as text, or false if the element has
// none.
func (t *Type) keyOf(element any) (key string, ok bool) {
	if t.set {
		if !isScalar(element) {
			return "", false
		}
		return scalarText(element), true
	}
	m, isMap := element.(map[string]any)
	if !isMap {
		return "", false
	}
	var text bytes.Buffer
	text.WriteByte('[')
	for i, name := range t.keys {
		v, has := m[name]
		if !has {
			v, has = t.defaults[name]
			if !has {
				return "", false
			}
		}
		if !isScalar(v) {
			return "", false
		}
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(name + "=" + scalarText(v))
	}
	text.WriteByte(']')
	return text.String(), true
}

func isScalar(v any) bool {
	switch v.(type) {
	case bool, int64, float64, string:
		return true
	}
	return false
}

// scalarText returns a scalar as text that is unique for its type and value. Text is
// quoted unless it looks like a name, so that "5" and 5 differ.
func scalarText(v any) string {
	s, ok := v.(string)
	if !ok {
		return fmt.Sprintf("%v", v) + map[bool]string{true: "f"}[isFloat(v)]
	}
	plain := s != "" && s != "true" && s != "false" && !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	}) && (s[0] < '0' || s[0] > '9') && s[0] != '-' && s != "NaN" && s != "Inf"
	if plain {
		return s
	}
	return fmt.Sprintf("%q", s)
}

func isFloat(v any) bool {
	_, ok := v.(float64)
	return ok
}
