package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// A declared is an index of the manifests of an edit. It isn't changed.
type declared struct {
	rollout string
	of      *spec.Manifest // the first one
	created map[tko.DeploymentID]*spec.Manifest
	known   map[tko.DeploymentID]*spec.Manifest
}

// index returns the index of the manifests of an edit, by the IDs of the deployments that
// exist and of those that the rollout creates. The newest one is kept: rows are made again
// one by one.
func (p *run) index(manifests []spec.Manifest) declared {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.newest.of == &manifests[0] && p.newest.rollout == p.request.Rollout {
		return p.newest
	}
	d := declared{
		rollout: p.request.Rollout, of: &manifests[0], created: make(map[tko.DeploymentID]*spec.Manifest, len(manifests)), known: map[tko.DeploymentID]*spec.Manifest{},
	}
	for i := range manifests {
		m := &manifests[i]
		d.created[newID(p.request.Rollout, m.Parent, m.Origin)] = m
		if m.Deployment != "" {
			d.known[m.Deployment] = m
		}
	}
	p.newest = d
	return d
}

// declared returns the manifest that a rollout creates a deployment from, with the number
// of its edit; nil if there is none.
func (p *run) declared(id tko.DeploymentID, edits []uint8) (m *spec.Manifest, edit int) {
	for _, n := range edits {
		if int(n) < len(p.request.Spec.Edits) && p.request.Spec.Edits[n].Manifests != nil {
			if m := p.index(p.request.Spec.Edits[n].Manifests).created[id]; m != nil {
				return m, int(n)
			}
		}
	}
	return nil, 0
}

// existing returns the ID of the deployment of a manifest; "" if there is none.
func (p *run) existing(ctx context.Context, m spec.Manifest) (tko.DeploymentID, error) {
	if m.Deployment != "" {
		return m.Deployment, nil
	}
	if id, ok := p.named[m.Origin]; ok {
		return id, nil
	}
	id, err := p.snapshot.Named(ctx, m.Origin)
	if err == nil {
		p.named[m.Origin] = id
	}
	return id, err
}

// declaring returns the existing deployments that manifests delete, or else those that
// they change, in the order of IDs. Deployments that were deleted are left out.
func (p *run) declaring(ctx context.Context, manifests []spec.Manifest, absent bool) iter.Seq2[Deployment, error] {
	return func(yield func(Deployment, error) bool) {
		var ids []tko.DeploymentID
		for _, m := range manifests {
			if m.Absent != absent {
				continue
			}
			id, err := p.existing(ctx, m)
			if err != nil {
				yield(Deployment{}, fmt.Errorf("find the deployment %q: %w", m.Origin, err))
				return
			}
			if id != "" {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			d, err := p.snapshot.Deployment(ctx, id, 0)
			if errors.Is(err, tko.ErrNotFound) {
				continue
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// manifest returns the template of a deployment, and the package that its manifest gives.
func (p *run) manifest(ctx context.Context, c *changed, id tko.DeploymentID) (tko.TemplateID, krm.Package, error) {
	for _, e := range p.request.Spec.Edits {
		if e.Manifests == nil {
			continue
		}
		c.manifest = p.index(e.Manifests).known[id]
		if c.manifest != nil {
			break
		}
		for i, m := range e.Manifests { // it is known by its origin
			if found, err := p.existing(ctx, m); err != nil {
				return "", nil, err
			} else if found == id {
				c.manifest = &e.Manifests[i]
				break
			}
		}
	}
	if c.manifest == nil {
		return "", nil, tko.Errorf(tko.ErrConflict, "deployment %q: no manifest names it any more: plan again", id)
	}
	m := c.manifest
	if m.Template == "" {
		return "", merge.WithoutBookkeeping(m.Package), nil
	}
	t, err := p.existingTemplate(ctx, m.Template)
	if err != nil {
		return "", nil, err
	}
	c.from = &t
	c.pins = append(c.pins, plan.Pin{Kind: tko.KindTemplate, ID: string(t.ID), Revision: t.Stamp.Revision})
	pkg, err := krm.Merge(t.Package, m.Package)
	if err != nil {
		return "", nil, tko.Errorf(tko.ErrInvalid, "the manifest %q can't be merged into template %q: %w", m.Name, m.Template, err)
	}
	return m.Template, merge.WithoutBookkeeping(pkg), nil
}

// existingTemplate returns the current template that a plan names.
func (p *run) existingTemplate(ctx context.Context, id tko.TemplateID) (tko.Template, error) {
	t, err := p.template(ctx, id, 0)
	if errors.Is(err, tko.ErrNotFound) {
		err = tko.Errorf(tko.ErrInvalid, "the template %q does not exist: register it, or name another one", id)
	}
	return t, err
}

// creations plans the deployments that manifests create, after all others.
func (p *run) creations(ctx context.Context) error {
	for n, e := range p.request.Spec.Edits {
		for _, m := range e.Manifests {
			if m.Absent || m.Deployment != "" || p.request.Only != nil && !p.request.Only(newID(p.request.Rollout, m.Parent, m.Origin)) {
				continue
			}
			id, err := p.existing(ctx, m)
			if err == nil && id != "" {
				if _, err := p.snapshot.Deployment(ctx, id, 0); err == nil || !errors.Is(err, tko.ErrNotFound) {
					if err != nil {
						return err
					}
					continue // it was changed
				}
			}
			if err == nil {
				err = p.create(ctx, m, n)
			}
			if err != nil {
				return fmt.Errorf("plan the deployment %q: %w", m.Origin, err)
			}
		}
	}
	return nil
}

// create plans the creation of a deployment from a manifest, and of its children.
func (p *run) create(ctx context.Context, m spec.Manifest, edit int) error {
	id := newID(p.request.Rollout, m.Parent, m.Origin)
	draft := plan.Draft{Key: cmp.Or(m.Origin, string(id)), Site: m.Site, Parent: m.Parent}
	draft.Row = plan.Row{Deployment: id, Kind: plan.Create, Wave: plan.NoWave, Edits: []uint8{uint8(edit)}} //nolint:gosec // at most spec.MaxEdits
	var template tko.Template
	var err error
	if m.Template != "" {
		if template, err = p.existingTemplate(ctx, m.Template); err == nil {
			draft.Pins = []plan.Pin{{Kind: tko.KindTemplate, ID: string(template.ID), Revision: template.Stamp.Revision}}
		}
	}
	var stored Deployment
	if err == nil {
		stored, err = p.snapshot.Declared(ctx, template, m)
	}
	pins := slices.Clone(draft.Pins)
	c, after, err := p.prepareNew(ctx, &draft, stored, err)
	if err != nil || after == nil {
		return err
	}
	after.Manifest = &m
	draft.AfterState = after
	if err := p.send(draft); err != nil {
		return err
	}
	return p.family(ctx, ancestry{root: id, pins: pins, edits: draft.Edits}, c)
}
