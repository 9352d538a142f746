package catalog

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
)

// A Registry registers templates, sites and plugins.
type Registry struct {
	rights     *rights.Authorizer // callers enter and commit through it
	reader     record.Lookup
	validation *validation
	inspect    func(tko.Plugin) (c tko.Condition, ok bool) // Options.InspectPlugin
	ids        *idSource

	bases    baseCache
	rewrites atomic.Int32 // number of further registrations that read before they write: see readFirst
}

// register writes a complete record, whether or not it exists, unless nothing
// would change. Permanent properties are taken from the existing record. Most
// records that are registered from cached entities are new: they are written
// without reading first (see readFirst). given is the number of resources that
// the caller gave: none may be refused (see [tko.WithPackageRequired]).
func (s *Registry) register(ctx context.Context, reads *readSet, rec record.Record, given int, requires ...record.Key) (record.Outcome, error) {
	var outcome record.Outcome
	rec.Author = rights.Author(ctx)
	// The right to write under the ID comes before its existence.
	if err := s.rights.Permit(ctx, nil, &rec, rights.ChangeVerb(rec.Kind, access.Create), rights.ChangeVerb(rec.Kind, access.Update)); err != nil {
		return record.Outcome{}, err
	}
	if reads != nil && s.rewrites.Load() <= 0 {
		written := rec
		if err := s.rights.PermitWrite(ctx, record.Record{}, written); err != nil {
			return record.Outcome{}, err
		}
		written.UID = record.NewUID()
		outcomes, err := s.rights.Commit(ctx, reads.write(record.Write{Op: tko.OpWritten, Record: written, Expect: record.Absent, Requires: requires}))
		if err == nil {
			return outcomes[0], nil
		}
		if record.IsStale(err) || !errors.Is(err, tko.ErrConflict) {
			return record.Outcome{}, err
		}
	}
	err := record.Retry(ctx, func() error {
		current, err := s.reader.One(ctx, record.Fields{}, rec.Key)
		if err != nil {
			return err
		}
		written := rec
		written.UID = record.NewUID()
		if err := s.rights.PermitWrite(ctx, current, written); err != nil {
			return record.Final(err)
		}
		if s.rewrites.Add(-1); current.Revision != 0 {
			s.rewrites.Store(readFirst)
			content.RetainAttached(&written, current)
			if written.Template != current.Template { // the caller names another one than the awaited
				written.Await(record.Awaited{})
			}
			if tko.DetailsKept(ctx) {
				written.Details = current.Details
			}
			if record.SameContent(current, written) {
				if reads != nil && !reads.fromStore && len(reads.versions) > 0 { // no commit would check that the cached template is the current one
					return record.Final(&record.StaleError{What: "the template"})
				}
				outcome = record.Outcome{Key: rec.Key, Revision: current.Revision, Position: current.Position}
				return nil
			}
			if given == 0 && tko.PackageRequired(ctx) && current.Digest != written.Digest && current.Digest != emptyDigest() {
				return record.Final(tko.Errorf(tko.ErrInvalid, "%s %q has a package, and this registration has none: nothing was changed; give the package (--url, --stdin), or confirm an empty one (--empty)",
					rec.Kind, rec.ID))
			}
			written.Owner = current.Owner
			written.UID, written.Created, written.Origin, written.Conditions = current.UID, current.Created, current.Origin, warnedAfter(current, written)
			if written.Kind == tko.KindSite {
				written.Conditions = siteConditions(current, written)
			}
		}
		s.inspectPlugin(&written, current.Revision+1)
		outcomes, err := s.rights.Commit(ctx, reads.write(record.Write{
			Op: tko.OpWritten, Record: written, Expect: current.Revision, Position: current.Position, Requires: requires,
			KeepsOwner: rights.KeepsOwner(current, written),
		}))
		if record.IsStale(err) {
			return record.Final(err)
		}
		if errors.Is(err, tko.ErrNotFound) {
			return tko.Errorf(tko.ErrConflict, "%s %q was deleted while it was written: try again", rec.Kind, rec.ID)
		}
		if err != nil {
			return err
		}
		outcome = outcomes[0]
		return nil
	})
	if errors.Is(err, tko.ErrConflict) && !record.IsStale(err) {
		return record.Outcome{}, tko.Errorf(tko.ErrConflict, "%s %q is being written by too many clients at the same time: try again", rec.Kind, rec.ID)
	}
	return outcome, err
}

