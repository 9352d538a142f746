package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/sops"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/osm/osmops"
	"github.com/tko-orchestrator/tko/internal/prune"
)

// PreviewClient is the part of the data controller's API that a preview uses. Its
// writing methods are called with dry runs only.
type PreviewClient interface {
	plan.Client
	// Source returns a source, with its state; ErrNotFound if there is none.
	Source(ctx context.Context, name string) (tko.Source, error)
}

// PreviewOptions are the settings of the source that is previewed.
type PreviewOptions struct {
	Name  string // of the source, which needn't exist
	Path  string // folder of the manifests
	Prune bool
	Adopt bool
	// Budget limits removals; the default of the kind of source if nil.
	Budget   *prune.Budget
	addOnly  bool // the policy of catalogs
	editable []tko.Pattern
	grace    time.Duration
	// Keys decrypt files that are encrypted with SOPS; without keys, TKO's manifests
	// must be plain.
	Keys *sops.Keys
	// Connection, if not nil, reads the connection file of an OSM. If nil, no OSM is
	// compared.
	Connection func() ([]byte, error)
}

// A Preview lists the changes that a revision would make.
type Preview struct {
	Plan *plan.Plan
	OSM  *osm.Plan // nil if no OSM was compared
	New  bool      // the source doesn't exist yet
	// Unasked reports that the revision holds files for an OSM, which was not
	// compared because there is no connection file.
	Unasked bool
}

// PreviewFiles computes what files would change if they were a source's next
// revision. If files are invalid, the error is an ErrInvalid with a line for each
// problem, and the Preview holds only New. If an error occurs before the source
// was read, the Preview is nil.
func PreviewFiles(ctx context.Context, client PreviewClient, fsys fs.FS, o PreviewOptions) (*Preview, error) {
	source, err := client.Source(ctx, o.Name)
	if err != nil && !errors.Is(err, tko.ErrNotFound) {
		return nil, err
	}
	fsys = sops.FS(fsys, o.Keys, Others)
	p := &Preview{New: source.Version == 0}
	manifests, sources, err := manifest.ReadAll(fsys, o.Path)
	for _, s := range sources {
		s.Parent = o.Name
		err = errors.Join(err, CheckDefinition(s.SourceDefinition))
	}
	var repository *osmops.Repository
	if osmops.Holds(fsys) {
		var osmErr error
		if repository, osmErr = osmops.Read(fsys); osmErr == nil {
			osmErr = errors.Join(append(slices.Clone(repository.Unread), osm.Join(repository.Desired.Check()))...)
		}
		err = errors.Join(err, osmErr)
	}
	if err != nil {
		return p, err
	}
	if err := p.plan(ctx, client, manifests, source, o, false); err != nil {
		return p, err
	}
	for _, s := range sources {
		p.Plan.Messages = append(p.Plan.Messages, fmt.Sprintf("%s: declared, if the definition of source %q has allowSources; its entities aren't planned", s, o.Name))
	}
	if repository == nil {
		return p, nil
	}
	if p.Unasked = o.Connection == nil; p.Unasked {
		return p, nil
	}
	p.OSM, err = previewOSM(ctx, repository, source, o)
	return p, err
}

// PreviewInventory computes what an inventory would change now, under its settings. The
// error and the Preview are those of [PreviewFiles].
func PreviewInventory(ctx context.Context, client PreviewClient, spec Spec) (*Preview, error) {
	source, err := client.Source(ctx, spec.Name)
	if err != nil && !errors.Is(err, tko.ErrNotFound) {
		return nil, err
	}
	p := &Preview{New: source.Version == 0}
	revision, err := spec.Inventory.Revision(ctx)
	if err != nil {
		return p, err
	}
	manifests, notes, err := spec.Inventory.Manifests(revision)
	if err != nil {
		return p, err
	}
	r := reading{manifests: manifests, notes: notes}
	if spec.Prune && !spec.AddOnly {
		if _, _, r, err = confirm(ctx, spec.Inventory, source.Status.Items, revision, "", r); err != nil {
			return p, err
		}
	}
	if err := p.plan(ctx, client, r.manifests, source, PreviewOptions{Name: spec.Name, grace: graceOf(spec.Inventory), Prune: spec.Prune, Adopt: spec.Adopt, Budget: &spec.Budget, addOnly: spec.AddOnly, editable: spec.Editable}, true); err != nil {
		return p, err
	}
	p.Plan.Messages = slices.Concat(p.Plan.Messages, p.Plan.Invalid, r.notes)
	return p, nil
}

// plan sets the Plan, with its explanations.
func (p *Preview) plan(ctx context.Context, client PreviewClient, manifests []manifest.Manifest, source tko.Source, o PreviewOptions, careful bool) (err error) {
	policy := plan.Policy{Source: o.Name, Prune: o.Prune, Adopt: o.Adopt, Budget: prune.Default, Approve: source.Approved, Careful: careful && !o.addOnly, AddOnly: o.addOnly, Editable: o.editable, Origins: source.Status.Origins}
	var state savedState
	if len(source.State) > 0 {
		if err := json.Unmarshal(source.State, &state); err != nil {
			return fmt.Errorf("read the state of source %q: %w", o.Name, err)
		}
		policy.Spent = state.charged(time.Now())
		policy.Saved = state.savedValues(o.grace, time.Now())
	}
	if o.Budget != nil {
		policy.Budget = *o.Budget
	}
	if p.Plan, err = plan.Make(ctx, client, manifests, source.Status.Items, policy); err != nil {
		return err
	}
	return p.Plan.Explain(ctx)
}

// previewOSM compares the files for an OSM with it.
func previewOSM(ctx context.Context, r *osmops.Repository, source tko.Source, o PreviewOptions) (*osm.Plan, error) {
	var state savedState
	if len(source.State) > 0 {
		if err := json.Unmarshal(source.State, &state); err != nil {
			return nil, fmt.Errorf("read the state of source %q: %w", o.Name, err)
		}
	}
	if state.OSM == nil {
		state.OSM = &osmState{}
	}
	data, err := o.Connection()
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "read the connection file: %w", err)
	}
	connection, err := osmops.ParseConnection(data)
	if err != nil {
		return nil, fmt.Errorf("connection file for %s: %w", filepath.Base(r.ConnectionFile), err)
	}
	client, err := nbi.NewClient(connection.Endpoint(nil), nbi.Options{})
	if err != nil {
		return nil, err
	}
	p, err := (&osm.Reconciler{Client: client}).Plan(ctx, r.Desired, state.OSM.State, OSMSettings{}.Policy(o.Prune))
	return &p, err
}
