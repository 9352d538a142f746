package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// Rollouts are records like others. Each also has a state, a plan, and rows with their
// progress, which only this file and those that begin with rollout write. Every
// change of them is decided from a [RolloutView] and committed with its version: if
// anything about any rollout has changed since, it is decided again.

func rolloutKey(id tko.RolloutID) Key { return Key{Kind: tko.KindRollout, ID: string(id)} }

// RegisterRollout creates or replaces a rollout and returns its revision. Then the
// rollout controller plans it, unless it has been started: a started rollout keeps the
// revision that was planned until it is planned again.
func (s *Service) RegisterRollout(ctx context.Context, r tko.Rollout) (int64, error) {
	ctx, _, err := s.enter(ctx, tko.KindRollout, access.Create, access.Update)
	if err != nil {
		return 0, err
	}
	record, err := s.rolloutRecord(ctx, r)
	if err != nil {
		return 0, err
	}
	outcome, err := s.register(ctx, nil, record, len(r.Package))
	return outcome.Revision, err
}

// rolloutRecord derives and validates a rollout.
func (s *Service) rolloutRecord(ctx context.Context, r tko.Rollout) (Record, error) {
	key := rolloutKey(r.ID)
	if err := checkNewID(key); err != nil {
		return Record{}, err
	}
	if err := checkPackage(r.Package); err != nil {
		return Record{}, err
	}
	parsed, err := spec.Parse(r.Package)
	if err != nil {
		return Record{}, err
	}
	if parsed.Undoes != "" {
		return Record{}, tko.Errorf(tko.ErrInvalid, "rollout %q: spec.undoes is set by TKO: use tko rollout undo %s", r.ID, parsed.Undoes)
	}
	return s.unparsedRollout(ctx, r)
}

func (s *Service) unparsedRollout(ctx context.Context, r tko.Rollout) (Record, error) {
	metadata, err := metadataOf(r.Package, nil, r.Metadata)
	if err != nil {
		return Record{}, err
	}
	c, err := contentOf(r.Package)
	if err != nil {
		return Record{}, err
	}
	key := rolloutKey(r.ID)
	if err := s.validate(ctx, nil, c, false, "", s.acceptedOf(key, false, "")); err != nil {
		return Record{}, err
	}
	return Record{Key: key, Metadata: metadata, Digest: c.digest, Package: c.encoded}, nil
}

// Rollout returns a rollout with its package, as of a revision; 0 is the current one.
func (s *Service) Rollout(ctx context.Context, id tko.RolloutID, revision int64) (tko.Rollout, error) {
	return read(ctx, s, rolloutKey(id), revision, s.rolloutOf)
}

// Rollouts returns the selected rollouts, sorted by ID, all from one snapshot.
func (s *Service) Rollouts(ctx context.Context, sel tko.RolloutSelect, options tko.ListOptions) iter.Seq2[tko.Rollout, error] {
	p := patternParser{}
	query := p.query(tko.KindRollout, options)
	query.Fields.Deployments, query.Fields.Counts = false, false
	query.IDs, query.Metadata = p.ids("rollout ID", sel.IDs), p.metadata("metadata", sel.Metadata)
	return list(ctx, s, query, errors.Join(p.err, checkPatternCount(len(sel.IDs)+len(sel.Metadata))), s.rolloutOf)
}

// rolloutOf returns the rollout of a record, with its package if the record has it.
func (s *Service) rolloutOf(c *caller, r Record) (tko.Rollout, error) {
	pkg, err := packageOf(r)
	e := tko.Rollout{ID: tko.RolloutID(r.ID), Metadata: maps.Clone(r.effective()), Package: s.redact(c, r, pkg), State: string(execute.Draft), Stamp: r.stamp()}
	e.Stamp.Conditions = slices.Clone(e.Stamp.Conditions)
	if state := tko.FindCondition(r.Conditions, tko.ConditionState); state != nil {
		e.State, e.Reason = state.Reason, state.Message
	}
	return e, err
}

// viewRollout returns the record of a rollout that the caller may use, and a view of it
// with selected rows only. A rollout without a state is a draft.
func (s *Service) viewRollout(ctx context.Context, id tko.RolloutID, filter RowFilter, verbs ...access.Verb) (Record, RolloutView, error) {
	return s.viewWith(ctx, id, func() (RolloutView, error) { return s.store.RolloutCommandView(ctx, string(id), filter) }, verbs...)
}

// viewSince is viewRollout with all rows, or the changes to those that are known.
func (s *Service) viewSince(ctx context.Context, id tko.RolloutID, known RowsAt, verbs ...access.Verb) (Record, RolloutView, error) {
	return s.viewWith(ctx, id, func() (RolloutView, error) { return s.store.RolloutView(ctx, string(id), known) }, verbs...)
}

