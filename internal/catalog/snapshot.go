package catalog

import (
	"context"
	"crypto/sha256"
	"iter"
	"slices"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/changelog"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/service"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// Snapshots returns the state of all entities at once.
type Snapshots struct {
	rights     *rights.Authorizer // callers enter and commit through it
	store      record.Store
	reader     record.Lookup
	validation *validation

	entities    *Entities
	deployments *DeploymentWriter
	changeLog   *changelog.ChangeLog
}

// A Snapshot is the state of all entities as of one position, as its caller may see it.
// All its reads see the same state, whatever is written meanwhile, until the history
// that they need is no longer retained: then they return ErrGone. It holds no resources
// of the store. It is safe for concurrent use.
type Snapshot struct {
	service  *Snapshots
	position int64

	mutex     sync.Mutex
	packages  map[record.Digest]krm.Package // decoded
	size      int                           // of their encodings
	resources sharedResources
}

// sharedResources are decoded resources by the digests of their encodings. Packages that
// are made from one template share them: so they take little memory, and are compared fast.
type sharedResources struct {
	young, old         map[record.Digest]krm.Resource // old ones occur more than once
	youngSize, oldSize int
}

// maxSharedResources is the maximum size of the encodings of young and of old resources.
const maxSharedResources = 1 << 20

func (s *sharedResources) get(digest record.Digest, size int) (krm.Resource, bool) {
	if r, ok := s.old[digest]; ok {
		return r, true
	}
	r, ok := s.young[digest]
	if !ok {
		return nil, false
	}
	s.oldSize += size
	if s.old == nil || s.oldSize > maxSharedResources {
		s.old, s.oldSize = map[record.Digest]krm.Resource{}, size
	}
	s.old[digest] = r
	return r, true
}

func (s *sharedResources) put(digest record.Digest, size int, r krm.Resource) {
	s.youngSize += size
	if s.young == nil || s.youngSize > maxSharedResources {
		s.young, s.youngSize = map[record.Digest]krm.Resource{}, size
	}
	s.young[digest] = r
}

// decode decodes a package. Equal resources of packages share memory.
func (s *Snapshot) decode(r record.Record) (krm.Package, error) {
	encoded, ok := krm.EncodedResources(r.Package)
	if !ok {
		return record.PackageOf(r)
	}
	pkg := make(krm.Package, len(encoded))
	for i, data := range encoded {
		digest := record.Digest(sha256.Sum256(data))
		s.mutex.Lock()
		resource, known := s.resources.get(digest, len(data))
		s.mutex.Unlock()
		if !known {
			var err error
			if resource, err = krm.DecodeResource(data, krm.Limits{Bytes: record.MaxPackageBytes, Depth: record.MaxPackageDepth, Resources: record.MaxResources}); err != nil {
				return record.PackageOf(r) // its error names the place
			}
			s.mutex.Lock()
			s.resources.put(digest, len(data), resource)
			s.mutex.Unlock()
		}
		pkg[i] = resource
	}
	return pkg, nil
}

// maxSnapshotPackages is the maximum size of the decoded packages that a Snapshot holds,
// in encoded bytes. Decoded ones are several times larger.
const maxSnapshotPackages = 1 << 20

// snapshotPage is the number of deployments whose packages are read at once.
const snapshotPage = 200

// Snapshot returns the state as of the newest position.
func (s *Snapshots) Snapshot(ctx context.Context) (*Snapshot, error) {
	if _, _, err := s.rights.Enter(ctx, tko.KindDeployment, access.Read); err != nil {
		return nil, err
	}
	position, err := s.store.Head(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.validation.currentRules(ctx); err != nil {
		return nil, err
	}
	return &Snapshot{service: s, position: position, packages: map[record.Digest]krm.Package{}}, nil
}

// Position returns the position of the snapshot.
func (s *Snapshot) Position() int64 { return s.position }

// Deployments returns the records of the selected deployments, with their packages,
// sorted by ID.
func (s *Snapshot) Deployments(ctx context.Context, sel tko.DeploymentSelect) iter.Seq2[record.Record, error] {
	return record.Stream(func(yield func(record.Record) bool) error {
		var page []record.Record
		send := func() (more bool, err error) {
			full, err := s.withPackages(ctx, page)
			page = page[:0]
			return err == nil && !slices.ContainsFunc(full, func(r record.Record) bool { return !yield(r) }), err
		}
		for r, err := range s.matching(ctx, sel) {
			if err != nil {
				return err
			}
			page = append(page, r)
			if len(page) < snapshotPage {
				continue
			}
			if more, err := send(); !more {
				return err
			}
		}
		_, err := send()
		return err
	})
}

// Children returns the records of the children of a deployment, without packages,
// sorted by ID.
func (s *Snapshot) Children(ctx context.Context, parent tko.DeploymentID) iter.Seq2[record.Record, error] {
	return s.matching(ctx, tko.DeploymentSelect{Parent: parent})
}

// matching returns the records of the selected deployments, without packages.
func (s *Snapshot) matching(ctx context.Context, sel tko.DeploymentSelect) iter.Seq2[record.Record, error] {
	query, err := criteria.Deployments(sel, tko.ListOptions{})
	if err != nil {
		return func(yield func(record.Record, error) bool) { yield(record.Record{}, err) }
	}
	return s.service.changeLog.Records(ctx, query, s.position)
}

// withPackages returns records with their packages as of the snapshot.
func (s *Snapshot) withPackages(ctx context.Context, records []record.Record) ([]record.Record, error) {
	if len(records) == 0 {
		return nil, nil
	}
	keys := record.Keys(records, func(r record.Record) record.Key { return r.Key })
	return s.service.store.GetAt(ctx, s.position, record.Fields{Package: true}, keys...)
}

// Record returns a deployment or template with its package as of a revision; 0 is that
// of the snapshot. It returns ErrNotFound if it doesn't exist or is no longer retained.
func (s *Snapshot) Record(ctx context.Context, key record.Key, revision int64) (record.Record, error) {
	ctx, c, err := s.service.rights.Enter(ctx, key.Kind, access.Read)
	if err != nil {
		return record.Record{}, err
	}
	none := tko.NotFound(key.Kind, key.ID)
	if record.CheckKey(key) != nil {
		return record.Record{}, none
	}
	r, err := s.service.reader.One(ctx, record.Fields{Package: true}, key)
	if err != nil {
		return record.Record{}, err
	}
	if r.Revision != 0 && !c.Sees(r) {
		return record.Record{}, none
	}
	now := r
	switch {
	case revision != 0:
		if r, err = s.service.store.Revision(ctx, key, revision); err != nil {
			return record.Record{}, err
		}
	case now.Revision == 0:
		return record.Record{}, none // if it was deleted since, what is planned for it is stale
	case r.Position > s.position:
		read, err := s.service.store.GetAt(ctx, s.position, record.Fields{Package: true}, key)
		if err != nil {
			return record.Record{}, err
		}
		r = read[0]
		if r.Revision == 0 || r.UID != now.UID {
			return record.Record{}, none
		}
	}
	if revision != 0 && r.UID == now.UID { // revisions don't record them
		r.Base, r.Replaces, r.Replaced = now.Base, now.Replaces, now.Replaced
	}
	if !c.Sees(r) {
		return record.Record{}, none
	}
	return r, nil
}

// Current returns the records, with their packages, of those of the deployments that exist
// now, which may be after the snapshot, in no order.
func (s *Snapshot) Current(ctx context.Context, ids []tko.DeploymentID) ([]record.Record, error) {
	ctx, c, err := s.service.rights.Enter(ctx, tko.KindDeployment, access.Read)
	if err != nil {
		return nil, err
	}
	keys := make([]record.Key, 0, len(ids))
	for _, id := range ids {
		if key := record.DeploymentKey(id); record.CheckKey(key) == nil {
			keys = append(keys, key)
		}
	}
	records, err := s.service.store.Get(ctx, record.Fields{Package: true}, keys...)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(r record.Record) bool { return r.Revision == 0 || !c.Sees(r) }), nil
}

// Templates returns the selected templates, without packages, sorted by ID.
func (s *Snapshot) Templates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions) iter.Seq2[tko.Template, error] {
	query, err := criteria.Templates(sel, options)
	return listAt(ctx, s, query, err, s.service.entities.templateOf)
}

