package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/krm"
)

// maxFormer is the number of former revisions of the site that are retained, to clean up what a
// later one no longer names.
const maxFormer = 5

// A state is what an agent remembers of former calls.
type state struct {
	Conditions map[string][]tko.Condition `json:"conditions"` // by entity
	Targets    map[string]tko.TargetState `json:"targets"`    // by name
	Former     map[int64]former           `json:"former"`     // packages of the site, by revision
}

type former struct {
	Package []byte `json:"package"` // in CBOR
}

func entityKey(kind tko.Kind, id string) string { return string(kind) + " " + id }

// records are the records of a bundle, as the meta-scheduler reads and writes them.
type records struct {
	unqueued

	folder      *folder
	statement   bundle.Statement
	site        tko.Site
	deployments []tko.Deployment
	state       state
	at          func(krm.Package) (krm.Package, error) // the site's package as that of the place that this agent is for
	held        func() string                          // why nothing may change now, or ""
}

// records reads a verified bundle, and the state.
func (a *Agent) records(b *bundle.File) (*records, error) {
	r := &records{folder: a.folder, held: a.held, statement: b.Statement, at: func(p krm.Package) (krm.Package, error) { return p, nil }}
	text, err := a.folder.read(stateFile)
	if err != nil {
		return nil, err
	}
	if text != nil {
		if err := json.Unmarshal(text, &r.state); err != nil {
			return nil, fmt.Errorf("reading %s: %w: restore it, or remove it to observe all again", a.folder.file(stateFile), err)
		}
	}
	if r.state.Conditions == nil {
		r.state.Conditions = map[string][]tko.Condition{}
	}
	if r.state.Targets == nil {
		r.state.Targets = map[string]tko.TargetState{}
	}
	if r.state.Former == nil {
		r.state.Former = map[int64]former{}
	}
	for row, err := range b.Rows(a.identity) {
		if err == nil {
			err = r.add(row)
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *records) add(row bundle.Row) error {
	if s := row.Site; s != nil {
		pkg, err := s.Read()
		if err != nil {
			return fmt.Errorf("site %q: %w", s.ID, err)
		}
		r.site = tko.Site{ID: s.ID, Metadata: s.Metadata, Package: pkg, Stamp: r.stamp(tko.KindSite, string(s.ID), s.UID, s.Revision)}
		return nil
	}
	d := row.Deployment
	is := tko.Deployment{
		ID: d.ID, Parent: d.Parent, Template: d.Template, Site: r.site.ID, Metadata: d.Metadata, Replaced: d.Replaced,
		Prepared: !d.Kept, Approved: true, // kept ones are as if they were being prepared again
		Stamp: r.stamp(tko.KindDeployment, string(d.ID), d.UID, d.Revision),
	}
	if !d.Kept {
		pkg, err := d.Read()
		if err != nil {
			return fmt.Errorf("deployment %q: %w", d.ID, err)
		}
		is.Package = pkg
	}
	r.deployments = append(r.deployments, is)
	return nil
}

func (r *records) stamp(kind tko.Kind, id, uid string, revision int64) tko.Stamp {
	return tko.Stamp{UID: uid, Revision: revision, Conditions: r.state.Conditions[entityKey(kind, id)]}
}

// Site implements [schedule.Records].
func (r *records) Site(_ context.Context, id tko.SiteID, revision int64) (tko.Site, error) {
	site := r.site
	if id != site.ID {
		return tko.Site{}, tko.NotFound(tko.KindSite, string(id))
	}
	if revision != 0 && revision != site.Stamp.Revision {
		was, ok := r.state.Former[revision]
		if !ok {
			return tko.Site{}, tko.NotFound(tko.KindSite, string(id))
		}
		pkg, err := krm.Decode(krm.CBOR, was.Package, krm.Limits{})
		if err != nil {
			return tko.Site{}, err
		}
		site.Package, site.Stamp.Revision = pkg, revision
	}
	var err error
	site.Stamp.Conditions = r.state.Conditions[entityKey(tko.KindSite, string(id))]
	site.Package, err = r.at(site.Package)
	return site, err
}

// Deployment implements [schedule.Records].
func (r *records) Deployment(_ context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	i := slices.IndexFunc(r.deployments, func(d tko.Deployment) bool { return d.ID == id })
	if i < 0 || revision != 0 && revision != r.deployments[i].Stamp.Revision {
		return tko.Deployment{}, tko.NotFound(tko.KindDeployment, string(id))
	}
	return r.current(r.deployments[i]), nil
}

// Deployments implements [schedule.Records]: all of a bundle are at its site.
func (r *records) Deployments(context.Context, tko.DeploymentSelect, tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	return func(yield func(tko.Deployment, error) bool) {
		for _, d := range r.deployments {
			if !yield(r.current(d), nil) {
				return
			}
		}
	}
}

func (r *records) current(d tko.Deployment) tko.Deployment {
	d.Stamp.Conditions = r.state.Conditions[entityKey(tko.KindDeployment, string(d.ID))]
	return d
}

// Plugins implements [schedule.Records]: an agent runs none.
func (*records) Plugins(context.Context, tko.PluginSelect, tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return func(func(tko.Plugin, error) bool) {}
}

// SetConditions implements [schedule.Records]. The caller saves the state.
func (r *records) SetConditions(_ context.Context, kind tko.Kind, id string, conditions []tko.Condition) error {
	now := time.Now().UTC()
	changed := slices.Clone(conditions)
	for i := range changed {
		changed[i].LastTransition = now
	}
	key := entityKey(kind, id)
	r.state.Conditions[key] = tko.MergeConditions(r.state.Conditions[key], changed...)
	return nil
}

// TargetState returns a state that was saved.
func (r *records) TargetState(_ context.Context, site tko.SiteID, name string) (tko.TargetState, error) {
	s, ok := r.state.Targets[name]
	if !ok {
		return s, tko.Errorf(tko.ErrNotFound, "site %q has no state %q", site, name)
	}
	return s, nil
}

// SaveTargetState saves a state at once.
func (r *records) SaveTargetState(_ context.Context, s tko.TargetState, _ tko.WorkItem) (version int64, err error) {
	s.Version, s.Updated = r.state.Targets[s.Name].Version+1, time.Now().UTC()
	r.state.Targets[s.Name] = s
	return s.Version, r.save()
}

// save writes the state, without entities that the bundle no longer has.
func (r *records) save() error {
	here := map[string]bool{entityKey(tko.KindSite, string(r.site.ID)): true}
	for _, d := range r.deployments {
		here[entityKey(tko.KindDeployment, string(d.ID))] = true
	}
	for key := range r.state.Conditions {
		if !here[key] && !strings.HasPrefix(key, string(tko.KindSite)+" ") {
			delete(r.state.Conditions, key)
		}
	}
	if err := r.retain(); err != nil {
		return err
	}
	text, err := json.Marshal(r.state)
	if err != nil {
		return err
	}
	r.folder.release()
	if err := r.folder.replace(stateFile, text); err != nil {
		return fmt.Errorf("saving what was applied, run tko-agent apply again: %w", err)
	}
	return nil
}

// retain keeps the package of the site for later revisions.
func (r *records) retain() error {
	_, encoded, err := krm.DigestOf(r.site.Package)
	if err != nil {
		return err
	}
	r.state.Former[r.site.Stamp.Revision] = former{encoded}
	for len(r.state.Former) > maxFormer {
		oldest := r.site.Stamp.Revision
		for revision := range r.state.Former {
			oldest = min(oldest, revision)
		}
		delete(r.state.Former, oldest)
	}
	return nil
}

// size returns a bound of the state after a reconciliation.
func (r *records) size() (int, error) {
	text, err := json.Marshal(r.state)
	const perEntity = 16 << 10 // its conditions
	return 2*len(text) + perEntity*(len(r.deployments)+1), err
}

// unqueued implements what an agent doesn't have: queues of work, freezes and rollouts. What they
// held, the server left out of the bundle, or refused to make it; or it says so: see SiteStop.
type unqueued struct{}

// ClaimWork implements [work.Client].
func (unqueued) ClaimWork(context.Context, tko.ClaimWork) ([]tko.WorkItem, error) { return nil, nil }

// RenewWork implements [work.Client].
func (unqueued) RenewWork(_ context.Context, items []tko.WorkItem, _ time.Duration) ([]tko.WorkItem, error) {
	return items, nil
}

// FinishWork implements [work.Client].
func (unqueued) FinishWork(context.Context, []tko.FinishedWork) error { return nil }

// EnqueueSites implements [schedule.Client].
func (unqueued) EnqueueSites(context.Context, []tko.SiteID) error { return nil }

// Freezes implements [schedule.Client].
func (unqueued) Freezes(context.Context) ([]tko.Freeze, error) { return nil, nil }

// SiteHold implements [schedule.Client].
func (unqueued) SiteHold(context.Context, tko.SiteID) (string, error) { return "", nil }

// SiteStagings implements [schedule.Client].
func (unqueued) SiteStagings(context.Context, tko.SiteID) ([]tko.SiteStaging, error) {
	return nil, nil
}

// ReportSiteStaging implements [schedule.Client].
func (unqueued) ReportSiteStaging(context.Context, tko.SiteStaging) error { return nil }

// SiteStop implements [schedule.Client]: what the owner of the site says, and the server while the
// agent is connected.
func (r *records) SiteStop(context.Context, tko.SiteID) (tko.SiteStop, error) {
	if why := r.held(); why != "" {
		return tko.SiteStop{Whole: true, Reason: why}, nil
	}
	return tko.SiteStop{}, nil
}
