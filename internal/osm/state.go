package osm

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// State records what was made for a source. All comparisons are based on it. The
// caller saves it, as JSON, from one call to the next. Of the values of parameters
// it has only digests, as the values may be secrets. The zero value is the state of
// a new source.
type State struct {
	// Target names the OSM and the project.
	Target    string                    `json:"target,omitempty"`
	Packages  map[string]PackageState   `json:"packages,omitempty"`  // by "vnf/ID" and "ns/ID"
	Instances map[string]*InstanceState `json:"instances,omitempty"` // by name
	// Rollout are the newest upgrades in waves; nil without a [Pace]. It is never changed in
	// place.
	Rollout *RolloutState `json:"rollout,omitempty"`
}

// InstanceKey returns the key of an instance among the packages and instances of an OSM:
// "instance/NAME". Those of packages are made by package bundle.
func InstanceKey(name string) string { return WhatInstance + "/" + name }

// InstanceOf returns the name of the instance with a key; false if it is that of a package.
func InstanceOf(key string) (name string, ok bool) {
	return strings.CutPrefix(key, WhatInstance+"/")
}

// Has reports whether the package or instance with a key is recorded.
func (s State) Has(key string) bool {
	_, has := s.Packages[key]
	if name, ok := InstanceOf(key); ok {
		_, has = s.Instances[name]
	}
	return has
}

// Keys returns the keys of the recorded packages and instances.
func (s State) Keys() []string {
	keys := slices.Collect(maps.Keys(s.Packages))
	for name := range s.Instances {
		keys = append(keys, InstanceKey(name))
	}
	return keys
}

// PackageState is the recorded state of a package.
type PackageState struct {
	ID     string `json:"_id,omitempty"`    // OSM's; empty if it isn't known to be there
	Digest string `json:"digest,omitempty"` // of the archive that was sent
	// Keys are those of the descriptor, sorted: OSM merges a new descriptor into
	// the one that it has. Those of a map in a map are "OUTER/INNER", escaped as in
	// JSON pointers.
	Keys []string `json:"keys,omitempty"`
	// Note is a warning to users, until the package changes.
	Note string `json:"note,omitempty"`
	// Failed is the last refusal by OSM; the package is sent again after a pause.
	Failed *Failure `json:"failed,omitempty"`
}

// InstanceState is the recorded state of an instance.
type InstanceState struct {
	ID     string `json:"_id,omitempty"` // OSM's; empty if it isn't known to be there
	NSD    string `json:"nsd,omitempty"` // the descriptor's id
	VIM    string `json:"vim,omitempty"`
	Digest string `json:"digest,omitempty"` // of the applied values; empty if none were
	// KDUs are the applied values, by "member/KDU".
	KDUs map[string]KDUState `json:"kdus,omitempty"`
	// Adopted is true if another client made the instance, with unknown values.
	Adopted bool `json:"adopted,omitempty"`
	// Removing is true if the removal was decided, and approved if necessary.
	Removing bool `json:"removing,omitempty"`
	// Creating is the time of the request that created the instance, while its
	// result isn't known.
	Creating *time.Time `json:"creating,omitempty"`
	// Pending is the operation in flight. There is at most one.
	Pending *Pending `json:"pending,omitempty"`
	// Failed is the last failure; the step is tried again after a pause.
	Failed *Failure `json:"failed,omitempty"`
	// Recreated counts the recreations of the broken instance since it was last
	// ready.
	Recreated int `json:"recreated,omitempty"`
	// Operations are the last operations that ended, newest first.
	Operations []OperationState `json:"operations,omitempty"`
}

// KDUState has the values that were applied to a KDU.
type KDUState struct {
	Model  string            `json:"model,omitempty"`
	Values map[string]string `json:"values,omitempty"` // digests of the values, by their paths
	// Initial are the paths of the values at instantiation: OSM adds those values
	// to every upgrade.
	Initial []string `json:"initial,omitempty"`
	// Shown is true if OSM showed exactly these values after they were applied. If
	// it shows others later, another client has changed them.
	Shown bool `json:"shown,omitempty"`
}

// The kinds of operations.
const (
	Instantiate = "instantiate"
	Upgrade     = "upgrade"
	Terminate   = "terminate"
)

// A Pending operation is an operation in flight.
type Pending struct {
	Kind string `json:"kind"`          // Instantiate, Upgrade or Terminate
	ID   string `json:"_id,omitempty"` // OSM's; empty if it isn't known whether it was accepted
	// Digest is of the desired instance; KDUs are applied when the operation has
	// succeeded.
	Digest string              `json:"digest,omitempty"`
	KDUs   map[string]KDUState `json:"kdus,omitempty"`
	KDU    string              `json:"kdu,omitempty"` // "member/KDU" of an upgrade
	Since  time.Time           `json:"since"`
}

// A Failure is a failed step.
type Failure struct {
	Digest  string    `json:"digest"` // of the desired instance or package
	Message string    `json:"message"`
	Refused bool      `json:"refused,omitempty"` // OSM refused it
	Busy    bool      `json:"busy,omitempty"`    // OSM refused it for now: it is tried again soon
	Count   int       `json:"count"`
	At      time.Time `json:"at"`
}

// An OperationState is an operation that ended.
type OperationState struct {
	ID      string    `json:"_id"`
	Kind    string    `json:"kind"`
	KDU     string    `json:"kdu,omitempty"`
	State   string    `json:"state"` // OSM's: COMPLETED, FAILED and so on
	Message string    `json:"message,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
}
