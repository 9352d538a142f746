package catalog

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// RegisterTemplate creates or replaces a template and returns its revision. The
// package is validated partially. Deployments of an existing template keep it,
// and the packages that they were made with. If nothing would change, nothing
// is written.
func (s *Registry) RegisterTemplate(ctx context.Context, t tko.Template) (int64, error) {
	ctx, _, err := s.enter(ctx, tko.KindTemplate, access.Create, access.Update)
	if err != nil {
		return 0, err
	}
	if t.Package, err = s.restored(ctx, Key{Kind: tko.KindTemplate, ID: string(t.ID)}, t.Package); err != nil {
		return 0, err
	}
	record, err := s.templateRecord(ctx, t)
	if err != nil {
		return 0, err
	}
	outcome, err := s.register(ctx, nil, record, len(t.Package))
	return outcome.Revision, err
}

// templateRecord derives and validates a template.
func (s *Registry) templateRecord(ctx context.Context, t tko.Template) (Record, error) {
	key := Key{Kind: tko.KindTemplate, ID: string(t.ID)}
	if err := checkNewID(key); err != nil {
		return Record{}, err
	}
	if err := checkPackage(t.Package); err != nil {
		return Record{}, err
	}
	if _, _, err := deploymentState(t.Package); err != nil {
		return Record{}, err
	}
	metadata, err := metadataOf(t.Package, nil, t.Metadata)
	if err != nil {
		return Record{}, err
	}
	r, err := s.withPackage(ctx, nil, Record{Key: key, Metadata: metadata, CRDs: len(crdsOf(t.Package)) > 0}, t.Package, false)
	if err != nil {
		return Record{}, err
	}
	return r, s.checkDefinitions(ctx, t.ID, t.Package)
}
