package tko

import (
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko/krm"
)

// A Kind is a kind of entity.
type Kind string

// The kinds of entities.
const (
	KindTemplate   Kind = "template"
	KindSite       Kind = "site"
	KindDeployment Kind = "deployment"
	KindPlugin     Kind = "plugin"
)

type (
	// A TemplateID is the ID of a template. See [CheckID] for its alphabet.
	TemplateID string
	// A SiteID is the ID of a site. See [CheckID] for its alphabet.
	SiteID string
	// A DeploymentID is the ID of a deployment: 27 characters. TKO generates
	// it; IDs sort in the order of creation.
	DeploymentID string
)

// A Stamp is the data that TKO records about an entity in addition to what its user
// wrote.
type Stamp struct {
	UID        string    // a UUID that never changes
	Revision   int64     // number of changes to this entity, from 1; changes of conditions don't count
	Position   int64     // of its newest change in the change log, including changes of conditions
	Created    time.Time // UTC
	Updated    time.Time // UTC
	Author               // of the newest revision
	Conditions []Condition
	// Steps are the steps of the preparation that led to the revision. Only a read
	// of one revision by its number returns them. See [BoundSteps].
	Steps   []PreparationStep
	LeftOut []string // parts of a row of a list that the server cut to make it fit: see [LeftOutMetadata]
}

// The parts of a row of a list that the server may cut (see [Stamp.LeftOut]).
const (
	LeftOutDeployments = "deploymentIds"
	LeftOutConditions  = "conditions"
	LeftOutMetadata    = "metadata"
)

// An Author is the author of a change and the reason for it. Either may be
// empty.
type Author struct {
	Who string
	Why string
}

// The tags of the fields of entities say what rows and manifests call them: see package
// internal/field. Fields that users write are "written": manifests have them. That of the ID
// is the "identity", of which the name of a manifest is made. Rows lack fields with "omitempty"
// that aren't set.

// Details are what users write about a template or a site for other readers: TKO doesn't act on
// them. Each is a text. A field that is added here is in all forms of templates and sites, from
// the store to manifests, all APIs and both dashboards.
type Details struct {
	Description string `json:",omitempty" tko:"description,written,omitempty" help:"what it is for, in plain text of at most 1 KiB"` // what it is for, in plain text of at most 1 KiB
}

// A Template is the package that deployments are made from. The package may
// lack required fields, but the fields that it has are valid.
type Template struct {
	ID TemplateID `tko:"templateId,written,identity"`
	Details
	Metadata    map[string]string `tko:"metadata,written"`
	Package     krm.Package       `tko:"package,written"`
	Deployments []DeploymentID    `tko:"deploymentIds"` // that were made from it, sorted; read only
	// DeploymentCount is the number of deployments made from it. Lists have it
	// only on request. Read only.
	DeploymentCount int
	Stamp           Stamp // read only
}

// A Site is a place where deployments run. Its package is completely valid, unless the site
// waits for its first template.
type Site struct {
	ID SiteID `tko:"siteId,written,identity"`
	Details
	Template    TemplateID        `tko:"templateId,written"` // that the site is based on, or ""
	Metadata    map[string]string `tko:"metadata,written"`
	Package     krm.Package       `tko:"package,written"`
	Deployments []DeploymentID    `tko:"deploymentIds"` // at it, sorted; read only
	// DeploymentCount is the number of deployments at it. Lists have it only on
	// request. Read only.
	DeploymentCount int
	// AwaitedTemplate is the template that the site names and that doesn't exist yet, or that
	// its owner may not see. Read only.
	AwaitedTemplate TemplateID `json:",omitempty" tko:"awaitedTemplateId,omitempty"`
	Stamp           Stamp      // read only
}

