package tko

import (
	"crypto/sha256"

	"github.com/tko-orchestrator/tko/krm"
)

// AnnotationAllowSecret is the annotation with the reason why a resource may hold
// what looks like a secret.
const AnnotationAllowSecret = "tko.nephio.org/allow-secret" //nolint:gosec // the name of an annotation

// A Validation is a request to validate a package. Partial validation checks
// the fields that are there; complete validation also requires that no required
// field is missing.
type Validation struct {
	Package  krm.Package
	Complete bool
	CRDs     []CRD // in addition to the package's own
	// Accepted are packages that were stored earlier and that this one replaces
	// or derives from. Findings of CRDs other than the package's own are
	// dropped if the same resource of an accepted package has them, too, and no
	// CRD accepts that resource.
	Accepted []AcceptedPackage
	Plugins  []Plugin // of type validate
	Key      string   // the caller's cache key; "": don't cache
	// Warn, if not nil, is called with the properties of a valid package that only CRDs of
	// templates would refuse, because none of them knows them.
	Warn func([]Finding)
}

// An AcceptedPackage is a package that was found valid, partially or
// completely.
type AcceptedPackage struct {
	Package  krm.Package
	Complete bool
}

// A CRD is the part of a template's custom resource definition that validation
// needs. It must not be changed.
type CRD struct {
	Group, Kind string
	Digest      [sha256.Size]byte // of Content: CRDs that validate alike have the same
	Content     []byte            // a package of the CRD alone, in CBOR, reduced to the fields that validate
	Templates   []TemplateID      // that have it in their packages, ordered

	name string
}

// IsCRD reports whether resources of a kind are custom resource definitions.
func IsCRD(gvk krm.GVK) bool {
	return gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition"
}

// NewCRD reduces a custom resource definition to the fields that validation
// needs: group, kind, and served versions with their schemas, without
// descriptions.
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
		reducedVersions := make([]any, len(versions))
		for i, v := range versions {
			reducedVersions[i] = reduceVersion(v)
		}
		reduced["versions"] = reducedVersions
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

// reduceSchema drops documentation, which validates nothing.
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

// Name returns the name of the CRD.
func (c CRD) Name() string { return c.name }

// Resource decodes the CRD. The resource has no metadata.
func (c CRD) Resource() (krm.Resource, error) {
	pkg, err := krm.Decode(krm.CBOR, c.Content, krm.Limits{Depth: 20_000})
	if err != nil || len(pkg) != 1 {
		return nil, err
	}
	return pkg[0], nil
}
