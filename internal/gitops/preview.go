package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	// About returns what a source that doesn't exist yet may change.
	About(ctx context.Context) (tko.About, error)
}

// PreviewOptions are the settings of the source that is previewed.
type PreviewOptions struct {
	Name  string // of the source, which needn't exist
	Path  string // folder of the manifests
	Prune bool
	Adopt bool
	// Budget limits removals; the default of the kind of source if nil.
	Budget  *prune.Budget
	addOnly bool // the policy of catalogs
	rollout bool // a rollout changes deployments
	// refuse, if not nil, returns an error if the files have what the source may not have.
	refuse    func(manifests []manifest.Manifest, files fs.FS) error
	osmPolicy *osm.Policy // the default if nil
	// connect takes the place of Connection. It returns nil if the OSM isn't compared.
	connect  func(r *osmops.Repository) func(ctx context.Context) (osmops.Connection, error)
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
	// Unasked reports that the revision holds files for an OSM, or the source has objects
	// there, and that the OSM was not compared because there is no connection file: OSM has
	// only removals of recorded instances.
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
		repository, osmErr = osmops.Read(fsys)
		if osmErr == nil {
			osmErr = errors.Join(append(slices.Clone(repository.Unread), osm.Join(repository.Desired.Check()))...)
		}
		err = errors.Join(err, osmErr)
	}
	if o.refuse != nil {
		err = errors.Join(err, o.refuse(manifests, fsys))
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
	var state savedState
	if len(source.State) > 0 {
		if err := json.Unmarshal(source.State, &state); err != nil {
			return p, fmt.Errorf("read the state of source %q: %w", o.Name, err)
		}
	}
	if state.OSM == nil {
		state.OSM = &osmState{}
	}
	if repository == nil && !state.OSM.owns() {
		return p, nil
	}
	base := OSMSettings{}.Policy(o.Prune)
	if o.osmPolicy != nil {
		base = *o.osmPolicy
	}
	desired, policy := desiredOf(repository), osmPolicyOf(base, repository == nil)
	policy.Approve = source.Approved
	connect := o.connection(repository)
	p.Unasked = connect == nil
	if p.Unasked {
		p.OSM = recordedRemovals(desired, state.OSM.State, policy, repository == nil)
		return p, nil
	}
	p.OSM, err = previewOSM(ctx, desired, state.OSM.State, policy, connect)
	if repository == nil && p.OSM != nil {
		for i := range p.OSM.Changes {
			p.OSM.Changes[i].Reason = markerGone
		}
	}
	return p, err
}

// markerGone is the reason of changes in an OSM for which a revision holds nothing any more.
const markerGone = osmops.ConfigFile + " is gone"

// desiredOf returns what a revision wants of an OSM; nothing if it holds nothing for one.
func desiredOf(r *osmops.Repository) osm.Desired {
	if r == nil {
		return osm.Desired{}
	}
	return r.Desired
}

// osmPolicyOf returns the policy of a revision. One that holds nothing for an OSM any more
// removes nothing there without an approval: a file that was moved by mistake would end
// everything.
func osmPolicyOf(p osm.Policy, markerGone bool) osm.Policy {
	if markerGone {
		p.Budget = prune.Budget{}
	}
	return p
}

// recordedRemovals returns the removals of instances that the source is known to have, without
// asking the OSM.
func recordedRemovals(d osm.Desired, s osm.State, policy osm.Policy, gone bool) *osm.Plan {
	removed := &osm.Plan{}
	if !policy.Prune {
		return removed
	}
	reason := "it is no longer desired"
	if gone {
		reason = markerGone
	}
	var names []string
	var removals []osm.Change
	for _, name := range slices.Sorted(maps.Keys(s.Instances)) {
		wanted := slices.ContainsFunc(d.Instances, func(i osm.Instance) bool { return i.Name == name })
		if wanted || d.Keeps(osm.InstanceKey(name)) {
			continue
		}
		names = append(names, name)
		removals = append(removals, osm.Change{Action: osm.ActionDelete, What: osm.WhatInstance, Name: name, Reason: reason})
	}
	if key := prune.Key(names); policy.Budget.Over(len(names), len(s.Instances)) && policy.Approve != key {
		removed.Approval = &osm.Approval{Key: key, Instances: names}
		return removed
	}
	removed.Changes = removals
	return removed
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
	policy.Rollout = o.rollout
	policy.Reach = source.Reach
	if !policy.Reach.Known { // it is new
		about, err := client.About(ctx)
		if err != nil {
			return err
		}
		policy.Reach = about.Reach
	}
	if p.Plan, err = plan.Make(ctx, client, manifests, source.Status.Items, policy); err != nil {
		return err
	}
	if p.Plan.NeedsRollout() { // its plan is the consent to what it creates, too
		policy.Rollout = true
		if p.Plan, err = plan.Make(ctx, client, manifests, source.Status.Items, policy); err != nil {
			return err
		}
		p.Plan.Messages = append([]string{"the revision " + reachText(p.Plan, rolloutBase(o.Name, "")+"REVISION")}, p.Plan.Messages...)
	}
	if open := state.Rollout; open != nil && open.Settled == "" {
		p.Plan.Messages = append(p.Plan.Messages, fmt.Sprintf("rollout %q of revision %s isn't done: if it is started, the next revision waits for it, and else takes its place", open.ID, open.Revision))
	}
	return p.Plan.Explain(ctx)
}

// connection returns the connection to the OSM; nil if there is none.
func (o PreviewOptions) connection(r *osmops.Repository) func(ctx context.Context) (osmops.Connection, error) {
	if o.connect != nil {
		return o.connect(r)
	}
	if o.Connection == nil {
		return nil
	}
	return func(context.Context) (osmops.Connection, error) {
		data, err := o.Connection()
		if err != nil {
			return osmops.Connection{}, tko.Errorf(tko.ErrInvalid, "read the connection file: %w", err)
		}
		connection, err := osmops.ParseConnection(data)
		if err != nil {
			err = fmt.Errorf("connection file: %w", err)
		}
		return connection, err
	}
}

// previewOSM compares the files for an OSM with it.
func previewOSM(ctx context.Context, desired osm.Desired, state osm.State, policy osm.Policy, connect func(context.Context) (osmops.Connection, error)) (*osm.Plan, error) {
	connection, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	client, err := nbi.NewClient(connection.Endpoint(nil), nbi.Options{})
	if err != nil {
		return nil, err
	}
	p, err := (&osm.Reconciler{Client: client}).Plan(ctx, desired, state, policy)
	return &p, err
}
