package tko

import (
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko/krm"
)

// A Kind is one of the kinds of entities.
type Kind string

// The kinds of entities.
const (
	KindTemplate   Kind = "template"
	KindSite       Kind = "site"
	KindDeployment Kind = "deployment"
	KindPlugin     Kind = "plugin"
)

type (
	// TemplateID names a template. See [CheckID] for its alphabet.
	TemplateID string
	// SiteID names a site. See [CheckID] for its alphabet.
	SiteID string
	// DeploymentID names a deployment: 27 characters, made by TKO, sorting in
	// the order of creation.
	DeploymentID string
)

// A Stamp is what TKO keeps about an entity beyond what its user wrote.
type Stamp struct {
	UID        string    // a UUID that stays
	Revision   int64     // counts the changes of this entity, from 1; conditions don't count
	Position   int64     // of its newest change in the change log, conditions included
	Created    time.Time // UTC
	Updated    time.Time // UTC
	Author               // of the newest revision
	Conditions []Condition
	// Steps are the steps of the preparation that led to the revision: only in
	// answers to a request for a revision by its number. See [BoundSteps].
	Steps   []PreparationStep
	LeftOut []string // rows of lists: what the server cut, because it would not fit: see [LeftOutMetadata]
}

// What may be cut in rows of lists (see [Stamp.LeftOut]).
const (
	LeftOutDeployments = "deploymentIds"
	LeftOutConditions  = "conditions"
	LeftOutMetadata    = "metadata"
)

// An Author says who made a change, and why. Either may be empty.
type Author struct {
	Who string
	Why string
}

// A Template is what deployments are made from. Its package may lack what is
// required, but what is there is valid.
type Template struct {
	ID          TemplateID
	Metadata    map[string]string
	Package     krm.Package
	Deployments []DeploymentID // made from it, sorted; read only
	// DeploymentCount is how many are made from it: only in lists that were
	// asked for it. Read only.
	DeploymentCount int
	Stamp           Stamp // read only
}

// A Site is where deployments run. Its package is completely valid.
type Site struct {
	ID          SiteID
	Template    TemplateID // that it is based on, or ""
	Metadata    map[string]string
	Package     krm.Package
	Deployments []DeploymentID // at it, sorted; read only
	// DeploymentCount is how many are there: only in lists that were asked for
	// it. Read only.
	DeploymentCount int
	Stamp           Stamp // read only
}

// A Deployment is a package that should run at a site, or a topology whose
// preparation creates such deployments as its children.
type Deployment struct {
	ID       DeploymentID
	Parent   DeploymentID // or ""
	Template TemplateID   // or ""
	Site     SiteID       // or ""
	Metadata map[string]string
	Prepared bool
	Approved bool
	Origin   string // of a child: what [NewChild] called it; read only
	// Replaces are siblings that this deployment replaces once it is prepared
	// and approved: until then they stay, and then they go in the same
	// transaction. Read only.
	Replaces []DeploymentID
	// TemplateRevision is the revision of the template that the deployment was
	// made from; 0 if there is no template, or it was not recorded. Read only.
	TemplateRevision int64
	Package          krm.Package
	Stamp            Stamp // read only
}

// NewDeployment is what a deployment is created from.
type NewDeployment struct {
	Parent   DeploymentID
	Template TemplateID
	Site     SiteID
	Metadata map[string]string // stays and wins over what template and package say
	Prepared bool              // the package is complete, and validated so
	Approved bool
	Merge    krm.Package // merged into the template's package
}

// NewChildren are children of one deployment, all made with the same merge
// package and created together or not at all.
type NewChildren struct {
	Parent   DeploymentID
	Revision int64 // the parent must be at it, if not 0
	Merge    krm.Package
	Children []NewChild
}

// NewChild is one of them.
type NewChild struct {
	Origin   string // names this child for ever, among all of its parent's; at most 200 characters
	Template TemplateID
	Site     SiteID
	// Replaces are siblings at the same site that the child replaces: see
	// [Deployment]. A child that replaces others begins unprepared and
	// unapproved.
	Replaces []DeploymentID
}

// NewSite is a site to be registered under a generated ID.
type NewSite struct {
	Origin   string // the same origin is the same site; at most 200 characters
	Template TemplateID
	Metadata map[string]string
	Package  krm.Package
}

