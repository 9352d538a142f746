package planner

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/krm"
)

// maxRevisions is the maximum number of revisions of a deployment that are read to
// find out what its package was made from.
const maxRevisions = 1000

// A lineage is what the package of a deployment was made from.
type lineage struct {
	key   plan.Digest // equal lineages have the same
	base  krm.Package // what the template and the creation's merge gave, as it was stored
	from  tko.Template
	lost  string // why base or from isn't known; "" if they are
	steps []step // of preparation, oldest first
}

// A step is one revision by preparation.
type step struct {
	input, output krm.Package // without bookkeeping
	triggers      []trigger
}

// A trigger is a resource that a step prepared.
type trigger struct {
	id     krm.Identity
	plugin string // "": TKO itself
}

// lineage returns what the package of a deployment was made from, out of its revisions.
// The error is one of the snapshot.
func (p *run) lineage(ctx context.Context, d Deployment) (lineage, error) {
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
				if s := stepOf(before, at); !same(s.input, s.output) {
					l.steps = append(l.steps, s)
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
	l.base, l.from = first.Package, t
	return nil
}

// isPreparation reports whether preparation wrote a revision. Where callers are
// authenticated, the author has another name, but each change has steps.
func isPreparation(d Deployment) bool {
	return len(d.Stamp.Steps) > 0 || d.Stamp.Who == topology.Author
}

// stepOf returns the step between two revisions.
func stepOf(before, after Deployment) step {
	s := step{input: merge.WithoutBookkeeping(before.Package), output: merge.WithoutBookkeeping(after.Package)}
	for _, r := range before.Package {
		id := r.Identity()
		if r.IsPrepared() || id.GVK == krm.DeploymentGVK {
			continue
		}
		if now := after.Package.Find(id); now != nil && now.IsPrepared() {
			s.triggers = append(s.triggers, trigger{id: id, plugin: pluginOf(after.Stamp.Steps, id)})
		}
	}
	for _, r := range after.Package { // added and prepared in one revision
		if id := r.Identity(); r.IsPrepared() && id.GVK != krm.DeploymentGVK && before.Package.Find(id) == nil {
			if name := pluginOf(after.Stamp.Steps, id); name != "" {
				s.triggers = append(s.triggers, trigger{id: id, plugin: name})
			}
		}
	}
	return s
}

func pluginOf(steps []tko.PreparationStep, id krm.Identity) string {
	for _, s := range slices.Backward(steps) {
		if s.Resource == id.String() {
			return s.Plugin
		}
	}
	return ""
}

func same(a, b krm.Package) bool { return len(merge.Differences(a, b, nil)) == 0 }
