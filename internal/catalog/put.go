package catalog

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
)

// A Put is the desired state of a whole record.
type Put struct {
	Key         record.Key // a new deployment has no ID
	Parent      string     // deployments; can't be changed
	Template    string     // sites, deployments
	Site        string     // deployments
	tko.Details            // templates, sites
	// Metadata is the complete metadata. Passed metadata that it doesn't have
	// is removed; inherited and gathered metadata stays; new or changed
	// metadata is passed.
	Metadata map[string]string
	// Remove are keys of inherited or gathered metadata that the record shall
	// not have. Keys that were removed earlier stay removed until Metadata has
	// them.
	Remove   []string
	Labels   map[string]string // as they were written; see [record.Metadata]
	Package  krm.Package       // of a new deployment: merged into the template's package
	Plugin   tko.Plugin
	Attached []byte // opaque compact JSON of the transport, or nil
	// Marks, if not nil, are overlaid on the labels and annotations of the record, in place of
	// Labels and Attached.
	Marks *tko.Marks
	// Bookkeeping reports that Attached differs from AttachedFrom only in what the transport
	// keeps about its writers, such as who manages a field. If AttachedFrom is what the record
	// has, and nothing else of it changes, the write makes no revision.
	Bookkeeping  bool
	AttachedFrom []byte

	// Manager, if not "", makes the Put an overlay: see [tko.Put].
	Manager string
	applied map[string]record.AppliedSet // that the record gets

	Origin string // of a new deployment: there is at most one with it
	Name   string // of a new deployment: see [record.Record.KubernetesName]

	// Defer accepts a template and a site of a deployment, and a template of a site, that
	// don't exist yet: it waits for them. See [record.Awaited].
	Defer bool

	FromTemplate bool   // the package of an existing deployment was made from the current revision of its template
	Whole        bool   // see [tko.Put]
	MadeFrom     string // see [tko.Put]

	Require record.Requirement
	DryRun  bool // derive and validate, without writing
	// Permit, if not nil, may refuse the change with an error. before has
	// Revision 0 if the record is new.
	Permit func(before, after record.Record) error
}

