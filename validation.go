package tko

import (
	"crypto/sha256"

	"github.com/tko-orchestrator/tko/krm"
)

// A Validation asks whether a package is valid. Partial validation wants what
// is there to be valid and lets things be missing; complete validation wants
// what is required, too.
type Validation struct {
	Package  krm.Package
	Complete bool
	CRDs     []CRD // known beyond the package's own
	// Accepted are packages that were stored before, and that this one follows:
	// what CRDs (not the package's own) find wrong with the same resources of
	// those is no fault of this package.
	Accepted []AcceptedPackage
	Plugins  []Plugin // of type validate
	Key      string   // callers' cache key, "" = no cache
}

// An AcceptedPackage is one that was found valid, partially or completely.
type AcceptedPackage struct {
	Package  krm.Package
	Complete bool
}

// A CRD is what validation needs of a custom resource definition that
// templates bring. It must not be changed.
type CRD struct {
	Group, Kind string
	Digest      [sha256.Size]byte // of Content: CRDs that validate alike have the same
	Content     []byte            // a package of the CRD alone, in CBOR, reduced to what validates
	Templates   []TemplateID      // that bring it, ordered

	name string
}

// IsCRD reports whether resources of a kind are custom resource definitions.
func IsCRD(gvk krm.GVK) bool {
	return gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition"
}

// NewCRD reduces a custom resource definition to what validation needs: its
// group, kind and served versions with their schemas, without descriptions.
func NewCRD(r krm.Resource) (CRD, error) {
	spec, _ := r["spec"].(map[string]any)
	reduced := map[string]any{}
	for _, key := range []string{"group", "scope"} {
		if v, ok := spec[key]; ok {
			reduced[key] = v
		}
	}
	names, _ := spec["names"].(map[string]any)
	if kind, ok := names["kind"]; ok {
		reduced["names"] = map[string]any{"kind": kind}
	}
	if versions, ok := spec["versions"].([]any); ok {
		kept := make([]any, len(versions))
		for i, v := range versions {
			kept[i] = reduceVersion(v)
		}
		reduced["versions"] = kept
	}
	resource := krm.Resource{"apiVersion": r["apiVersion"], "kind": r["kind"], "spec": reduced}
	digest, content, err := krm.DigestOf(krm.Package{resource})
	crd := CRD{Digest: digest, Content: content, name: r.Name()}
	crd.Group, _ = spec["group"].(string)
	crd.Kind, _ = names["kind"].(string)
	return crd, err
}

func reduceVersion(v any) any {
	version, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for _, key := range []string{"name", "served"} {
		if value, ok := version[key]; ok {
			out[key] = value
		}
	}
	if schema, ok := version["schema"].(map[string]any); ok {
		out["schema"] = map[string]any{"openAPIV3Schema": reduceSchema(schema["openAPIV3Schema"])}
	}
	return out
}

// reduceSchema drops what explains and validates nothing.
func reduceSchema(v any) any {
	schema, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(schema))
	for key, value := range schema {
		switch key {
		case "description", "example", "externalDocs", "title":
		case "properties":
			out[key] = reduceEach(value)
		case "items", "additionalProperties", "not":
			out[key] = reduceSchema(value)
		case "allOf", "anyOf", "oneOf":
			out[key] = reduceEach(value)
		default:
			out[key] = value
		}
	}
	return out
}

func reduceEach(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, schema := range v {
			out[key] = reduceSchema(schema)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, schema := range v {
			out[i] = reduceSchema(schema)
		}
		return out
	}
	return v
}

// Name is the CRD's name.
func (c CRD) Name() string { return c.name }

// Resource decodes the CRD. It has no metadata.
func (c CRD) Resource() (krm.Resource, error) {
	pkg, err := krm.Decode(krm.CBOR, c.Content, krm.Limits{Depth: 20_000})
	if err != nil || len(pkg) != 1 {
		return nil, err
	}
	return pkg[0], nil
}
