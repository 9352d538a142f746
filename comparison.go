package tko

import "time"

// QueueCompare is the queue of requests to compare sites with their desired state. Keys
// are site IDs.
const QueueCompare = "compare"

// ComparisonState is the name of the target state that has the newest comparison of a
// site, as JSON. It is written with a claim of [QueueCompare], and expires.
const ComparisonState = "tko:comparison"

// The limits of a comparison.
const (
	MaxSiteChanges = 1000      // changes; the rest is counted
	MaxComparison  = 512 << 10 // bytes, as JSON
)

// A SiteComparison has the differences between the desired state of a site and its
// actual state. Values of Secrets aren't in it.
type SiteComparison struct {
	Site     SiteID       `json:"site"`
	Time     time.Time    `json:"time"` // of the comparison
	Changes  []SiteChange `json:"changes"`
	More     int          `json:"more"`     // changes that are left out, or not visible to the caller
	Problems []string     `json:"problems"` // what couldn't be compared, and why
	// Orphans are what the targets have that belongs to no deployment of the site. No
	// reconciliation changes them.
	Orphans     []SiteChange `json:"orphans"`
	MoreOrphans int          `json:"moreOrphans"` // orphans that are left out, or not visible to the caller
	Unsearched  []string     `json:"unsearched"`  // where orphans couldn't be looked for, and why
}

// The verbs of changes: what the next reconciliation would do. An object that needs a
// change of its package, or another condition, is blocked. Orphans stay as they are.
const (
	SiteCreate  = "create"
	SiteUpdate  = "update"
	SiteRemove  = "remove"
	SiteBlocked = "blocked"
	SiteOrphan  = "orphan"
)

// A SiteChange is an object at a site that isn't as it should be.
type SiteChange struct {
	Target     string       `json:"target"` // resource of the site's package
	Verb       string       `json:"verb"`
	Object     string       `json:"object"`
	Deployment DeploymentID `json:"deployment,omitempty"` // of an orphan: the one that it is labelled with
	Details    []string     `json:"details"`              // of an update: the fields; otherwise the reason, if there is one
}
