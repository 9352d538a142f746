package tko

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/krm"
)

// The kinds of definitions of GitOps sources.
const (
	SourceKindGit       = "GitOpsSource"
	SourceKindInventory = "Inventory"
	SourceKindCatalog   = "Catalog"
)

// SourceKinds are the kinds of definitions of GitOps sources.
var SourceKinds = []string{SourceKindGit, SourceKindInventory, SourceKindCatalog}

// A SourceDefinition is what the role gitops reads and how, where it is registered in the
// store, and not in the settings of the role. Its [Source] has the status.
type SourceDefinition struct {
	Kind string `json:"kind"` // one of SourceKinds
	Name string `json:"name"`
	// Spec are the settings of the source, in JSON, as in a file of sources.
	Spec []byte `json:"spec"`
	// TakeOver has the definition take over the entities of a source of the same name that
	// was in the settings of the role.
	TakeOver bool `json:"takeOver,omitempty"`
	// Parent is the source whose repository declares it; "" if a user registered it. Set by
	// the catalog.
	Parent string `json:"parent,omitempty"`
	// Undeclared means that the repository declares it no longer. Set by the catalog.
	Undeclared bool `json:"undeclared,omitempty"`

	By      Author        `json:"by,omitzero"`      // set by the catalog: who changed it last
	Created time.Time     `json:"created,omitzero"` // set by the catalog
	Updated time.Time     `json:"updated,omitzero"` // set by the catalog
	Ending  *SourceEnding `json:"ending,omitempty"` // set by the catalog: it is being deleted; nil if it isn't
}

// Same reports whether two definitions have the same effect.
func (d SourceDefinition) Same(other SourceDefinition) bool {
	same := d.Kind == other.Kind && d.Name == other.Name && sameJSON(d.Spec, other.Spec) && d.TakeOver == other.TakeOver &&
		d.Parent == other.Parent && d.Undeclared == other.Undeclared
	if d.Ending == nil || other.Ending == nil {
		return same && d.Ending == other.Ending
	}
	return same && *d.Ending == *other.Ending
}

// sameJSON reports whether two texts are equal, or the same value in JSON: the order of keys
// has no meaning.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var values [2]any
	for i, text := range [][]byte{a, b} {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if decoder.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// A SourceEnding is the deletion of a definition, which the role gitops completes.
type SourceEnding struct {
	Keep      bool `json:"keep,omitempty"`      // the entities of the source
	Confirmed int  `json:"confirmed,omitempty"` // number of entities that may be deleted
}

// SourceDefinitions are all definitions, by name, at a version. If the version is one that
// the caller knows, there are none.
type SourceDefinitions struct {
	Version int64
	All     []SourceDefinition
}

// A RegisteredSource is the result of registering a definition.
type RegisteredSource struct {
	Name    string
	Created bool
	Changed bool
}

// DeclareSources has the sources that the repository of another one declares.
type DeclareSources struct {
	Parent      string
	Definitions []SourceDefinition // all that it declares
	// Prune deletes those that it declared earlier, and keeps their entities. Without it,
	// they stay.
	Prune  bool
	DryRun bool
}

// DeclaredSources is the result of [DeclareSources]: names of sources.
type DeclaredSources struct {
	Changed []string
	Removed []string // declared earlier, and deleted
	Kept    []string // declared earlier
	Owned   int      // number of those that were declared before and weren't being deleted
}

// SourceAPIVersion is the API version of manifests of definitions.
const SourceAPIVersion = "tko.nephio.org/v1alpha1"

// IsSourceDefinition reports whether a resource is the manifest of a definition.
func IsSourceDefinition(r krm.Resource) bool {
	gvk := r.GVK()
	return gvk.Group == "tko.nephio.org" && slices.Contains(SourceKinds, gvk.Kind)
}

// SourceDefinitionOf reads a manifest. The server checks its spec. The error is an
// ErrInvalid.
func SourceDefinitionOf(r krm.Resource) (SourceDefinition, error) {
	spec, err := declaredSpec(r, IsSourceDefinition(r), SourceKinds...)
	if err != nil {
		return SourceDefinition{}, err
	}
	return SourceDefinition{Kind: r.GVK().Kind, Name: r.Name(), Spec: spec}, nil
}

// declaredSpec returns the spec of a manifest of something that is declared and is no
// entity: of one of the kinds, if it is one. The error is an ErrInvalid.
func declaredSpec(r krm.Resource, is bool, kinds ...string) ([]byte, error) {
	fail := func(format string, args ...any) ([]byte, error) {
		return nil, Errorf(ErrInvalid, "%s %q: %w", r.GVK().Kind, r.Name(), Errorf(ErrInvalid, format, args...))
	}
	if !is || r.GVK().APIVersion() != SourceAPIVersion {
		return fail("its API version and kind are %s %s: use %s, and %s", r.GVK().APIVersion(), r.GVK().Kind, SourceAPIVersion, strings.Join(kinds, ", "))
	}
	for key := range r {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "spec"}, key) {
			return fail("unknown field %q: use metadata and spec", key)
		}
	}
	spec, ok := r["spec"].(map[string]any)
	if !ok || r.Name() == "" {
		return fail("metadata.name or spec is missing")
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return fail("spec: %w", err)
	}
	return text, nil
}

// declaredManifest returns the manifest of something that declaredSpec reads.
func declaredManifest(kind, name string, spec map[string]any) krm.Resource {
	return krm.Resource{"apiVersion": SourceAPIVersion, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}
}

// Manifest returns the manifest of a definition.
func (d SourceDefinition) Manifest() (krm.Resource, error) {
	var spec map[string]any
	if err := json.Unmarshal(d.Spec, &spec); err != nil {
		return nil, Errorf(ErrInvalid, "the spec of source %q: %w", d.Name, err)
	}
	return declaredManifest(d.Kind, d.Name, spec), nil
}