// A Deployment is a package that should run at a site, or a topology whose
// preparation creates such deployments as its children.
type Deployment struct {
	ID       DeploymentID      `tko:"deploymentId"`
	Parent   DeploymentID      `tko:"parentDeploymentId,written"` // or ""
	Template TemplateID        `tko:"templateId,written"`         // or ""
	Site     SiteID            `tko:"siteId,written"`             // or ""
	Metadata map[string]string `tko:"metadata,written"`
	Prepared bool              `tko:"prepared"`
	Approved bool              `tko:"approved"`
	Origin   string            `tko:"origin,omitempty"` // of a child: the [NewChild] origin that it was created with; read only
	// Replaces are siblings that this deployment replaces. They are deleted in
	// the transaction that makes it both prepared and approved. Read only.
	Replaces []DeploymentID `tko:"replaces,omitempty"`
	// Replaced are siblings at the same site that this deployment has replaced, the newest
	// first. Their objects stay at the site until those of this deployment are healthy. Read
	// only.
	Replaced []DeploymentID `json:",omitempty" tko:"replaced,omitempty"`
	// TemplateRevision is the revision of the template that the deployment was
	// made from; 0 if it has no template, or if the revision was not recorded.
	// Read only.
	TemplateRevision int64 `tko:"templateRevision,omitempty"`
	// AwaitedTemplate and AwaitedSite are those that the deployment names and that don't exist
	// yet, or that its owner may not see. Read only.
	AwaitedTemplate TemplateID  `json:",omitempty" tko:"awaitedTemplateId,omitempty"`
	AwaitedSite     SiteID      `json:",omitempty" tko:"awaitedSiteId,omitempty"`
	Package         krm.Package `tko:"package,written"`
	Stamp           Stamp       // read only
}

// A NewDeployment is a request to create a deployment.
type NewDeployment struct {
	Parent   DeploymentID
	Template TemplateID
	Site     SiteID
	Metadata map[string]string // overrides the metadata of template and package, also later
	Prepared bool              // the package is complete, and is validated completely
	Approved bool
	Merge    krm.Package // merged into the template's package
}

// NewChildren is a request to create children of one deployment, all with the
// same merge package, and all of them or none.
type NewChildren struct {
	Parent   DeploymentID
	Revision int64 // required revision of the parent; 0: any
	Merge    krm.Package
	Children []NewChild
	// Of a request without children: the numbers of deployments that the parent is about
	// to create and remove. Nothing is written; the request fails if they need consent.
	Create, Remove int
	// Sites is the number of sites at which the removals, and new children that replace others,
	// change what runs. If a rollout must make these changes, the request fails with an error for
	// which [NeedsRollout] is true.
	Sites int
}

// A NewChild is one child of a [NewChildren] request.
type NewChild struct {
	Origin   string // identifies this child permanently among the children of its parent; at most 200 bytes
	Template TemplateID
	Site     SiteID
	// Replaces are siblings at the same site that the child replaces: see
	// [Deployment]. A child that replaces others is created neither prepared
	// nor approved.
	Replaces []DeploymentID
}

// A NewSite is a request to register a site with a generated ID.
type NewSite struct {
	Origin   string // identifies the site permanently: a second request with it returns the same site; at most 200 bytes
	Template TemplateID
	Details
	Metadata map[string]string
	Package  krm.Package
}

// A DeploymentCommit replaces the package of a deployment that is still at
// Revision.
type DeploymentCommit struct {
	ID         DeploymentID
	Revision   int64
	Package    krm.Package
	Conditions []Condition
	Steps      []PreparationStep // see [BoundSteps]
	Why        string            // the reason of the change, instead of the context's author's
	Cause      string            // of the work that the commit is a result of, instead of the context's
}

// A Modification is the exclusive right to write a deployment until it expires.
type Modification struct {
	Token      string
	Deployment DeploymentID
	Package    krm.Package
	Expires    time.Time
}

// An OpenModification is a valid modification token as clients other than its
// holder may see it.
type OpenModification struct {
	Deployment DeploymentID
	Started    time.Time // zero if it was not recorded
	Expires    time.Time
	Author     Author // the author who started it
}

// A Put is the desired state of a whole entity. Passed metadata that the entity
// has and that the Put doesn't list is removed.
type Put struct {
	Kind     Kind
	ID       string // "type|name" for plugins; "" for a deployment that is identified by its origin
	Parent   DeploymentID
	Template TemplateID
	Site     SiteID
	Details  // templates, sites
	Metadata map[string]string
	Package  krm.Package // of a new deployment: merged into the template's package
	Plugin   Plugin
	// Origin identifies a deployment permanently, in place of its ID: there is
	// one deployment for each origin. At most 200 bytes.
	Origin string
	// Name identifies a deployment in place of its ID and origin: it is its name in
	// the Kubernetes API. A deployment that exists is not changed.
	Name   string
	DryRun bool // derive and validate, without writing
	// FromTemplate states that the package of an existing deployment was made
	// from the current revision of its template.
	FromTemplate bool
	// Revision, if not 0, is the revision that the entity must be at: otherwise
	// nothing is changed, and the error is an [ErrConflict].
	Revision int64
	// Manager, if not "", is who applies the entity: metadata, the template and resources that
	// the Put doesn't name stay, except for those that an earlier Put of the same manager
	// named. Without one, they are removed. Not for deployments.
	Manager string `json:",omitempty"`
	// RemoveMetadata are keys of metadata from a template or a package that the
	// entity shall not have.
	RemoveMetadata []string
	// Defer accepts a template and a site of a deployment, and a template of a site, that don't
	// exist yet: the entity waits for them, as its condition ResolvedRefs reports.
	Defer bool `json:",omitempty"`
	// Whole states that the package of a site or a new deployment is the whole one, in
	// place of one that is merged into the template's.
	Whole bool `json:",omitempty"`
	// MadeFrom, of a deployment whose package was made from an earlier revision of its
	// template, is the digest of that revision: see [RevisionDigest]. If no retained revision
	// has it, the template revision is not recorded.
	MadeFrom string `json:",omitempty"`
	// Marks, if not nil, are set. Those that an earlier Put of the same manager, or without
	// one, named and that this one doesn't name are removed; others stay, and all stay if it is nil.
	Marks *Marks `json:",omitempty"`
}

