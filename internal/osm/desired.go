package osm

import (
	"slices"

	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
)

// Desired is the desired state of one OSM, from one source.
type Desired struct {
	Packages  []bundle.Package
	Instances []Instance
	// Keep names instances and packages that are not removed although they aren't
	// desired: "instance/NAME", "vnf/ID" and "ns/ID", or KeepAll. It is for those
	// whose files or resources can't be read for now.
	Keep []string
}

// KeepAll in [Desired.Keep] keeps everything.
const KeepAll = "*"

// Keeps reports whether the object with a key stays as it is.
func (d Desired) Keeps(key string) bool {
	return slices.Contains(d.Keep, key) || slices.Contains(d.Keep, KeepAll)
}

// An Instance is a network service that should run.
type Instance struct {
	Name        string // unique in the source
	Description string // may be empty
	NSD         string // the descriptor's id
	VIM         string // name (or _id) of the VIM account
	VNFs        []VNF  // those with parameters
	// Broken is the action for a broken instance; that of the policy if empty.
	Broken Broken
	Source string // origin of the instance, in messages
}

// A VNF is a member of a network service, with parameters.
type VNF struct {
	Member string // its index: the id of a vnf-profile in the NSD
	KDUs   []KDU
}

// A KDU is a unit of a VNF that is deployed in Kubernetes, usually a Helm chart.
type KDU struct {
	Name string // as in the VNFD
	// Params are all values of the chart, of JSON types. The parameter kdu_model is
	// the Model, if that is empty.
	Params map[string]any
	// Model is the chart with its version: repository/chart:version. If empty, it
	// is the chart of the VNFD, in the deployed version.
	Model string
}

// Broken is an action for a broken instance.
type Broken string

// The actions for a broken instance.
const (
	BrokenKeep     Broken = "Keep"     // none: users repair it
	BrokenRecreate Broken = "Recreate" // terminate and recreate it, a limited number of times
)

// Valid reports whether it is one of the actions, or empty.
func (b Broken) Valid() bool { return slices.Contains([]Broken{"", BrokenKeep, BrokenRecreate}, b) }

// The kinds of packages and instances, as users see them.
const (
	VNFPackageKind = "VnfPackage"
	NSPackageKind  = "NsPackage"
	InstanceKind   = "NsInstance"
)

// KindOf returns the kind, as users see it, of a "vnf", "ns" or "instance".
func KindOf(what string) string {
	switch what {
	case string(nbi.KindVNF):
		return VNFPackageKind
	case string(nbi.KindNS):
		return NSPackageKind
	default:
		return InstanceKind
	}
}
