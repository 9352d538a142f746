package catalog

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/krm"
)

// This file serves a transport that treats all kinds alike and writes whole
// records conditionally: the Kubernetes API.

// Resources returns the package of a record. The Deployment resource of a
// deployment's package has the state of the record.
func (r Record) Resources() (krm.Package, error) {
	if r.Kind == tko.KindDeployment && r.Package != nil {
		return deploymentPackage(r)
	}
	return packageOf(r)
}

// AsPlugin returns the plugin of a record.
func (r Record) AsPlugin() (tko.Plugin, error) { return pluginOf(r) }

// CheckKey returns ErrNotFound if no record can have the key. It accepts IDs
// that can no longer be created, because old records may have them.
func CheckKey(key Key) error {
	ok := key.ID != "" && len(key.ID) <= maxStoredID && storable(key.ID)
	if key.Kind == tko.KindDeployment {
		ok = isDeploymentID(key.ID)
	}
	if !ok {
		return tko.NotFound(key.Kind, key.ID)
	}
	return nil
}

// maxStoredID is the maximum length of a stored ID, in bytes: a plugin's type
// and name.
const maxStoredID = 2*tko.MaxIDLength + 1

// checkNewID checks the ID of a record that is to be written through any API.
func checkNewID(key Key) error {
	switch key.Kind {
	case tko.KindTemplate:
		return tko.CheckID("template ID", key.ID)
	case tko.KindSite:
		return tko.CheckID("site ID", key.ID)
	case tko.KindRollout:
		return tko.CheckID("rollout ID", key.ID)
	case tko.KindDeployment, tko.KindPlugin: // TKO makes the IDs of deployments, [tko.Plugin.Check] checks those of plugins
	}
	return nil
}

// missing returns the error of a record that doesn't exist: the reason if no
// record can have its ID, otherwise ErrNotFound.
func missing(key Key) error {
	if err := checkNewID(key); err != nil {
		return err
	}
	return tko.NotFound(key.Kind, key.ID)
}

// Record returns the current record of a key. It returns ErrNotFound if there
// is none.
func (s *Service) Record(ctx context.Context, fields Fields, key Key) (Record, error) {
	if err := CheckKey(key); err != nil {
		return Record{}, err
	}
	ctx, c, err := s.enter(ctx, key.Kind, access.Read)
	if err != nil {
		return Record{}, err
	}
	fields.Scope = c.view(s)
	r, err := s.get(ctx, fields, key)
	if err == nil && !c.sees(s, r) {
		return Record{}, tko.NotFound(key.Kind, key.ID)
	}
	return r, err
}

// Position returns the position of the newest change.
func (s *Service) Position(ctx context.Context) (int64, error) { return s.store.Head(ctx) }

// A Requirement is a precondition of a Put or of a deletion. If it isn't met,
// the result is an ErrConflict, an ErrNotFound if the record is missing, or an
// [ExistsError].
type Requirement struct {
	Absent   bool   // the record doesn't exist
	Present  bool   // the record exists
	UID      string // the record has this UID; "": any
	Position int64  // the record, with its conditions, hasn't changed since; 0: any
	Revision int64  // the record is at this revision; 0: any
}

// An ExistsError reports that a record exists that must not.
type ExistsError struct {
	Key  Key
	Name string // the name that is taken, if it isn't the ID
}

func (e *ExistsError) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("%s %q exists already: its ID is %q", e.Key.Kind, e.Name, e.Key.ID)
	}
	return fmt.Sprintf("%s %q exists already", e.Key.Kind, e.Key.ID)
}

// Is reports true for ErrConflict.
func (e *ExistsError) Is(target error) bool { return target == tko.ErrConflict }

func (q Requirement) check(key Key, r Record) error {
	switch {
	case r.Revision != 0 && q.Absent:
		return &ExistsError{Key: key}
	case r.Revision == 0 && (q.Present || q.UID != "" || q.Position != 0 || q.Revision != 0):
		return tko.NotFound(key.Kind, key.ID)
	case q.UID != "" && q.UID != r.UID:
		return tko.Errorf(tko.ErrConflict, "%s %q has the UID %s, not %s: it is another one, read it again", key.Kind, key.ID, r.UID, q.UID)
	case q.Position != 0 && q.Position != r.Position:
		return tko.Errorf(tko.ErrConflict, "%s %q was changed at %d, after %d: read it again", key.Kind, key.ID, r.Position, q.Position)
	case q.Revision != 0 && q.Revision != r.Revision:
		return tko.Errorf(tko.ErrConflict, "%s %q is at revision %d, not at %d: another client has changed it, read it again", key.Kind, key.ID, r.Revision, q.Revision)
	}
	return nil
}

