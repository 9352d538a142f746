package osm

import "time"

// State is what is known of what was made for a source, and is the basis of
// every comparison: it is to be kept, as JSON, from one call to the next. It
// holds no values of parameters, as those may be secrets, only digests. The
// zero value is that of a new source.
type State struct {
	// Target is the OSM and project that it is about.
	Target    string                    `json:"target,omitempty"`
	Packages  map[string]PackageState   `json:"packages,omitempty"`  // by "vnf/ID" and "ns/ID"
	Instances map[string]*InstanceState `json:"instances,omitempty"` // by name
}

// PackageState is what is known of a package.
type PackageState struct {
	ID     string `json:"_id,omitempty"`    // OSM's; empty if it isn't known to be there
	Digest string `json:"digest,omitempty"` // of the archive that was sent
	// Keys are those of the descriptor, sorted: OSM merges a new descriptor into
	// the one that it has. Those of a map in a map are "OUTER/INNER", escaped as in
	// JSON pointers.
	Keys []string `json:"keys,omitempty"`
	// Note is what people are warned of, as long as the package is as it is.
	Note string `json:"note,omitempty"`
	// Failed says what OSM refused, which is not sent again at once.
	Failed *Failure `json:"failed,omitempty"`
}

// InstanceState is what is known of an instance.
type InstanceState struct {
	ID     string `json:"_id,omitempty"` // OSM's; empty if it isn't known to be there
	NSD    string `json:"nsd,omitempty"` // the descriptor's id
	VIM    string `json:"vim,omitempty"`
	Digest string `json:"digest,omitempty"` // of what was applied; empty if nothing was
	// KDUs are what was applied, by "member/KDU".
	KDUs map[string]KDUState `json:"kdus,omitempty"`
	// Adopted says that somebody else made it: nobody knows with which values.
	Adopted bool `json:"adopted,omitempty"`
	// Removing says that its removal was decided, and approved if need be.
	Removing bool `json:"removing,omitempty"`
	// Creating is when it was asked for; until then it isn't known whether that worked.
	Creating *time.Time `json:"creating,omitempty"`
	// Pending is the operation that is in flight: never more than one.
	Pending *Pending `json:"pending,omitempty"`
	// Failed is what didn't work, and is not tried again at once.
	Failed *Failure `json:"failed,omitempty"`
	// Recreated counts how often it was made anew for being broken, since it
	// last was as it should be.
	Recreated int `json:"recreated,omitempty"`
	// Operations are the last ones that ended, newest first.
	Operations []OperationState `json:"operations,omitempty"`
}

// KDUState is what was applied to a KDU.
type KDUState struct {
	Model  string            `json:"model,omitempty"`
	Values map[string]string `json:"values,omitempty"` // digests of the values, by their paths
	// Initial are the paths that were there at instantiation: OSM adds those to
	// every upgrade.
	Initial []string `json:"initial,omitempty"`
	// Shown says that OSM showed just these values when they were applied: when
	// it shows others, somebody changed them.
	Shown bool `json:"shown,omitempty"`
}

// What operations do.
const (
	Instantiate = "instantiate"
	Upgrade     = "upgrade"
	Terminate   = "terminate"
)

// Pending is an operation in flight.
type Pending struct {
	Kind string `json:"kind"`          // Instantiate, Upgrade or Terminate
	ID   string `json:"_id,omitempty"` // OSM's; empty if it isn't known whether it was accepted
	// Digest is what was desired, and KDUs what is applied when it is done.
	Digest string              `json:"digest,omitempty"`
	KDUs   map[string]KDUState `json:"kdus,omitempty"`
	KDU    string              `json:"kdu,omitempty"` // "member/KDU" of an upgrade
	Since  time.Time           `json:"since"`
}

// Failure is what didn't work.
type Failure struct {
	Digest  string    `json:"digest"` // of what was desired
	Message string    `json:"message"`
	Refused bool      `json:"refused,omitempty"` // OSM said no
	Busy    bool      `json:"busy,omitempty"`    // OSM said not now: it is asked again soon
	Count   int       `json:"count"`
	At      time.Time `json:"at"`
}

// OperationState is an operation that ended.
type OperationState struct {
	ID      string    `json:"_id"`
	Kind    string    `json:"kind"`
	KDU     string    `json:"kdu,omitempty"`
	State   string    `json:"state"` // OSM's: COMPLETED, FAILED and so on
	Message string    `json:"message,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
}
