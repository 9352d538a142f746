package topology

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A child that takes the place of others is created beside them, unprepared. It
// names them, and the data controller deletes them in the transaction that makes
// the new one prepared and approved. So each site goes from the one to the other
// in one step, whenever that is, and stays as it is if it never happens.

// A taking is what a child that isn't there yet takes the place of.
type taking struct {
	old []tko.Deployment
	// exchange says that the two have nothing in common but their site: then
	// the old one counts as deleted.
	exchange bool
	// edited says that a user wrote an old one last, other than by approving it.
	edited bool
}

func (t *taking) ids() []tko.DeploymentID {
	ids := make([]tko.DeploymentID, len(t.old))
	for i, old := range t.old {
		ids[i] = old.ID
	}
	return ids
}

// runs says whether a child is what its site should run.
func runs(child tko.Deployment) bool { return child.Prepared && child.Approved }

// waits says whether a child will take the place of others, and hasn't yet.
func waits(child tko.Deployment) bool { return len(child.Replaces) > 0 && !runs(child) }

const originStart = "Placement/"

// madeBy returns the beginning of the origins of the placement that made a child,
// and the child's origin. Children that were handed over by a deployment that was
// replaced keep the origin that they had below it, after the ID of that deployment.
func madeBy(child tko.Deployment) (prefix, origin string, ok bool) {
	origin = child.Origin
	if !strings.HasPrefix(origin, originStart) {
		if _, origin, ok = strings.Cut(origin, "/"); !ok || !strings.HasPrefix(origin, originStart) {
			return "", "", false
		}
	}
	end := strings.LastIndexByte(origin, '/') + 1
	return origin[:end], origin, end > len(originStart)
}

// maxOrdinal is how many equal entries a placement is expected to have, at most.
const maxOrdinal = 8

// slotOf returns the name of the Template resource that a child was made for, one
// of names; "" if it is none of them. placements are the names of placements, by the
// beginnings of their origins.
func slotOf(child tko.Deployment, names []string, placements map[string]string) string {
	prefix, origin, ok := madeBy(child)
	if !ok {
		return ""
	}
	placement, known := placements[prefix]
	if !known { // it was renamed, or removed
		placement = strings.TrimSuffix(strings.TrimPrefix(prefix, originStart), "/")
	}
	for _, name := range names {
		key := childKey(placement, name, child.Template, child.Site)
		for ordinal := range maxOrdinal {
			if childOrigin(krm.Identity{Name: placement}, key, ordinal) == origin {
				return name
			}
		}
	}
	return ""
}

// family is the ID of a template without its version.
func family(id tko.TemplateID) string {
	if i := strings.LastIndexByte(string(id), ':'); i >= 0 {
		return string(id)[:i]
	}
	return string(id)
}

// The rules by which a new child takes the place of an old one at the same site,
// the strongest first.
const (
	ruleSlot     = iota // of the same Template resource
	ruleTemplate        // of the same template: the Template resource was renamed
	ruleFamily          // of another version of the same template
	ruleSite            // of nothing but the same site
	rulesAll
)

// A match finds out what takes the place of what.
type match struct {
	slotOf  func(tko.Deployment) string
	slots   map[string]string // of new children, by origin
	missing map[tko.SiteID][]tko.NewChild
	takes   map[string]*taking // by origin of the new child
}

func newMatch(slotOf func(tko.Deployment) string, slots map[string]string, missing []tko.NewChildren) *match {
	m := &match{slotOf: slotOf, slots: slots, missing: map[tko.SiteID][]tko.NewChild{}, takes: map[string]*taking{}}
	for _, batch := range missing {
		for _, child := range batch.Children {
			m.missing[child.Site] = append(m.missing[child.Site], child)
		}
	}
	return m
}

// pair gives old children to those that take their place by the first of the
// rules, and returns the others.
func (m *match) pair(old []tko.Deployment, rules int) (rest []tko.Deployment) {
	rest = old
	for rule := range rules {
		var left []tko.Deployment
		for _, o := range rest {
			if !m.give(o, rule) {
				left = append(left, o)
			}
		}
		rest = left
	}
	return rest
}

