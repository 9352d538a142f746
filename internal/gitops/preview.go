package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/sops"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/osmops"
)

// PreviewClient is what a preview is made from. It changes nothing.
type PreviewClient interface {
	plan.Client
	// Source answers a source, with its state.
	Source(ctx context.Context, name string) (tko.Source, error)
}

// PreviewOptions say what is previewed.
type PreviewOptions struct {
	Name  string // of the source, which may be a new one
	Path  string // of the manifests
	Prune bool
	Adopt bool
	// Keys decrypt what is encrypted with SOPS; without any, what is of TKO must be
	// plain.
	Keys *sops.Keys
	// Connection, if not nil, reads the connection file of an OSM, which then is
	// asked, too.
	Connection func() ([]byte, error)
}

// A Preview is what a revision would change.
type Preview struct {
	Plan *plan.Plan
	OSM  *osm.Plan // nil if no OSM was asked
	// New says that there is no such source yet.
	New bool
	// Unasked says that the revision is for an OSM that was not asked.
	Unasked bool
}

// PreviewFiles says what files would change if they were a source's revision. What is
// wrong with them is an ErrInvalid, of which each line is about something else;
// with it, it is answered whether the source is New, if that is known.
func PreviewFiles(ctx context.Context, client PreviewClient, fsys fs.FS, o PreviewOptions) (*Preview, error) {
	source, err := client.Source(ctx, o.Name)
	if err != nil && !errors.Is(err, tko.ErrNotFound) {
		return nil, err
	}
	fsys = sops.FS(fsys, o.Keys, Others)
	p := &Preview{New: source.Version == 0}
	manifests, err := manifest.Read(fsys, o.Path)
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
	if p.Plan, err = plan.Make(ctx, client, manifests, source.Status.Items, plan.Policy{
		Source: o.Name, Prune: o.Prune, Adopt: o.Adopt, Budget: plan.DefaultBudget, Approve: source.Approved,
	}); err != nil {
		return p, err
	}
	if err := p.Plan.Explain(ctx); err != nil || repository == nil {
		return p, err
	}
	if p.Unasked = o.Connection == nil; p.Unasked {
		return p, nil
	}
	p.OSM, err = lookAtOSM(ctx, repository, source, o)
	return p, err
}

func lookAtOSM(ctx context.Context, r *osmops.Repository, source tko.Source, o PreviewOptions) (*osm.Plan, error) {
	var state kept
	if len(source.State) > 0 {
		if err := json.Unmarshal(source.State, &state); err != nil {
			return nil, fmt.Errorf("the state of source %q can't be read: %w", o.Name, err)
		}
	}
	if state.OSM == nil {
		state.OSM = &osmKept{}
	}
	data, err := o.Connection()
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the connection file: %w", err)
	}
	connection, err := osmops.ParseConnection(data)
	if err != nil {
		return nil, fmt.Errorf("the connection file for %s: %w", filepath.Base(r.ConnectionFile), err)
	}
	client, err := osm.NewClient(connection.Endpoint(nil), osm.Options{})
	if err != nil {
		return nil, err
	}
	settings, err := OSMSettings{}.spec(o.Prune)
	if err != nil {
		return nil, err
	}
	p, err := (&osm.Reconciler{Client: client}).Plan(ctx, r.Desired, state.OSM.State, settings.Policy)
	return &p, err
}

// OSMKind is the name of what the reconciler of OSM calls "vnf", "ns" and
// "instance".
func OSMKind(what string) string { return osmKind(what) }