// A Put is the desired state of a whole record.
type Put struct {
	Key      Key    // a new deployment has no ID
	Parent   string // deployments; can't be changed
	Template string // sites, deployments
	Site     string // deployments
	// Metadata is the complete metadata. Passed metadata that it doesn't have
	// is removed; inherited and gathered metadata stays; new or changed
	// metadata is passed.
	Metadata map[string]string
	// Remove are keys of inherited or gathered metadata that the record shall
	// not have. Keys that were removed earlier stay removed until Metadata has
	// them.
	Remove   []string
	Labels   map[string]string // as they were written; see [Metadata]
	Package  krm.Package       // of a new deployment: merged into the template's package
	Plugin   tko.Plugin
	Attached []byte // opaque compact JSON of the transport, or nil

	Origin string // of a new deployment: there is at most one with it
	Name   string // of a new deployment: see [Record.KubernetesName]

	FromTemplate bool // the package of an existing deployment was made from the current revision of its template

	Require Requirement
	DryRun  bool // derive and validate, without writing
	// Permit, if not nil, may refuse the change with an error. before has
	// Revision 0 if the record is new.
	Permit func(before, after Record) error
}

// PutRecord writes a record, unless nothing would change, and returns it with
// its package, and whether it is new. The rules are those of RegisterTemplate,
// RegisterSite, RegisterPlugin, CreateDeployment and CommitDeployment.
func (s *Service) PutRecord(ctx context.Context, p Put) (r Record, created bool, err error) {
	ctx, c, err := s.enter(ctx, p.Key.Kind, changeVerb(p.Key.Kind, access.Create), changeVerb(p.Key.Kind, access.Update))
	if err != nil {
		return Record{}, false, err
	}
	if p.Key.Kind == tko.KindDeployment && p.Key.ID == "" {
		if r, created, err = s.putNewDeployment(ctx, p); err == nil && !p.DryRun {
			r = s.reread(ctx, r)
		}
		return r, created, err
	}
	wrote := false
	err = retry(ctx, func() error {
		current, err := s.get(ctx, Fields{Package: true, Deployments: true, Scope: c.view(s)}, p.Key)
		if err != nil {
			return err
		}
		if current.Revision != 0 && p.Key.Kind == tko.KindDeployment {
			if err := s.permit(ctx, &current, nil, access.Update); err != nil {
				return final(err)
			}
		}
		if p.Key.Kind != tko.KindDeployment {
			if p.Package, err = s.restore(ctx, current, p.Package); err != nil {
				return err
			}
		}
		if err := p.Require.check(p.Key, current); err != nil {
			return final(err)
		}
		created = current.Revision == 0
		record, requires, err := s.derived(ctx, p, current)
		if err != nil {
			return err
		}
		record.Author, record.UID, record.Created, record.Origin, record.Deployments = author(ctx), current.UID, current.Created, current.Origin, current.Deployments
		record.Replaces = current.Replaces
		if created {
			record.UID, record.Created = newUID(), time.Now().UTC()
		}
		if err := s.permitWrite(ctx, current, record); err != nil {
			return final(err)
		}
		if p.Permit != nil {
			if err := p.Permit(current, record); err != nil {
				return final(err)
			}
		}
		if !created && sameContent(current, record) && (!p.FromTemplate || current.Base == record.Base) {
			r = current
			return nil
		}
		record.Revision, record.Position, record.Updated = current.Revision, current.Position, current.Updated
		if p.DryRun {
			r = record
			return nil
		}
		outcomes, err := s.commit(ctx, Write{Op: tko.OpWritten, Record: record, Expect: current.Revision, Position: current.Position, Requires: requires})
		if err != nil {
			if p.Require.Position != 0 && (errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrConflict)) {
				return final(tko.Errorf(tko.ErrConflict, "%s %q was changed at the same time: read it again", p.Key.Kind, p.Key.ID))
			}
			if errors.Is(err, tko.ErrNotFound) { // deleted concurrently
				err = tko.Errorf(tko.ErrConflict, "%w", err)
			}
			return err
		}
		r, wrote = record, true
		r.Revision, r.Position = outcomes[0].Revision, outcomes[0].Position
		return nil
	})
	if err == nil && wrote {
		r = s.reread(ctx, r)
	}
	return r, created, err
}

