package service

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// An applier makes the writes of the rows that one evaluation admits. What several rows
// need is read once, and what each needs for all of them together.
type applier struct {
	*RolloutRunner

	state     record.RolloutState
	owner     record.Owner                     // of the rollout
	next      func() (plan.State, error, bool) // of the rows that the planner makes again, in their order
	close     func()
	targets   record.Revisions // that rows restore
	sites     map[string]bool
	templates map[record.AtRevision]record.Record // without packages
	required  map[record.Key]error
}

// newApplier returns an applier of rows, which it must be given in their order. Rows may be
// left out at the end only, except for those that delete.
func (s *RolloutRunner) newApplier(ctx context.Context, st record.RolloutState, sp spec.Rollout, rows []record.RolloutRow) (*applier, error) {
	a := &applier{RolloutRunner: s, state: st, close: func() {}, sites: map[string]bool{}, templates: map[record.AtRevision]record.Record{}, required: map[record.Key]error{}}
	var again []plan.Pinned
	var targets []record.AtRevision
	var sites []record.Key
	for _, row := range rows {
		switch {
		case row.Kind == plan.Delete:
		case row.Target == 0:
			again = append(again, plan.Pinned{Row: row.Row, Pins: row.Pins})
		default:
			targets = append(targets, record.AtRevision{Key: record.DeploymentKey(row.Deployment), Revision: row.Target})
			sites = append(sites, record.Key{Kind: tko.KindSite, ID: row.Site})
		}
	}
	if len(again) > 0 {
		if s.plans.planner == nil {
			return nil, errors.New("this server has no planner")
		}
		a.next, a.close = iter.Pull2(s.plans.planner.After(ctx, plan.Request{Rollout: st.ID, Spec: sp}, again))
	}
	var err error
	if a.targets, err = s.reader.RevisionsOf(ctx, record.Fields{Package: true}, targets); err != nil {
		a.close()
		return nil, err
	}
	found, err := s.store.Get(ctx, record.Fields{}, sites...)
	if err != nil {
		a.close()
		return nil, err
	}
	for _, r := range found {
		a.sites[r.ID] = r.Revision != 0
	}
	return a, nil
}

// after returns the state that a row plans, made again.
func (a *applier) after(row record.RolloutRow) (plan.State, error) {
	state, err, ok := a.next()
	if err == nil && !ok {
		err = fmt.Errorf("deployment %q: the planner didn't make it", row.Deployment)
	}
	return state, err
}

// siteExists reports whether a site exists; those of the rows are read already.
func (a *applier) siteExists(ctx context.Context, id string) (bool, error) {
	exists, ok := a.sites[id]
	if ok {
		return exists, nil
	}
	r, err := a.reader.One(ctx, record.Fields{}, record.Key{Kind: tko.KindSite, ID: id})
	if err == nil {
		a.sites[id] = r.Revision != 0
	}
	return r.Revision != 0, err
}

