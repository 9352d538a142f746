package planner

import (
	"context"
	"encoding/binary"
	"iter"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// A Snapshot is the state of all entities at one position. All reads see the same
// state, however long planning takes and whatever is written meanwhile. A method
// returns tko.ErrGone if the store no longer retains what it needs. Changed may be called
// concurrently.
type Snapshot interface {
	Records
	Inventory
	Rules
}

// Records reads deployments and templates. Packages are shared and must not be changed.
type Records interface {
	// Deployments returns the deployments that match, with their packages, sorted by
	// ID.
	Deployments(ctx context.Context, sel tko.DeploymentSelect) iter.Seq2[Deployment, error]
	// Children returns the children of a deployment, without packages, sorted by ID.
	Children(ctx context.Context, parent tko.DeploymentID) iter.Seq2[tko.Deployment, error]
	// Deployment returns a deployment with its package as of a revision; 0 is that of
	// the snapshot. It returns tko.ErrNotFound if it doesn't exist, or if the revision
	// is no longer retained.
	Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (Deployment, error)
	// Current returns those of the deployments that exist now, which may be after the
	// snapshot, with their packages, in no order.
	Current(ctx context.Context, ids []tko.DeploymentID) ([]Deployment, error)
	// Template returns a template with its package. Errors are as Deployment's.
	Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error)
	// Derivation returns what the package of a deployment was made from; ok is false if
	// that wasn't recorded.
	Derivation(ctx context.Context, d Deployment) (r derivation.Record, ok bool)
}

// Inventory lists what topologies refer to.
type Inventory interface {
	// Templates returns the templates that match, without packages, sorted by ID.
	Templates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions) iter.Seq2[tko.Template, error]
	// Sites returns the sites that match, without packages, sorted by ID.
	Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error]
	// Plugins returns the plugins that match, sorted by type and name.
	Plugins(ctx context.Context, sel tko.PluginSelect, options tko.ListOptions) iter.Seq2[tko.Plugin, error]
	// ReservedOrigins returns the origins of the children of a deployment that rollouts
	// deleted and can create again, with the rollouts.
	ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error)
}

// Rules derive and validate deployments as they would be stored.
type Rules interface {
	// Types returns how the resources that templates define merge.
	Types(ctx context.Context) (merge.Types, error)
	// Changed returns a deployment with another package. A package that is invalid is a
	// tko.ErrInvalid.
	Changed(ctx context.Context, d Deployment, change Change) (Deployment, error)
	// Created returns a new child, made from a template, as CreateChildren would store
	// it.
	Created(ctx context.Context, template tko.Template, request tko.NewChildren, child tko.NewChild) (Deployment, error)
	Manifests
}

// Manifests finds and makes the deployments that sources declare.
type Manifests interface {
	// Named returns the ID of the deployment with an origin; "" if there is none.
	Named(ctx context.Context, origin string) (tko.DeploymentID, error)
	// Declared returns a new deployment, made from a template, as PutEntity would store
	// it. template is zero if it has none.
	Declared(ctx context.Context, template tko.Template, m spec.Manifest) (Deployment, error)
}

// A Deployment is a deployment with the digest of its stored package.
type Deployment struct {
	tko.Deployment
	Content plan.Digest // of the package without the state in its Deployment resource
	Encoded []byte      // the stored encoding of that package; nil if there is none
	// Derived is the digest of what the package was made from, zero if that wasn't
	// recorded. Equal ones have equal derivations.
	Derived    plan.Digest
	Derivation []byte // of a planned one: the encoded record
	Handle     any    // of the snapshot that returned it
}

// A Change is a new package of a deployment. The Deployment resource in it has the
// deployment's template, site and state.
type Change struct {
	Package krm.Package
	// From, if not nil, is the template that the package is made from now: the
	// deployment gets its metadata and revision.
	From *tko.Template
	// Derivation, if not nil, is what the package was made from.
	Derivation *derivation.Record
	// Manifest, if not nil, has the metadata of the deployment.
	Manifest *spec.Manifest
}

// A hasher collects values of known lengths, so that different values have different
// bytes.
type hasher struct{ sum []byte }

func (h *hasher) number(n int64) {
	h.sum = binary.BigEndian.AppendUint64(h.sum, uint64(n)) //nolint:gosec // bits are kept
}

func (h *hasher) text(s string) {
	h.number(int64(len(s)))
	h.sum = append(h.sum, s...)
}