// reread returns a record that was just written with the properties that the
// store sets.
func (s *Service) reread(ctx context.Context, r Record) Record {
	c, ok := callerOf(ctx)
	if !ok {
		return r
	}
	now, err := s.get(ctx, Fields{Package: true, Deployments: true, Scope: c.view(s)}, r.Key)
	if err != nil || now.UID != r.UID {
		return r // the write itself succeeded
	}
	if now.Position == r.Position {
		return now
	}
	r.Created, r.Updated = now.Created, now.Updated
	return r
}

func (s *Service) putNewDeployment(ctx context.Context, p Put) (r Record, created bool, err error) {
	if p.Parent != "" && !isDeploymentID(tko.DeploymentID(p.Parent)) {
		return Record{}, false, explain(&MissingError{Key: Key{Kind: tko.KindDeployment, ID: p.Parent}})
	}
	if p.Name != "" {
		if p.Origin, err = s.nameOrigin(ctx, p.Name); err != nil {
			return Record{}, false, err
		}
	}
	base, err := s.base(ctx, nil, p.Template)
	if err != nil {
		return Record{}, false, err
	}
	n, err := s.newRecord(ctx, nil, base, tko.NewDeployment{
		Parent: tko.DeploymentID(p.Parent), Template: tko.TemplateID(p.Template), Site: tko.SiteID(p.Site), Metadata: p.Metadata, Merge: p.Package,
	})
	if err != nil {
		return Record{}, false, err
	}
	n.record.remove(p.Remove)
	if err := errors.Join(n.record.label(p.Labels), n.record.attach(p.Attached)); err != nil {
		return Record{}, false, err
	}
	if p.Parent != "" {
		n.requires = append(n.requires, deploymentKey(tko.DeploymentID(p.Parent)))
	}
	ids, err := s.ids.next(1)
	if err != nil {
		return Record{}, false, err
	}
	n.record.Origin = p.Origin
	err = s.permitWrite(ctx, Record{}, n.record)
	if err == nil {
		err = s.permitApproval(ctx, Record{}, &n.record)
	}
	if err != nil {
		return Record{}, false, err
	}
	w := n.write(ctx, ids[0])
	w.Record.Created = time.Now().UTC()
	if p.Permit != nil {
		if err := p.Permit(Record{}, w.Record); err != nil {
			return Record{}, false, err
		}
	}
	if p.DryRun {
		return w.Record, true, s.requireAll(ctx, w.Requires)
	}
	outcomes, err := s.commit(ctx, w)
	if err != nil {
		return Record{}, false, err
	}
	if outcomes[0].Existed && p.Name != "" {
		return Record{}, false, &ExistsError{Key: outcomes[0].Key, Name: p.Name}
	}
	if outcomes[0].Existed {
		r, err := s.get(ctx, Fields{Package: true}, outcomes[0].Key)
		return r, false, err
	}
	w.Record.Revision, w.Record.Position = outcomes[0].Revision, outcomes[0].Position
	return w.Record, true, nil
}

// requireAll checks references as a commit does.
func (s *Service) requireAll(ctx context.Context, keys []Key) error {
	if len(keys) == 0 {
		return nil
	}
	records, err := s.store.Get(ctx, Fields{}, keys...)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Revision == 0 || r.Deleting() {
			return explain(&MissingError{Key: r.Key, Deleting: r.Revision != 0})
		}
	}
	return nil
}

// derived derives and validates the record of a Put.
func (s *Service) derived(ctx context.Context, p Put, current Record) (record Record, requires []Key, err error) {
	passed, removed := passedOf(current, p.Metadata), removedOf(current, p)
	switch p.Key.Kind {
	case tko.KindTemplate:
		record, err = s.templateRecord(ctx, tko.Template{ID: tko.TemplateID(p.Key.ID), Metadata: passed, Package: p.Package})
	case tko.KindSite:
		record, requires, err = s.siteRecord(ctx, nil, tko.Site{
			ID: tko.SiteID(p.Key.ID), Template: tko.TemplateID(p.Template), Metadata: passed, Package: p.Package,
		})
	case tko.KindPlugin:
		record, err = pluginRecord(p.Plugin)
		if err == nil && record.Key != p.Key {
			err = tko.Errorf(tko.ErrInvalid, "the plugin is %q, and its key %q", record.ID, p.Key.ID)
		}
	case tko.KindRollout:
		record, err = s.rolloutRecord(ctx, tko.Rollout{ID: tko.RolloutID(p.Key.ID), Metadata: passed, Package: p.Package})
	case tko.KindDeployment:
		return s.derivedDeployment(ctx, p, current, passed, removed)
	}
	if err != nil {
		return Record{}, nil, err
	}
	record.remove(removed)
	if err := errors.Join(record.label(p.Labels), record.attach(p.Attached)); err != nil {
		return Record{}, nil, err
	}
	record.Conditions = current.Conditions
	if p.DryRun {
		err = s.requireAll(ctx, requires)
	}
	return record, requires, err
}

