package catalog

import (
	"context"
	"maps"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// provisionedPrefix is the prefix of the IDs of provisioned sites.
const provisionedPrefix = "provisioned/"

// RegisterSite creates or replaces a site and returns its revision. A site with
// a template has the template's package and metadata, with the given ones
// merged in. The result is validated completely. Deployments at an existing
// site stay there. If nothing would change, nothing is written.
func (s *Registry) RegisterSite(ctx context.Context, site tko.Site) (int64, error) {
	ctx, _, err := s.enter(ctx, tko.KindSite, access.Create, access.Update)
	if err != nil {
		return 0, err
	}
	if site.Package, err = s.restored(ctx, Key{Kind: tko.KindSite, ID: string(site.ID)}, site.Package); err != nil {
		return 0, err
	}
	var outcome Outcome
	err = tryChecked(ctx, func(reads *readSet) error {
		record, requires, err := s.siteRecord(ctx, reads, site)
		if err != nil {
			return err
		}
		outcome, err = s.register(ctx, reads, record, len(site.Package), requires...)
		return err
	})
	return outcome.Revision, err
}

// siteRecord derives and validates a site.
func (s *Registry) siteRecord(ctx context.Context, reads *readSet, site tko.Site) (Record, []Key, error) {
	key := Key{Kind: tko.KindSite, ID: string(site.ID)}
	if err := checkNewID(key); err != nil {
		return Record{}, nil, err
	}
	base, err := s.base(ctx, reads, string(site.Template))
	if err != nil {
		return Record{}, nil, err
	}
	pkg, err := startFrom(string(site.Template), base.pkg, site.Package)
	if err != nil {
		return Record{}, nil, err
	}
	metadata, err := metadataOf(pkg, base.metadata, site.Metadata)
	if err != nil {
		return Record{}, nil, err
	}
	r, err := s.withPackage(ctx, reads, Record{Key: key, Template: string(site.Template), Metadata: metadata}, pkg, true)
	if err != nil {
		return Record{}, nil, err
	}
	r.Untriggered = s.isUntriggered(reads, pkg)
	return r, references(r.Template, ""), nil
}

// ProvisionSite registers a site with a generated ID "provisioned/<KSUID>",
// with the metadata type: provisioned unless it is given, exactly once for an
// origin: if a site of the origin exists, its ID is returned, and it doesn't
// change.
func (s *Registry) ProvisionSite(ctx context.Context, request tko.NewSite) (id tko.SiteID, created bool, err error) {
	ctx, _, err = s.enter(ctx, tko.KindSite, access.Provision, access.Create)
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
		if pkg, err = merge(nil, pkg); err != nil { // applies renames
			return "", false, err
		}
	}
	metadata := map[string]string{"type": "provisioned"}
	maps.Copy(metadata, request.Metadata)
	site := tko.Site{ID: tko.SiteID(provisionedPrefix + ids[0]), Template: request.Template, Metadata: metadata, Package: pkg}
	var outcomes []Outcome
	err = tryChecked(ctx, func(reads *readSet) error {
		record, requires, err := s.siteRecord(ctx, reads, site)
		if err != nil {
			return err
		}
		record.UID, record.Author, record.Origin = newUID(), author(ctx), originOf("", request.Origin)
		if err := s.permit(ctx, nil, &record, access.Provision, access.Create); err != nil {
			return err
		}
		if err := s.permitReferences(ctx, nil, &record); err != nil {
			return err
		}
		outcomes, err = s.commit(ctx, reads.write(Write{Op: tko.OpWritten, Record: record, Expect: Absent, Requires: requires}))
		return err
	})
	if err != nil {
		return "", false, err
	}
	return tko.SiteID(outcomes[0].Key.ID), !outcomes[0].Existed, nil
}
