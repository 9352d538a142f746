package planner

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// OnCatalog returns a function that opens snapshots of a catalog, for New.
func OnCatalog(service *catalog.Service) func(ctx context.Context) (Snapshot, error) {
	return func(ctx context.Context) (Snapshot, error) {
		s, err := service.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		return &stored{Snapshot: s, templates: map[templateKey]record.Record{}}, nil
	}
}

// A stored is a snapshot of a catalog.
type stored struct {
	*catalog.Snapshot

	mutex     sync.Mutex
	templates map[templateKey]record.Record // some, without packages
}

// templateRow returns the record of a template at a revision, without its package.
func (s *stored) templateRow(ctx context.Context, key templateKey) (record.Record, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if r, ok := s.templates[key]; ok {
		return r, nil
	}
	r, err := s.templateRecord(ctx, key.id, key.revision)
	if err != nil {
		return r, err
	}
	r.Package = nil
	if len(s.templates) == maxTemplates {
		clear(s.templates)
	}
	s.templates[key] = r
	return r, nil
}

func (s *stored) deployment(r record.Record) (Deployment, error) {
	pkg, err := s.Package(r)
	if err != nil {
		return Deployment{}, err
	}
	d := Deployment{
		Deployment: s.Snapshot.Deployment(r), Content: plan.Digest(r.Digest), Encoded: r.Package, Derived: plan.Digest(r.Derivation), Derivation: r.Derived, Handle: r,
	}
	d.Package = pkg
	return d, nil
}

func (s *stored) Deployments(ctx context.Context, sel tko.DeploymentSelect) iter.Seq2[Deployment, error] {
	return func(yield func(Deployment, error) bool) {
		for r, err := range s.Snapshot.Deployments(ctx, sel) {
			var d Deployment
			if err == nil {
				d, err = s.deployment(r)
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

func (s *stored) Children(ctx context.Context, parent tko.DeploymentID) iter.Seq2[tko.Deployment, error] {
	return func(yield func(tko.Deployment, error) bool) {
		for r, err := range s.Snapshot.Children(ctx, parent) {
			if !yield(s.Snapshot.Deployment(r), err) || err != nil {
				return
			}
		}
	}
}

func (s *stored) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (Deployment, error) {
	r, err := s.Record(ctx, record.Key{Kind: tko.KindDeployment, ID: string(id)}, revision)
	if err != nil {
		return Deployment{}, err
	}
	return s.deployment(r)
}

func (s *stored) Current(ctx context.Context, ids []tko.DeploymentID) ([]Deployment, error) {
	records, err := s.Snapshot.Current(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]Deployment, 0, len(records))
	for _, r := range records {
		d, err := s.deployment(r)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func (s *stored) Derivation(ctx context.Context, d Deployment) (derivation.Record, bool) {
	r, ok := d.Handle.(record.Record)
	if !ok {
		return derivation.Record{}, false
	}
	return s.Snapshot.Derivation(ctx, r)
}

func (s *stored) templateRecord(ctx context.Context, id tko.TemplateID, revision int64) (record.Record, error) {
	return s.Record(ctx, record.Key{Kind: tko.KindTemplate, ID: string(id)}, revision)
}

func (s *stored) Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error) {
	r, err := s.templateRecord(ctx, id, revision)
	if err != nil {
		return tko.Template{}, err
	}
	t := s.Snapshot.Template(r)
	t.Package, err = s.Package(r)
	return t, err
}

func (s *stored) Plugins(ctx context.Context, sel tko.PluginSelect, _ tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	typ := "*"
	if sel.Type != nil {
		typ = *sel.Type
	}
	return s.Snapshot.Plugins(ctx, typ)
}

func (s *stored) Types(ctx context.Context) (merge.Types, error) {
	definitions, err := s.Definitions(ctx)
	if err != nil {
		return nil, err
	}
	return merge.Custom(definitions), nil
}

func (s *stored) Changed(ctx context.Context, d Deployment, change Change) (Deployment, error) {
	current, ok := d.Handle.(record.Record)
	if !ok {
		return Deployment{}, errors.New("the deployment is not of this snapshot")
	}
	var from record.Record
	if change.From != nil {
		var err error
		if from, err = s.templateRow(ctx, templateKey{change.From.ID, change.From.Stamp.Revision}); err != nil {
			return Deployment{}, err
		}
	}
	r, err := s.Snapshot.Changed(ctx, current, change.Package, from, catalog.Changes{Derived: change.Derivation, Manifest: change.Manifest})
	if err != nil {
		return Deployment{}, err
	}
	return s.deployment(r)
}

func (s *stored) Declared(ctx context.Context, template tko.Template, m spec.Manifest) (Deployment, error) {
	r, err := s.Snapshot.Declared(ctx, template, m)
	if err != nil {
		return Deployment{}, err
	}
	return s.deployment(r)
}

func (s *stored) Created(ctx context.Context, template tko.Template, request tko.NewChildren, child tko.NewChild) (Deployment, error) {
	r, err := s.Snapshot.Created(ctx, template, request, child)
	if err != nil {
		return Deployment{}, err
	}
	d, err := s.deployment(r)
	d.Origin = child.Origin
	return d, err
}
