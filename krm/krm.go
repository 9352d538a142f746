package krm

import (
	"fmt"
	"strings"
)

// A Package is a list of resources.
type Package []Resource

// A Resource is a map with apiVersion, kind and, usually, metadata.name.
type Resource map[string]any

// A GVK is a group, version and kind.
type GVK struct {
	Group   string
	Version string
	Kind    string
}

// An Identity identifies a resource in a package: GVK and name.
type Identity struct {
	GVK
	Name string
}

// ParseGVK returns the GVK of an apiVersion ("v1", "apps/v1") and a kind.
func ParseGVK(apiVersion, kind string) GVK {
	group, version, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group, version = "", apiVersion
	}
	return GVK{Group: group, Version: version, Kind: kind}
}

// APIVersion returns group and version in the form of a resource's apiVersion.
func (g GVK) APIVersion() string {
	if g.Group == "" {
		return g.Version
	}
	return g.Group + "/" + g.Version
}

// String returns, for example, `apps/v1 Deployment`.
func (g GVK) String() string { return g.APIVersion() + " " + g.Kind }

// String returns, for example, `apps/v1 Deployment "web"`.
func (i Identity) String() string { return fmt.Sprintf("%s %q", i.GVK, i.Name) }

// A Format is an encoding of packages.
type Format string

// The formats of packages.
const (
	YAML Format = "yaml"
	CBOR Format = "cbor"
)

// Annotations of resources, with their values. The first value is the default.
const (
	AnnotationPrepared = "nephio.org/prepared" // false, true
	AnnotationPrepare  = "nephio.org/prepare"  // Here, Postpone, Never
	AnnotationApproved = "nephio.org/approved" // false, true
	AnnotationApprove  = "nephio.org/approve"  // Default, Auto, Manual
	AnnotationMetadata = "nephio.org/metadata" // Here, Postpone, Never
	AnnotationMerge    = "nephio.org/merge"    // Replace, Override
	AnnotationRename   = "nephio.org/rename"   // a name
)

// Values of annotations.
const (
	Here     = "Here"
	Postpone = "Postpone"
	Never    = "Never"
	Replace  = "Replace"
	Override = "Override"
	Default  = "Default"
	Auto     = "Auto"
	Manual   = "Manual"
)
