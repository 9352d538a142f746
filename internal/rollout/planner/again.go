package planner

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// againPage is the number of rows whose deployments are read at once.
const againPage = 200

// After makes the states that rows plan again.
func (p *Planner) After(ctx context.Context, r plan.Request, rows []plan.Pinned) iter.Seq2[plan.State, error] {
	return func(yield func(plan.State, error) bool) {
		a := again{planner: p, request: r}
		for page := range slices.Chunk(rows, againPage) {
			a.page, a.current, a.drafts = page, nil, nil
			for _, row := range page {
				draft, err := a.draft(ctx, row)
				var state plan.State
				if draft.AfterState != nil {
					state = *draft.AfterState
				} else if err == nil {
					err = tko.Errorf(tko.ErrConflict, "deployment %q: planned again, it has no state after the rollout (%s): plan again", row.Row.Deployment, draft.Kind)
				}
				if !yield(state, err) {
					return
				}
			}
		}
	}
}

// An again makes rows of one plan again. Rows with the same pins share a run, and with it
// what is read and merged.
type again struct {
	planner *Planner
	request plan.Request
	page    []plan.Pinned // rows that are made now, or next

	run     *run
	current map[tko.DeploymentID]Deployment // of the page, as they are now
	root    rootKey                         // of the drafts
	drafts  map[tko.DeploymentID]plan.Draft // those of the page, of one root
}

// A rootKey is what the drafts of a deployment and of those that come with it depend on.
type rootKey struct {
	id       tko.DeploymentID
	revision int64
	edits    string
	deletes  bool
}

// draft makes the draft of a row.
func (a *again) draft(ctx context.Context, row plan.Pinned) (plan.Draft, error) {
	if err := a.open(ctx, row.Pins); err != nil {
		return plan.Draft{}, err
	}
	key := rootKey{cmp.Or(row.Row.Root, row.Row.Deployment), row.Row.Revision, string(row.Row.Edits), row.Row.Kind == plan.Delete}
	switch {
	case key.deletes:
		key.id = row.Row.Deployment
	case row.Row.Root != "":
		key.revision = a.run.pins[plan.Pin{Kind: tko.KindDeployment, ID: string(row.Row.Root)}]
	}
	if a.drafts == nil || a.root != key {
		a.drafts = nil
		if err := a.make(ctx, row.Row, key); err != nil {
			return plan.Draft{}, err
		}
	}
	found, ok := a.drafts[row.Row.Deployment]
	if !ok {
		return plan.Draft{}, tko.Errorf(tko.ErrConflict, "deployment %q: it isn't planned any more: plan again", row.Row.Deployment)
	}
	return found, nil
}

// open starts a run with the pins, unless that of the former row has the same revisions.
func (a *again) open(ctx context.Context, pins []plan.Pin) error {
	if a.run != nil {
		same := true
		for _, pin := range pins {
			at, known := a.run.pins[plan.Pin{Kind: pin.Kind, ID: pin.ID}]
			same = same && (!known || at == pin.Revision)
		}
		if same {
			for _, pin := range pins {
				a.run.pins[plan.Pin{Kind: pin.Kind, ID: pin.ID}] = pin.Revision
			}
			return nil
		}
	}
	var err error
	a.drafts = nil
	a.run, err = a.planner.start(ctx, a.request, pins)
	return err
}

// ahead reads the deployments of the page, once.
func (a *again) ahead(ctx context.Context) error {
	if a.current != nil {
		return nil
	}
	a.current = map[tko.DeploymentID]Deployment{}
	var ids []tko.DeploymentID
	for _, row := range a.page {
		if row.Row.Kind != plan.Create {
			ids = append(ids, row.Row.Deployment)
		}
	}
	if len(ids) < 2 {
		return nil
	}
	now, err := a.run.snapshot.Current(ctx, ids)
	for _, d := range now {
		a.current[d.ID] = d
	}
	return err
}

// deployment returns the root of drafts at its revision.
func (a *again) deployment(ctx context.Context, key rootKey) (Deployment, error) {
	if err := a.ahead(ctx); err != nil {
		return Deployment{}, err
	}
	if d, ok := a.current[key.id]; ok && d.Stamp.Revision == key.revision {
		return d, nil
	}
	d, err := a.run.snapshot.Deployment(ctx, key.id, key.revision)
	if err != nil {
		err = fmt.Errorf("read deployment %q at revision %d: %w", key.id, key.revision, err)
	}
	return d, err
}

// make plans a deployment and what comes and goes with it, and keeps the drafts of rows of
// the page.
func (a *again) make(ctx context.Context, row plan.Row, key rootKey) error {
	wanted := map[tko.DeploymentID]bool{row.Deployment: true}
	for _, r := range a.page {
		wanted[r.Row.Deployment] = true
	}
	drafts := map[tko.DeploymentID]plan.Draft{}
	run := a.run
	clear(run.seen)
	run.rows, run.pending = 0, nil
	run.emit = func(d plan.Draft) error {
		if wanted[d.Deployment] {
			drafts[d.Deployment] = d
		}
		return nil
	}
	defer run.wait()
	if m, edit := run.declared(key.id, row.Edits); key.revision == 0 && m != nil {
		if err := run.create(ctx, *m, edit); err != nil {
			return fmt.Errorf("plan deployment %q: %w", key.id, err)
		}
		a.root, a.drafts = key, drafts
		return nil
	}
	d, err := a.deployment(ctx, key)
	if err != nil {
		return err
	}
	edits := make([]int, len(row.Edits))
	for i, n := range row.Edits {
		edits[i] = int(n)
		if edits[i] >= len(a.request.Spec.Edits) {
			return tko.Errorf(tko.ErrConflict, "deployment %q: its plan is of another spec: plan again", row.Deployment)
		}
	}
	if key.deletes {
		run.remove(d, row.Root)
	} else {
		err := run.deployment(ctx, d, edits)
		if err == nil {
			err = run.settle(0)
		}
		if err != nil {
			return fmt.Errorf("plan deployment %q: %w", row.Deployment, err)
		}
	}
	a.root, a.drafts = key, drafts
	return nil
}