// PutRecord writes a record, unless nothing would change, and returns it with
// its package, and whether it is new. The rules are those of RegisterTemplate,
// RegisterSite, RegisterPlugin, CreateDeployment and CommitDeployment.
func (s *RecordWriter) PutRecord(ctx context.Context, p Put) (r record.Record, created bool, err error) {
	ctx, c, err := s.rights.Enter(ctx, p.Key.Kind, rights.ChangeVerb(p.Key.Kind, access.Create), rights.ChangeVerb(p.Key.Kind, access.Update))
	if err != nil {
		return record.Record{}, false, err
	}
	if p.Key.Kind == tko.KindDeployment && p.Key.ID == "" {
		if r, created, err = s.putNewDeployment(ctx, p); err == nil && !p.DryRun {
			r = s.reread(ctx, r)
		}
		return r, created, err
	}
	wrote := false
	err = record.Retry(ctx, func() error {
		current, err := s.reader.One(ctx, record.Fields{Package: true, Deployments: true, Scope: c.View()}, p.Key)
		if err != nil {
			return err
		}
		if current.Revision != 0 && p.Key.Kind == tko.KindDeployment {
			if err := s.rights.Permit(ctx, &current, nil, access.Update); err != nil {
				return record.Final(err)
			}
		}
		if p.Key.Kind != tko.KindDeployment {
			if p.Package, err = s.rights.Restore(ctx, current, p.Package); err != nil {
				return err
			}
		}
		if tko.DetailsKept(ctx) {
			p.Details = current.Details
		}
		if err := p.Require.Check(p.Key, current); err != nil {
			return record.Final(err)
		}
		created = current.Revision == 0
		whole, err := s.overlaid(ctx, p, current)
		if err == nil {
			err = whole.mark(current)
		}
		if err != nil {
			return record.Final(err)
		}
		rec, requires, err := s.derived(ctx, whole, current)
		if err != nil {
			return err
		}
		rec.Author, rec.UID, rec.Created, rec.Origin, rec.Deployments = rights.Author(ctx), current.UID, current.Created, current.Origin, current.Deployments
		rec.Replaces, rec.Replaced, rec.Owner = current.Replaces, current.Replaced, current.Owner
		if created {
			rec.UID, rec.Created = record.NewUID(), time.Now().UTC()
		}
		if err := s.rights.PermitWrite(ctx, current, rec); err != nil {
			return record.Final(err)
		}
		if p.Permit != nil {
			if err := p.Permit(current, rec); err != nil {
				return record.Final(err)
			}
		}
		if !created && record.SameContent(current, rec) && (!p.FromTemplate || current.Base == rec.Base) {
			r = current
			return nil
		}
		rec.Revision, rec.Position, rec.Updated = current.Revision, current.Position, current.Updated
		if p.DryRun {
			if err := s.rights.PermitCredentials(ctx, c, []record.Write{{Op: tko.OpWritten, Record: rec, Expect: current.Revision}}); err != nil {
				return record.Final(err)
			}
			r = rec
			return nil
		}
		write := record.Write{Op: tko.OpWritten, Record: rec, Expect: current.Revision, Position: current.Position, Requires: requires, KeepsOwner: rights.KeepsOwner(current, rec)}
		if !created && p.isBookkeeping(current, rec) {
			write.Op, write.Requires = tko.OpStatus, nil
			write.Record = record.Record{Key: rec.Key, Author: rec.Author, Conditions: current.Conditions, Metadata: rec.Metadata}
			rec.Conditions, rec.Author = current.Conditions, current.Author
		}
		outcomes, err := s.rights.Commit(ctx, write)
		if err != nil {
			if p.Require.Position != 0 && (errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrConflict)) {
				return record.Final(tko.Errorf(tko.ErrConflict, "%s %q was changed at the same time: read it again", p.Key.Kind, p.Key.ID))
			}
			if errors.Is(err, tko.ErrNotFound) { // deleted concurrently
				err = tko.Errorf(tko.ErrConflict, "%w", err)
			}
			return err
		}
		r, wrote = rec, true
		r.Revision, r.Position = outcomes[0].Revision, outcomes[0].Position
		return nil
	})
	if err == nil && wrote {
		r = s.reread(ctx, r)
	}
	return r, created, err
}

// isBookkeeping reports whether a Put changes only what its transport keeps about writers.
func (p Put) isBookkeeping(current, rec record.Record) bool {
	if !p.Bookkeeping || !bytes.Equal(p.AttachedFrom, current.Attached()) || p.FromTemplate && current.Base != rec.Base {
		return false
	}
	metadata := *rec.Metadata.OrNone()
	metadata.Attached = current.Attached()
	rec.Metadata = &metadata
	return record.SameContent(current, rec)
}

// reread returns a record that was just written with the properties that the
// store sets.
func (s *RecordWriter) reread(ctx context.Context, r record.Record) record.Record {
	c, ok := rights.CallerOf(ctx)
	if !ok {
		return r
	}
	now, err := s.reader.One(ctx, record.Fields{Package: true, Deployments: true, Scope: c.View()}, r.Key)
	if err != nil || now.UID != r.UID {
		return r // the write itself succeeded
	}
	if now.Position == r.Position {
		return now
	}
	r.Created, r.Updated = now.Created, now.Updated
	return r
}