// Sites returns the selected sites, without packages, sorted by ID.
func (s *Snapshot) Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error] {
	query, err := criteria.Sites(sel, options)
	return listAt(ctx, s, query, err, s.service.entities.siteOf)
}

// Plugins returns the plugins of a type, sorted by name.
func (s *Snapshot) Plugins(ctx context.Context, typ string) iter.Seq2[tko.Plugin, error] {
	pattern, err := tko.ParsePattern(typ + "|**")
	query := record.Query{Kind: tko.KindPlugin, IDs: []tko.Pattern{pattern}, Limit: -1}
	return listAt(ctx, s, query, err, func(_ *rights.Caller, r record.Record) (tko.Plugin, error) { return record.PluginOf(r) })
}

func listAt[T any](ctx context.Context, s *Snapshot, query record.Query, err error, entity func(*rights.Caller, record.Record) (T, error)) iter.Seq2[T, error] {
	return record.Stream(func(yield func(T) bool) error {
		if err != nil {
			return err
		}
		ctx, c, err := s.service.rights.Enter(ctx, query.Kind, access.Read)
		if err != nil {
			return err
		}
		query.Fields = record.Fields{}
		for r, err := range s.service.changeLog.Records(ctx, query, s.position) {
			if err != nil {
				return err
			}
			e, err := entity(c, r)
			if err != nil {
				return err
			}
			if !yield(e) {
				return nil
			}
		}
		return nil
	})
}

