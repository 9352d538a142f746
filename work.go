package tko

import (
	"context"
	"strings"
	"time"
)

// The queues of work.
const (
	QueuePrepare  = "prepare"  // keys are deployment IDs, and those of SiteWork
	QueueSchedule = "schedule" // keys are site IDs
	QueueGitOps   = "gitops"   // keys are names of GitOps sources
	// QueueNotify has no items: while it is held, no messages of subscriptions are sent.
	QueueNotify = "notify"
	// QueueEvents has one key: the holder of its claim posts Kubernetes Events.
	QueueEvents = "events"
)

// Queues returns the names of all queues.
func Queues() []string {
	return []string{QueuePrepare, QueueSchedule, QueueCompare, QueueGitOps, QueueRollout, QueueEvents}
}

// siteWork is the prefix of the keys of sites in [QueuePrepare].
const siteWork = "site/"

// SiteWork returns the key in [QueuePrepare] of a site that waits for its template. No
// deployment has such an ID.
func SiteWork(id SiteID) string { return siteWork + string(id) }

// SiteOfWork is the inverse of [SiteWork]; ok is false for the key of a deployment.
func SiteOfWork(key string) (id SiteID, ok bool) {
	rest, ok := strings.CutPrefix(key, siteWork)
	return SiteID(rest), ok
}

// QueueStatistics describe the items of a queue. Counts stop at 100,000.
type QueueStatistics struct {
	Queue    string
	Ready    int           // due and not claimed
	Running  int           // claimed
	Retrying int           // failed, and due later
	Waiting  int           // due later
	Oldest   time.Duration // since the first of the ready items became due
}

// MaxFailing is the maximum number of items of a queue that [QueueState] names.
const MaxFailing = 100

// A QueueState is the work that waits in a queue, and the items that fail.
type QueueState struct {
	QueueStatistics

	Failing []FailingWork // those that the caller may read, with the most failures first; at most [MaxFailing]
}

// FailingWork is an item of a queue that has failed since it was last done.
type FailingWork struct {
	Key      string    // see the queues
	Failures int       // in a row
	Error    string    // of the last one
	Due      time.Time // of the next attempt; of a claimed item, the end of its lease
}

// ClaimWork is a request to claim work.
type ClaimWork struct {
	Queue  string
	Worker string        // name of the claiming worker, for display
	Max    int           // maximum number of items
	Lease  time.Duration // duration of the claim
	Wait   time.Duration // maximum time to wait for the first item
}

// A WorkItem is a key to reconcile. Items are level-triggered: an item reports
// that its key needs a reconciliation, not what changed.
type WorkItem struct {
	Queue     string
	Key       string
	Claim     string // proves the claim
	Attempt   int    // number of failures so far
	LastError string
	Cause     string // the request, and its trace, that the work is due for; opaque
	// Keep is true if the worker must remove nothing that the store doesn't know
	// from the place where it works: the store was restored from a backup, and the
	// place may be newer (see [HoldKeep]).
	Keep bool
}

// The modes of holds.
const (
	HoldAll  = "held" // no worker gets the work
	HoldKeep = "keep" // workers do the work, and remove nothing that the store doesn't know
)

// A Hold is work that waits after a restore until an administrator releases it.
type Hold struct {
	Queue string
	Key   string // "": the whole queue
	Mode  string
}

// ReleaseHolds selects held work to release.
type ReleaseHolds struct {
	Sites  []string // patterns of site IDs
	Queues bool     // the queues that are held as a whole
	Remove bool     // workers may also remove what the store doesn't know
	DryRun bool
}

// OtherDeployments stands for all deployments that the store doesn't have, where
// deployments are named whose objects must stay.
const OtherDeployments DeploymentID = "*"

// A WorkOutcome is the result of reconciling an item.
type WorkOutcome string

// The results of reconciling an item.
const (
	WorkDone     WorkOutcome = "done"
	WorkFailed   WorkOutcome = "failed"   // due again after the back-off
	WorkLater    WorkOutcome = "later"    // due again after Retry; not a failure
	WorkReleased WorkOutcome = "released" // not started: due again after Retry, as if it was never claimed
)

// MaxGather is the longest Retry of [FinishedWork] that gathers.
const MaxGather = 10 * time.Minute

// FinishedWork ends the claim of an item.
type FinishedWork struct {
	Item    WorkItem
	Outcome WorkOutcome
	Error   string        // of WorkFailed
	Retry   time.Duration // delay of WorkLater and WorkReleased; of WorkFailed in place of the back-off, if not 0
	// Gather, of WorkLater, lets deployments of a site that become ready meanwhile wait for the
	// end of Retry, too, in place of making the item due. Anything else makes it due as always.
	// It needs an item of [QueueSchedule], and a Retry of at most [MaxGather].
	Gather bool
}

type claimKey struct{}

// WithClaim returns a context whose changes depend on a claim of work: once the
// claim has expired, or another worker holds it, they are refused with an
// ErrConflict.
func WithClaim(ctx context.Context, item WorkItem) context.Context {
	return context.WithValue(ctx, claimKey{}, item)
}

// ClaimOf returns the claim that changes made with the context depend on. ok is
// false if there is none.
func ClaimOf(ctx context.Context) (item WorkItem, ok bool) {
	item, ok = ctx.Value(claimKey{}).(WorkItem)
	return item, ok
}