func (s *Service) viewWith(ctx context.Context, id tko.RolloutID, read func() (RolloutView, error), verbs ...access.Verb) (Record, RolloutView, error) {
	key := rolloutKey(id)
	if err := CheckKey(key); err != nil {
		return Record{}, RolloutView{}, err
	}
	v, err := read()
	if err != nil {
		return Record{}, v, err
	}
	r, err := s.get(ctx, Fields{Package: true}, key)
	if err != nil {
		return Record{}, v, err
	}
	if r.Revision == 0 {
		return Record{}, v, missing(key)
	}
	if len(verbs) > 0 {
		err = s.permit(ctx, &r, nil, verbs...)
	}
	if !v.Found {
		v.State = RolloutState{ID: string(id), State: execute.Draft, Family: string(id)}
	}
	return r, v, err
}

// specOf returns the spec that a rollout was planned with; a draft's is the current one.
func (s *Service) specOf(ctx context.Context, r Record, st RolloutState) (spec.Rollout, error) {
	if st.Spec != 0 && st.Spec != r.Revision {
		old, err := s.store.Revision(ctx, r.Key, st.Spec)
		if err != nil {
			return spec.Rollout{}, fmt.Errorf("read rollout %q as it was planned: %w", r.ID, err)
		}
		r = old
	}
	pkg, err := packageOf(r)
	if err != nil {
		return spec.Rollout{}, err
	}
	return spec.Parse(pkg)
}

// execution returns the state of a rollout as package execute has it.
func (v RolloutView) execution(sp spec.Rollout) execute.Rollout {
	st := v.State
	r := execute.Rollout{
		ID: st.ID, State: st.State, Family: st.Family, Undoes: st.Undoes, Spec: sp, Plan: st.Digest, Reason: st.Reason,
		Approvals: st.Approvals, Acknowledged: st.Acknowledged, AnyTime: st.AnyTime,
	}
	for _, o := range v.Active {
		if o.ID == st.UndoneBy && o.ID != "" {
			r.UndoneBy = o.State
		}
	}
	return r
}

// with returns a state with what package execute has changed of it.
func (st RolloutState) with(r execute.Rollout) RolloutState {
	st.State, st.Reason, st.Approvals, st.Acknowledged = r.State, r.Reason, r.Approvals, r.Acknowledged
	return st
}

// rows returns the rows that a rollout applies, without metadata of sites, and the index in
// v.Rows of each. The caller must not change them.
func (v RolloutView) rows() (rows []execute.Row, index []int) {
	if v.known != nil {
		return v.known.apply, v.known.of
	}
	for i := range v.Rows {
		if v.Rows[i].Kind.Applies() {
			rows, index = append(rows, v.Rows[i].execution()), append(index, i)
		}
	}
	return rows, index
}

// with returns a row with the progress of another.
func (r RolloutRow) with(e execute.Row) RolloutRow {
	r.Progress, r.Since, r.Evaluated, r.Credit, r.Counted, r.Broken, r.Reason = e.Progress, e.Since, e.Evaluated, e.Credit, e.Counted, e.Broken, e.Reason
	return r
}

// changedRows returns the rows of a view with changed progress.
func (v RolloutView) changedRows(changed []execute.Row) []RolloutRow {
	by := make(map[tko.DeploymentID]execute.Row, len(changed))
	for _, e := range changed {
		by[e.Deployment] = e
	}
	out := make([]RolloutRow, 0, len(changed))
	for _, r := range v.Rows {
		if e, ok := by[r.Deployment]; ok {
			out = append(out, r.with(e))
		}
	}
	return out
}

// saveRollout commits a state of a rollout, its conditions, other changes of rollouts,
// and writes of deployments. All are decided from the view.
func (s *Service) saveRollout(ctx context.Context, r Record, v RolloutView, st RolloutState, change RolloutWrite, writes ...Write) error {
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
	by := author(ctx)
	if by.Why == "" {
		by.Why = fmt.Sprintf("is %s", st.State)
	}
	conditions := mergeConditions(r.Conditions, st.conditions(), r.Revision, v.Now)
	writes = append(writes, Write{Op: tko.OpStatus, Record: Record{Key: r.Key, Author: by, Conditions: conditions}, Expect: Any, Rollout: &change})
	_, err := s.commit(ctx, writes...)
	return err
}

// maxBlocksText limits the text of a condition about what a rollout waits for.
const maxBlocksText = 2000