func (s *Service) derivedDeployment(ctx context.Context, p Put, current Record, passed map[string]string, removed []string) (Record, []Key, error) {
	if current.Revision == 0 {
		return Record{}, nil, tko.NotFound(p.Key.Kind, p.Key.ID)
	}
	if p.Parent != current.Parent {
		return Record{}, nil, tko.Errorf(tko.ErrInvalid, "the parent of deployment %q is %q, and can't become %q", current.ID, current.Parent, p.Parent)
	}
	change, err := s.changedWith(ctx, nil, current, current, p.Package, attributes{
		template: p.Template, site: p.Site, passed: passed, removed: removed, labels: p.Labels, attached: p.Attached,
	})
	if err != nil {
		return Record{}, nil, err
	}
	record := change.record
	if p.FromTemplate {
		base, err := s.base(ctx, nil, record.Template)
		if err != nil {
			return Record{}, nil, err
		}
		record.Base = base.revision
		record.derive(derivation.Record{Template: tko.TemplateID(record.Template), Revision: base.revision, Whole: record.Digest})
	}
	record.Conditions = mergeConditions(current.Conditions, change.flags(current.Conditions), current.Revision+1, time.Now())
	if p.DryRun {
		err = s.requireAll(ctx, change.requires)
	}
	return record, change.requires, err
}

// passedOf returns the metadata that must be passed so that the complete
// metadata is as wanted.
func passedOf(current Record, wanted map[string]string) map[string]string {
	before, had := current.passed(), current.effective()
	passed := map[string]string{}
	for key, value := range wanted {
		_, mine := before[key]
		if is, there := had[key]; mine || !there || is != value {
			passed[key] = value
		}
	}
	return passed
}

// removedOf returns the removed keys of metadata: the earlier and the new ones,
// without those that are wanted again.
func removedOf(current Record, p Put) []string {
	var removed []string
	for _, key := range slices.Concat(current.removed(), p.Remove) {
		if _, wanted := p.Metadata[key]; !wanted && !slices.Contains(removed, key) {
			removed = append(removed, key)
		}
	}
	return removed
}

// PutConditions replaces conditions, by type, as SetConditions does, removes
// those of the types without that have attached data, and returns the record.
func (s *Service) PutConditions(ctx context.Context, key Key, conditions []tko.Condition, without []string, require Requirement, dryRun bool) (Record, error) {
	if err := checkConditions(conditions); err != nil {
		return Record{}, err
	}
	ctx, _, err := s.enter(ctx, key.Kind, access.Condition)
	if err != nil {
		return Record{}, err
	}
	if !dryRun {
		if err := s.setConditions(ctx, key, conditions, without, require); err != nil {
			return Record{}, err
		}
	}
	r, err := s.Record(ctx, Fields{Package: true, Deployments: true}, key)
	if err != nil || !dryRun {
		return r, err
	}
	if err := require.check(key, r); err != nil {
		return Record{}, err
	}
	r.Conditions = mergeConditions(withoutConditions(r.Conditions, without), conditions, r.Revision, time.Now())
	return r, nil
}

// PutApproval approves a deployment as ApproveDeployment does, and returns its
// record with the package.
func (s *Service) PutApproval(ctx context.Context, key Key, require Requirement, dryRun bool) (Record, error) {
	require.Present = true
	ctx, _, err := s.enter(ctx, tko.KindDeployment, access.Approve)
	if err != nil {
		return Record{}, err
	}
	r, wrote, err := s.approve(ctx, key, require, dryRun)
	if err != nil {
		return Record{}, err
	}
	if wrote {
		r = s.reread(ctx, r)
	}
	return r, nil
}

// RemoveRecord deletes a record and its descendants, and returns it as it was;
// with dryRun it only counts.
func (s *Service) RemoveRecord(ctx context.Context, key Key, require Requirement, dryRun bool) (Record, tko.Deleted, error) {
	if key.Kind == tko.KindRollout {
		return s.removeRollout(ctx, key, require, dryRun)
	}
	require.Present = true
	ctx, _, err := s.enter(ctx, key.Kind, changeVerb(key.Kind, access.Delete))
	if err != nil {
		return Record{}, tko.Deleted{}, err
	}
	var r Record
	done := progress{most: s.options.ConfirmAbove}
	more := []Key{key}
	err = retry(ctx, func() error {
		var err error
		if r, err = s.Record(ctx, Fields{Package: true}, key); err == nil {
			err = require.check(key, r)
		}
		if err != nil {
			return final(err)
		}
		if dryRun {
			return s.permitDeletion(ctx, changeVerb(key.Kind, access.Delete), key)
		}
		if done.most, err = s.allowDeletion(ctx, key); err != nil {
			return final(err)
		}
		if require == (Requirement{Present: true}) {
			return nil
		}
		w := deletion(ctx, key)
		w.Position = r.Position
		more, err = s.deleteStep(ctx, []Write{w}, &done)
		return err
	})
	if err != nil {
		return Record{}, tko.Deleted{}, err
	}
	if dryRun {
		deleted, err := s.countBelow(ctx, key)
		return r, deleted, err
	}
	deleted, err := s.deleteRest(ctx, key, more, &done)
	return r, deleted, err
}

