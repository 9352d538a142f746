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

// A child that replaces others is created, unprepared, while they stay. It names
// them, and the data controller deletes them in the transaction that makes the new
// child prepared and approved. So each site changes from the old to the new child in
// one step, or stays as it is if the new one is never prepared and approved.

// A replacement lists the children that a new child replaces.
type replacement struct {
	old []tko.Deployment
	// exchange reports that the old and the new child have only their site in
	// common: then the old one counts as deleted.
	exchange bool
	// edited reports that a user made the last change of an old child, other than an
	// approval.
	edited bool
}

func (t *replacement) ids() []tko.DeploymentID {
	ids := make([]tko.DeploymentID, len(t.old))
	for i, old := range t.old {
		ids[i] = old.ID
	}
	return ids
}

// isRunning reports whether a child is to run at its site.
func isRunning(child tko.Deployment) bool { return child.Prepared && child.Approved }

// isWaiting reports whether a child will replace others, and hasn't yet.
func isWaiting(child tko.Deployment) bool { return len(child.Replaces) > 0 && !isRunning(child) }

const originStart = "Placement/"

// madeBy returns the origin prefix of the placement that created a child, and the
// child's origin without the ID of an earlier parent. If the parent was replaced by
// another deployment, the origin begins with the ID of the replaced one. ok is false
// if no placement created the child.
func madeBy(child tko.Deployment) (prefix, origin string, ok bool) {
	origin = child.Origin
	if !strings.HasPrefix(origin, originStart) {
		_, origin, ok = strings.Cut(origin, "/")
		if !ok || !strings.HasPrefix(origin, originStart) {
			return "", "", false
		}
	}
	end := strings.LastIndexByte(origin, '/') + 1
	return origin[:end], origin, end > len(originStart)
}

// maxOrdinal is the maximum number of equal entries that slotOf recognizes.
const maxOrdinal = 8

// slotOf returns the name of the Template resource that a child was created for, one
// of names; "" if it is none of them. placements are the names of placements, by
// origin prefix.
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

// family returns the ID of a template without its version.
func family(id tko.TemplateID) string {
	if i := strings.LastIndexByte(string(id), ':'); i >= 0 {
		return string(id)[:i]
	}
	return string(id)
}

// The rules by which a new child replaces an old one at the same site, the strongest
// first.
const (
	ruleSlot     = iota // both were created for the same Template resource
	ruleTemplate        // both have the same template: the Template resource was renamed
	ruleFamily          // their templates are versions of one
	ruleSite            // they have only the site in common
	rulesAll
)

// A match assigns old children to the new children that replace them.
type match struct {
	slotOf   func(tko.Deployment) string
	slots    map[string]string // of new children, by origin
	missing  map[tko.SiteID][]tko.NewChild
	replaced map[string]*replacement // by origin of the new child
}

func newMatch(slotOf func(tko.Deployment) string, slots map[string]string, missing []tko.NewChildren) *match {
	m := &match{slotOf: slotOf, slots: slots, missing: map[tko.SiteID][]tko.NewChild{}, replaced: map[string]*replacement{}}
	for _, batch := range missing {
		for _, child := range batch.Children {
			m.missing[child.Site] = append(m.missing[child.Site], child)
		}
	}
	return m
}

// pair assigns old children to new ones by the given number of rules, the strongest
// first, and returns the old children without a replacement.
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
		t := m.replaced[child.Origin]
		if t != nil && rule != ruleSlot {
			continue // it replaces another one
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
			t = &replacement{exchange: rule == ruleSite}
			m.replaced[child.Origin] = t
		}
		t.old = append(t.old, old)
		return true
	}
	return false
}

// siblings returns all children of a deployment that placements created, without metadata and conditions: there may be a
// million.
func (p *Preparer) siblings(ctx context.Context, d Deployment) ([]tko.Deployment, error) {
	if p.Children == nil {
		return nil, nil
	}
	var chunks [][]tko.Deployment // which needs less memory than one that grows
	var chunk []tko.Deployment
	limit := -1
	for child, err := range p.Children.Deployments(ctx, tko.DeploymentSelect{Parent: d.ID}, tko.ListOptions{Window: tko.Window{Max: &limit}}) {
		if err != nil {
			return nil, fmt.Errorf("list the children of deployment %q: %w", d.ID, err)
		}
		if _, _, ok := madeBy(child); ok {
			child.Metadata, child.Stamp.Conditions = nil, nil
			if len(chunk) == cap(chunk) {
				chunks = append(chunks, chunk)
				chunk = make([]tko.Deployment, 0, max(8, min(2*len(chunk), 1000)))
			}
			chunk = append(chunk, child)
		}
	}
	return slices.Concat(append(chunks, chunk)...), nil
}

// findEdits sets edited where a user made the last change of a child that is to be
// replaced.
func (p *Preparer) findEdits(ctx context.Context, replaced map[string]*replacement) error {
	for _, origin := range slices.Sorted(maps.Keys(replaced)) {
		for _, old := range replaced[origin].old {
			edited, err := p.isEdited(ctx, old)
			if err != nil {
				return err
			}
			replaced[origin].edited = replaced[origin].edited || edited
		}
	}
	return nil
}

// maxApprovals is the number of revisions of a child that isEdited reads to skip
// approvals.
const maxApprovals = 4

// isEdited reports whether a user made the last change of a child, other than an
// approval. If the revisions don't show it, the child counts as edited.
func (p *Preparer) isEdited(ctx context.Context, child tko.Deployment) (bool, error) {
	if !isModified(child) {
		return false, nil
	}
	now, err := p.Children.Deployment(ctx, child.ID, 0)
	if errors.Is(err, tko.ErrNotFound) {
		return false, nil // it is deleted, so no edit can be lost
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

// onlyApproved reports whether a revision of a deployment differs from the one before
// only in its approval.
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

// keep returns the children of batches for which holds returns true.
func keep(batches []tko.NewChildren, holds func(tko.NewChild) bool) []tko.NewChildren {
	var out []tko.NewChildren
	for _, batch := range batches {
		var children []tko.NewChild
		for _, child := range batch.Children {
			if holds(child) {
				children = append(children, child)
			}
		}
		batch.Children = children
		if len(children) > 0 {
			out = append(out, batch)
		}
	}
	return out
}

// discard deletes children that wait to replace others and are no longer wanted. If
// one has replaced them meanwhile, it returns an ErrConflict: the caller decides
// everything again.
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
