package catalog

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
)

// Entities reads templates, sites, deployments and plugins.
type Entities struct {
	rights *rights.Authorizer // callers enter and commit through it
	store  record.Store
	reader record.Lookup
	fleets fleetAtHand
}

// Template returns a template with its package, as of a revision; 0 is the
// current one, which has its deployments, too.
func (s *Entities) Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error) {
	return rights.Read(ctx, s.rights, record.Key{Kind: tko.KindTemplate, ID: string(id)}, revision, s.templateOf)
}

// templateOf returns the template of a record, with its package if the record
// has it.
func (s *Entities) templateOf(c *rights.Caller, r record.Record) (tko.Template, error) {
	pkg, err := record.PackageOf(r)
	e := record.TemplateOf(r)
	e.Metadata, e.Stamp.Conditions, e.Package = maps.Clone(e.Metadata), slices.Clone(e.Stamp.Conditions), s.rights.Redact(c, r, pkg)
	return e, err
}

// Site returns a site with its package, as of a revision; 0 is the current one,
// which has its deployments, too.
func (s *Entities) Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error) {
	return rights.Read(ctx, s.rights, record.Key{Kind: tko.KindSite, ID: string(id)}, revision, s.siteOf)
}

// siteOf returns the site of a record, with its package if the record has it.
func (s *Entities) siteOf(c *rights.Caller, r record.Record) (tko.Site, error) {
	pkg, err := record.PackageOf(r)
	e := record.SiteOf(r)
	e.Metadata, e.Stamp.Conditions, e.Package = maps.Clone(e.Metadata), slices.Clone(e.Stamp.Conditions), s.rights.Redact(c, r, pkg)
	return e, err
}

// Plugin returns a plugin.
func (s *Entities) Plugin(ctx context.Context, typ, name string) (tko.Plugin, error) {
	key := record.PluginKey(typ, name)
	ctx, c, err := s.rights.Enter(ctx, tko.KindPlugin, access.Read)
	if err != nil {
		return tko.Plugin{}, err
	}
	if err := record.CheckKey(key); err != nil {
		return tko.Plugin{}, err
	}
	var r record.Record
	if !tko.AsOfOf(ctx).IsZero() {
		r, err = s.rights.Past(ctx, c, key, record.Fields{})
	} else {
		r, err = s.rights.GetVisible(ctx, c, record.Fields{}, key)
	}
	if err != nil {
		return tko.Plugin{}, err
	}
	return record.PluginOf(r)
}

// Deployment returns a deployment with its package, as of a revision; 0 is the
// current one.
func (s *Entities) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	if !record.IsDeploymentID(id) {
		return tko.Deployment{}, tko.NotFound(tko.KindDeployment, id)
	}
	return rights.Read(ctx, s.rights, record.DeploymentKey(id), revision, s.deploymentOf)
}

// deploymentOf returns the deployment of a record. If the record has a package,
// the Deployment resource of the result's package has the state of the record.
func (s *Entities) deploymentOf(c *rights.Caller, r record.Record) (tko.Deployment, error) {
	pkg, err := r.Resources()
	d := record.DeploymentOf(r)
	d.Metadata, d.Stamp.Conditions, d.Package = maps.Clone(d.Metadata), slices.Clone(d.Stamp.Conditions), s.rights.Redact(c, r, pkg)
	return d, err
}