// A PutResult is the result of a [Put].
type PutResult struct {
	ID       string
	Revision int64
	Created  bool
	Changed  bool // the Put changed the entity; with DryRun: would change it
	// Managed is true if the server knows managers. Changes then describe what changed, or with
	// DryRun would change, of an existing entity: removals, too.
	Managed bool
	Changes []string
	// ChangesTarget, with DryRun, is true if an existing site would have another target, and
	// deployments run there.
	ChangesTarget bool
}

// Deleted counts the entities that a request deleted; with dry run, those that
// it would delete.
type Deleted struct {
	Count       int // all, descendants included
	Descendants int // those that were not selected, but descend from selected ones
	Orphaned    int // entities that lost their template or site
}

// Reach returns the number of entities that the deletion affects, which is the one to
// confirm.
func (d Deleted) Reach() int { return d.Count + d.Orphaned }

// A Condition is an observation about a site, deployment or plugin, in the form
// of Kubernetes' conditions.
type Condition struct {
	Type             string // such as ConditionPrepared
	Status           string // ConditionTrue, ConditionFalse, ConditionUnknown
	Reason           string // CamelCase
	Message          string
	LastTransition   time.Time // when Status changed; set by the catalog
	ObservedRevision int64

	// Attempt is the number of the failed attempt that the condition reports, from
	// 1; 0 if it reports none.
	Attempt int `json:",omitempty"`
	// NextTry is the latest start of the next attempt; zero if only a change
	// of the entity starts one.
	NextTry time.Time `json:",omitzero"`

	// Attached is opaque JSON that the transport that wrote the condition
	// stores with it; empty for other writers. It is removed when another
	// writer replaces the condition.
	Attached string `json:",omitempty"`
}

// The types of conditions.
const (
	ConditionPrepared  = "Prepared"
	ConditionApproved  = "Approved"
	ConditionScheduled = "Scheduled"
	ConditionHealthy   = "Healthy"
	ConditionDeleting  = "Deleting" // only while a deletion is in progress, or after it was interrupted
	// ConditionPlaced reports whether the children of a deployment match its
	// placements. Only deployments whose placements are evaluated repeatedly
	// have it.
	ConditionPlaced = "Placed"
	// ConditionHandled reports whether a plugin is registered for each resource
	// of a prepared deployment that needs one. Only deployments for which one
	// was missing have it.
	ConditionHandled = "Handled"
	// ConditionResolvedRefs reports whether the template and the site that a deployment names
	// exist. Only deployments that waited for one have it.
	ConditionResolvedRefs = "ResolvedRefs"
	// ConditionKnownProperties reports whether CRDs of templates know all properties of the
	// package. Only sites and deployments with a property that none of them knows have it.
	ConditionKnownProperties = "KnownProperties"
	// ConditionDelivered reports whether all that is in the package of a deployment was
	// delivered to its site. Only deployments of which a part once wasn't have it.
	ConditionDelivered = "Delivered"
	// ConditionMatched reports whether the selectors of a prepared deployment
	// match. Only deployments with a selector that matched nothing have it.
	ConditionMatched = "Matched"
	// ConditionRunnable reports whether a plugin's program exists where it must
	// run. Only plugins whose program was missing have it.
	ConditionRunnable = "Runnable"
	// ConditionCleanedUp reports whether objects were removed from the clusters
	// and repositories that a site's package no longer names. Only sites whose
	// package once named such a target have it.
	ConditionCleanedUp = "CleanedUp"
	// ConditionRemovalsApproved reports whether the removals at a site are within their
	// budget, or approved. Only sites that once waited for an approval have it.
	ConditionRemovalsApproved = "RemovalsApproved"
)

