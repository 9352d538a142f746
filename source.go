package tko

import (
	"context"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/krm"
)

// A Source is somewhere that entities come from: a git repository, or an
// artifact of Flux, with what is known of it. It is written by whoever holds
// the claim of its work (queue [QueueGitOps], key Name).
type Source struct {
	Name   string
	Status SourceStatus
	// State is what the controller keeps for itself. Lists leave it out.
	State []byte
	// Approved is the digest of what somebody approved last: see
	// SourceStatus.Asks. Read only.
	Approved string
	// Enqueued says that a look at it is due, was called for, or goes on: what is
	// known of it is older than the last call. Only of sources of GitOps; read
	// only.
	Enqueued bool

	Version int64     // counts the saves, from 1; read only
	Updated time.Time // of the newest save; read only
}

// SiteSource is the name of the source that isn't one of GitOps: it keeps what
// a target of the meta-scheduler has made for a site elsewhere, where there is no
// place for that. The name is that of the resource of the site's package. It
// is written with the claim of the site's work (queue [QueueSchedule]), and is in
// no list.
func SiteSource(site SiteID, name string) string {
	return siteSource + string(site) + ":" + name
}

const siteSource = "site:"

// IsSiteSource says whether a source is a [SiteSource].
func IsSiteSource(name string) bool { return strings.HasPrefix(name, siteSource) }

// SourceStatus is what a source shows of itself.
type SourceStatus struct {
	Kind           string       `json:"kind,omitempty"` // git, GitRepository, OCIRepository, Bucket, ExternalArtifact
	URL            string       `json:"url,omitempty"`  // without credentials
	Ref            string       `json:"ref,omitempty"`
	Path           string       `json:"path,omitempty"`
	Attempted      string       `json:"attempted,omitempty"` // the revision that was tried last
	Applied        string       `json:"applied,omitempty"`   // the newest revision that is applied whole
	PendingRemoval string       `json:"asks,omitempty"`      // digest of a removal that waits for approval
	Holder         string       `json:"holder,omitempty"`    // who worked on it last
	Messages       []string     `json:"messages,omitempty"`  // beside the conditions: what is left alone, and why
	Items          []SourceItem `json:"items,omitempty"`     // the inventory
	// Operations are the last ones, the newest first.
	Operations []SourceOperation `json:"operations,omitempty"`
	Conditions []Condition       `json:"conditions,omitempty"` // Ready, Reconciling, Stalled
}

// A SourceItem is something that a source owns.
type SourceItem struct {
	Kind     string `json:"kind"`               // template, site, deployment, plugin, or an OSM kind
	Name     string `json:"name"`               // in the source
	ID       string `json:"id,omitempty"`       // elsewhere; a deployment's
	Digest   string `json:"digest,omitempty"`   // of what was applied
	Revision int64  `json:"revision,omitempty"` // of the entity, after that
	Pending  bool   `json:"pending,omitempty"`  // was about to be created
	Status   string `json:"status,omitempty"`   // what is known of it elsewhere
}

// A SourceOperation is something that was done for a source.
type SourceOperation struct {
	Time     time.Time `json:"time"`
	Revision string    `json:"revision,omitempty"` // of the source
	Verb     string    `json:"verb"`               // create, update, delete, adopt, and OSM's
	Kind     string    `json:"kind"`
	Name     string    `json:"name"`
	Error    string    `json:"error,omitempty"`
}

// Conditions of sources, beside [ConditionReady].
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling" // only while it is
	ConditionStalled     = "Stalled"     // only while it is
)

// Reasons of the conditions of sources: Flux's where it has them.
const (
	SourceReasonSucceeded   = "ReconciliationSucceeded" // the revision is applied
	SourceReasonFailed      = "ReconciliationFailed"    // applying failed; it is retried
	SourceReasonFetchFailed = "ArtifactFailed"          // the revision can't be fetched
	SourceReasonInvalid     = "BuildFailed"             // the revision is invalid
	SourceReasonProgressing = "Progressing"             // the revision is being applied
	SourceReasonApproval    = "WaitsForApproval"        // removals exceed the budget
	SourceReasonSuspended   = "Suspended"               // reconciliation is suspended
	SourceReasonDependency  = "DependencyNotReady"      // another source must be ready first
	SourceReasonNothing     = "NothingForUs"            // the revision holds no files for TKO
	SourceReasonDenied      = "AccessDenied"            // credentials or a connection file are refused
)

// A Put is the whole of an entity, as it shall be. Of its metadata, what was
// passed before and isn't said any more goes.
type Put struct {
	Kind     Kind
	ID       string // "type|name" for plugins; "" for a deployment that is known by its origin
	Parent   DeploymentID
	Template TemplateID
	Site     SiteID
	Metadata map[string]string
	Package  krm.Package // of a new deployment: merged into the template's
	Plugin   Plugin
	// Origin names a deployment for ever, in place of its ID: the same origin is
	// the same deployment. At most 200 characters.
	Origin string
	DryRun bool // derive and validate, and write nothing
	// FromTemplate says that the package of a deployment that is there was made from
	// its template as that is now.
	FromTemplate bool
}

// A PutResult is what became of a Put.
type PutResult struct {
	ID       string
	Revision int64
	Created  bool
	Changed  bool // it was not so already; with DryRun: isn't
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