// Package returns the package of a record, for a deployment with the state in its
// Deployment resource. It is shared and must not be changed.
func (s *Snapshot) Package(r record.Record) (krm.Package, error) {
	s.mutex.Lock()
	pkg, ok := s.packages[r.Digest]
	s.mutex.Unlock()
	if !ok || r.Digest == (record.Digest{}) {
		var err error
		if pkg, err = s.decode(r); err != nil {
			return nil, err
		}
		s.mutex.Lock()
		s.size += len(r.Package)
		if s.size > maxSnapshotPackages {
			clear(s.packages)
			s.size = len(r.Package)
		}
		s.packages[r.Digest] = pkg
		s.mutex.Unlock()
	}
	if r.Kind == tko.KindDeployment {
		pkg = pkg.WithDeployment(r.Template, r.Site, r.Prepared, r.Approved)
	}
	return pkg, nil
}

// Deployment returns the deployment of a record, without its package.
func (s *Snapshot) Deployment(r record.Record) tko.Deployment { return record.DeploymentOf(r) }

// Template returns the template of a record, without its package.
func (s *Snapshot) Template(r record.Record) tko.Template {
	t := record.TemplateOf(r)
	t.Deployments = nil
	return t
}

// Definitions returns the custom resource definitions of the templates.
func (s *Snapshot) Definitions(ctx context.Context) (krm.Package, error) {
	rules, err := s.service.validation.rulesFor(ctx, new(readSet))
	if err != nil {
		return nil, err
	}
	return decodeDefinitions(rules.crds)
}

// Derivation returns what the package of a record was made from; false if that isn't
// known.
func (s *Snapshot) Derivation(ctx context.Context, r record.Record) (derivation.Record, bool) {
	if r.Derivation == (record.Digest{}) {
		return derivation.Record{}, false
	}
	encoded, err := s.service.store.Derivation(ctx, r.Derivation)
	if err != nil {
		return derivation.Record{}, false
	}
	d, err := derivation.Decode(encoded)
	return d, err == nil
}

// Changes are properties of a changed deployment other than its package; the zero value
// changes none.
type Changes struct {
	Derived  *derivation.Record // what the package is made from; nil if it isn't known
	Manifest *spec.Manifest     // that has the metadata; nil if that stays
}

