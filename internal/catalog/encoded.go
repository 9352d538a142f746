package catalog

import (
	"context"
	"iter"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// This file serves reads whose packages leave the process: they are returned as
// they are stored, if that is the format that the caller wants, instead of being
// decoded and encoded again.

// EncodedTemplate is Template with the package in a format.
func (s *Entities) EncodedTemplate(ctx context.Context, id tko.TemplateID, revision int64, format krm.Format) (tko.Encoded[tko.Template], error) {
	return read(ctx, s.core, Key{Kind: tko.KindTemplate, ID: string(id)}, revision, encoded(s.core, sharedTemplate, format))
}

// EncodedSite is Site with the package in a format.
func (s *Entities) EncodedSite(ctx context.Context, id tko.SiteID, revision int64, format krm.Format) (tko.Encoded[tko.Site], error) {
	return read(ctx, s.core, Key{Kind: tko.KindSite, ID: string(id)}, revision, encoded(s.core, sharedSite, format))
}

// EncodedDeployment is Deployment with the package in a format.
func (s *Entities) EncodedDeployment(ctx context.Context, id tko.DeploymentID, revision int64, format krm.Format) (tko.Encoded[tko.Deployment], error) {
	if !isDeploymentID(id) {
		return tko.Encoded[tko.Deployment]{}, tko.NotFound(tko.KindDeployment, id)
	}
	return read(ctx, s.core, deploymentKey(id), revision, encoded(s.core, sharedDeployment, format))
}

// EncodedTemplates is Templates with the packages in a format, if the options
// request packages.
func (s *Entities) EncodedTemplates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Template], error] {
	query, err := templateQuery(sel, options)
	return list(ctx, s.core, query, err, encoded(s.core, sharedTemplate, format))
}

// EncodedSites is Sites with the packages in a format, if the options request
// packages.
func (s *Entities) EncodedSites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Site], error] {
	query, err := siteQuery(sel, options)
	return list(ctx, s.core, query, err, encoded(s.core, sharedSite, format))
}

// EncodedDeployments is Deployments with the packages in a format, if the
// options request packages.
func (s *Entities) EncodedDeployments(ctx context.Context, sel tko.DeploymentSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Deployment], error] {
	query, err := deploymentQuery(sel, options)
	return list(ctx, s.core, query, err, encoded(s.core, sharedDeployment, format))
}

// encoded returns a function that returns the entity of a record, with the package in a
// format.
func encoded[T any](s *core, entity func(Record) T, format krm.Format) func(*caller, Record) (tko.Encoded[T], error) {
	return func(c *caller, r Record) (tko.Encoded[T], error) {
		pkg, err := s.encodedPackage(c, r, format)
		return tko.Encoded[T]{Entity: entity(r), Package: pkg}, err
	}
}

// encodedPackage returns the package of [Record.Resources] in a format, as the
// caller may see it; nil if it was not read.
func (s *core) encodedPackage(c *caller, r Record, format krm.Format) ([]byte, error) {
	switch {
	case r.Package == nil:
		return nil, nil
	case format != StoredFormat, krm.MayHoldSecrets(r.Package) && !c.reveals(r):
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
	encoded, err := krm.Encode(format, s.redact(c, r, pkg))
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "package: %w", err)
	}
	return encoded, nil
}