func (s *RecordWriter) putNewDeployment(ctx context.Context, p Put) (r record.Record, created bool, err error) {
	if p.Parent != "" && !record.IsDeploymentID(tko.DeploymentID(p.Parent)) {
		return record.Record{}, false, record.Explain(&record.MissingError{Key: record.Key{Kind: tko.KindDeployment, ID: p.Parent}})
	}
	if p.Name != "" {
		if p.Origin, err = s.nameOrigin(ctx, p.Name); err != nil {
			return record.Record{}, false, err
		}
	}
	awaited, err := s.deferNew(ctx, &p)
	if err == nil {
		err = p.mark(record.Record{})
	}
	if err != nil {
		return record.Record{}, false, err
	}
	base, err := s.baseOf(ctx, p)
	if err != nil {
		return record.Record{}, false, err
	}
	if p.Whole {
		base.pkg = nil
	}
	n, err := s.deployments.newRecord(ctx, nil, base, tko.NewDeployment{
		Parent: tko.DeploymentID(p.Parent), Template: tko.TemplateID(p.Template), Site: tko.SiteID(p.Site), Metadata: p.Metadata, Merge: p.Package,
	})
	if err != nil {
		return record.Record{}, false, err
	}
	content.RemoveMetadata(&n.record, p.Remove)
	n.record.Await(awaited)
	n.record.Conditions = condition.Merge(n.record.Conditions, condition.OfAwaited(awaited, tko.KindDeployment, nil, n.record.Prepared), 1, time.Now())
	if p.Template != "" && (p.Whole || p.MadeFrom != "") {
		n.record.Base = base.revision
		deriveWhole(&n.record)
	}
	if err := errors.Join(content.SetLabels(&n.record, p.Labels), content.Attach(&n.record, p.Attached)); err != nil {
		return record.Record{}, false, err
	}
	n.record.SetApplied(p.applied)
	if p.Parent != "" {
		n.requires = append(n.requires, record.DeploymentKey(tko.DeploymentID(p.Parent)))
		if err := s.deployments.checkNesting(ctx, tko.DeploymentID(p.Parent), n.record, p.Package); err != nil {
			return record.Record{}, false, err
		}
	}
	ids, err := s.ids.next(1)
	if err != nil {
		return record.Record{}, false, err
	}
	n.record.Origin = p.Origin
	err = s.rights.PermitWrite(ctx, record.Record{}, n.record)
	if err == nil {
		err = s.approvals.permitApproval(ctx, record.Record{}, &n.record)
	}
	if err != nil {
		return record.Record{}, false, err
	}
	w := n.write(ctx, ids[0])
	w.Record.Created = time.Now().UTC()
	if p.Permit != nil {
		if err := p.Permit(record.Record{}, w.Record); err != nil {
			return record.Record{}, false, err
		}
	}
	if p.DryRun {
		return w.Record, true, s.reader.RequireAll(ctx, w.Requires)
	}
	outcomes, err := s.rights.Commit(ctx, w)
	if err != nil {
		return record.Record{}, false, err
	}
	if outcomes[0].Existed && p.Name != "" {
		return record.Record{}, false, &record.ExistsError{Key: outcomes[0].Key, Name: p.Name}
	}
	if outcomes[0].Existed {
		r, err := s.reader.One(ctx, record.Fields{Package: true}, outcomes[0].Key)
		return r, false, err
	}
	w.Record.Revision, w.Record.Position = outcomes[0].Revision, outcomes[0].Position
	return w.Record, true, nil
}

// maxMadeFrom is the number of revisions of a template among which MadeFrom is looked up.
const maxMadeFrom = 200

// baseOf returns the revision of the template that the package of a deployment was made
// from: the present one, or that with the digest MadeFrom. Without a retained revision of
// that digest, the metadata are those of the present one, and its number is 0.
func (s *RecordWriter) baseOf(ctx context.Context, p Put) (base, error) {
	b, err := s.registry.base(ctx, nil, p.Template)
	if err != nil || p.MadeFrom == "" || p.Template == "" {
		return b, err
	}
	key := record.Key{Kind: tko.KindTemplate, ID: p.Template}
	for revision := b.revision; revision > max(0, b.revision-maxMadeFrom); revision-- {
		r, err := s.store.Revision(ctx, key, revision)
		if errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrGone) {
			continue
		}
		if err != nil {
			return base{}, err
		}
		if digest, err := tko.RevisionDigestOf(r.Digest, r.Effective()); err != nil || digest != p.MadeFrom {
			continue
		}
		pkg, err := record.PackageOf(r)
		return base{revision: revision, pkg: pkg, metadata: r.Effective()}, err
	}
	b.revision = 0
	return b, nil
}

// deriveWhole states that the package was made from the revision of its template in a way
// that isn't recorded.
func deriveWhole(r *record.Record) {
	if r.Base == 0 {
		r.Derivation, r.Derived = record.Digest{}, nil
		return
	}
	setDerivation(r, derivation.Record{Template: tko.TemplateID(r.Template), Revision: r.Base, Whole: r.Digest})
}

