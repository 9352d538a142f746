package tko

import (
	"time"

	"github.com/tko-orchestrator/tko/krm"
)

// A BlameRequest asks where the values of an entity's package come from.
type BlameRequest struct {
	Kind     Kind // template, site or deployment
	ID       string
	Revision int64  // 0: the current one
	Field    string // a resource, as [krm.Identity] writes it, or a resource and a path; "": the whole package
	History  bool   // of the field, all its values; Field is required
}

// A Blame says for each field of a package where its value comes from. Values of Secrets
// aren't in it.
type Blame struct {
	Kind     Kind
	ID       string
	Revision int64
	Origins  []Origin      // each once
	Fields   []BlamedField // in the order of the package
	Changes  []FieldChange // of a request for a history, newest first
}

// The sources of values.
const (
	SourceCreation    = "creation"    // the request that created the entity
	SourceEdit        = "edit"        // a change by a user or another client
	SourceTemplate    = "template"    // a template
	SourceMerge       = "merge"       // what was merged into the template at the creation
	SourcePreparation = "preparation" // a plugin, or TKO's own preparation
	SourceRollout     = "rollout"     // an edit of a rollout
	SourceUnknown     = "unknown"     // not known: earlier revisions are no longer retained, or not visible
)

// An Origin says which change gave a value.
type Origin struct {
	Source   string
	Revision int64 // of the entity, that set the value
	Time     time.Time
	Author   Author // of the revision

	Template         TemplateID // of SourceTemplate
	TemplateRevision int64

	Resource       string // of SourcePreparation: the prepared resource; "" if several were prepared together
	Plugin         string // of SourcePreparation: "" if TKO prepares the resource itself
	PluginRevision int64  // 0: not recorded

	Rollout    RolloutID // that wrote the revision
	RestoredBy RolloutID // an undo, that restored the revision
	RestoredAt int64     // the revision that it wrote

	// Collected is true if the value was set at or before the revision: earlier
	// revisions are no longer retained, or not visible.
	Collected bool
}

// A BlamedField is a field with its origin.
type BlamedField struct {
	Resource string // as [krm.Identity] writes it
	Path     string // for example spec.containers[name=smf].image
	Value    string // JSON; long values are cut
	Hidden   bool   // the value is confidential
	Origin   int    // index in the origins
}

// A FieldChange is a change of one field.
type FieldChange struct {
	Resource string
	Path     string
	Before   string // JSON; "" if the field was missing
	After    string // JSON; "" if the field is missing
	Hidden   bool   // the values are confidential
	Origin   Origin
	Upstream []Origin // of a value from a template: where the template has it from
}

// A SiteExplanationRequest asks why placements select a site or not: those of a
// deployment, or those of a template.
type SiteExplanationRequest struct {
	Site       SiteID
	Deployment DeploymentID
	Template   TemplateID
}

// A SiteExplanation says for each placement whether it selects a site.
type SiteExplanation struct {
	Site       SiteID
	Placements []PlacementExplanation
}

// A PlacementExplanation says whether one selection of a placement selects a site.
type PlacementExplanation struct {
	Placement   string // the resource
	Template    string // name of the Template resource
	Sites       string // the resource that selects sites
	Selected    bool
	Unmet       []UnmetCondition // the smallest set: the site would be selected if all of them were met
	Deployments []DeploymentID   // children at the site
	Note        string           // what else users should know
}

// An UnmetCondition is a condition that a site doesn't meet.
type UnmetCondition struct {
	Field   string // for example metadata.region
	Present bool   // the site has the field
	Value   string // of the site
	Wanted  string // a pattern, an ID, or words
}

// A TemplateImpactRequest asks what depends on a template.
type TemplateImpactRequest struct {
	Template TemplateID
	Package  krm.Package // if not nil, what the template would be replaced by
}

// A TemplateImpact says what depends on a template, and, with a package, what upgrades
// of its deployments to that package would change.
type TemplateImpact struct {
	Template        TemplateID       `json:"template"`
	Revision        int64            `json:"revision"`
	Deployments     int              `json:"deployments"`
	DeploymentSites int              `json:"deploymentSites"` // with deployments of it
	Sites           int              `json:"sites"`           // that are based on the template
	Revisions       []ImpactRevision `json:"revisions"`
	Topologies      []ImpactTopology `json:"topologies"`
	Rollouts        []ImpactRollout  `json:"rollouts"`
	Groups          []ImpactGroup    `json:"groups"`  // with a package
	Same            int              `json:"same"`    // with a package: deployments that wouldn't change
	Unknown         int              `json:"unknown"` // with a package: deployments for which it isn't known
	More            bool             `json:"more"`    // some lists are cut
}

// An ImpactRevision is the number of deployments of a revision of a template.
type ImpactRevision struct {
	Revision    int64 `json:"revision"` // 0: not recorded
	Deployments int   `json:"deployments"`
}

// An ImpactTopology is a Template resource that names or selects the template.
type ImpactTopology struct {
	Kind     Kind   `json:"kind"`
	ID       string `json:"id"`
	Resource string `json:"resource"`
	Selects  bool   `json:"selects"` // by metadata
}

// An ImpactRollout is a rollout in progress that upgrades to the template, or that
// changes its deployments.
type ImpactRollout struct {
	ID    RolloutID `json:"id"`
	State string    `json:"state"`
}

// An ImpactGroup is a set of deployments with equal changes.
type ImpactGroup struct {
	Kind        string          `json:"kind"` // Change, Create, Delete, Conflict, Invalid
	Deployments int             `json:"deployments"`
	Examples    []DeploymentID  `json:"examples"`
	Changes     []RolloutChange `json:"changes"`
	MoreChanges int             `json:"moreChanges"` // that Changes leaves out
	Conflicts   []string        `json:"conflicts"`   // of the first example: what blocks an upgrade
}
