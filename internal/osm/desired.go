package osm

import (
	"io/fs"
	"slices"
)

// Desired is all that one source wants of one OSM.
type Desired struct {
	Packages  []Package
	Instances []Instance
	// Keep names what is left as it is though it isn't wanted here:
	// "instance/NAME", "vnf/ID" and "ns/ID", or KeepAll. It is for what can't be
	// read for now.
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
	// Files are what is in the package, at any depth; one YAML or JSON file in
	// its root is the descriptor. It is read when it is needed, and has to stay
	// the same until then.
	Files fs.FS
	// Source says where it is from, in messages: a path, mostly.
	Source string
}

// An Instance is a network service that should run.
type Instance struct {
	Name        string // names it among all that the source wants
	Description string // may be empty
	NSD         string // the descriptor's id
	VIM         string // name (or _id) of the VIM account
	VNFs        []VNF  // those that are given parameters
	// Broken says what to do when it is broken; what the policy says if empty.
	Broken Broken
	Source string // where it is from, in messages
}

// A VNF is a member of a network service.
type VNF struct {
	Member string // its index: the id of a vnf-profile in the NSD
	KDUs   []KDU
}

// A KDU is what is deployed in Kubernetes for a VNF: a Helm chart, mostly.
type KDU struct {
	Name string // as in the VNFD
	// Params are the chart's values: all of them, JSON types. One that is called
	// kdu_model is the Model, if that is empty.
	Params map[string]any
	// Model is the chart, with its version: repository/chart:version. If empty,
	// it is what the VNFD says, in the version that is deployed.
	Model string
}

// Broken is what to do with an instance that is broken.
type Broken string

// What can be done with a broken instance.
const (
	BrokenKeep     Broken = "Keep"     // leave it to people
	BrokenRecreate Broken = "Recreate" // terminate it and make it anew, a limited number of times
)
