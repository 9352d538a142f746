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
func (s *Service) EncodedTemplate(ctx context.Context, id tko.TemplateID, revision int64, format krm.Format) (tko.Encoded[tko.Template], error) {
	r, c, err := s.at(ctx, Key{Kind: tko.KindTemplate, ID: string(id)}, revision)
	if err != nil {
		return tko.Encoded[tko.Template]{}, err
	}
	return s.encodedTemplate(c, r, format)
}

// EncodedSite is Site with the package in a format.
func (s *Service) EncodedSite(ctx context.Context, id tko.SiteID, revision int64, format krm.Format) (tko.Encoded[tko.Site], error) {
	r, c, err := s.at(ctx, Key{Kind: tko.KindSite, ID: string(id)}, revision)
	if err != nil {
		return tko.Encoded[tko.Site]{}, err
	}
	return s.encodedSite(c, r, format)
}

// EncodedDeployment is Deployment with the package in a format.
func (s *Service) EncodedDeployment(ctx context.Context, id tko.DeploymentID, revision int64, format krm.Format) (tko.Encoded[tko.Deployment], error) {
	if !isDeploymentID(id) {
		return tko.Encoded[tko.Deployment]{}, tko.NotFound(tko.KindDeployment, id)
	}
	r, c, err := s.at(ctx, deploymentKey(id), revision)
	if err != nil {
		return tko.Encoded[tko.Deployment]{}, err
	}
	return s.encodedDeployment(c, r, format)
}

// EncodedTemplates is Templates with the packages in a format, if the options
// request packages.
func (s *Service) EncodedTemplates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Template], error] {
	query, err := templateQuery(sel, options)
	return list(ctx, s, query, err, func(c *caller, r Record) (tko.Encoded[tko.Template], error) { return s.encodedTemplate(c, r, format) })
}

// EncodedSites is Sites with the packages in a format, if the options request
// packages.
func (s *Service) EncodedSites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Site], error] {
	query, err := siteQuery(sel, options)
	return list(ctx, s, query, err, func(c *caller, r Record) (tko.Encoded[tko.Site], error) { return s.encodedSite(c, r, format) })
}

// EncodedDeployments is Deployments with the packages in a format, if the
// options request packages.
func (s *Service) EncodedDeployments(ctx context.Context, sel tko.DeploymentSelect, options tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Deployment], error] {
	query, err := deploymentQuery(sel, options)
	return list(ctx, s, query, err, func(c *caller, r Record) (tko.Encoded[tko.Deployment], error) {
		return s.encodedDeployment(c, r, format)
	})
}

func (s *Service) encodedTemplate(c *caller, r Record, format krm.Format) (tko.Encoded[tko.Template], error) {
	pkg, err := s.encodedPackage(c, r, format)
	return tko.Encoded[tko.Template]{Entity: sharedTemplate(r), Package: pkg}, err
}

func (s *Service) encodedSite(c *caller, r Record, format krm.Format) (tko.Encoded[tko.Site], error) {
	pkg, err := s.encodedPackage(c, r, format)
	return tko.Encoded[tko.Site]{Entity: sharedSite(r), Package: pkg}, err
}

func (s *Service) encodedDeployment(c *caller, r Record, format krm.Format) (tko.Encoded[tko.Deployment], error) {
	pkg, err := s.encodedPackage(c, r, format)
	return tko.Encoded[tko.Deployment]{Entity: sharedDeployment(r), Package: pkg}, err
}

// encodedPackage returns the package of [Record.Resources] in a format, as the
// caller may see it; nil if it was not read.
func (s *Service) encodedPackage(c *caller, r Record, format krm.Format) ([]byte, error) {
	switch {
	case r.Package == nil:
		return nil, nil
	case format != StoredFormat, krm.MayHoldSecrets(r.Package) && !c.reveals(s, r):
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
