package tko

import (
	"cmp"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/krm"
)

// KindRollout is the kind of rollouts: planned changes of many deployments.
const KindRollout Kind = "rollout"

// QueueRollout is the queue of the rollout controller: an item for each rollout that
// is planned or in progress.
const QueueRollout = "rollout"

// A RolloutID is the ID of a rollout. See [CheckID] for its alphabet.
type RolloutID string

// A Rollout is a package with one Rollout resource, which describes a change of many
// deployments.
type Rollout struct {
	ID       RolloutID         `tko:"rolloutId,written,identity"`
	Metadata map[string]string `tko:"metadata,written"`
	Package  krm.Package       `tko:"package,written"`
	State    string            `tko:"state"`  // such as Planned or Running; read only
	Reason   string            `tko:"reason"` // of the state, in words; read only
	Stamp    Stamp             // read only
}

// The types of conditions of rollouts.
const (
	// ConditionState reports the state of a rollout: its reason is the state, its
	// message explains it. Its status is True.
	ConditionState = "State"
	// ConditionPlanned reports whether the rollout has a plan; its message is the
	// plan's digest and what it changes.
	ConditionPlanned = "Planned"
	// ConditionProgressing reports whether the rollout goes on by itself; if not, its
	// message says what it waits for.
	ConditionProgressing = "Progressing"
)

// A RolloutSelect selects rollouts.
type RolloutSelect struct {
	IDs      []string // patterns: all must match
	Metadata map[string]string
}

// A RolloutCommand is what a user does with a rollout.
type RolloutCommand struct {
	ID   RolloutID
	Verb string // plan, start, approve, pause, resume, cancel, undo, skip, waive
	// Plan is the digest of the plan that the user has reviewed, or at least 12 of its
	// first characters: of start, and of approve and resume if a new plan was made.
	Plan        string
	SkipBlocked bool         // of start: leave out rows in conflict or invalid
	Blind       bool         // of start: take deployments for healthy whose sites report no health
	Force       bool         // of undo: undo what others changed since, too
	AnyTime     bool         // of undo: change deployments outside of the windows, too
	Deployment  DeploymentID // of skip and waive; "": all that can be
	Unstarted   bool         // of cancel: ErrConflict if the rollout was started
	Wave        string       // of approve: name of the wave; "": the next one, ErrConflict while an approved one is in progress
	Emergency   bool         // of approve: without the ticket that the wave waits for; needs a right of its own, and a reason
	Metric      string       // of waive: the metric that doesn't count any more, in place of deployments
}

// RolloutVerbs are the commands.
func RolloutVerbs() []string {
	return []string{"plan", "start", "approve", "pause", "resume", "cancel", "undo", "skip", "waive"}
}

// A RolloutStatus is how far a rollout is.
type RolloutStatus struct {
	ID       RolloutID
	State    string
	Reason   string
	Plan     string // digest of the current plan, or ""
	Position int64
	Undoes   RolloutID // that this one undoes
	UndoneBy RolloutID // that undoes this one
	Started  time.Time
	Now      time.Time      // time of the database
	Kinds    map[string]int // rows of the plan by kind
	Waves    []RolloutWave
	Failures int
	// Failing are the rows that are unhealthy after their change, or couldn't be applied, and
	// that didn't fail yet: they count against the budget until they recover.
	Failing int
	// FirstFailure is when the first row failed or became unhealthy, of those that didn't
	// recover; zero if none did. Touched are the sites that were changed after it.
	FirstFailure time.Time
	Touched      int
	Blocks       []string // what the rows that wait wait for
	Examples     []RolloutRow
	// Until is when the rollout is expected to end, estimated from its progress; zero
	// if it isn't known.
	Until time.Time
	// Commands are those that the state allows and that would change something, sorted
	// as a rollout goes on. Rights are not considered.
	Commands []string
}

// A RolloutWave counts the deployments of a wave by progress.
type RolloutWave struct {
	Name     string         `json:"name"`
	Rows     int            `json:"deployments"`
	Approval string         `json:"approval,omitempty"` // "", Required, or who approved it
	Progress map[string]int `json:"progress"`           // such as Waiting, Applied, Soaking, Healthy, Failed
}

// A RolloutRow is the plan for one deployment, and its progress.
type RolloutRow struct {
	Deployment DeploymentID
	Site       SiteID
	Kind       string // Change, Create, Delete, Same, Conflict, Invalid
	Wave       int    // -1: not applied
	Rank       int
	Revision   int64 // that the plan was made of; 0: absent
	Group      int
	Findings   []string
	Unknown    []string
	Progress   string
	Reason     string
	Since      time.Time
	Applied    int64           // the revision that the rollout wrote; 0: none
	Staging    string          // how far the pull of its images is, in words; "": nothing is pulled
	Changes    []RolloutChange // of the package, on request
}

// Why returns why the row has its progress, or why it can't be applied; "" if there is
// nothing to tell.
func (r RolloutRow) Why() string {
	return cmp.Or(r.Reason, strings.Join(r.Findings, "; "))
}

// A RolloutRows selects rows of the current plan of a rollout.
type RolloutRows struct {
	ID         RolloutID
	Deployment DeploymentID // "": any
	Site       string       // pattern; "": any
	Kinds      []string
	Progress   []string
	Group      *int // index of a group of the plan; nil: any
	After      DeploymentID
	Limit      int
	Changes    bool // read the changes of the packages, of at most 100 rows
}