// require returns an error if one of the entities doesn't exist.
func (a *applier) require(ctx context.Context, keys []record.Key) error {
	for _, key := range keys {
		err, ok := a.required[key]
		if !ok {
			if err = a.reader.RequireAll(ctx, []record.Key{key}); err == nil || errors.Is(err, tko.ErrNotFound) {
				a.required[key] = err
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// applied returns the write that applies a row to a deployment as it is now. An
// ErrConflict says why the row isn't as planned any more.
func (a *applier) applied(ctx context.Context, row record.RolloutRow, now record.Record) (record.Write, error) {
	exists := now.Revision != 0
	if row.Force {
		row.Revision, row.UID = now.Revision, now.UID
		if row.Kind == plan.Change && !exists {
			row.Kind = plan.Create
		}
		if row.Kind == plan.Create && exists {
			row.Kind = plan.Change
		}
	} else if err := row.Check(exists, now.UID, now.Revision); err != nil {
		return record.Write{}, err
	}
	by := tko.Author{Who: a.state.By.Who, Why: fmt.Sprintf(Reason+"%q", a.state.ID)}
	if a.state.By.Why != "" {
		by.Why += ": " + a.state.By.Why
	}
	if row.Kind == plan.Delete {
		if !exists {
			return record.Write{}, tko.Errorf(tko.ErrConflict, "deployment %q: it is deleted already", row.Deployment)
		}
		return record.Write{Op: tko.OpDeleted, Record: record.Record{Key: now.Key, Author: by}, Expect: now.Revision, SingleStep: true}, nil
	}
	var r record.Record
	var err error
	if row.Target != 0 {
		r, err = a.restored(ctx, row)
	} else {
		r, err = a.planned(ctx, row, now)
	}
	if err != nil {
		return record.Write{}, err
	}
	if row.Target != 0 && a.state.Undoes == "" {
		if err := a.catalog.PermitApproval(ctx, now, &r); err != nil {
			return record.Write{}, err
		}
	}
	if row.Target != 0 && !exists {
		if err := a.checkOrigin(ctx, r); err != nil {
			return record.Write{}, err
		}
	}
	r.Author = by
	w := record.Write{Op: tko.OpWritten, Record: r, Expect: record.Absent}
	switch {
	case exists:
		w.Expect = now.Revision
		w.Record.UID, w.Record.Created, w.Record.Origin, w.Record.Replaced = now.UID, now.Created, now.Origin, now.Replaced
		w.Record.Conditions = condition.Merge(now.Conditions, condition.OfState(r, now.Conditions), now.Revision+1, time.Now())
	default:
		w.Record.UID = record.NewUID()
		w.Record.Conditions = condition.Merge(r.Conditions, condition.OfFlags(r.Conditions, r.Prepared, r.Approved), 1, time.Now())
		if r.Parent != "" {
			w.Requires = append(w.Requires, record.DeploymentKey(tko.DeploymentID(r.Parent)))
		}
	}
	if row.Target == 0 { // what it newly refers to must exist, or the whole commit would fail
		template, site := "", ""
		if r.Template != now.Template {
			template = r.Template
		}
		if r.Site != now.Site {
			site = r.Site
		}
		required := record.References(template, site)
		if err := a.require(ctx, required); err != nil {
			return record.Write{}, fmt.Errorf("deployment %q: %w", row.Deployment, err)
		}
		w.Requires = append(w.Requires, required...)
	}
	return w, nil
}

// restored returns a deployment as it was at the revision that an undo restores,
// with its state, whatever has become of its template.
func (a *applier) restored(ctx context.Context, row record.RolloutRow) (record.Record, error) {
	r, err := a.reader.RevisionIn(ctx, a.targets, record.DeploymentKey(row.Deployment), row.Target)
	if err != nil {
		return record.Record{}, fmt.Errorf("deployment %q: its revision %d, which is to be restored, can't be read: %w", row.Deployment, row.Target, err)
	}
	r.Base, r.Replaces, r.Conditions, r.Steps = row.Base, row.Replaces, nil, nil
	if r.Site != "" {
		exists, err := a.siteExists(ctx, r.Site)
		if err != nil {
			return record.Record{}, err
		}
		if !exists {
			return record.Record{}, tko.Errorf(tko.ErrConflict, "deployment %q: its site %q was deleted since: register it again, or skip the row", row.Deployment, r.Site)
		}
	}
	if digest := PlanDigestOf(r); row.After != (plan.Digest{}) && digest != row.After {
		return record.Record{}, tko.Errorf(tko.ErrConflict, "deployment %q: its revision %d isn't what the rollout found", row.Deployment, row.Target)
	}
	return r, nil
}

// PlanDigestOf returns the digest of a deployment as plans have it.
func PlanDigestOf(r record.Record) plan.Digest {
	return plan.StateDigest(r.Digest, record.DeploymentOf(r))
}

// planned makes what a row plans again, and checks that it is the same.
func (a *applier) planned(ctx context.Context, row record.RolloutRow, now record.Record) (record.Record, error) {
	state, err := a.after(row)
	if err != nil {
		return record.Record{}, err
	}
	d := state.Deployment
	c := content.Content{Encoded: state.Encoded, Digest: record.Digest(state.Content)}
	if c.Encoded == nil {
		if c, err = content.Of(d.Package.WithoutDeploymentState()); err != nil {
			return record.Record{}, err
		}
	}
	r := now
	if row.Kind == plan.Create {
		r = record.Record{Key: record.DeploymentKey(row.Deployment), Parent: string(d.Parent)}
		switch {
		case state.Manifest != nil:
			r.Origin = record.DeclaredOrigin(state.Manifest.Origin)
			existing, err := a.reader.WithOrigin(ctx, r.Origin)
			if err != nil {
				return record.Record{}, err
			}
			if existing.Revision != 0 {
				return record.Record{}, tko.Errorf(tko.ErrConflict, "deployment %q: it was created meanwhile, as %q: plan again", state.Manifest.Name, existing.ID)
			}
		case d.Origin != "":
			r.Origin = record.OriginOf(string(d.Parent), d.Origin)
		}
		for _, id := range d.Replaces {
			r.Replaces = append(r.Replaces, string(id))
		}
	}
	inherited := now.Inherited()
	if d.Template != tko.TemplateID(now.Template) || d.TemplateRevision != now.Base {
		t, err := a.templateAt(ctx, string(d.Template), d.TemplateRevision)
		if err != nil {
			return record.Record{}, err
		}
		inherited = t.Effective()
	}
	switch {
	case row.Kind == plan.Create && r.Parent != "": // it has the owner of its parent
		r.Own(record.Owner{})
	case row.Kind == plan.Create, !a.owner.IsZero() && !strings.HasPrefix(a.state.ID, placementRollouts): // who edits it owns it
		r.Own(a.owner)
	}
	r.Template, r.Site, r.Prepared, r.Approved, r.Base = string(d.Template), string(d.Site), d.Prepared, d.Approved, d.TemplateRevision
	r.Digest, r.Package = c.Digest, c.Encoded
	switch {
	case state.Derived != nil:
		r.Derivation, r.Derived = sha256.Sum256(state.Derived), state.Derived
	case r.Template != now.Template:
		r.Derivation = record.Digest{} // it isn't known what the package is made from
	}
	passed, removed := MetadataWith(now, state.Manifest)
	if r.Metadata, err = content.MetadataAfter(now.Effective(), d.Package, inherited, passed); err != nil {
		return record.Record{}, err
	}
	content.RemoveMetadata(&r, removed)
	content.RetainAttached(&r, now)
	if PlanDigestOf(r) != row.After {
		return record.Record{}, tko.Errorf(tko.ErrConflict, "deployment %q: what was planned can't be made again, because what it is made from has changed: plan again", row.Deployment)
	}
	return r, nil
}

// templateAt returns a template as of a revision, 0: as it is.
func (a *applier) templateAt(ctx context.Context, id string, revision int64) (r record.Record, err error) {
	key := record.AtRevision{Key: record.Key{Kind: tko.KindTemplate, ID: id}, Revision: revision}
	if id == "" {
		return record.Record{}, nil
	}
	if r, ok := a.templates[key]; ok {
		return r, nil
	}
	if revision != 0 {
		r, err = a.store.Revision(ctx, key.Key, revision)
	} else {
		r, err = a.reader.One(ctx, record.Fields{}, key.Key)
	}
	if err == nil {
		r.Package = nil
		a.templates[key] = r
	}
	return r, err
}

// errFollows means that a deployment takes the place of another one, which exists still.
var errFollows = errors.New("the deployment in its place exists still")

// checkOrigin returns an error if another deployment has the origin of one that is to be
// created again.
func (s *RolloutRunner) checkOrigin(ctx context.Context, r record.Record) error {
	holder, err := s.reader.OriginHolder(ctx, r)
	if err == nil && holder != "" {
		err = errFollows
	}
	return err
}

// MetadataWith returns the passed and removed metadata of a deployment that a manifest
// replaces; nil is none.
func MetadataWith(r record.Record, m *spec.Manifest) (passed map[string]string, removed []string) {
	if m == nil {
		return r.Passed(), r.Removed()
	}
	return content.PassedOf(r, m.Metadata), content.RemovedOf(r, nil, m.Metadata)
}