func (m *match) give(old tko.Deployment, rule int) bool {
	if old.Site == "" {
		return false
	}
	for _, child := range m.missing[old.Site] {
		t := m.takes[child.Origin]
		if t != nil && rule != ruleSlot {
			continue // it has one
		}
		fits := false
		switch rule {
		case ruleSlot:
			fits = m.slotOf(old) == m.slots[child.Origin]
		case ruleTemplate:
			fits = old.Template == child.Template
		case ruleFamily:
			fits = family(old.Template) == family(child.Template)
		case ruleSite:
			fits = true
		}
		if !fits {
			continue
		}
		if t == nil {
			t = &taking{exchange: rule == ruleSite}
			m.takes[child.Origin] = t
		}
		t.old = append(t.old, old)
		return true
	}
	return false
}

// siblings returns all children of a deployment that placements made.
func (p *Preparer) siblings(ctx context.Context, d Deployment) ([]tko.Deployment, error) {
	if p.Children == nil {
		return nil, nil
	}
	var children []tko.Deployment
	limit := -1
	for child, err := range p.Children.Deployments(ctx, tko.DeploymentSelect{Parent: d.ID}, tko.ListOptions{Window: tko.Window{Max: &limit}}) {
		if err != nil {
			return nil, fmt.Errorf("list the children of deployment %q: %w", d.ID, err)
		}
		if _, _, ok := madeBy(child); ok {
			children = append(children, child)
		}
	}
	return children, nil
}

// findEdits finds out which of the children that are to be replaced a user wrote
// last.
func (p *Preparer) findEdits(ctx context.Context, takes map[string]*taking) error {
	for _, origin := range slices.Sorted(maps.Keys(takes)) {
		for _, old := range takes[origin].old {
			edited, err := p.isEdited(ctx, old)
			if err != nil {
				return err
			}
			takes[origin].edited = takes[origin].edited || edited
		}
	}
	return nil
}

// maxApprovals is how many revisions of a child are read to find out who changed
// more than its approval.
const maxApprovals = 4

// isEdited says whether a user wrote a child last, other than by approving it. What
// can't be found out counts as edited.
func (p *Preparer) isEdited(ctx context.Context, child tko.Deployment) (bool, error) {
	if !isModified(child) {
		return false, nil
	}
	now, err := p.Children.Deployment(ctx, child.ID, 0)
	if errors.Is(err, tko.ErrNotFound) {
		return false, nil // nothing is left to lose
	}
	if err != nil {
		return false, err
	}
	for range maxApprovals {
		if now.Stamp.Who == Author {
			return false, nil
		}
		if now.Stamp.Revision <= 1 {
			return true, nil
		}
		before, err := p.Children.Deployment(ctx, child.ID, now.Stamp.Revision-1)
		if errors.Is(err, tko.ErrNotFound) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if !onlyApproved(before, now) {
			return true, nil
		}
		now = before
	}
	return true, nil
}

// onlyApproved says whether a revision of a deployment differs from the one before
// in nothing but its approval.
func onlyApproved(before, after tko.Deployment) bool {
	if before.Template != after.Template || before.Site != after.Site || before.Prepared != after.Prepared || before.Approved && !after.Approved ||
		!maps.Equal(before.Metadata, after.Metadata) {
		return false
	}
	a, _, err := krm.DigestOf(before.Package.WithoutDeploymentState())
	if err != nil {
		return false
	}
	b, _, err := krm.DigestOf(after.Package.WithoutDeploymentState())
	return err == nil && a == b
}

// keep returns the children of batches for which a condition holds.
func keep(batches []tko.NewChildren, holds func(tko.NewChild) bool) []tko.NewChildren {
	var out []tko.NewChildren
	for _, batch := range batches {
		var children []tko.NewChild
		for _, child := range batch.Children {
			if holds(child) {
				children = append(children, child)
			}
		}
		if batch.Children = children; len(children) > 0 {
			out = append(out, batch)
		}
	}
	return out
}

// discard deletes children that wait to take the place of others and aren't
// wanted any more. One that has taken its place meanwhile is an ErrConflict: then
// everything has to be decided again.
func (p *Preparer) discard(ctx context.Context, placement krm.Identity, children []tko.Deployment) error {
	for _, child := range children {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		ctx := tko.WithAuthor(ctx, tko.Author{Who: Author, Why: "no longer wanted, before it replaced anything"})
		_, err := p.Children.DeleteDeploymentAt(ctx, child.ID, child.Stamp.Revision)
		if errors.Is(err, tko.ErrInvalid) {
			return notConfirmed(placement, child.ID, err)
		}
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return fmt.Errorf("delete %q, a child of %s that is no longer wanted: %w", child.ID, placement, err)
		}
	}
	return nil
}