// derived derives and validates the record of a Put.
func (s *RecordWriter) derived(ctx context.Context, p Put, current record.Record) (rec record.Record, requires []record.Key, err error) {
	passed, removed := content.PassedOf(current, p.Metadata), content.RemovedOf(current, p.Remove, p.Metadata)
	switch p.Key.Kind {
	case tko.KindTemplate:
		rec, err = s.registry.templateRecord(ctx, tko.Template{ID: tko.TemplateID(p.Key.ID), Details: p.Details, Metadata: passed, Package: p.Package})
	case tko.KindSite:
		rec, requires, err = s.derivedSite(ctx, p, current, passed)
	case tko.KindPlugin:
		rec, err = pluginRecord(p.Plugin)
		if err == nil && rec.Key != p.Key {
			err = tko.Errorf(tko.ErrInvalid, "the plugin is %q, and its key %q", rec.ID, p.Key.ID)
		}
	case tko.KindRollout:
		rec, err = s.rollouts.RecordOf(ctx, tko.Rollout{ID: tko.RolloutID(p.Key.ID), Metadata: passed, Package: p.Package})
	case tko.KindDeployment:
		return s.derivedDeployment(ctx, p, current, passed, removed)
	case tko.KindSource, tko.KindSubscription: // is no record
	}
	if err != nil {
		return record.Record{}, nil, err
	}
	content.RemoveMetadata(&rec, removed)
	if err := errors.Join(content.SetLabels(&rec, p.Labels), content.Attach(&rec, p.Attached)); err != nil {
		return record.Record{}, nil, err
	}
	rec.SetApplied(p.applied)
	rec.Conditions = warnedAfter(current, rec)
	if rec.Kind == tko.KindSite {
		rec.Conditions = siteConditions(current, rec)
	}
	s.registry.inspectPlugin(&rec, current.Revision+1)
	if p.DryRun {
		err = s.reader.RequireAll(ctx, requires)
	}
	return rec, requires, err
}

func (s *RecordWriter) derivedDeployment(ctx context.Context, p Put, current record.Record, passed map[string]string, removed []string) (record.Record, []record.Key, error) {
	if current.Revision == 0 {
		return record.Record{}, nil, tko.NotFound(p.Key.Kind, p.Key.ID)
	}
	if p.Parent != current.Parent {
		return record.Record{}, nil, tko.Errorf(tko.ErrInvalid, "the parent of deployment %q is %q, and can't become %q", current.ID, current.Parent, p.Parent)
	}
	edit := editOf(current, current, p.Package)
	edit.with = attributes{
		template: p.Template, site: p.Site, passed: passed, removed: removed, labels: p.Labels, attached: p.Attached, applied: p.applied,
		deferred: p.Defer, made: p.FromTemplate,
	}
	change, err := s.deployments.changed(ctx, nil, edit)
	if err != nil {
		return record.Record{}, nil, err
	}
	rec := change.record
	if p.FromTemplate {
		base, err := s.baseOf(ctx, Put{Template: rec.Template, MadeFrom: p.MadeFrom})
		if err != nil {
			return record.Record{}, nil, err
		}
		rec.Base = base.revision
		deriveWhole(&rec)
	}
	rec.Conditions = condition.Merge(current.Conditions, change.flags(current.Conditions), current.Revision+1, time.Now())
	if p.DryRun {
		err = s.reader.RequireAll(ctx, change.requires)
	}
	return rec, change.requires, err
}