// emptyDigest is the digest of a package of no resources.
var emptyDigest = sync.OnceValue(func() record.Digest {
	c, _ := content.Of(nil) // it can always be encoded
	return c.Digest
})

// readFirst is the number of registrations that read before they write, after
// one that found an existing record.
const readFirst = 64

// A base is the part of a template that entities start from. Without a template
// it is an empty package without metadata. A template that doesn't exist is an
// ErrInvalid.
type base struct {
	revision int64
	pkg      krm.Package
	metadata map[string]string
}

func (s *Registry) base(ctx context.Context, reads *readSet, id string) (base, error) {
	if id == "" {
		return base{}, nil
	}
	if b, ok := s.bases.get(id, reads); ok {
		return b, nil
	}
	key := record.Key{Kind: tko.KindTemplate, ID: id}
	if record.CheckKey(key) != nil {
		return base{}, record.Explain(&record.MissingError{Key: key})
	}
	r, err := s.reader.One(ctx, record.Fields{Package: true}, key)
	if err != nil {
		return base{}, err
	}
	if r.Revision == 0 {
		return base{}, record.Explain(&record.MissingError{Key: key})
	}
	pkg, err := record.PackageOf(r)
	if err != nil {
		return base{}, err
	}
	b := base{revision: r.Revision, pkg: pkg, metadata: r.Effective()}
	if reads != nil {
		reads.versions = append(reads.versions, record.Version{Key: key, Position: r.Position})
	}
	s.bases.put(r, b)
	return b, nil
}

// RegisterTemplate creates or replaces a template and returns its revision. The
// package is validated partially. Deployments of an existing template keep it,
// and the packages that they were made with. If nothing would change, nothing
// is written.
func (s *Registry) RegisterTemplate(ctx context.Context, t tko.Template) (int64, error) {
	ctx, _, err := s.rights.Enter(ctx, tko.KindTemplate, access.Create, access.Update)
	if err != nil {
		return 0, err
	}
	if t.Package, err = s.rights.Restored(ctx, record.Key{Kind: tko.KindTemplate, ID: string(t.ID)}, t.Package); err != nil {
		return 0, err
	}
	rec, err := s.templateRecord(ctx, t)
	if err != nil {
		return 0, err
	}
	outcome, err := s.register(ctx, nil, rec, len(t.Package))
	return outcome.Revision, err
}

// templateRecord derives and validates a template.
func (s *Registry) templateRecord(ctx context.Context, t tko.Template) (record.Record, error) {
	key := record.Key{Kind: tko.KindTemplate, ID: string(t.ID)}
	if err := record.CheckNewID(key); err != nil {
		return record.Record{}, err
	}
	if err := content.CheckPackage(t.Package); err != nil {
		return record.Record{}, err
	}
	if _, _, err := content.StateOf(t.Package); err != nil {
		return record.Record{}, err
	}
	if err := content.CheckDetails(key, t.Details); err != nil {
		return record.Record{}, err
	}
	metadata, err := content.MetadataOf(t.Package, nil, t.Metadata)
	if err != nil {
		return record.Record{}, err
	}
	r, err := s.validation.withPackage(ctx, nil, record.Record{Key: key, Details: t.Details, Metadata: metadata, CRDs: len(crdsOf(t.Package)) > 0}, t.Package, false)
	if err != nil {
		return record.Record{}, err
	}
	return r, s.validation.checkDefinitions(ctx, t.ID, t.Package)
}

// provisionedPrefix is the prefix of the IDs of provisioned sites.
const provisionedPrefix = "provisioned/"

// RegisterSite creates or replaces a site and returns its revision. A site with
// a template has the template's package and metadata, with the given ones
// merged in. The result is validated completely. Deployments at an existing
// site stay there. If nothing would change, nothing is written.
func (s *Registry) RegisterSite(ctx context.Context, site tko.Site) (int64, error) {
	ctx, _, err := s.rights.Enter(ctx, tko.KindSite, access.Create, access.Update)
	if err != nil {
		return 0, err
	}
	if site.Package, err = s.rights.Restored(ctx, record.Key{Kind: tko.KindSite, ID: string(site.ID)}, site.Package); err != nil {
		return 0, err
	}
	var outcome record.Outcome
	err = tryChecked(ctx, func(reads *readSet) error {
		record, requires, err := s.siteRecord(ctx, reads, site, false)
		if err != nil {
			return err
		}
		outcome, err = s.register(ctx, reads, record, len(site.Package), requires...)
		return err
	})
	return outcome.Revision, err
}

