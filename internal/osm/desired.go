package osm

import (
	"io/fs"
	"slices"
)

// Desired is the desired state of one OSM, from one source.
type Desired struct {
	Packages  []Package
	Instances []Instance
	// Keep names instances and packages that are not removed although they aren't
	// desired: "instance/NAME", "vnf/ID" and "ns/ID", or KeepAll. It is for those
	// whose files or resources can't be read for now.
	Keep []string
}

// KeepAll in [Desired.Keep] keeps everything.
const KeepAll = "*"

func (d Desired) keeps(key string) bool {
	return slices.Contains(d.Keep, key) || slices.Contains(d.Keep, KeepAll)
}

// A Kind is one of the kinds of packages.
type Kind string

// The kinds of packages. VNF packages come first: NS packages refer to them.
const (
	KindVNF Kind = "vnf"
	KindNS  Kind = "ns"
)

// A Package is a VNF or NS package.
type Package struct {
	Kind Kind
	// ID is the descriptor's id. It must be the one that the descriptor has.
	ID string
	// Files are the files of the package, at any depth; one YAML or JSON file in
	// the root is the descriptor. They are read when they are needed, and must not
	// change until then.
	Files fs.FS
	// Source names the origin of the package in messages, such as a path.
	Source string
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