// Changed returns a deployment's record with another package, as a commit would store
// it. from, if its Revision isn't 0, is the template that the package is made from. An
// invalid package is an ErrInvalid.
func (s *Snapshot) Changed(ctx context.Context, current record.Record, pkg krm.Package, from record.Record, with Changes) (record.Record, error) {
	ctx, _, err := s.service.rights.Enter(ctx, tko.KindDeployment, access.Read)
	if err != nil {
		return record.Record{}, err
	}
	before, err := s.Package(current)
	if err != nil {
		return record.Record{}, err
	}
	edit := editOf(current, current, pkg)
	edit.before = func() (krm.Package, error) { return before, nil }
	edit.with.passed, edit.with.removed = service.MetadataWith(current, with.Manifest)
	change, err := s.service.deployments.changed(ctx, new(readSet), edit)
	if err != nil {
		return record.Record{}, err
	}
	r := change.record
	if from.Revision != 0 {
		r.Base = from.Revision
		if r.Metadata, err = content.MetadataAfter(current.Effective(), pkg, from.Effective(), edit.with.passed); err != nil {
			return record.Record{}, err
		}
		content.RemoveMetadata(&r, edit.with.removed)
		content.RetainAttached(&r, current)
	}
	if with.Derived != nil {
		setDerivation(&r, *with.Derived)
	}
	return r, nil
}

// Named returns the ID of the deployment that a source has created with an origin; "" if
// there is none.
func (s *Snapshot) Named(ctx context.Context, origin string) (tko.DeploymentID, error) {
	ctx, c, err := s.service.rights.Enter(ctx, tko.KindDeployment, access.Read)
	if err != nil {
		return "", err
	}
	r, err := s.service.reader.WithOrigin(ctx, record.DeclaredOrigin(origin))
	if err != nil || r.Revision == 0 || !c.Sees(r) {
		return "", err
	}
	return tko.DeploymentID(r.ID), nil
}

// Declared returns the record of a new deployment that a manifest declares, without an ID,
// as PutEntity would store it. template is zero if it has none.
func (s *Snapshot) Declared(ctx context.Context, template tko.Template, m spec.Manifest) (record.Record, error) {
	ctx, _, err := s.service.rights.Enter(ctx, tko.KindDeployment, access.Read)
	if err != nil {
		return record.Record{}, err
	}
	if err := checkOrigin(m.Origin); err != nil {
		return record.Record{}, err
	}
	n, err := s.service.deployments.newRecord(ctx, nil, base{revision: template.Stamp.Revision, pkg: template.Package, metadata: template.Metadata},
		tko.NewDeployment{Parent: m.Parent, Template: m.Template, Site: m.Site, Metadata: m.Metadata, Merge: m.Package})
	if err != nil {
		return record.Record{}, err
	}
	n.record.Origin = record.DeclaredOrigin(m.Origin)
	return n.record, s.service.reader.RequireAll(ctx, n.requires)
}

// Created returns the record of a child that is made from a template, without an ID, as
// CreateChildren would store it.
func (s *Snapshot) Created(ctx context.Context, template tko.Template, request tko.NewChildren, child tko.NewChild) (record.Record, error) {
	ctx, _, err := s.service.rights.Enter(ctx, tko.KindDeployment, access.Read)
	if err != nil {
		return record.Record{}, err
	}
	n, err := s.service.deployments.newRecord(ctx, nil, base{revision: template.Stamp.Revision, pkg: template.Package, metadata: template.Metadata},
		tko.NewDeployment{Parent: request.Parent, Template: child.Template, Site: child.Site, Merge: request.Merge})
	if err != nil {
		return record.Record{}, err
	}
	r := n.record
	r.Origin = record.OriginOf(string(request.Parent), child.Origin)
	r.Replaces = slices.Sorted(func(yield func(string) bool) {
		for _, id := range child.Replaces {
			if !yield(string(id)) {
				return
			}
		}
	})
	return r, nil
}

// ReservedOrigins returns the origins of the children of a deployment that rollouts
// deleted and can create again, with the rollouts.
func (s *Snapshot) ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error) {
	return s.service.store.ReservedOrigins(ctx, parent)
}