// siteRecord derives and validates a site. A whole package isn't merged into the template's.
func (s *Registry) siteRecord(ctx context.Context, reads *readSet, site tko.Site, whole bool) (record.Record, []record.Key, error) {
	return s.deriveSite(ctx, reads, site, whole, true)
}

// partialSite is siteRecord for a site that waits for its first template, which may have what
// the site lacks.
func (s *Registry) partialSite(ctx context.Context, reads *readSet, site tko.Site, whole bool) (record.Record, []record.Key, error) {
	return s.deriveSite(ctx, reads, site, whole, false)
}

func (s *Registry) deriveSite(ctx context.Context, reads *readSet, site tko.Site, whole, complete bool) (record.Record, []record.Key, error) {
	key := record.Key{Kind: tko.KindSite, ID: string(site.ID)}
	if err := record.CheckNewID(key); err != nil {
		return record.Record{}, nil, err
	}
	if err := content.CheckDetails(key, site.Details); err != nil {
		return record.Record{}, nil, err
	}
	base, err := s.base(ctx, reads, string(site.Template))
	if err != nil {
		return record.Record{}, nil, err
	}
	merged := base.pkg
	if whole {
		merged = nil
	}
	pkg, err := content.StartFrom(string(site.Template), merged, site.Package)
	if err != nil {
		return record.Record{}, nil, err
	}
	metadata, err := content.MetadataOf(pkg, base.metadata, site.Metadata)
	if err != nil {
		return record.Record{}, nil, err
	}
	r, err := s.validation.withPackage(ctx, reads, record.Record{Key: key, Template: string(site.Template), Details: site.Details, Metadata: metadata}, pkg, complete)
	if err != nil {
		return record.Record{}, nil, err
	}
	r.Untriggered = s.validation.isUntriggered(reads, pkg)
	return r, record.References(r.Template, ""), nil
}

// ProvisionSite registers a site with a generated ID "provisioned/<KSUID>",
// with the metadata type: provisioned unless it is given, exactly once for an
// origin: if a site of the origin exists, its ID is returned, and it doesn't
// change.
func (s *Registry) ProvisionSite(ctx context.Context, request tko.NewSite) (id tko.SiteID, created bool, err error) {
	ctx, _, err = s.rights.Enter(ctx, tko.KindSite, access.Provision, access.Create)
	if err != nil {
		return "", false, err
	}
	if err := checkOrigin(request.Origin); err != nil {
		return "", false, err
	}
	ids, err := s.ids.next(1)
	if err != nil {
		return "", false, err
	}
	pkg := request.Package
	if request.Template == "" {
		if pkg, err = content.Merge(nil, pkg); err != nil { // applies renames
			return "", false, err
		}
	}
	metadata := map[string]string{"type": "provisioned"}
	maps.Copy(metadata, request.Metadata)
	site := tko.Site{ID: tko.SiteID(provisionedPrefix + ids[0]), Template: request.Template, Details: request.Details, Metadata: metadata, Package: pkg}
	var outcomes []record.Outcome
	err = tryChecked(ctx, func(reads *readSet) error {
		rec, requires, err := s.siteRecord(ctx, reads, site, false)
		if err != nil {
			return err
		}
		rec.UID, rec.Author, rec.Origin = record.NewUID(), rights.Author(ctx), record.OriginOf("", request.Origin)
		if err := s.rights.Permit(ctx, nil, &rec, access.Provision, access.Create); err != nil {
			return err
		}
		if err := s.rights.PermitReferences(ctx, nil, &rec); err != nil {
			return err
		}
		outcomes, err = s.rights.Commit(ctx, reads.write(record.Write{Op: tko.OpWritten, Record: rec, Expect: record.Absent, Requires: requires}))
		return err
	})
	if err != nil {
		return "", false, err
	}
	return tko.SiteID(outcomes[0].Key.ID), !outcomes[0].Existed, nil
}
