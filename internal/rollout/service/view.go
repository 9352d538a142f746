package service

import (
	"context"
	"fmt"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// A rolloutStore reads and writes the state of rollouts, for the parts that decide it.
type rolloutStore struct {
	rights   *rights.Authorizer // callers enter and commit through it
	store    record.Store
	reader   record.Lookup
	catalog  Catalog
	settings Settings
}

// rolloutRecord derives and validates a rollout.
func (s *rolloutStore) rolloutRecord(ctx context.Context, r tko.Rollout) (record.Record, error) {
	key := record.RolloutKey(r.ID)
	if err := record.CheckNewID(key); err != nil {
		return record.Record{}, err
	}
	if err := content.CheckPackage(r.Package); err != nil {
		return record.Record{}, err
	}
	parsed, err := spec.Parse(r.Package)
	if err != nil {
		return record.Record{}, err
	}
	if parsed.Undoes != "" {
		return record.Record{}, tko.Errorf(tko.ErrInvalid, "rollout %q: spec.undoes is set by TKO: use tko rollout undo %s", r.ID, parsed.Undoes)
	}
	if err := s.checkFunctions(ctx, r.ID, parsed); err != nil {
		return record.Record{}, err
	}
	return s.unparsedRollout(ctx, r)
}

// checkFunctions checks the KRM functions of a rollout by the rules of plugins: this server
// must run them, and who names a program or a module of the server needs the right to
// register plugins.
func (s *rolloutStore) checkFunctions(ctx context.Context, id tko.RolloutID, parsed spec.Rollout) error {
	for i, edit := range parsed.Edits {
		if edit.Function == nil {
			continue
		}
		image := edit.Function.Image
		if f, err := tko.ParseFunction(image); err != nil || !f.IsLocal() { // the plan says what is wrong with others
			continue
		}
		if s.settings.CheckFunction != nil {
			if err := s.settings.CheckFunction(image); err != nil {
				return tko.Errorf(tko.ErrInvalid, "rollout %q: spec.edits[%d].function: %q: %w", id, i, image, err)
			}
		}
		program := record.Record{Key: record.PluginKey(tko.PluginPrepare, image)}
		if err := s.rights.Permit(ctx, nil, &program, access.Register); err != nil {
			return err
		}
	}
	return nil
}

func (s *rolloutStore) unparsedRollout(ctx context.Context, r tko.Rollout) (record.Record, error) {
	metadata, err := content.MetadataOf(r.Package, nil, r.Metadata)
	if err != nil {
		return record.Record{}, err
	}
	return s.catalog.Validated(ctx, record.Record{Key: record.RolloutKey(r.ID), Metadata: metadata}, r.Package)
}

// viewRollout returns the record of a rollout that the caller may use, and a view of it
// with selected rows only. A rollout without a state is a draft.
func (s *rolloutStore) viewRollout(ctx context.Context, id tko.RolloutID, filter record.RowFilter, verbs ...access.Verb) (record.Record, record.RolloutView, error) {
	return s.viewWith(ctx, id, func() (record.RolloutView, error) { return s.store.RolloutCommandView(ctx, string(id), filter) }, verbs...)
}

// viewSince is viewRollout with all rows, or the changes to those that are known.
func (s *rolloutStore) viewSince(ctx context.Context, id tko.RolloutID, known record.RowsAt, verbs ...access.Verb) (record.Record, record.RolloutView, error) {
	return s.viewWith(ctx, id, func() (record.RolloutView, error) { return s.store.RolloutView(ctx, string(id), known) }, verbs...)
}

func (s *rolloutStore) viewWith(ctx context.Context, id tko.RolloutID, read func() (record.RolloutView, error), verbs ...access.Verb) (record.Record, record.RolloutView, error) {
	var v record.RolloutView
	r, err := s.record(ctx, id, func() (err error) { v, err = read(); return err }, verbs...)
	if !v.Found && r.Revision != 0 {
		v.State = draftOfRollout(id)
	}
	return r, v, err
}

// record returns the record of a rollout that the caller may use, after reading its state.
func (s *rolloutStore) record(ctx context.Context, id tko.RolloutID, read func() error, verbs ...access.Verb) (record.Record, error) {
	key := record.RolloutKey(id)
	if err := record.CheckKey(key); err != nil {
		return record.Record{}, err
	}
	if err := read(); err != nil {
		return record.Record{}, err
	}
	r, err := s.reader.One(ctx, record.Fields{Package: true}, key)
	if err != nil {
		return record.Record{}, err
	}
	if r.Revision == 0 {
		return record.Record{}, record.Missing(key)
	}
	if len(verbs) > 0 {
		err = s.rights.Permit(ctx, &r, nil, verbs...)
	}
	return r, err
}

// draftOfRollout returns the state of a rollout that has none.
func draftOfRollout(id tko.RolloutID) record.RolloutState {
	return record.RolloutState{ID: string(id), State: execute.Draft, Family: string(id)}
}

// specOf returns the spec that a rollout was planned with; a draft's is the current one.
func (s *rolloutStore) specOf(ctx context.Context, r record.Record, st record.RolloutState) (spec.Rollout, error) {
	pkg, err := s.plannedPackage(ctx, r, st)
	if err != nil {
		return spec.Rollout{}, err
	}
	return spec.Parse(pkg)
}

// plannedPackage returns the package that a rollout was planned with; a draft's is the
// current one.
func (s *rolloutStore) plannedPackage(ctx context.Context, r record.Record, st record.RolloutState) (krm.Package, error) {
	if st.Spec != 0 && st.Spec != r.Revision {
		old, err := s.store.Revision(ctx, r.Key, st.Spec)
		if err != nil {
			return nil, fmt.Errorf("read rollout %q as it was planned: %w", r.ID, err)
		}
		r = old
	}
	return record.PackageOf(r)
}

// executionOf returns the state of a rollout as package execute has it.
func executionOf(v record.RolloutView, sp spec.Rollout) execute.Rollout {
	st := v.State
	r := execute.Rollout{
		ID: st.ID, State: st.State, Family: st.Family, Undoes: st.Undoes, Spec: sp, Plan: st.Digest, Reason: st.Reason,
		Approvals: st.Approvals, Acknowledged: st.Acknowledged, AnyTime: st.AnyTime,
		FirstFailure: st.FirstFailure, Touched: st.Touched, Failing: st.Failing, Metrics: st.Metrics,
		Tickets: st.Tickets, Started: st.Started,
	}
	for _, o := range v.Active {
		if o.ID == st.UndoneBy && o.ID != "" {
			r.UndoneBy = o.State
		}
	}
	return r
}

// stateWith returns a state with what package execute has changed of it.
func stateWith(st record.RolloutState, r execute.Rollout) record.RolloutState {
	st.State, st.Reason, st.Approvals, st.Acknowledged = r.State, r.Reason, r.Approvals, r.Acknowledged
	st.FirstFailure, st.Touched, st.Failing, st.Metrics = r.FirstFailure, r.Touched, r.Failing, r.Metrics
	st.Tickets = r.Tickets
	return st
}

// executionRows returns the rows that a rollout applies, without metadata of sites, and the index in
// v.Rows of each. The caller must not change them.
func executionRows(v record.RolloutView) (rows []execute.Row, index []int) {
	if v.Execution != nil {
		return v.Execution, v.Of
	}
	for i := range v.Rows {
		if v.Rows[i].Kind.Applies() {
			rows, index = append(rows, executionRow(&v.Rows[i])), append(index, i)
		}
	}
	return rows, index
}

// rowWith returns a row with the progress of another.
func rowWith(r record.RolloutRow, e execute.Row) record.RolloutRow {
	r.Progress, r.Since, r.Evaluated, r.Credit, r.Counted, r.Broken, r.Reason = e.Progress, e.Since, e.Evaluated, e.Credit, e.Counted, e.Broken, e.Reason
	r.Stands, r.Stage = e.Stands, e.Stage
	return r
}

// changedRows returns the rows of a view with changed progress.
func changedRows(v record.RolloutView, changed []execute.Row) []record.RolloutRow {
	by := make(map[tko.DeploymentID]execute.Row, len(changed))
	for _, e := range changed {
		by[e.Deployment] = e
	}
	out := make([]record.RolloutRow, 0, len(changed))
	for _, r := range v.Rows {
		if e, ok := by[r.Deployment]; ok {
			out = append(out, rowWith(r, e))
		}
	}
	return out
}

// saveRollout commits a state of a rollout, its conditions, other changes of rollouts,
// and writes of deployments. All are decided from the view.
func (s *rolloutStore) saveRollout(ctx context.Context, r record.Record, v record.RolloutView, st record.RolloutState, change record.RolloutWrite, writes ...record.Write) error {
	change.Expect = v.Version
	if st.Plan != v.State.Plan || change.Replan != 0 {
		st.Rows = v.Version + 1
	}
	change.States = append(change.States, st)
	if change.Rollout == "" {
		change.Rollout, change.Number = st.ID, st.Plan
	}
	if st.State != v.State.State {
		for _, o := range v.Active { // those that wait for this one, or mirror it
			if o.ID != st.ID {
				change.Wake = append(change.Wake, o.ID)
			}
		}
		if st.Undoes != "" {
			change.Wake = append(change.Wake, st.Undoes)
		}
	}
	by := rights.Author(ctx)
	if by.Why == "" {
		by.Why = fmt.Sprintf("is %s", st.State)
	}
	conditions := condition.Merge(r.Conditions, conditionsOfRollout(st), r.Revision, v.Now)
	writes = append(writes, record.Write{Op: tko.OpStatus, Record: record.Record{Key: r.Key, Author: by, Conditions: conditions}, Expect: record.Any, Rollout: &change})
	_, err := s.rights.Commit(ctx, writes...)
	return err
}

// maxBlocksText limits the text of a condition about what a rollout waits for.
const maxBlocksText = 2000

func conditionsOfRollout(st record.RolloutState) []tko.Condition {
	flag := func(b bool) string { return map[bool]string{true: tko.ConditionTrue, false: tko.ConditionFalse}[b] }
	state := string(st.State)
	planned := tko.Condition{Type: tko.ConditionPlanned, Status: flag(st.Plan != 0 && st.State != execute.Planning), Reason: state}
	if st.Plan != 0 {
		planned.Message = fmt.Sprintf("plan %.12s: %s", st.Digest, kindsText(st.Kinds))
		if len(st.Warnings) > 0 {
			planned.Message += "; " + printable.Kept(strings.Join(st.Warnings, "; "), maxBlocksText)
		}
	}
	goes := st.State == execute.Planning || st.State == execute.Running || st.State == execute.Undoing
	progress := tko.Condition{Type: tko.ConditionProgressing, Status: flag(goes), Reason: state, Message: st.Reason.Message}
	if st.State.Active() && len(st.Blocks) > 0 {
		progress.Message = printable.Kept(strings.Join(st.Blocks, "; "), maxBlocksText)
	}
	return []tko.Condition{{Type: tko.ConditionState, Status: tko.ConditionTrue, Reason: state, Message: st.Reason.Message}, planned, progress}
}

func kindsText(kinds map[string]int) string {
	var parts []string
	for _, k := range []plan.Kind{plan.Change, plan.Create, plan.Delete, plan.Conflict, plan.Invalid, plan.Same} {
		if n := kinds[k.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k))
		}
	}
	if len(parts) == 0 {
		return "it selects no deployment"
	}
	return strings.Join(parts, ", ")
}
