package tko

import (
	"context"
	"time"
)

// The queues of work.
const (
	QueuePrepare  = "prepare"  // keys are deployment IDs
	QueueSchedule = "schedule" // keys are site IDs
	QueueGitOps   = "gitops"   // keys are names of sources
	// QueueEvents has one key: a claim of it is the right to post Kubernetes Events.
	QueueEvents = "events"
)

// ClaimWork asks for work.
type ClaimWork struct {
	Queue  string
	Worker string        // who asks, for people who read along
	Max    int           // items
	Lease  time.Duration // the claim is good for
	Wait   time.Duration // at most, for the first item
}

// A WorkItem is something to look at. Items are level-triggered: one says that
// its key needs a look, not what happened.
type WorkItem struct {
	Queue     string
	Key       string
	Claim     string // proves the claim
	Attempt   int    // failures so far
	LastError string
}

// A WorkOutcome is how a look at an item ended.
type WorkOutcome string

// How a look at an item ends.
const (
	WorkDone     WorkOutcome = "done"
	WorkFailed   WorkOutcome = "failed"   // comes back with back-off
	WorkLater    WorkOutcome = "later"    // comes back after Retry; is no failure
	WorkReleased WorkOutcome = "released" // never begun: comes back at once
)

// FinishedWork ends a claim.
type FinishedWork struct {
	Item    WorkItem
	Outcome WorkOutcome
	Error   string        // of WorkFailed
	Retry   time.Duration // of WorkLater; of WorkFailed in place of the back-off, if not 0
}

type claimKey struct{}

// WithClaim makes changes that are made with the context depend on a claim of
// work: once it is somebody else's, or is over, they are refused with an
// ErrConflict.
func WithClaim(ctx context.Context, item WorkItem) context.Context {
	return context.WithValue(ctx, claimKey{}, item)
}

// ClaimOf is the claim that changes made with the context depend on.
func ClaimOf(ctx context.Context) (item WorkItem, ok bool) {
	item, ok = ctx.Value(claimKey{}).(WorkItem)
	return item, ok
}
