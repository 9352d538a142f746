package planner

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/krm"
)

// maxRevisions is the maximum number of revisions of a deployment that are read to
// find out what its package was made from.
const maxRevisions = 1000

// A lineage is what the package of a deployment was made from.
type lineage struct {
	key   plan.Digest // equal lineages have the same
	base  krm.Package // what the template and the creation's merge gave
	from  tko.Template
	merge krm.Package // the creation's
	lost  string      // why base or from isn't known; "" if they are
	steps []derivation.Step
}

// lineage returns what the package of a deployment was made from: what was recorded, or
// else what its revisions tell. The error is one of the snapshot.
func (p *run) lineage(ctx context.Context, d Deployment) (lineage, error) {
	if d.Derived != (plan.Digest{}) {
		if l, ok := p.lineages[d.Derived]; ok {
			return l, nil
		}
		if r, ok := p.snapshot.Derivation(ctx, d); ok && r.Template == d.Template {
			l, err := p.recorded(ctx, d, r)
			if err == nil && len(r.Merge) == 0 && len(r.Steps) == 0 && len(p.lineages) < maxLineages { // others are of one deployment, mostly
				p.lineages[d.Derived] = l
			}
			return l, err
		}
	}
	return p.retraced(ctx, d)
}

// maxLineages bounds the lineages that a run keeps in memory.
const maxLineages = 1000

// recorded returns the lineage of a derivation.
func (p *run) recorded(ctx context.Context, d Deployment, r derivation.Record) (lineage, error) {
	l := lineage{key: d.Derived, steps: r.Steps}
	t, err := p.template(ctx, r.Template, r.Revision)
	if errors.Is(err, tko.ErrNotFound) {
		l.lost = fmt.Sprintf("base not retained: revision %d of template %q was collected, or the template was deleted", r.Revision, r.Template)
		return l, nil
	}
	if err != nil {
		return l, err
	}
	l.from = t
	if r.Whole == ([32]byte{}) {
		l.merge = r.Merge
		if l.base, err = krm.Merge(t.Package, r.Merge); err != nil {
			l.lost = fmt.Sprintf("base not known: what the deployment was created with can't be merged any more: %v", err)
		}
		return l, nil
	}
	for at := d; ; { // the revision that was made from the template
		if [32]byte(at.Content) == r.Whole {
			l.base, l.merge = at.Package, mergeOf(at.Package, t.Package)
			return l, nil
		}
		if at.Stamp.Revision <= 1 {
			break
		}
		if at, err = p.snapshot.Deployment(ctx, d.ID, at.Stamp.Revision-1); errors.Is(err, tko.ErrNotFound) {
			break
		} else if err != nil {
			return l, err
		}
	}
	l.lost = "base not retained: the revision that was made from the template was collected"
	return l, nil
}

// retraced returns the lineage of a deployment out of its revisions.
func (p *run) retraced(ctx context.Context, d Deployment) (lineage, error) {
	var l lineage
	h := hasher{}
	h.text(string(d.Template))
	h.number(d.TemplateRevision)
	at := d
	for n := 0; at.Stamp.Revision > 1; n++ {
		h.sum = append(h.sum, at.Content[:]...)
		if n == maxRevisions {
			l.lost = fmt.Sprintf("base not known: the deployment has more than %d revisions", maxRevisions)
			break
		}
		before, err := p.snapshot.Deployment(ctx, d.ID, at.Stamp.Revision-1)
		if errors.Is(err, tko.ErrNotFound) || err == nil && before.Stamp.UID != d.Stamp.UID {
			l.lost = fmt.Sprintf("base not retained: revision %d of the deployment was collected", at.Stamp.Revision-1)
			break
		}
		if err != nil {
			return l, err
		}
		if before.Content != at.Content {
			if n == 0 { // only a read of a revision has its steps
				if at, err = p.snapshot.Deployment(ctx, d.ID, at.Stamp.Revision); err != nil {
					return l, err
				}
			}
			if isPreparation(at) {
				h.text("prepared")
				if r, ok := (derivation.Record{}).After(before.Package, at.Package, p.types, pluginsOf(at.Stamp.Steps)); ok {
					l.steps = append(l.steps, r.Steps...)
				}
			}
		}
		at = before
	}
	slices.Reverse(l.steps)
	if l.lost == "" {
		h.sum = append(h.sum, at.Content[:]...)
		if err := p.base(ctx, &l, d, at); err != nil {
			return l, err
		}
	}
	h.text(l.lost)
	h.number(l.from.Stamp.Revision)
	l.key = sha256.Sum256(h.sum)
	return l, nil
}

// base sets the base of a deployment's lineage. first is its first revision.
func (p *run) base(ctx context.Context, l *lineage, d, first Deployment) error {
	switch {
	case d.Template == "":
		l.lost = "the deployment has no template"
		return nil
	case first.Template != d.Template:
		l.lost = fmt.Sprintf("base not known: the template was set to %q after the deployment was created", d.Template)
		return nil
	}
	t, err := p.template(ctx, d.Template, d.TemplateRevision)
	for err == nil && d.TemplateRevision == 0 && t.Stamp.Position > first.Stamp.Position && t.Stamp.Revision > 1 {
		t, err = p.template(ctx, d.Template, t.Stamp.Revision-1) // it wasn't recorded: the newest one then
	}
	switch {
	case errors.Is(err, tko.ErrNotFound):
		l.lost = fmt.Sprintf("base not retained: revision %d of template %q was collected, or the template was deleted", d.TemplateRevision, d.Template)
		return nil
	case err != nil:
		return err
	case t.Stamp.Position > first.Stamp.Position:
		l.lost = fmt.Sprintf("base not known: the package was made again from revision %d of template %q", d.TemplateRevision, d.Template)
		return nil
	}
	l.base, l.from, l.merge = first.Package, t, mergeOf(first.Package, t.Package)
	return nil
}

// isPreparation reports whether preparation wrote a revision. Where callers are
// authenticated, the author has another name, but each change has steps.
func isPreparation(d Deployment) bool {
	return len(d.Stamp.Steps) > 0 || d.Stamp.Who == topology.Author
}

func pluginsOf(steps []tko.PreparationStep) func(krm.Identity) (string, int64) {
	return func(id krm.Identity) (string, int64) {
		for _, s := range slices.Backward(steps) {
			if s.Resource == id.String() {
				return s.Plugin, 0
			}
		}
		return "", 0
	}
}
