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
type Entities struct{ *core }

// Template returns a template with its package, as of a revision; 0 is the
// current one, which has its deployments, too.
func (s *Entities) Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error) {
	return rights.Read(ctx, s.rights, record.Key{Kind: tko.KindTemplate, ID: string(id)}, revision, s.templateOf)
}

// templateOf returns the template of a record, with its package if the record
// has it.
func (s *Entities) templateOf(c *rights.Caller, r record.Record) (tko.Template, error) {
	pkg, err := record.PackageOf(r)
	e := sharedTemplate(r)
	e.Metadata, e.Stamp.Conditions, e.Package = maps.Clone(e.Metadata), slices.Clone(e.Stamp.Conditions), s.rights.Redact(c, r, pkg)
	return e, err
}

// sharedTemplate returns the template of a record, without its package. Its
// metadata and conditions are those of the record.
func sharedTemplate(r record.Record) tko.Template {
	return tko.Template{
		ID:          tko.TemplateID(r.ID),
		Details:     r.Details,
		Metadata:    r.Effective(),
		Deployments: deploymentIDs(r.Deployments), DeploymentCount: r.Count,
		Stamp: r.Stamp(),
	}
}

func deploymentIDs(ids []string) []tko.DeploymentID {
	if ids == nil {
		return nil
	}
	typed := make([]tko.DeploymentID, len(ids))
	for i, id := range ids {
		typed[i] = tko.DeploymentID(id)
	}
	return typed
}

// Site returns a site with its package, as of a revision; 0 is the current one,
// which has its deployments, too.
func (s *Entities) Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error) {
	return rights.Read(ctx, s.rights, record.Key{Kind: tko.KindSite, ID: string(id)}, revision, s.siteOf)
}

// siteOf returns the site of a record, with its package if the record has it.
func (s *Entities) siteOf(c *rights.Caller, r record.Record) (tko.Site, error) {
	pkg, err := record.PackageOf(r)
	e := sharedSite(r)
	e.Metadata, e.Stamp.Conditions, e.Package = maps.Clone(e.Metadata), slices.Clone(e.Stamp.Conditions), s.rights.Redact(c, r, pkg)
	return e, err
}

// sharedSite returns the site of a record, without its package. Its metadata and
// conditions are those of the record.
func sharedSite(r record.Record) tko.Site {
	return tko.Site{
		ID:          tko.SiteID(r.ID),
		Details:     r.Details,
		Template:    tko.TemplateID(r.Template),
		Metadata:    r.Effective(),
		Deployments: deploymentIDs(r.Deployments), DeploymentCount: r.Count,
		AwaitedTemplate: tko.TemplateID(r.Awaited().Template),
		Stamp:           r.Stamp(),
	}
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
	d := sharedDeployment(r)
	d.Metadata, d.Stamp.Conditions, d.Package = maps.Clone(d.Metadata), slices.Clone(d.Stamp.Conditions), s.rights.Redact(c, r, pkg)
	return d, err
}

// sharedDeployment returns the deployment of a record, without its package. Its
// metadata and conditions are those of the record.
func sharedDeployment(r record.Record) tko.Deployment {
	d := tko.Deployment{
		ID:       tko.DeploymentID(r.ID),
		Parent:   tko.DeploymentID(r.Parent),
		Template: tko.TemplateID(r.Template),
		Site:     tko.SiteID(r.Site),
		Metadata: r.Effective(),
		Prepared: r.Prepared,
		Approved: r.Approved,
		Origin:   r.ChildOrigin(),
		Stamp:    r.Stamp(),

		TemplateRevision: r.Base,
	}
	if a := r.Awaited(); !a.IsZero() {
		d.AwaitedTemplate, d.AwaitedSite = tko.TemplateID(a.Template), tko.SiteID(a.Site)
	}
	for _, id := range r.Replaces {
		d.Replaces = append(d.Replaces, tko.DeploymentID(id))
	}
	for _, id := range r.Replaced {
		d.Replaced = append(d.Replaced, tko.DeploymentID(id))
	}
	return d
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
	return rights.Read(ctx, s.rights, record.Key{Kind: tko.KindTemplate, ID: string(id)}, revision, encoded(s.core, sharedTemplate, format))
}

// EncodedSite is Site with the package in a format.
func (s *Entities) EncodedSite(ctx context.Context, id tko.SiteID, revision int64, format krm.Format) (tko.Encoded[tko.Site], error) {
	return rights.Read(ctx, s.rights, record.Key{Kind: tko.KindSite, ID: string(id)}, revision, encoded(s.core, sharedSite, format))
}

// EncodedDeployment is Deployment with the package in a format.
func (s *Entities) EncodedDeployment(ctx context.Context, id tko.DeploymentID, revision int64, format krm.Format) (tko.Encoded[tko.Deployment], error) {
	if !record.IsDeploymentID(id) {
		return tko.Encoded[tko.Deployment]{}, tko.NotFound(tko.KindDeployment, id)
	}
	return rights.Read(ctx, s.rights, record.DeploymentKey(id), revision, encoded(s.core, sharedDeployment, format))
}

// EncodedTemplates is Templates with the packages in a format, if the options
// request packages.
func (s *Entities) EncodedTemplates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Template], error] {
	query, err := criteria.Templates(sel, options)
	return list(ctx, s.core, query, err, encoded(s.core, sharedTemplate, format))
}

// EncodedSites is Sites with the packages in a format, if the options request
// packages.
func (s *Entities) EncodedSites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Site], error] {
	query, err := criteria.Sites(sel, options)
	return list(ctx, s.core, query, err, encoded(s.core, sharedSite, format))
}

// EncodedDeployments is Deployments with the packages in a format, if the
// options request packages.
func (s *Entities) EncodedDeployments(ctx context.Context, sel tko.DeploymentSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Deployment], error] {
	query, err := criteria.Deployments(sel, options)
	return list(ctx, s.core, query, err, encoded(s.core, sharedDeployment, format))
}

// encoded returns a function that returns the entity of a record, with the package in a
// format.
func encoded[T any](s *core, entity func(record.Record) T, format krm.Format) func(*rights.Caller, record.Record) (tko.Encoded[T], error) {
	return func(c *rights.Caller, r record.Record) (tko.Encoded[T], error) {
		pkg, err := s.encodedPackage(c, r, format)
		return tko.Encoded[T]{Entity: entity(r), Package: pkg}, err
	}
}

// encodedPackage returns the package of [record.Record.Resources] in a format, as the
// caller may see it; nil if it was not read.
func (s *core) encodedPackage(c *rights.Caller, r record.Record, format krm.Format) ([]byte, error) {
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
	encoded, err := krm.Encode(format, s.rights.Redact(c, r, pkg))
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "package: %w", err)
	}
	return encoded, nil
}