// Reasons of the Scheduled and Healthy conditions that others than targets decide by.
const (
	ReasonNothingToSchedule = "NothingToSchedule" // no resource of the deployment is for its site
	ReasonHealthNotReported = "HealthNotReported" // no target of the site reports health
	ReasonNotAsked          = "NotAsked"          // a target has made no statement about the revision
	ReasonUnreachable       = "Unreachable"       // the site can't be reached
	ReasonDrifted           = "Drifted"           // another client changed an object, and TKO doesn't correct it
	ReasonWaitsForSharers   = "WaitsForSharers"   // other deployments want the former content of an object that they share
)

// Reasons of the Healthy condition of deployments that Flux or Argo CD applies.
const (
	ReasonNotYetApplied    = "NotYetApplied"    // the tool has not applied the revision
	ReasonSuperseded       = "Superseded"       // the tool applied content that another client committed
	ReasonPullSuspended    = "PullSuspended"    // the tool is suspended
	ReasonPullSilent       = "PullSilent"       // the tool has not reported for too long
	ReasonPullMissing      = "PullMissing"      // the object of the tool doesn't exist
	ReasonHealthNotChecked = "HealthNotChecked" // the tool reports only that it applied the objects
)

// Reasons of the ResolvedRefs condition; the first one also of Prepared.
const (
	ReasonWaitsForReferences = "WaitsForReferences" // the message names what doesn't exist yet
	ReasonResolved           = "Resolved"
)

// Reasons of the KnownProperties condition.
const (
	ReasonUnknownProperty = "UnknownProperty" // the message names the properties
	ReasonAllKnown        = "AllKnown"
)

// Reasons of the Delivered condition.
const (
	ReasonDeliveredPartly = "DeliveredPartly" // the message counts what was not delivered, and not run
	ReasonDelivered       = "Delivered"
)

// Reasons of the Placed condition for a change that needs an approval.
const (
	ReasonChangeProposed = "WaitsForApproval" // the message lists the proposed changes
	ReasonChangeApproved = "ChangeApproved"   // the changes are made, unless the placements propose others by then
)

// ReasonApprovalWithdrawn is the reason of an Approved condition that is False
// because the deployment has changed since it was approved. Its site keeps
// running the approved revision until the deployment is approved again.
const ReasonApprovalWithdrawn = "ChangedSinceApproval"

// Reasons of the Scheduled condition of deployments that no site manages.
const (
	ReasonNoScheduler = "NoScheduler" // no resource of the site's package triggers anything
	ReasonByAgent     = "ByAgent"     // the agent of the site applies it, and has not reported this revision; it never replaces a report
	ReasonTwoTargets  = "TwoTargets"  // the site has an agent, and another target
	ReasonUnscheduled = "Unscheduled" // it was scheduled, and then removed from its site
	ReasonSiteDeleted = "SiteDeleted" // its site was deleted; its objects were not removed
)

// The values of a condition's status.
const (
	ConditionTrue    = "True"
	ConditionFalse   = "False"
	ConditionUnknown = "Unknown"
)

// An Op is the kind of a change.
type Op string

// The kinds of changes.
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

// About describes a server.
type About struct {
	InstanceName         string
	InstanceDescription  string
	Version              string
	Backend              string
	AddressPorts         []string
	DefaultPackageFormat krm.Format
	Position             int64 // of the newest change
	Isolation            []IsolationLayer
	// Conditions report problems of the server, such as TLS files that can't be
	// reloaded.
	Conditions []Condition
	// Reach is what a source that doesn't exist yet may change without consent.
	Reach SourceReach
}

// A Caller is a client as the server has authenticated it.
type Caller struct {
	Subject       string    // with the prefix of its authenticator, such as oidc:corp:ann; or anonymous
	Groups        []string  // likewise
	Authenticator string    // certificate, oidc, kubernetes, token, unix, plugin, process or none
	Display       string    // for humans, such as an e-mail address
	From          string    // its address, as the server sees it
	Expires       time.Time // the end of its credentials; zero if they don't end
}

// An IsolationLayer is a restriction of the plugins that a server runs.
type IsolationLayer struct {
	Name   string // files, network, syscalls, processes or user
	State  string // LayerOn, LayerMissing or LayerOff
	Reason string // what enforces the layer, or why it is missing
}

// The states of an IsolationLayer.
const (
	LayerOn      = "on"
	LayerMissing = "missing" // this machine doesn't have it
	LayerOff     = "off"     // the operator turned it off
)

func (a Author) String() string {
	if a.Why == "" {
		return a.Who
	}
	return fmt.Sprintf("%s (%s)", a.Who, a.Why)
}