// A RolloutPlan is a summary of the current plan of a rollout.
type RolloutPlan struct {
	ID     RolloutID
	Digest string
	State  string
	Kinds  map[string]int
	Waves  []RolloutWave
	Groups []RolloutGroup
	// Warnings are what a reviewer should know of the plan, in words.
	Warnings []string
	// Unreported are the rows that change deployments at sites that report no health.
	Unreported int
	// Images are what spec.stage lists: images, which are pulled before the change, and charts;
	// the most frequent ones.
	Images []RolloutImage
}

// A RolloutImage is an image or a chart that deployments need after a rollout and not before.
type RolloutImage struct {
	Reference string `json:"reference"`
	Kind      string `json:"kind"` // image or chart
	Sites     int    `json:"sites"`
}

// A RolloutGroup is a set of rows with equal changes.
type RolloutGroup struct {
	Kind     string          `json:"kind"`
	Count    int             `json:"count"`
	Examples []DeploymentID  `json:"examples"`
	Changes  []RolloutChange `json:"changes"`
	More     int             `json:"more,omitempty"`
	Coarse   bool            `json:"coarse,omitempty"`
	Distinct int             `json:"distinct,omitempty"`
	// Templates are those of upgrades, as "FROM → TO", at most 5.
	Templates []string `json:"templates,omitempty"`
}

// A RolloutChange is a change of one field, for display.
type RolloutChange struct {
	Resource string `json:"resource"`
	Path     string `json:"path"`
	Before   string `json:"before"`
	After    string `json:"after"`
}

// A RolloutMeasurement is a measurement of a metric, which the rollout controller makes. It
// reports it with the values.
type RolloutMeasurement struct {
	Rollout RolloutID
	Metric  string // of spec.health.metrics
	Plan    string // digest
	Wave    string // whose sites are measured
	Asked   time.Time
	URL     string // of the Prometheus server
	// Token and Password are references.
	Token, Username, Password string
	Timeout                   time.Duration // of a query
	Changed                   RolloutQuery
	Compared                  RolloutQuery
	Text                      string // what is special; "" if nothing is
}

// A RolloutQuery is one query of a measurement, and its value.
type RolloutQuery struct {
	Query  string    // PromQL; "": none is to be made
	Count  int       // sites that it is about
	Sites  []SiteID  // the first of them
	At     time.Time // as of which; zero: now
	Value  *float64  // nil: there is none
	Reason string    // why there is none; for users
}

// A RolloutTicket is what the rollout controller does at a ticket system, which approves a
// wave. It reports it with what the system responds.
type RolloutTicket struct {
	Rollout  RolloutID
	Key      string // identifies the ticket: the same each time that it is asked for
	System   string // name
	Action   string // ask, read or tell; call: the system reports by itself
	Ticket   string // ID at the system; "": not known
	Document []byte // JSON of what is asked or told
	Result   string // to tell: Done, Undone, Cancelled or Superseded

	// The others are what the system responds.
	Number   string // of the ticket, for people
	Plan     string // digest of the plan that the decision is about
	Decision string // Approved, Denied or "": not decided
	Who      string // decided
	Until    time.Time
	Text     string // state of the ticket
	Failure  string // why the action failed; "": it didn't
}

// The states of a SiteStaging.
const (
	StagingPulling = "Pulling"
	StagingPulled  = "Pulled"
	StagingFailed  = "Failed"
	StagingEnding  = "Ending" // it isn't wanted any more: what is at the site is to be removed
	StagingEnded   = "Ended"  // it was removed
)

// A SiteStaging is a pull of images at a site, which a rollout wants before it changes
// deployments there. The meta-scheduler reports it with State and Text.
type SiteStaging struct {
	Site    SiteID
	Rollout RolloutID
	Key     string   // identifies the pull: lower-case hexadecimal digits
	Images  []string // references
	// Namespace is that of the pull; "": that of the inventories of the site's Cluster.
	Namespace   string
	PullSecrets []string // names of Secrets in the namespace
	EveryNode   bool     // each node pulls; false: any one does
	Until       time.Time
	// Over is true for a pull that isn't wanted any more, such as of a rollout that was cancelled:
	// what is left of it at the site is to be removed.
	Over bool

	State string // StagingPulling, StagingPulled or StagingFailed; StagingEnding or StagingEnded if Over
	Text  string // how far it is, or why it failed
}

// RolloutEvidence is a measurement that a rollout was decided by, a decision about a metric, or
// what became of a ticket.
type RolloutEvidence struct {
	Number   int64 // counts from 1
	Time     time.Time
	Plan     string // digest
	Wave     string
	Metric   string
	Query    string // as it is in the rollout
	Changed  RolloutQuery
	Compared RolloutQuery
	Outcome  string // Good, Bad, NoData or Waived; of a ticket: Asked, Approved, Denied, Refused, Failed, Told or Emergency
	Text     string // in words
	System   string // ticket system; "": it is about a metric
	Ticket   string // number or ID of the ticket
	Who      string // who decided about the ticket, as the system says
}

// A RolloutEvidenceSelect selects evidence of a rollout, the oldest first.
type RolloutEvidenceSelect struct {
	ID    RolloutID
	After int64 // number; 0: from the oldest that is kept
	Limit int   // 0: all
}