// PutEntity writes the whole of an entity, unless nothing would change. A
// deployment without an ID is identified by its origin, and created if there is
// none with it.
func (s *RecordWriter) PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error) {
	put := Put{
		Key: record.Key{Kind: p.Kind, ID: p.ID}, Parent: string(p.Parent), Template: string(p.Template), Site: string(p.Site),
		Details: p.Details, Metadata: p.Metadata, Package: p.Package, Plugin: p.Plugin, DryRun: p.DryRun, FromTemplate: p.FromTemplate, Whole: p.Whole, MadeFrom: p.MadeFrom, Defer: p.Defer,
		Require: record.Requirement{Revision: p.Revision}, Manager: p.Manager, Marks: p.Marks,
	}
	if err := errors.Join(checkManager(p.Manager, p.Kind), checkMarks(p.Kind, p.Marks)); err != nil {
		return tko.PutResult{}, err
	}
	switch {
	case p.Revision < 0 || p.Revision > 0 && p.ID == "":
		return tko.PutResult{}, tko.Errorf(tko.ErrInvalid, "the expected revision is %d: give the revision of an entity with an ID", p.Revision)
	case len(p.RemoveMetadata) > content.MaxMetadata:
		return tko.PutResult{}, tko.Errorf(tko.ErrInvalid, "%d keys of metadata are to be removed: use at most %d", len(p.RemoveMetadata), content.MaxMetadata)
	case !slices.Contains(record.EntityKinds, p.Kind):
		return tko.PutResult{}, tko.Errorf(tko.ErrInvalid, "there are no entities of the kind %.40q: use template, site, deployment, plugin or rollout", string(p.Kind))
	case p.Name != "" && (p.Kind != tko.KindDeployment || p.ID != "" || p.Origin != ""):
		return tko.PutResult{}, tko.Errorf(tko.ErrInvalid, "the name %.40q identifies a deployment: leave the ID and the origin out", p.Name)
	case p.Name != "":
		put.Name = p.Name
	case p.Kind == tko.KindDeployment && p.ID == "":
		if err := checkOrigin(p.Origin); err != nil {
			return tko.PutResult{}, err
		}
		put.Origin = record.DeclaredOrigin(p.Origin)
	case p.Origin != "":
		return tko.PutResult{}, tko.Errorf(tko.ErrInvalid, "%s %q has an ID, and an origin %q: only new deployments have an origin", p.Kind, p.ID, p.Origin)
	case p.Kind == tko.KindDeployment:
		if err := record.CheckKey(put.Key); err != nil {
			return tko.PutResult{}, err
		}
	}
	if err := p.CheckWhole(); err != nil {
		return tko.PutResult{}, err
	}
	verb := rights.ChangeVerb(p.Kind, access.Create)
	ctx, c, err := s.rights.Enter(ctx, p.Kind, verb, rights.ChangeVerb(p.Kind, access.Update))
	if err != nil {
		return tko.PutResult{}, err
	}
	if p.Name != "" {
		named, err := s.Named(ctx, p.Name)
		if err != nil {
			return tko.PutResult{}, err
		}
		if named.ID != "" {
			existing, err := s.reader.One(ctx, record.Fields{}, named)
			if err == nil && c.Sees(existing) {
				return tko.PutResult{ID: existing.ID, Revision: existing.Revision}, nil
			}
		}
	}
	var current record.Record
	if p.ID == "" {
		put.Remove = p.RemoveMetadata
	} else {
		var err error
		if current, err = s.reader.One(ctx, record.Fields{Package: p.Manager != ""}, put.Key); err != nil {
			return tko.PutResult{}, err
		}
		switch {
		case current.Revision == 0:
			put.Remove = p.RemoveMetadata
		case c.Sees(current):
			put.Attached, put.Labels = current.Attached(), current.Labels()
			for _, key := range p.RemoveMetadata {
				if _, has := current.Effective()[key]; has {
					put.Remove = append(put.Remove, key)
				}
			}
		}
	}
	if p.DryRun && put.Origin != "" {
		existing, err := s.reader.WithOrigin(ctx, put.Origin)
		if err != nil {
			return tko.PutResult{}, err
		}
		if existing.Revision != 0 && c.Sees(existing) {
			return tko.PutResult{ID: existing.ID, Revision: existing.Revision}, nil
		}
	}
	r, created, err := s.PutRecord(ctx, put)
	if err != nil {
		return tko.PutResult{}, err
	}
	changed := created || r.Revision != current.Revision && p.ID != ""
	if p.DryRun && !created {
		changed = !record.SameContent(current, r)
	}
	result := tko.PutResult{ID: r.ID, Revision: r.Revision, Created: created, Changed: changed, Managed: p.Manager != ""}
	if p.DryRun && p.Kind == tko.KindSite && !created && changed {
		if result.ChangesTarget, err = s.gate.ChangesTarget(ctx, r); err != nil {
			return tko.PutResult{}, err
		}
	}
	if result.Managed && changed && p.Kind != tko.KindPlugin && c.Sees(current) {
		if result.Changes, err = s.changesOf(c, current, r); err != nil {
			return tko.PutResult{}, err
		}
	}
	return result, nil
}
