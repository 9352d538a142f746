package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// RolloutDo does what a user commands, and returns the state that follows. A command
// that was done already has no effect.
func (s *RolloutControl) RolloutDo(ctx context.Context, cmd tko.RolloutCommand) (tko.RolloutStatus, error) {
	verb := access.Update
	if cmd.Verb == string(execute.CommandApprove) {
		verb = access.Approve
	}
	if cmd.Emergency {
		if err := s.checkEmergency(ctx, cmd); err != nil {
			return tko.RolloutStatus{}, err
		}
	}
	ctx, _, err := s.rights.Enter(ctx, tko.KindRollout, verb)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	if cmd.Plan != "" {
		if cmd.Plan, err = plan.ParseDigest(cmd.Plan); err != nil {
			return tko.RolloutStatus{}, err
		}
	}
	err = record.Retry(ctx, func() error {
		r, v, err := s.viewForCommand(ctx, cmd, verb)
		if err != nil {
			return record.Final(err)
		}
		err = s.command(ctx, cmd, r, v)
		if errors.Is(err, tko.ErrConflict) && !record.IsStale(err) {
			return record.Final(err)
		}
		return err
	})
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	s.settings.Log.InfoContext(ctx, "rollout command", "rollout", cmd.ID, "command", cmd.Verb, "who", rights.Author(ctx).Who)
	return s.RolloutStatus(ctx, cmd.ID)
}

