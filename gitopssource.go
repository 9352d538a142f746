package tko

import (
	"strings"
	"time"
)

// A SourceReach is what a source may change without consent at the time at which it was read.
type SourceReach struct {
	Known bool // false: the server doesn't say, because it is of an earlier version
	// Sites is the number of further sites at which the source may change what runs, other
	// than by a rollout; -1: any number.
	Sites int
	// Created is the number of further deployments that it may create without an approval; -1:
	// any number.
	Created int
	// Policy is the JSON of the spec, without edits, of the rollout that makes changes at more
	// sites, unless the source has one of its own.
	Policy string
}

// A Source is a GitOps source: a git repository, or an artifact of Flux, that
// entities come from, with its status. The worker that holds the claim of its
// work (queue [QueueGitOps], key Name) writes it.
type Source struct {
	Name   string
	Status SourceStatus
	// State is opaque data of the controller. Lists leave it out.
	State []byte
	// Approved is the digest of the removal that a user approved last: see
	// [SourceStatus.PendingRemoval]. Read only.
	Approved string
	// Enqueued reports whether a reconciliation of the source is requested, due
	// or in progress, so that its status is older than the last request. Read
	// only.
	Enqueued bool

	// Due is since when a reconciliation is due that no worker has claimed; zero if none is.
	// Read only.
	Due time.Time

	// Reach is what the source may change now without consent. Read only; lists leave it out.
	Reach SourceReach

	Version int64     // number of saves, from 1; read only
	Updated time.Time // time of the newest save; read only
}

// A SourceStatus is the status of a GitOps source.
type SourceStatus struct {
	Kind           string       `json:"kind,omitempty"` // git, GitRepository, OCIRepository, Bucket, ExternalArtifact
	URL            string       `json:"url,omitempty"`  // without credentials
	Ref            string       `json:"ref,omitempty"`
	Path           string       `json:"path,omitempty"`
	Attempted      string       `json:"attempted,omitempty"` // the revision that was tried last
	Applied        string       `json:"applied,omitempty"`   // the newest revision that is applied completely
	PendingRemoval string       `json:"asks,omitempty"`      // digest of a removal that waits for approval
	Holder         string       `json:"holder,omitempty"`    // the worker that reconciled it last
	Messages       []string     `json:"messages,omitempty"`  // in addition to the conditions: what is ignored, and why
	Items          []SourceItem `json:"items,omitempty"`     // the inventory
	// Operations are the most recent operations, the newest first.
	Operations []SourceOperation `json:"operations,omitempty"`
	Conditions []Condition       `json:"conditions,omitempty"` // Ready, Reconciling, Stalled
	// Origins are those of the items of an inventory of sites, each once. They are never
	// changed in place.
	Origins []SourceOrigins `json:"origins,omitempty"`
	// Registered reports that the source is one of a [SourceDefinition].
	Registered bool `json:"registered,omitempty"`
}

// SourceOrigins name where the parts of an entity come from: the name of an origin for
// each part, which is "template", "package", or "metadata." and a key. Where a user set a
// part that the source lets users set, it is OriginUser and the author.
type SourceOrigins map[string]string

// OriginUser begins the origin of parts that users set.
const OriginUser = "user:"

// User returns who set a part; ok is false if it isn't from a user.
func (o SourceOrigins) User(part string) (who string, ok bool) {
	return strings.CutPrefix(o[part], OriginUser)
}

// OriginsOf returns the origins of an item; nil if it has none.
func (s SourceStatus) OriginsOf(item SourceItem) SourceOrigins {
	if item.Origins < 1 || item.Origins > len(s.Origins) {
		return nil
	}
	return s.Origins[item.Origins-1]
}

// A SourceItem is an entry of the inventory of a source.
type SourceItem struct {
	Kind     string `json:"kind"`               // template, site, deployment, plugin, or an OSM kind
	Name     string `json:"name"`               // in the source
	ID       string `json:"id,omitempty"`       // a deployment's ID, or the ID in the target system
	Digest   string `json:"digest,omitempty"`   // of the applied content
	Revision int64  `json:"revision,omitempty"` // of the entity, after the source was applied
	Pending  bool   `json:"pending,omitempty"`  // its creation began, and its result is not recorded
	Status   string `json:"status,omitempty"`   // its status in the target system
	Origins  int    `json:"origins,omitempty"`  // number of its element of the status' Origins, from 1; 0 if it has none
	// Rollout changes the entity, once it is started: until then the source doesn't.
	Rollout RolloutID `json:"rollout,omitempty"`
}

// A SourceOperation is an operation that the controller performed for a source.
type SourceOperation struct {
	Time     time.Time `json:"time"`
	Revision string    `json:"revision,omitempty"` // of the source
	Verb     string    `json:"verb"`               // create, update, delete or adopt, and those of OSM
	Kind     string    `json:"kind"`
	Name     string    `json:"name"`
	Error    string    `json:"error,omitempty"`
}

// Conditions of sources.
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling" // present only while it is true
	ConditionSuspended   = "Suspended"   // present only while it is true; Ready stays as it was
	ConditionStalled     = "Stalled"     // present only while it is true
	ConditionConsistent  = "Consistent"  // of inventories, catalogs, and sources that declare others; present only while it is false
	ConditionReported    = "Reported"    // of sources that report to the server of their repository; present only while it is false
	ConditionSubscribed  = "Subscribed"  // of inventories whose servers report changes
)

// Reasons of the conditions of sources: Flux's where it has them.
const (
	SourceReasonSucceeded   = "ReconciliationSucceeded" // the revision is applied
	SourceReasonHeld        = "Stopped"                 // a user has stopped what it would change
	SourceReasonFailed      = "ReconciliationFailed"    // applying failed; it is retried
	SourceReasonFetchFailed = "ArtifactFailed"          // the revision can't be fetched
	SourceReasonInvalid     = "BuildFailed"             // the revision is invalid
	SourceReasonProgressing = "Progressing"             // the revision is being applied
	SourceReasonRetrying    = "ProgressingWithRetry"    // what failed is tried again
	SourceReasonApproval    = "WaitsForApproval"        // removals exceed the budget
	SourceReasonSuspended   = "Suspended"               // reconciliation is suspended
	SourceReasonDependency  = "DependencyNotReady"      // another source must be ready first
	SourceReasonNothing     = "NothingForUs"            // the revision holds no files for TKO
	SourceReasonConflicts   = "Contradictions"          // origins of an inventory differ
	SourceReasonEvents      = "Subscribed"              // a server reports changes
	SourceReasonNoEvents    = "SubscriptionFailed"      // a server refuses or lost a subscription
	SourceReasonLeftOut     = "LeftOut"                 // versions of a catalog are left out, or differ from their templates
	SourceReasonSources     = "SourcesKept"             // sources that a repository no longer declares
	SourceReasonReport      = "ReportFailed"            // the server of the repository doesn't accept reports
	SourceReasonDenied      = "AccessDenied"            // credentials or a connection file are refused
	SourceReasonRollout     = "WaitsForRollout"         // a rollout has to make the changes of the revision
	SourceReasonStopped     = "RolloutStopped"          // that rollout can't be planned, is paused, or was cancelled or undone
)