// DeploymentsByID returns those of the deployments that exist, with their
// packages, in the order of ids.
func (s *Entities) DeploymentsByID(ctx context.Context, ids []tko.DeploymentID) ([]tko.Deployment, error) {
	ctx, c, err := s.rights.Enter(ctx, tko.KindDeployment, access.Read)
	if err != nil {
		return nil, err
	}
	if len(ids) > maxBatch {
		return nil, tko.Errorf(tko.ErrInvalid, "%d deployments are to be read at once: give at most %d", len(ids), maxBatch)
	}
	var keys []record.Key
	for _, id := range ids {
		if record.IsDeploymentID(id) {
			keys = append(keys, record.DeploymentKey(id))
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	records, err := s.store.Get(ctx, record.Fields{Package: true}, keys...)
	if err != nil {
		return nil, err
	}
	var all []tko.Deployment
	for _, r := range records {
		if !c.Sees(r) {
			continue
		}
		d, err := s.deploymentOf(c, r)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// This file serves reads whose packages leave the process: they are returned as
// they are stored, if that is the format that the caller wants, instead of being
// decoded and encoded again.

// EncodedTemplate is Template with the package in a format.
func (s *Entities) EncodedTemplate(ctx context.Context, id tko.TemplateID, revision int64, format krm.Format) (tko.Encoded[tko.Template], error) {
	return rights.Read(ctx, s.rights, record.Key{Kind: tko.KindTemplate, ID: string(id)}, revision, encoded(s.rights, record.TemplateOf, format))
}

// EncodedSite is Site with the package in a format.
func (s *Entities) EncodedSite(ctx context.Context, id tko.SiteID, revision int64, format krm.Format) (tko.Encoded[tko.Site], error) {
	return rights.Read(ctx, s.rights, record.Key{Kind: tko.KindSite, ID: string(id)}, revision, encoded(s.rights, record.SiteOf, format))
}

// EncodedDeployment is Deployment with the package in a format.
func (s *Entities) EncodedDeployment(ctx context.Context, id tko.DeploymentID, revision int64, format krm.Format) (tko.Encoded[tko.Deployment], error) {
	if !record.IsDeploymentID(id) {
		return tko.Encoded[tko.Deployment]{}, tko.NotFound(tko.KindDeployment, id)
	}
	return rights.Read(ctx, s.rights, record.DeploymentKey(id), revision, encoded(s.rights, record.DeploymentOf, format))
}

// EncodedTemplates is Templates with the packages in a format, if the options
// request packages.
func (s *Entities) EncodedTemplates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Template], error] {
	query, err := criteria.Templates(sel, options)
	return rights.List(ctx, s.rights, query, err, encoded(s.rights, record.TemplateOf, format))
}

// EncodedSites is Sites with the packages in a format, if the options request
// packages.
func (s *Entities) EncodedSites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Site], error] {
	query, err := criteria.Sites(sel, options)
	return rights.List(ctx, s.rights, query, err, encoded(s.rights, record.SiteOf, format))
}

// EncodedDeployments is Deployments with the packages in a format, if the
// options request packages.
func (s *Entities) EncodedDeployments(ctx context.Context, sel tko.DeploymentSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Deployment], error] {
	query, err := criteria.Deployments(sel, options)
	return rights.List(ctx, s.rights, query, err, encoded(s.rights, record.DeploymentOf, format))
}

// encoded returns a function that returns the entity of a record, with the package in a
// format.
func encoded[T any](authorizer *rights.Authorizer, entity func(record.Record) T, format krm.Format) func(*rights.Caller, record.Record) (tko.Encoded[T], error) {
	return func(c *rights.Caller, r record.Record) (tko.Encoded[T], error) {
		pkg, err := encodedPackage(authorizer, c, r, format)
		return tko.Encoded[T]{Entity: entity(r), Package: pkg}, err
	}
}

// encodedPackage returns the package of [record.Record.Resources] in a format, as the
// caller may see it; nil if it was not read.
func encodedPackage(authorizer *rights.Authorizer, c *rights.Caller, r record.Record, format krm.Format) ([]byte, error) {
	switch {
	case r.Package == nil:
		return nil, nil
	case format != record.StoredFormat, krm.MayHoldSecrets(r.Package) && !c.Reveals(r):
	case r.Kind == tko.KindDeployment:
		if pkg, ok := krm.EncodedWithDeployment(r.Package, r.Template, r.Site, r.Prepared, r.Approved); ok {
			return pkg, nil
		}
	case krm.IsEncoded(r.Package):
		return r.Package, nil
	}
	pkg, err := r.Resources()
	if err != nil {
		return nil, err
	}
	encoded, err := krm.Encode(format, authorizer.Redact(c, r, pkg))
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "package: %w", err)
	}
	return encoded, nil
}