// viewForCommand returns the record of a rollout, and the view with the rows that a command
// needs: all of them only to undo them.
func (s *RolloutControl) viewForCommand(ctx context.Context, cmd tko.RolloutCommand, verb access.Verb) (record.Record, record.RolloutView, error) {
	filter := record.RowFilter{}
	switch cmd.Verb {
	case string(execute.CommandUndo):
		return s.viewSince(ctx, cmd.ID, record.RowsAt{}, verb)
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

func (s *RolloutControl) command(ctx context.Context, cmd tko.RolloutCommand, r record.Record, v record.RolloutView) error {
	sp, err := s.specOf(ctx, r, v.State)
	if err != nil {
		return err
	}
	from := executionOf(v, sp)
	rows, _ := executionRows(v)
	sum := summaryOf(v.Counts)
	st, change := v.State, record.RolloutWrite{Wake: []string{r.ID}}
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
		to, wave, err := execute.Approve(from, sum, execute.Approving{Plan: cmd.Plan, Wave: cmd.Wave, Who: rights.Author(ctx).Who, When: v.Now, Emergency: cmd.Emergency})
		if err != nil {
			return err
		}
		if cmd.Emergency {
			return s.approveEmergency(ctx, r, v, to, wave)
		}
		st = stateWith(st, to)
	case string(execute.CommandPause):
		to, changes, err := execute.Allow(from, execute.CommandPause)
		if err != nil || !changes {
			return err
		}
		st.State, st.Reason = to, execute.Reason{Code: "User", Message: pausedBy(rights.Author(ctx))}
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
		st = stateWith(st, to)
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
		st = stateWith(st, to)
		st.Blocks, st.Held = nil, false // nothing waits any more
		st.Settling, change.Skip = sum.Total.InFlight() > 0 || st.Stages && st.Started != 0, execute.ReasonCancelled
		change.Rollout, change.Number = st.ID, st.Plan
	case string(execute.CommandUndo):
		return s.commandUndo(ctx, cmd, r, v, from, rows)
	case commandWaive:
		if cmd.Metric != "" {
			return s.waiveMetric(ctx, cmd, r, v, from)
		}
		fallthrough
	case commandSkip:
		changed, land, err := settle(cmd, rows)
		if err != nil || len(changed) == 0 {
			return err
		}
		change.Rows, change.Land = changedRows(v, changed), land
	default:
		return tko.Errorf(tko.ErrInvalid, "rollout %q: there is no command %.40q: use one of %s", r.ID, cmd.Verb, strings.Join(tko.RolloutVerbs(), ", "))
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

func (s *RolloutControl) commandPlan(ctx context.Context, r record.Record, v record.RolloutView, from execute.Rollout) error {
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
	st.State = to
	if to == execute.Planning {
		st.Reason = execute.Reason{}
	} else { // Paused: what is left is planned, and resumed by its digest
		st.Next, st.Left = st.Plan+1, plan.Digest{}
		st.Reason = execute.Reason{Code: "Planning", Message: "what is left is planned again"}
	}
	return s.saveRollout(ctx, r, v, st, record.RolloutWrite{Wake: []string{r.ID}})
}

func (s *RolloutControl) commandStart(ctx context.Context, cmd tko.RolloutCommand, r record.Record, v record.RolloutView, from execute.Rollout) error {
	if cmd.Plan == "" && from.State == execute.Planned {
		return tko.Errorf(tko.ErrInvalid, "rollout %q: no plan is named: review the plan (tko rollout plan), then start it with its digest (--plan)", r.ID)
	}
	st := v.State
	to, err := execute.Start(from, execute.Beginning{Plan: st.Digest, Named: cmd.Plan, Blocked: blockedOf(v), SkipBlocked: cmd.SkipBlocked, Held: v.Held})
	if err != nil || to.State == from.State {
		return err
	}
	if r.Revision != st.Spec {
		return tko.Errorf(tko.ErrConflict, "rollout %q was changed after it was planned: it is planned again, review that plan", r.ID)
	}
	if err := s.permitPlan(ctx, st); err != nil {
		return err
	}
	st.Rule, st.Blind, st.Measures = record.RuleOfReports, cmd.Blind, len(from.Spec.Health.Metrics) > 0
	st.Stages = from.Spec.Stage != nil
	if st.Unreported > 0 && !st.AcceptsNone(from.Spec) {
		return tko.Errorf(tko.ErrConflict, "rollout %q: %d of its deployments are at sites that report no health (such as git repositories): whether they work after the change can't be known; "+
			"start it with --blind, or set spec.health.none to Accept, to take them for healthy once they are scheduled", r.ID, st.Unreported)
	}
	st = stateWith(st, to)
	st.Started, st.Time, st.By, st.Starter = v.Version+1, v.Now, rights.Author(ctx), nil
	if c, ok := rights.CallerOf(ctx); ok {
		if o := rights.OwnerOf(c.Identity); !o.IsZero() {
			st.Starter = &o
		}
	}
	change := record.RolloutWrite{Wake: []string{r.ID}}
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
func blockedOf(v record.RolloutView) execute.Blocked {
	b := execute.Blocked{Rows: v.State.Kinds[plan.Conflict.String()] + v.State.Kinds[plan.Invalid.String()]}
	for _, row := range v.Rows {
		if !row.Kind.Blocked() || len(row.Findings) == 0 {
			continue
		}
		at := ""
		if row.Site != "" {
			at = fmt.Sprintf(" at %q", row.Site)
		}
		b.First = append(b.First, fmt.Sprintf("%s %q%s: %s", row.Kind, row.Deployment, at, printable.Kept(row.Findings[0], maxReason)))
		if len(b.First) == maxBlocked {
			break
		}
	}
	return b
}

// permitPlan is permitRows for all rows of the current plan, a page at a time.
func (s *RolloutControl) permitPlan(ctx context.Context, st record.RolloutState) error {
	if c, ok := rights.CallerOf(ctx); ok && c.Grant.IsAll() {
		return nil
	}
	for after := ""; ; {
		rows, err := s.store.RolloutRows(ctx, st.ID, st.Plan, after, record.RowsPage)
		if err == nil {
			err = s.permitRows(ctx, rows)
		}
		if err != nil || len(rows) < record.RowsPage {
			return err
		}
		after = string(rows[len(rows)-1].Deployment)
	}
}

// permitRows checks that the caller may change all deployments of a plan: the caller who
// starts a rollout is responsible, and the controller doesn't check it again.
func (s *RolloutControl) permitRows(ctx context.Context, rows []record.RolloutRow) error {
	c, ok := rights.CallerOf(ctx)
	if !ok {
		return rights.ErrNotEntered
	}
	if c.Grant.IsAll() {
		return nil
	}
	for batch := range slices.Chunk(rows, record.SelectedPage) {
		keys := record.Keys(batch, func(row record.RolloutRow) record.Key { return record.DeploymentKey(row.Deployment) })
		records, err := s.store.Get(ctx, record.Fields{}, keys...)
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
				r = record.Record{Key: keys[i], Site: batch[i].Site, Parent: batch[i].Parent, Revision: 1}
			case plan.Change:
			default:
				continue
			}
			if r.Revision == 0 {
				continue
			}
			if err := s.rights.Permit(ctx, &r, nil, verb); err != nil {
				return err
			}
			if batch[i].Approves {
				if err := s.rights.Permit(ctx, &r, nil, access.Approve); err != nil {
					return err
				}
			}
			if batch[i].Target != 0 && batch[i].Site != r.Site { // it returns to another site
				r.Site = batch[i].Site
				if err := s.rights.Permit(ctx, &r, nil, verb); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *RolloutControl) commandUndo(ctx context.Context, cmd tko.RolloutCommand, r record.Record, v record.RolloutView, from execute.Rollout, rows []execute.Row) error {
	to, changed, err := execute.BeginUndo(from, rows)
	if err != nil || to.State == from.State {
		return err
	}
	// The rights were checked when the rollout was started: a caller who may command it may undo
	// it, so that a broken network can be repaired at once.
	st := stateWith(v.State, to)
	st.UndoneBy, st.AnyTime, st.Force, st.Settling = "", cmd.AnyTime, cmd.Force, false
	return s.runner.beginUndo(ctx, r, v, st, changed)
}
