package tko

import (
	"strings"
	"time"
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
