package spanner

import (
	"context"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// maxStep is the maximum number of records that a step of a deletion changes. It is far from the limit of
// mutations: each of these records takes some fifty. A step reads the children of each of them, and locks what it reads.
const maxStep = 200

// MaxStep returns the maximum number of records that a step changes.
func (s *Store) MaxStep() int { return maxStep }

// decideDelete decides one step of the deletion of a record.
func (t *transaction) decideDelete(ctx context.Context, w *record.Write, current *record.Record) (record.Outcome, error) {
	outcome := record.Outcome{Key: current.Key, Revision: current.Revision}
	whole := true
	var err error
	switch {
	case w.SingleStep:
	case current.Kind == tko.KindTemplate:
		outcome.Dissociated, whole, err = t.dissociate(ctx, w, asTemplate)
	case current.Kind == tko.KindSite:
		outcome.Dissociated, whole, err = t.dissociate(ctx, w, asSite)
	case current.Kind == tko.KindDeployment:
		var children []*record.Record
		if children, whole, err = t.referring(ctx, asParent, current.ID); err == nil {
			var removed bool
			outcome.Descendants, removed, err = t.removeFamilies(ctx, w, children)
			whole = whole && removed
		}
	}
	if err != nil {
		return outcome, err
	}
	outcome.Deleted = outcome.Descendants
	if !whole {
		outcome.More = true
		if outcome.Dissociated+outcome.Descendants > 0 {
			err = t.markDeleting(ctx, w, current)
		}
		return outcome, err
	}
	outcome.Deleted++
	t.remove(w, current)
	return outcome, nil
}

// referring returns records that refer to one in a role, with the changes so far, sorted: no more than the step may change. all
// reports that these are all.
func (t *transaction) referring(ctx context.Context, role, to string) (list []*record.Record, all bool, err error) {
	found, all, err := t.referringTo(ctx, role, []string{to})
	list = found[to]
	if len(list) > t.remaining {
		list, all = list[:max(0, t.remaining)], false
	}
	return list, all, err
}

// referringTo returns records that refer to some others in a role, sorted. all reports that these are all: it reads little more
// than the step may change.
func (t *transaction) referringTo(ctx context.Context, role string, to []string) (found map[string][]*record.Record, all bool, err error) {
	most := max(0, t.remaining) + len(t.changes) + 1 // the changes so far may have removed as many references
	var keys []record.Key
	err = readReferrers(ctx, t.tx, role, to, func(_ string, key record.Key) bool {
		keys = append(keys, key)
		return len(keys) < most
	})
	if err == nil {
		err = t.loadRecords(ctx, keys)
	}
	found = make(map[string][]*record.Record, len(to))
	for _, id := range to {
		found[id] = nil
	}
	for _, r := range t.state {
		of := target(r, role)
		if list, ok := found[of]; ok && of != "" {
			found[of] = append(list, r)
		}
	}
	for _, list := range found {
		slices.SortFunc(list, func(a, b *record.Record) int {
			return strings.Compare(string(a.Kind)+" "+a.ID, string(b.Kind)+" "+b.ID)
		})
	}
	return found, len(keys) < most, err
}

// dissociate removes the references to a record in a role.
func (t *transaction) dissociate(ctx context.Context, w *record.Write, role string) (n int, all bool, err error) {
	list, all, err := t.referring(ctx, role, w.Record.ID)
	if err != nil {
		return 0, false, err
	}
	for _, r := range list {
		after := *r
		after.Revision++
		after.Author, after.Package, after.Derived, after.Owned, after.Steps = w.Record.Author, nil, nil, nil, nil
		if role == asTemplate {
			after.Template = ""
		} else {
			now, err := t.time(ctx)
			if err != nil {
				return n, false, err
			}
			after.Site, after.Conditions = "", record.Orphaned(r.Conditions, w.Record.ID, now, after.Revision)
		}
		t.remaining--
		n++
		t.change(tko.OpWritten, r, &after, w.Record.Author)
	}
	return n, all, nil
}

// removeFamilies deletes deployments with their descendants, children before their parents, as far as the step permits: those
// of which some descendants stay are marked as being deleted. all reports that all were deleted.
func (t *transaction) removeFamilies(ctx context.Context, w *record.Write, of []*record.Record) (n int, all bool, err error) {
	all = true
	for part := range slices.Chunk(of, manyRanges) {
		removed, whole, err := t.removeSome(ctx, w, part)
		n += removed
		if err != nil {
			return n, false, err
		}
		all = all && whole
	}
	return n, all, nil
}

func (t *transaction) removeSome(ctx context.Context, w *record.Write, of []*record.Record) (n int, all bool, err error) {
	if t.remaining <= 0 {
		return 0, len(of) == 0, nil
	}
	ids := make([]string, len(of))
	for i, r := range of {
		ids[i] = r.ID
	}
	children, whole, err := t.referringTo(ctx, asParent, ids)
	if err == nil {
		err = t.loadTokens(ctx, ids)
	}
	if err != nil {
		return 0, false, err
	}
	if half := len(of) / 2; !whole && half > 0 {
		first, firstAll, err := t.removeSome(ctx, w, of[:half])
		if err != nil {
			return first, false, err
		}
		second, secondAll, err := t.removeSome(ctx, w, of[half:])
		return first + second, firstAll && secondAll, err
	}
	all = true
	for _, r := range of {
		removed, gone, err := t.removeFamily(ctx, w, r, children[r.ID], whole)
		n += removed
		if err != nil {
			return n, false, err
		}
		all = all && gone
	}
	return n, all, nil
}

// removeFamily deletes a deployment after its children, which may not be all.
func (t *transaction) removeFamily(ctx context.Context, w *record.Write, r *record.Record, children []*record.Record, whole bool) (n int, all bool, err error) {
	if t.remaining <= 0 {
		return 0, false, nil
	}
	reserved := len(children) == 0 || !r.Deleting() // for its mark or its deletion; one that is marked may wait for another step
	if reserved {
		t.remaining--
	}
	if len(children) > 0 {
		var removed bool
		n, removed, err = t.removeFamilies(ctx, w, children[:min(len(children), max(0, t.remaining))])
		if err != nil {
			return n, false, err
		}
		whole = whole && removed && !t.hasChild(r.ID)
	}
	if whole && !reserved {
		if t.remaining <= 0 {
			return n, false, nil
		}
		t.remaining--
	}
	if !whole {
		return n, false, t.markDeleting(ctx, w, r)
	}
	t.remove(w, r)
	return n + 1, true, nil
}

// hasChild reports whether a known deployment is below another one.
func (t *transaction) hasChild(id string) bool {
	for _, r := range t.state {
		if r != nil && r.Kind == tko.KindDeployment && r.Parent == id {
			return true
		}
	}
	return false
}

// markDeleting sets the condition Deleting of a record.
func (t *transaction) markDeleting(ctx context.Context, w *record.Write, before *record.Record) error {
	if before.Deleting() {
		return nil
	}
	now, err := t.time(ctx)
	if err != nil {
		return err
	}
	after := *before
	decide.MarkDeleting(&after, now)
	t.change(tko.OpStatus, before, &after, w.Record.Author)
	return nil
}

func (t *transaction) remove(w *record.Write, r *record.Record) {
	after := *r
	if r.Kind == tko.KindDeployment {
		t.endTokens(r.ID)
	}
	t.change(tko.OpDeleted, r, &after, w.Record.Author)
}

// checkSingleStep returns an error if other records depend on one.
func (t *transaction) checkSingleStep(ctx context.Context, key record.Key) error {
	if err := decide.CheckSingleKind(key); err != nil {
		return err
	}
	children, _, err := t.referringTo(ctx, asParent, []string{key.ID})
	if err == nil && len(children[key.ID]) > 0 {
		err = decide.HasChild(key.ID, children[key.ID][0].ID)
	}
	return err
}