func (st RolloutState) conditions() []tko.Condition {
	flag := func(b bool) string { return map[bool]string{true: tko.ConditionTrue, false: tko.ConditionFalse}[b] }
	state := string(st.State)
	planned := tko.Condition{Type: tko.ConditionPlanned, Status: flag(st.Plan != 0 && st.State != execute.Planning), Reason: state}
	if st.Plan != 0 {
		planned.Message = fmt.Sprintf("plan %.12s: %s", st.Digest, kindsText(st.Kinds))
	}
	goes := st.State == execute.Planning || st.State == execute.Running || st.State == execute.Undoing
	progress := tko.Condition{Type: tko.ConditionProgressing, Status: flag(goes), Reason: state, Message: st.Reason.Message}
	if st.State.Active() && len(st.Blocks) > 0 {
		progress.Message = plainText(strings.Join(st.Blocks, "; "), maxBlocksText)
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

// RolloutDo does what a user commands, and returns the state that follows. A command
// that was done already has no effect.
func (s *Service) RolloutDo(ctx context.Context, cmd tko.RolloutCommand) (tko.RolloutStatus, error) {
	verb := access.Update
	if cmd.Verb == string(execute.CommandApprove) {
		verb = access.Approve
	}
	ctx, _, err := s.enter(ctx, tko.KindRollout, verb)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	if cmd.Plan != "" {
		if cmd.Plan, err = plan.ParseDigest(cmd.Plan); err != nil {
			return tko.RolloutStatus{}, err
		}
	}
	err = retry(ctx, func() error {
		r, v, err := s.viewForCommand(ctx, cmd, verb)
		if err != nil {
			return final(err)
		}
		err = s.command(ctx, cmd, r, v)
		if errors.Is(err, tko.ErrConflict) && !isStale(err) {
			return final(err)
		}
		return err
	})
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	s.log.InfoContext(ctx, "rollout command", "rollout", cmd.ID, "command", cmd.Verb, "who", author(ctx).Who)
	return s.RolloutStatus(ctx, cmd.ID)
}

// viewForCommand returns the record of a rollout, and the view with the rows that a command
// needs: all of them only to undo them.
func (s *Service) viewForCommand(ctx context.Context, cmd tko.RolloutCommand, verb access.Verb) (Record, RolloutView, error) {
	filter := RowFilter{}
	switch cmd.Verb {
	case string(execute.CommandUndo):
		return s.viewSince(ctx, cmd.ID, RowsAt{}, verb)
	case string(execute.CommandStart):
		filter.Blocked, filter.Held = true, true
	case commandSkip:
		filter.Deployment, filter.Stale = cmd.Deployment, cmd.Deployment == ""
	case commandWaive:
		filter.Deployment, filter.Counted = cmd.Deployment, cmd.Deployment == ""
	}
	return s.viewRollout(ctx, cmd.ID, filter, verb)
}

// The commands about single rows, which package execute doesn't have.
const (
	commandSkip  = "skip"
	commandWaive = "waive"
)

func (s *Service) command(ctx context.Context, cmd tko.RolloutCommand, r Record, v RolloutView) error {
	sp, err := s.specOf(ctx, r, v.State)
	if err != nil {
		return err
	}
	from := v.execution(sp)
	rows, _ := v.rows()
	sum := summaryOf(v.Counts)
	st, change := v.State, RolloutWrite{Wake: []string{r.ID}}
	switch cmd.Verb {
	case string(execute.CommandPlan):
		return s.commandPlan(ctx, r, v, from)
	case string(execute.CommandStart):
		return s.commandStart(ctx, cmd, r, v, from)
	case string(execute.CommandApprove):
		if st.Digest == (plan.Digest{}) {
			_, _, err := execute.Allow(from, execute.CommandApprove)
			return err
		}
		to, err := execute.Approve(from, sum, execute.Approving{Plan: cmd.Plan, Wave: cmd.Wave, Who: author(ctx).Who, When: v.Now})
		if err != nil {
			return err
		}
		st = st.with(to)
	case string(execute.CommandPause):
		to, changes, err := execute.Allow(from, execute.CommandPause)
		if err != nil || !changes {
			return err
		}
		st.State, st.Reason = to, execute.Reason{Code: "User", Message: pausedBy(author(ctx))}
	case string(execute.CommandResume):
		current := st.Digest
		if st.Next != 0 {
			current, sum = st.Left, sum.Without(execute.Stale) // the new plan replaces them
		}
		to, err := execute.Resume(from, sum, current, cmd.Plan)
		if err != nil {
			return err
		}
		if to.State == from.State {
			return nil
		}
		st = st.with(to)
		if st.Next != 0 {
			change.Rollout, change.Number, change.Replan = st.ID, st.Plan, st.Next
			st.Digest, st.Next, st.Left = st.Left, 0, plan.Digest{}
		}
	case string(execute.CommandCancel):
		if cmd.Unstarted && v.State.Started != 0 {
			return tko.Errorf(tko.ErrConflict, "rollout %q was started, it is %s: cancel it without the condition that it wasn't", r.ID, st.State)
		}
		to, _, err := execute.Cancel(from, nil)
		if err != nil || to.State == from.State {
			return err
		}
		st = st.with(to)
		st.Settling, change.Skip = sum.Total.InFlight() > 0, execute.ReasonCancelled
		change.Rollout, change.Number = st.ID, st.Plan
	case string(execute.CommandUndo):
		return s.commandUndo(ctx, cmd, r, v, from, rows)
	case commandSkip, commandWaive:
		changed, land, err := settle(cmd, rows)
		if err != nil || len(changed) == 0 {
			return err
		}
		change.Rows, change.Land = v.changedRows(changed), land
	default:
		return tko.Errorf(tko.ErrInvalid, "rollout %q: there is no command %.40q: use plan, start, approve, pause, resume, cancel, undo, skip or waive", r.ID, cmd.Verb)
	}
	return s.saveRollout(ctx, r, v, st, change)
}

func pausedBy(a tko.Author) string {
	text := "paused"
	if a.Who != "" {
		text += " by " + a.Who
	}
	if a.Why != "" {
		text += ": " + a.Why
	}
	return text
}

// settle skips rows that wait, or waives failed ones, as the command says.
func settle(cmd tko.RolloutCommand, rows []execute.Row) (changed []execute.Row, land []string, err error) {
	found := false
	for _, row := range rows {
		if cmd.Deployment != "" && row.Deployment != cmd.Deployment {
			continue
		}
		found = true
		if cmd.Verb == commandSkip {
			if cmd.Deployment == "" && row.Progress != execute.Stale {
				continue // all that keep the rollout from going on
			}
			to, err := execute.Skip(row, "a user left it out")
			if err != nil {
				return nil, nil, err
			}
			changed = append(changed, to)
			continue
		}
		if cmd.Deployment == "" && !row.Counted {
			continue
		}
		to, err := execute.Waive(row)
		if err != nil {
			return nil, nil, err
		}
		changed = append(changed, to)
		if row.Progress.InFlight() && !to.Progress.InFlight() {
			land = append(land, string(row.Deployment))
		}
	}
	if cmd.Deployment != "" && !found {
		return nil, nil, tko.Errorf(tko.ErrNotFound, "rollout %q doesn't change deployment %q", cmd.ID, cmd.Deployment)
	}
	return changed, land, nil
}

func (s *Service) commandPlan(ctx context.Context, r Record, v RolloutView, from execute.Rollout) error {
	to, _, err := execute.Allow(from, execute.CommandPlan)
	if err != nil {
		return err
	}
	st := v.State
	if st.Undoes != "" {
		return tko.Errorf(tko.ErrConflict, "rollout %q undoes rollout %q: its plan can't be made again", r.ID, st.Undoes)
	}
	if from.State == execute.Cancelled && summaryOf(v.Counts).Total.Applied() > 0 {
		return tko.Errorf(tko.ErrConflict, "rollout %q: it changed deployments before it was cancelled: undo it, or create another rollout", r.ID)
	}
	if st.State = to; to == execute.Planning {
		st.Reason = execute.Reason{}
	} else { // Paused: what is left is planned, and resumed by its digest
		st.Next, st.Left = st.Plan+1, plan.Digest{}
		st.Reason = execute.Reason{Code: "Planning", Message: "what is left is planned again"}
	}
	return s.saveRollout(ctx, r, v, st, RolloutWrite{Wake: []string{r.ID}})
}

func (s *Service) commandStart(ctx context.Context, cmd tko.RolloutCommand, r Record, v RolloutView, from execute.Rollout) error {
	if cmd.Plan == "" && from.State == execute.Planned {
		return tko.Errorf(tko.ErrInvalid, "rollout %q: no plan is named: review the plan (tko rollout plan), then start it with its digest (--plan)", r.ID)
	}
	st := v.State
	to, err := execute.Start(from, st.Digest, cmd.Plan, blockedOf(v), cmd.SkipBlocked, v.Held)
	if err != nil || to.State == from.State {
		return err
	}
	if r.Revision != st.Spec {
		return tko.Errorf(tko.ErrConflict, "rollout %q was changed after it was planned: it is planned again, review that plan", r.ID)
	}
	if err := s.permitPlan(ctx, st); err != nil {
		return err
	}
	st = st.with(to)
	st.Started, st.Time, st.By = v.Version+1, v.Now, author(ctx)
	change := RolloutWrite{Wake: []string{r.ID}}
	for _, row := range v.Rows {
		if row.Kind.Blocked() {
			row.Progress, row.Reason = execute.Skipped, strings.Join(row.Findings, "; ")
			change.Rows = append(change.Rows, row)
		}
	}
	return s.saveRollout(ctx, r, v, st, change)
}

// maxBlocked is the number of blocked rows whose reasons the refusal of a start has.
const maxBlocked = 3

// blockedOf returns the rows of a plan that keep it from being started.
func blockedOf(v RolloutView) execute.Blocked {
	b := execute.Blocked{Rows: v.State.Kinds[plan.Conflict.String()] + v.State.Kinds[plan.Invalid.String()]}
	for _, row := range v.Rows {
		if !row.Kind.Blocked() || len(row.Findings) == 0 {
			continue
		}
		at := ""
		if row.Site != "" {
			at = fmt.Sprintf(" at %q", row.Site)
		}
		b.First = append(b.First, fmt.Sprintf("%s %q%s: %s", row.Kind, row.Deployment, at, plainText(row.Findings[0], maxReason)))
		if len(b.First) == maxBlocked {
			break
		}
	}
	return b
}

// permitPlan is permitRows for all rows of the current plan, a page at a time.
func (s *Service) permitPlan(ctx context.Context, st RolloutState) error {
	if c, ok := callerOf(ctx); ok && c.grant.IsAll() {
		return nil
	}
	for after := ""; ; {
		rows, err := s.store.RolloutRows(ctx, st.ID, st.Plan, after, rowsPage)
		if err == nil {
			err = s.permitRows(ctx, rows)
		}
		if err != nil || len(rows) < rowsPage {
			return err
		}
		after = string(rows[len(rows)-1].Deployment)
	}
}

// permitRows checks that the caller may change all deployments of a plan: the caller who
// starts a rollout is responsible, and the controller doesn't check it again.
func (s *Service) permitRows(ctx context.Context, rows []RolloutRow) error {
	c, ok := callerOf(ctx)
	if !ok {
		return errNotEntered
	}
	if c.grant.IsAll() {
		return nil
	}
	for batch := range slices.Chunk(rows, selectedPage) {
		keys := keysOf(batch, func(row RolloutRow) Key { return deploymentKey(row.Deployment) })
		records, err := s.store.Get(ctx, Fields{}, keys...)
		if err != nil {
			return err
		}
		for i, r := range records {
			verb := access.Update
			switch batch[i].Kind {
			case plan.Delete:
				verb = access.Delete
			case plan.Create:
				verb = access.Create
				r = Record{Key: keys[i], Site: batch[i].Site, Parent: batch[i].Parent, Revision: 1}
			case plan.Change:
			default:
				continue
			}
			if r.Revision == 0 {
				continue
			}
			if err := s.permit(ctx, &r, nil, verb); err != nil {
				return err
			}
			if batch[i].Approves {
				if err := s.permit(ctx, &r, nil, access.Approve); err != nil {
					return err
				}
			}
			if batch[i].Target != 0 && batch[i].Site != r.Site { // it returns to another site
				r.Site = batch[i].Site
				if err := s.permit(ctx, &r, nil, verb); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *Service) commandUndo(ctx context.Context, cmd tko.RolloutCommand, r Record, v RolloutView, from execute.Rollout, rows []execute.Row) error {
	to, changed, err := execute.BeginUndo(from, rows)
	if err != nil || to.State == from.State {
		return err
	}
	if err := s.permitRows(ctx, v.Rows); err != nil {
		return err
	}
	st := v.State.with(to)
	st.UndoneBy, st.AnyTime, st.Force, st.Settling = "", cmd.AnyTime, cmd.Force, false
	return s.beginUndo(ctx, r, v, st, changed)
}

// removeRollout deletes a rollout that isn't in progress, with its plans. What it
// changed can't be undone any more.
func (s *Service) removeRollout(ctx context.Context, key Key, require Requirement, dryRun bool) (Record, tko.Deleted, error) {
	require.Present = true
	ctx, _, err := s.enter(ctx, tko.KindRollout, access.Delete)
	if err != nil {
		return Record{}, tko.Deleted{}, err
	}
	var r Record
	err = retry(ctx, func() error {
		var v RolloutView
		if r, v, err = s.viewRollout(ctx, tko.RolloutID(key.ID), RowFilter{}, access.Delete); err != nil {
			return final(err)
		}
		if err := require.check(key, r); err != nil {
			return final(err)
		}
		if _, _, err := execute.Allow(execute.Rollout{ID: key.ID, State: v.State.State}, execute.CommandDelete); err != nil {
			return final(err)
		}
		if v.State.Settling {
			return final(tko.Errorf(tko.ErrConflict, "rollout %q: deployments that it changed are not healthy yet: wait, waive them, or undo it", key.ID))
		}
		for _, o := range v.Active {
			if o.Undoes == key.ID && o.State.Active() {
				return final(tko.Errorf(tko.ErrConflict, "rollout %q is undone by rollout %q: wait until that one is done", key.ID, o.ID))
			}
		}
		if dryRun {
			return nil
		}
		w := Write{Op: tko.OpDeleted, Record: Record{Key: key, Author: author(ctx)}, Expect: r.Revision, Rollout: &RolloutWrite{Expect: v.Version, Forget: []string{key.ID}}}
		_, err = s.commit(ctx, w)
		return err
	})
	return r, tko.Deleted{Count: 1}, err
}

// removeRollouts deletes rollouts: all that exist, or none if one can't be deleted now.
func (s *Service) removeRollouts(ctx context.Context, ids []string, require Requirement, dryRun bool) (tko.Deleted, error) {
	done := tko.Deleted{}
	for _, dry := range []bool{true, false} {
		if dryRun && !dry {
			break
		}
		done.Count = 0
		for _, id := range ids {
			_, deleted, err := s.removeRollout(ctx, Key{Kind: tko.KindRollout, ID: id}, require, dry)
			if errors.Is(err, tko.ErrNotFound) {
				continue
			}
			if err != nil {
				return done, err
			}
			done.Count += deleted.Count
		}
	}
	return done, nil
}

// DeleteRollout deletes a rollout that isn't in progress.
func (s *Service) DeleteRollout(ctx context.Context, id tko.RolloutID) error {
	_, _, err := s.removeRollout(ctx, rolloutKey(id), Requirement{}, false)
	return err
}

// maxProposed limits the rollouts of one placement that are done and not deleted.
const maxProposed = 1000

// ProposeRollout registers a rollout for a placement, or replaces one that isn't started,
// and returns its state. If the rollout with the ID is done, the ID gets a number. One
// that a user undid or cancelled stays, as long as the changes are the same.
func (s *Service) ProposeRollout(ctx context.Context, id tko.RolloutID, pkg krm.Package) (tko.RolloutStatus, error) {
	ctx, c, err := s.enter(ctx, "", access.Prepare)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	if !strings.HasPrefix(string(id), "placement/") {
		return tko.RolloutStatus{}, tko.Errorf(tko.ErrInvalid, "rollout %q: the IDs of the rollouts of placements begin with placement/", id)
	}
	ctx = withAllRights(ctx, c) // the preparer may write these rollouts, and no others
	base := id
	for n := 2; n <= maxProposed; n++ {
		record, err := s.rolloutRecord(ctx, tko.Rollout{ID: id, Package: pkg})
		if err != nil {
			return tko.RolloutStatus{}, err
		}
		r, v, err := s.viewRollout(ctx, id, RowFilter{})
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return tko.RolloutStatus{}, err
		}
		same := err == nil && r.Digest == record.Digest
		switch state := v.State.State; {
		case err != nil, !same && (state == execute.Draft || state == execute.Planning || state == execute.Planned):
			if _, err := s.register(ctx, nil, record, len(pkg)); err != nil {
				return tko.RolloutStatus{}, err
			}
			return tko.RolloutStatus{ID: id, State: string(execute.Draft)}, nil
		case state == execute.Done, !same && (state == execute.Undone || state == execute.Cancelled && !v.State.Settling):
			id = tko.RolloutID(fmt.Sprintf("%s-%d", base, n))
		default:
			return tko.RolloutStatus{ID: id, State: string(state), Reason: v.State.Reason.Message}, nil
		}
	}
	return tko.RolloutStatus{}, tko.Errorf(tko.ErrInvalid, "there are %d rollouts %s-…: delete those that are done", maxProposed, base)
}

// ReservedOrigins returns the origins of the children of a deployment that rollouts
// deleted and can create again, with the rollouts: placements don't create them.
func (s *Service) ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error) {
	if _, _, err := s.enter(ctx, "", access.Prepare); err != nil {
		return nil, err
	}
	return s.store.ReservedOrigins(ctx, parent)
}

// maxExamples limits the rows that a status shows.
const maxExamples = 20

// RolloutStatus returns how far a rollout is.
func (s *Service) RolloutStatus(ctx context.Context, id tko.RolloutID) (tko.RolloutStatus, error) {
	ctx, _, err := s.enter(ctx, tko.KindRollout, access.Read)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	key := rolloutKey(id)
	if err := CheckKey(key); err != nil {
		return tko.RolloutStatus{}, err
	}
	v, err := s.store.RolloutSummary(ctx, string(id), maxExamples)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	r, err := s.get(ctx, Fields{Package: true}, key)
	if err == nil && r.Revision == 0 {
		err = missing(key)
	}
	if err == nil {
		err = s.permit(ctx, &r, nil, access.Read)
	}
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	if !v.Found {
		v.State = RolloutState{ID: string(id), State: execute.Draft, Family: string(id)}
	}
	sp, err := s.specOf(ctx, r, v.State)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	st := v.State
	if st.Spec != 0 && st.plansAnew(r) { // the controller will do so: what was planned can't be started
		st.State, st.Reason, st.Plan = execute.Planning, execute.Reason{}, 0
	}
	sum := summaryOf(v.Counts)
	out := tko.RolloutStatus{
		ID: id, State: string(st.State), Reason: st.Reason.Message, Position: r.Position, Undoes: tko.RolloutID(st.Undoes), UndoneBy: tko.RolloutID(st.UndoneBy),
		Started: st.Time, Now: v.Now, Kinds: st.Kinds, Failures: sum.Failures, Blocks: st.Blocks, Waves: wavesOf(sp, st, sum),
	}
	if st.Plan != 0 {
		out.Plan = st.Digest.String()
	}
	if st.Next != 0 && st.Left != (plan.Digest{}) {
		out.Plan = st.Left.String()
	}
	if out.Examples, err = s.examples(ctx, v); err != nil {
		return tko.RolloutStatus{}, err
	}
	out.Commands = commandsOf(st, out.Waves, sum)
	done := 0
	for p, n := range sum.Total.By {
		if p.Ended() {
			done += n
		}
	}
	if left := sum.Total.Rows - done; st.State == execute.Running && done > 0 && left > 0 {
		out.Until = v.Now.Add(v.Now.Sub(st.Time) / time.Duration(done) * time.Duration(left))
	}
	return out, nil
}

const (
	// maxUnhealthy limits the applied rows of which a status says why they aren't healthy.
	maxUnhealthy = 5
	// soon is the time in which sites usually report: before it, only those that report a
	// problem are shown.
	soon = time.Minute
	// maxReason limits the reason why a deployment isn't healthy.
	maxReason = 500
)

// examples returns rows as a status shows them. Of those that are applied, it returns a
// few whose deployments aren't healthy, with the reason.
func (s *Service) examples(ctx context.Context, v RolloutSummary) ([]tko.RolloutRow, error) {
	var shown []tko.RolloutRow
	var waiting []RolloutRow
	var keys []Key
	for _, row := range v.Examples {
		if row.Progress == execute.Applied {
			waiting, keys = append(waiting, row), append(keys, deploymentKey(row.Deployment))
			continue
		}
		shown = append(shown, row.shown())
	}
	if len(keys) == 0 {
		return shown, nil
	}
	records, err := s.store.Get(ctx, Fields{}, keys...)
	if err != nil {
		return nil, err
	}
	for i, left := 0, maxUnhealthy; i < len(waiting) && left > 0; i++ {
		healthy, reason := healthOf(records[i])
		reported := strings.Contains(reason, ": ") // the message of a condition
		if records[i].Revision == 0 || healthy || !reported && v.Now.Sub(waiting[i].Since) < soon {
			continue
		}
		row := waiting[i].shown()
		row.Reason = plainText(reason, maxReason)
		shown = append(shown, row)
		left--
	}
	return shown, nil
}

// commandsOf returns the commands that the state of a rollout allows and that would change
// something.
func commandsOf(st RolloutState, waves []tko.RolloutWave, sum execute.Summary) []string {
	var out []string
	for _, command := range execute.Commands() {
		next, changes, err := execute.Allow(execute.Rollout{ID: st.ID, State: st.State}, command)
		switch {
		case err != nil:
			continue
		case command == execute.CommandApprove:
			changes = slices.ContainsFunc(waves, func(w tko.RolloutWave) bool { return w.Approval == approvalRequired })
		case command == execute.CommandPlan:
			changes = st.Undoes == "" && (st.State == execute.Paused || changes && next == execute.Planning && st.Started == 0)
		case command == execute.CommandUndo:
			changes = changes && st.Started != 0
		case command == execute.CommandDelete:
			changes = true
		}
		if changes {
			out = append(out, string(command))
		}
	}
	if st.State == execute.Paused {
		if sum.Total.By[execute.Stale] > 0 {
			out = append(out, commandSkip)
		}
		if sum.Failures > 0 {
			out = append(out, commandWaive)
		}
	}
	return out
}

// approvalRequired is the approval of a wave that waits for one.
const approvalRequired = "Required"

// summaryOf returns the summary of the rows that the rollout applies, by their counts.
func summaryOf(counts []RolloutCount) execute.Summary {
	s := execute.Summary{Total: execute.Count{By: map[execute.Progress]int{}}}
	for _, c := range counts {
		if !c.Kind.Applies() || c.Wave < 0 {
			continue
		}
		for len(s.Waves) <= c.Wave {
			s.Waves = append(s.Waves, execute.Count{By: map[execute.Progress]int{}})
		}
		for _, to := range []*execute.Count{&s.Waves[c.Wave], &s.Total} {
			to.Rows += c.Rows
			to.By[c.Progress] += c.Rows
		}
		if c.Counted {
			s.Failures += c.Rows
		}
	}
	return s
}

func wavesOf(sp spec.Rollout, st RolloutState, sum execute.Summary) []tko.RolloutWave {
	var out []tko.RolloutWave
	for i, w := range sp.Waves {
		wave := tko.RolloutWave{Name: w.Name, Progress: map[string]int{}}
		if a, ok := st.Approvals[i]; ok && w.Approval && a.Plan == st.Digest {
			wave.Approval = "by " + a.Who
		} else if w.Approval && (len(sum.Waves) == 0 || i < len(sum.Waves) && sum.Waves[i].By[execute.Waiting] > 0) {
			wave.Approval = approvalRequired // of one without deployments that wait, execute.Approve wants none
		}
		if i < len(sum.Waves) {
			wave.Rows = sum.Waves[i].Rows
			for p, n := range sum.Waves[i].By {
				wave.Progress[string(p)] = n
			}
		}
		if w.Implicit && wave.Rows == 0 {
			continue
		}
		out = append(out, wave)
	}
	return out
}

func (r RolloutRow) shown() tko.RolloutRow {
	return tko.RolloutRow{
		Deployment: r.Deployment, Site: tko.SiteID(r.Site), Kind: r.Kind.String(), Wave: r.Wave, Rank: r.Rank, Revision: r.Revision, Group: r.Group,
		Findings: r.Findings, Unknown: r.Unknown, Progress: string(r.Progress), Reason: r.Reason, Since: r.Since, Applied: r.Applied,
	}
}

// current returns the number and digest of the plan to show: that of what is left, if
// one was made.
func (st RolloutState) current() (int64, plan.Digest) {
	if st.Next != 0 && st.Left != (plan.Digest{}) {
		return st.Next, st.Left
	}
	return st.Plan, st.Digest
}

// RolloutPlan returns the current plan of a rollout.
func (s *Service) RolloutPlan(ctx context.Context, id tko.RolloutID) (tko.RolloutPlan, error) {
	ctx, _, err := s.enter(ctx, tko.KindRollout, access.Read)
	if err != nil {
		return tko.RolloutPlan{}, err
	}
	r, v, err := s.viewRollout(ctx, id, RowFilter{}, access.Read)
	if err != nil {
		return tko.RolloutPlan{}, err
	}
	number, digest := v.State.current()
	out := tko.RolloutPlan{ID: id, State: string(v.State.State), Kinds: v.State.Kinds}
	if number == 0 {
		return out, nil
	}
	out.Digest = digest.String()
	sp, err := s.specOf(ctx, r, v.State)
	if err != nil {
		return out, err
	}
	out.Waves = wavesOf(sp, v.State, summaryOf(v.Counts))
	doc, err := s.store.RolloutPlan(ctx, string(id), number)
	if err != nil || len(doc) == 0 {
		return out, err
	}
	var groups []plan.Group
	if err := json.Unmarshal(doc, &groups); err != nil {
		return out, fmt.Errorf("read the plan of rollout %q: %w", id, err)
	}
	for _, g := range groups {
		shown := tko.RolloutGroup{Kind: g.Kind.String(), Count: g.Count, Examples: g.Examples, More: g.More, Coarse: g.Coarse, Distinct: g.Distinct, Templates: g.Templates}
		for _, l := range g.Changes {
			shown.Changes = append(shown.Changes, tko.RolloutChange(l))
		}
		out.Groups = append(out.Groups, shown)
	}
	return out, nil
}

// rowsPage is the number of rows that are read at once.
const rowsPage = 1000

// RolloutRows returns rows of the current plan, in the order of IDs.
func (s *Service) RolloutRows(ctx context.Context, sel tko.RolloutRows) iter.Seq2[tko.RolloutRow, error] {
	return func(yield func(tko.RolloutRow, error) bool) {
		ctx, _, err := s.enter(ctx, tko.KindRollout, access.Read)
		var states []RolloutState
		p := patternParser{}
		var sites []tko.Pattern
		if sel.Site != "" {
			sites = p.ids("site ID", []string{sel.Site})
		}
		if err == nil {
			err = p.err
		}
		var record Record
		if err == nil {
			record, _, err = s.viewedRecord(ctx, sel.ID)
		}
		if err == nil {
			states, _, _, err = s.store.RolloutStates(ctx, string(sel.ID))
		}
		if err != nil {
			yield(tko.RolloutRow{}, err)
			return
		}
		if len(states) == 0 {
			return
		}
		number, _ := states[0].current()
		after, left, changed := string(sel.After), sel.Limit, 0
		for {
			rows, err := s.store.RolloutRows(ctx, string(sel.ID), number, after, rowsPage)
			if err != nil {
				yield(tko.RolloutRow{}, err)
				return
			}
			for _, r := range rows {
				after = string(r.Deployment)
				if !selects(sel, sites, r) {
					continue
				}
				row := r.shown()
				if sel.Changes && (r.Kind.Applies() || r.Kind == plan.Conflict) {
					if changed++; changed > maxChangedRows {
						yield(tko.RolloutRow{}, errTooManyChanges)
						return
					}
					if row.Changes, err = s.changesOf(ctx, record, states[0], r); err != nil {
						row.Findings = append(slices.Clip(row.Findings), "the changes can't be shown: "+err.Error())
					}
				}
				if !yield(row, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if len(rows) < rowsPage {
				return
			}
		}
	}
}

func selects(sel tko.RolloutRows, sites []tko.Pattern, r RolloutRow) bool {
	return (sel.Deployment == "" || sel.Deployment == r.Deployment) && (sel.Group == nil || *sel.Group == r.Group && r.Kind != plan.Same) && (len(sites) == 0 || r.Site != "" && sites[0].Match(r.Site)) &&
		(len(sel.Kinds) == 0 || slices.Contains(sel.Kinds, r.Kind.String())) && (len(sel.Progress) == 0 || slices.Contains(sel.Progress, string(r.Progress)))
}

// viewedRecord returns the record of a rollout that the caller may read.
func (s *Service) viewedRecord(ctx context.Context, id tko.RolloutID) (Record, *caller, error) {
	c, ok := callerOf(ctx)
	if !ok {
		return Record{}, nil, errNotEntered
	}
	r, err := s.get(ctx, Fields{}, rolloutKey(id))
	if err == nil {
		err = s.visible(c, r)
	}
	return r, c, err
}

// undoPackage returns the package of the rollout that undoes another one: its waves in
// reverse order without approvals, and its limits, health and windows.
func undoPackage(id string, of krm.Package, undoes string) (krm.Package, error) {
	for _, r := range of {
		if r.GVK() != spec.GVK {
			continue
		}
		was, _ := r["spec"].(map[string]any)
		next := map[string]any{"undoes": undoes}
		for _, key := range []string{"limits", "health", "windows"} {
			if v, ok := was[key]; ok {
				next[key] = v
			}
		}
		parsed, err := spec.Parse(of)
		if err != nil {
			return nil, err
		}
		var waves []any
		for _, w := range execute.UndoSpec(parsed).Waves {
			wave := map[string]any{"name": w.Name}
			if w.Count > 0 {
				wave["count"] = int64(w.Count)
			}
			if w.Percent > 0 {
				wave["percent"] = w.Percent
			}
			waves = append(waves, wave)
		}
		next["waves"] = waves
		if on, ok := was["onFailure"]; ok && on == string(spec.Continue) {
			next["onFailure"] = on
		}
		return krm.Package{{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": strings.ReplaceAll(id, "/", "-")}, "spec": next}}, nil
	}
	return nil, tko.Errorf(tko.ErrInvalid, "the package has no Rollout resource")
}