// DeploymentCommit replaces a deployment's package if it is still at Revision.
type DeploymentCommit struct {
	ID         DeploymentID
	Revision   int64
	Package    krm.Package
	Conditions []Condition
	Steps      []PreparationStep // see [BoundSteps]
}

// A Modification is the right to write a deployment, for a while.
type Modification struct {
	Token      string
	Deployment DeploymentID
	Package    krm.Package
	Expires    time.Time
}

// An OpenModification is a modification token that is good, as others than its
// holder may see it.
type OpenModification struct {
	Deployment DeploymentID
	Started    time.Time // zero if it is not known
	Expires    time.Time
	Author     Author // started it
}

// Deleted says how many entities went, or would go.
type Deleted struct {
	Count       int // all, descendants included
	Descendants int // of those selected
}

// A Condition is something that is known about a site, deployment or plugin, in
// Kubernetes' form.
type Condition struct {
	Type             string // ConditionPrepared and so on
	Status           string // ConditionTrue, ConditionFalse, ConditionUnknown
	Reason           string // CamelCase
	Message          string
	LastTransition   time.Time // when Status changed; set by the catalog
	ObservedRevision int64

	// Attempt is the number of the failed attempt that the condition reports, from
	// 1; 0 if it reports none.
	Attempt int `json:",omitempty"`
	// NextTry is when the next attempt starts at the latest; zero if only a change
	// of the entity starts one.
	NextTry time.Time `json:",omitzero"`

	// Attached is what a transport keeps with the condition, as JSON; empty for
	// all others. It goes when somebody else writes the condition.
	Attached string `json:",omitempty"`
}

// The types of conditions.
const (
	ConditionPrepared  = "Prepared"
	ConditionApproved  = "Approved"
	ConditionScheduled = "Scheduled"
	ConditionHealthy   = "Healthy"
	ConditionDeleting  = "Deleting" // only while a deletion is under way, or was interrupted
	// ConditionPlaced says whether the children of a deployment are as its
	// placements say. Deployments whose placements are evaluated again have it.
	ConditionPlaced = "Placed"
	// ConditionHandled says whether plugins are registered for the resources of a
	// prepared deployment that are for plugins. Only deployments have it of which
	// one was not.
	ConditionHandled = "Handled"
	// ConditionMatched says whether the selectors of a prepared deployment match
	// something. Only deployments have it of which one did not.
	ConditionMatched = "Matched"
	// ConditionRunnable says whether a plugin's program is where it runs. Only
	// plugins have it whose program was missing.
	ConditionRunnable = "Runnable"
	// ConditionCleanedUp says what became of what a site ran where its package
	// no longer says that it is. Only sites have it that have left something.
	ConditionCleanedUp = "CleanedUp"
)

// Reasons of the Placed condition that ask for, and give, an approval.
const (
	ReasonChangeProposed = "WaitsForApproval" // its message says what would be done
	ReasonChangeApproved = "ChangeApproved"   // and will be done, if nothing else is wanted by then
)

// ReasonApprovalWithdrawn is the reason of an Approved condition that is False
// because the deployment has changed since it was approved. Its site keeps what
// was approved until it is approved again.
const ReasonApprovalWithdrawn = "ChangedSinceApproval"

// Reasons of the Scheduled condition of deployments that are nowhere.
const (
	ReasonUnscheduled = "Unscheduled" // it was scheduled, and was taken away
	ReasonSiteDeleted = "SiteDeleted" // it was left where it was
)

// The values of a condition's status.
const (
	ConditionTrue    = "True"
	ConditionFalse   = "False"
	ConditionUnknown = "Unknown"
)

// An Op is what a change did.
type Op string

// What changes do.
const (
	OpWritten Op = "written" // a new revision
	OpDeleted Op = "deleted"
	OpStatus  Op = "status" // conditions only
)

// A Change is an entry of the change log.
type Change struct {
	Position int64
	Kind     Kind
	ID       string // "type|name" for plugins
	Op       Op
	Revision int64
	Time     time.Time
	Author   Author
}

// About is what a server says of itself.
type About struct {
	InstanceName         string
	InstanceDescription  string
	Version              string
	Backend              string
	AddressPorts         []string
	DefaultPackageFormat krm.Format
	Position             int64 // of the newest change
}

func (a Author) String() string {
	if a.Why == "" {
		return a.Who
	}
	return fmt.Sprintf("%s (%s)", a.Who, a.Why)
}
