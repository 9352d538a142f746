package plan

import (
	"context"
	"iter"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// A Planner makes plans, and their packages again when they are applied. It writes
// nothing.
type Planner interface {
	// Plan calls emit once for each deployment that an edit selects, in a fixed order, as of
	// one snapshot. The drafts have no Wave, Rank and Group: the caller assigns them. An
	// error of emit ends the plan.
	Plan(ctx context.Context, r Request, emit func(Draft) error) error
	// After makes the states that rows plan again, in their order, from the inputs that
	// the plan pinned: the deployments at the revisions of the rows, and the revisions of
	// templates that their pins name. What rows have in common is read and merged once. The
	// caller compares the digests with those of the rows. None of the rows deletes.
	After(ctx context.Context, r Request, rows []Pinned) iter.Seq2[State, error]
}

// A Pinned is a row with the inputs of its plan.
type Pinned struct {
	Row  Row
	Pins []Pin
}

// A Rower makes drafts of single rows.
type Rower interface {
	// Row makes the draft of a row again, from what After makes its state from.
	Row(ctx context.Context, r Request, row Row, pins []Pin) (Draft, error)
}

// A Request is what to plan.
type Request struct {
	Rollout string // ID
	Spec    spec.Rollout
	// Only, if not nil, selects the deployments to plan again: what is left of a rollout.
	Only func(tko.DeploymentID) bool
}

// A Draft is a row with what the caller needs to assign its wave, and to pin its inputs.
type Draft struct {
	Row

	// Key is stable when the rollout is planned again: see Candidate.
	Key    string
	Site   tko.SiteID
	Parent tko.DeploymentID
	Broken bool  // the deployment is unhealthy in the snapshot
	Pins   []Pin // inputs in addition to the deployment
	// Images are pulled at the site before the row is applied: the caller sets them.
	Images []string
	// BeforeState and AfterState are for grouping and diffs. They are nil if there is none.
	BeforeState, AfterState *State
	// Restored is the revision that the row restores; nil: After makes the state.
	Restored *Restored
}

// A Restored is a revision of a deployment that a row writes again.
type Restored struct {
	Revision int64
	Base     int64 // revision of the template
	Approves bool  // the deployment was approved then, and isn't now
	// Follows reports that the deployment takes the place of another one, which is deleted
	// first. Root is what that one is deleted with.
	Follows bool
	Root    tko.DeploymentID
}

// A Pin is a revision of an entity that After needs.
type Pin struct {
	Kind     tko.Kind `json:"k"`
	ID       string   `json:"i"`
	Revision int64    `json:"r"`
}

// A State is a deployment as it is stored, or would be.
type State struct {
	// Deployment has the package, whose Deployment resource agrees with the other fields,
	// and the complete metadata.
	Deployment tko.Deployment
	// Digest covers all that is stored of it: package, references, state, metadata.
	Digest Digest
	// Encoded is the package as it is stored, with the digest Content; nil: the caller
	// encodes it.
	Encoded []byte
	Content Digest
	// Derived, of a state to be written, is an encoded derivation.Record: what the package
	// is made from; nil if that isn't known. It is stored with the state.
	Derived []byte
	// Manifest, of a state to be written, is what a source declares of the deployment; nil
	// if another edit made it.
	Manifest *spec.Manifest
}