// RemoveRecords deletes records of one kind and their descendants, and returns
// their number; with dryRun it only counts. It skips records that don't exist.
// If one doesn't meet the requirement, that is an ErrConflict, and none is
// deleted.
func (s *Service) RemoveRecords(ctx context.Context, kind tko.Kind, ids []string, require Requirement, dryRun bool) (tko.Deleted, error) {
	if kind == tko.KindRollout {
		return s.removeRollouts(ctx, ids, require, dryRun)
	}
	verb := changeVerb(kind, access.Purge)
	ctx, c, err := s.enter(ctx, kind, verb, changeVerb(kind, access.Delete))
	if err != nil {
		return tko.Deleted{}, err
	}
	if !c.grant.Somewhere(verb, kind) { // the selection was shown to the caller, as a list
		verb = changeVerb(kind, access.Delete)
	}
	var keys []Key
	chosen := frozen{seed: maphash.MakeSeed()}
	for batch := range slices.Chunk(ids, selectedPage) {
		wanted := make([]Key, len(batch))
		for i, id := range batch {
			wanted[i] = Key{Kind: kind, ID: id}
		}
		records, err := s.store.Get(ctx, Fields{}, wanted...)
		if err != nil {
			return tko.Deleted{}, err
		}
		for _, r := range records {
			if !c.sees(s, r) {
				continue
			}
			if err := require.check(r.Key, r); err != nil {
				return tko.Deleted{}, err
			}
			keys = append(keys, r.Key)
			chosen.hashes = append(chosen.hashes, chosen.hash(r.ID))
		}
	}
	slices.Sort(chosen.hashes)
	if err := s.permitDeletion(ctx, verb, keys...); err != nil {
		return tko.Deleted{}, err
	}
	below := map[uint64]struct{}{}
	if kind == tko.KindDeployment {
		for batch := range slices.Chunk(keys, selectedPage) {
			if err := s.addBelow(ctx, batch, chosen, below); err != nil {
				return tko.Deleted{}, err
			}
		}
	}
	would := tko.Deleted{Count: len(keys) + len(below), Descendants: len(below)}
	if dryRun {
		return would, nil
	}
	most, err := s.allow(ctx, "delete", kind, would.Count)
	if err != nil {
		return tko.Deleted{}, err
	}
	done := progress{most: most}
	for batch := range slices.Chunk(keys, purgeBatch) {
		if err := s.deleteAll(ctx, batch, &done); err != nil {
			return done.deleted(len(keys)), done.interrupted(err)
		}
	}
	if done.count > 0 {
		s.log.InfoContext(ctx, "purged", "kind", done.kind, "count", done.count, "dissociated", done.dissociated, "who", author(ctx).Who)
	}
	return done.deleted(len(keys)), nil
}

func (s *Service) countBelow(ctx context.Context, key Key) (tko.Deleted, error) {
	if key.Kind != tko.KindDeployment {
		return tko.Deleted{Count: 1}, nil
	}
	below := map[string]struct{}{}
	err := s.store.Descendants(ctx, []string{key.ID}, func(id string) { below[id] = struct{}{} })
	return tko.Deleted{Count: 1 + len(below), Descendants: len(below)}, err
}

// pluginRecord checks a plugin and returns its record.
func pluginRecord(p tko.Plugin) (Record, error) {
	if err := p.Check(); err != nil {
		return Record{}, err
	}
	if p.Executor == "" {
		p.Executor = tko.ExecutorCommand
	}
	encoded, err := encodePlugin(p)
	if err != nil {
		return Record{}, err
	}
	if len(encoded) > maxPluginBytes {
		return Record{}, tko.Errorf(tko.ErrInvalid, "plugin %q has %d bytes: use at most %d", p.ID(), len(encoded), maxPluginBytes)
	}
	return Record{Key: pluginKey(p.Type, p.Name), Plugin: encoded}, nil
}
