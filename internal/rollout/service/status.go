package service

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// maxExamples limits the rows that a status shows.
const maxExamples = 20

// RolloutStatus returns how far a rollout is.
func (s *RolloutControl) RolloutStatus(ctx context.Context, id tko.RolloutID) (tko.RolloutStatus, error) {
	ctx, c, err := s.rights.Enter(ctx, tko.KindRollout, access.Read)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	var v record.RolloutSummary
	r, err := s.record(ctx, id, func() (err error) { v, err = s.store.RolloutSummary(ctx, string(id), maxExamples); return err }, access.Read)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	if !v.Found {
		v.State = draftOfRollout(id)
	}
	sp, err := s.specOf(ctx, r, v.State)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	st := v.State
	if st.Spec != 0 && plansAnew(st, r) { // the controller will do so: what was planned can't be started
		st.State, st.Reason, st.Plan = execute.Planning, execute.Reason{}, 0
	}
	sum := summaryOf(v.Counts)
	out := tko.RolloutStatus{
		ID: id, State: string(st.State), Reason: st.Reason.Message, Position: r.Position, Undoes: tko.RolloutID(st.Undoes), UndoneBy: tko.RolloutID(st.UndoneBy),
		Started: st.Time, Now: v.Now, Kinds: st.Kinds, Failures: sum.Failures, Blocks: st.Blocks, Waves: wavesOf(sp, st, sum),
		FirstFailure: st.FirstFailure, Touched: st.Touched, Failing: st.Failing,
	}
	if st.Plan != 0 {
		out.Plan = st.Digest.String()
	}
	if st.Next != 0 && st.Left != (plan.Digest{}) {
		out.Plan = st.Left.String()
	}
	if v.Examples, err = s.visibleRows(ctx, c, v.Examples); err != nil {
		return tko.RolloutStatus{}, err
	}
	if out.Examples, err = s.examples(ctx, v, st.AcceptsNone(sp)); err != nil {
		return tko.RolloutStatus{}, err
	}
	out.Commands = commandsOf(st, awaitsUser(sp, out.Waves), sum)
	if st.State == execute.Running && !st.Held {
		out.Until = expectedEnd(v.Now, v.Counts, out.Waves)
	}
	return out, nil
}

// expectedEnd returns when a rollout ends if its rows go on as those of the wave in progress
// did: zero if that isn't known. A wave that a person must approve has no end, and neither
// has one that stands still for longer than it moved.
func expectedEnd(now time.Time, counts []record.RolloutCount, waves []tko.RolloutWave) time.Time {
	if slices.ContainsFunc(waves, func(w tko.RolloutWave) bool { return w.Approval == approvalRequired }) {
		return time.Time{}
	}
	left, wave := 0, math.MaxInt
	for _, c := range counts {
		if c.Kind.Applies() && c.Wave >= 0 && !c.Progress.Ended() {
			left, wave = left+c.Rows, min(wave, c.Wave)
		}
	}
	done, first, last := 0, now, time.Time{}
	for _, c := range counts {
		if c.Kind.Applies() && c.Wave == wave && c.Progress.Ended() && !c.First.IsZero() {
			done += c.Rows
			if c.First.Before(first) {
				first = c.First
			}
			if c.Last.After(last) {
				last = c.Last
			}
		}
	}
	moved := last.Sub(first)
	if done < 2 || moved <= 0 || now.Sub(last) > moved {
		return time.Time{}
	}
	end := last.Add(time.Duration(float64(moved) / float64(done-1) * float64(left)))
	if end.Before(now) { // a few rows take longer than the others
		return time.Time{}
	}
	return end
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
func (s *RolloutControl) examples(ctx context.Context, v record.RolloutSummary, acceptsNone bool) ([]tko.RolloutRow, error) {
	var shown []tko.RolloutRow
	var waiting []record.RolloutRow
	var keys []record.Key
	for _, row := range v.Examples {
		if row.Progress == execute.Applied {
			waiting, keys = append(waiting, row), append(keys, record.DeploymentKey(row.Deployment))
			continue
		}
		shown = append(shown, shownRow(row))
	}
	if len(keys) == 0 {
		return shown, nil
	}
	records, err := s.store.Get(ctx, record.Fields{}, keys...)
	if err != nil {
		return nil, err
	}
	for i, left := 0, maxUnhealthy; i < len(waiting) && left > 0; i++ {
		healthy, reason := healthOf(records[i], acceptsNone)
		reported := strings.Contains(reason, ": ") // the message of a condition
		if records[i].Revision == 0 || healthy || !reported && v.Now.Sub(waiting[i].Since) < soon {
			continue
		}
		row := shownRow(waiting[i])
		row.Reason = printable.Kept(reason, maxReason)
		shown = append(shown, row)
		left--
	}
	return shown, nil
}

// commandsOf returns the commands that the state of a rollout allows and that would change
// something.
func commandsOf(st record.RolloutState, approvable bool, sum execute.Summary) []string {
	var out []string
	for _, command := range execute.Commands() {
		next, changes, err := execute.Allow(execute.Rollout{ID: st.ID, State: st.State}, command)
		switch {
		case err != nil:
			continue
		case command == execute.CommandApprove:
			changes = approvable
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

// awaitsUser reports whether a user can approve the next wave that waits for an approval: a
// ticket system approves some.
func awaitsUser(sp spec.Rollout, waves []tko.RolloutWave) bool {
	for _, w := range waves {
		if w.Approval == approvalRequired {
			return slices.ContainsFunc(sp.Waves, func(of spec.Wave) bool { return of.Name == w.Name && of.External == "" })
		}
	}
	return false
}

// approvalRequired is the approval of a wave that waits for one.
const approvalRequired = "Required"

// summaryOf returns the summary of the rows that the rollout applies, by their counts.
func summaryOf(counts []record.RolloutCount) execute.Summary {
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

func wavesOf(sp spec.Rollout, st record.RolloutState, sum execute.Summary) []tko.RolloutWave {
	var out []tko.RolloutWave
	for i, w := range sp.Waves {
		wave := tko.RolloutWave{Name: w.Name, Progress: map[string]int{}}
		if a, ok := st.Approvals[i]; ok && w.Approval && a.Plan == st.Digest && (w.External == "" || a.Ticket != "") {
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

func shownRow(r record.RolloutRow) tko.RolloutRow {
	return tko.RolloutRow{
		Deployment: r.Deployment, Site: tko.SiteID(r.Site), Kind: r.Kind.String(), Wave: r.Wave, Rank: r.Rank, Revision: r.Revision, Group: r.Group,
		Findings: r.Findings, Unknown: r.Unknown, Progress: string(r.Progress), Reason: r.Reason, Since: r.Since, Applied: r.Applied, Staging: stagingText(r),
	}
}

// currentPlan returns the number and digest of the plan to show: that of what is left, if
// one was made.
func currentPlan(st record.RolloutState) (int64, plan.Digest) {
	if st.Next != 0 && st.Left != (plan.Digest{}) {
		return st.Next, st.Left
	}
	return st.Plan, st.Digest
}

// RolloutPlan returns the current plan of a rollout.
func (s *RolloutControl) RolloutPlan(ctx context.Context, id tko.RolloutID) (tko.RolloutPlan, error) {
	ctx, c, err := s.rights.Enter(ctx, tko.KindRollout, access.Read)
	if err != nil {
		return tko.RolloutPlan{}, err
	}
	r, v, err := s.viewRollout(ctx, id, record.RowFilter{}, access.Read)
	if err != nil {
		return tko.RolloutPlan{}, err
	}
	number, digest := currentPlan(v.State)
	out := tko.RolloutPlan{ID: id, State: string(v.State.State), Kinds: v.State.Kinds, Warnings: v.State.Warnings, Unreported: v.State.Unreported}
	for _, image := range v.State.Images {
		out.Images = append(out.Images, tko.RolloutImage{Reference: image.Reference, Kind: image.Kind, Sites: image.Sites})
	}
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
	if out.Groups, err = groupsOf(string(id), doc); err != nil {
		return out, err
	}
	return s.visiblePlan(ctx, c, number, out)
}

// groupsOf returns the groups of a plan as they are shown. Values of Secrets are not in them.
func groupsOf(rollout string, doc []byte) (shown []tko.RolloutGroup, err error) {
	if len(doc) == 0 {
		return nil, nil
	}
	var groups []plan.Group
	if err := json.Unmarshal(doc, &groups); err != nil {
		return nil, fmt.Errorf("read the plan of rollout %q: %w", rollout, err)
	}
	for _, g := range groups {
		shown = append(shown, tko.RolloutGroup{
			Kind: g.Kind.String(), Count: g.Count, Examples: g.Examples, Changes: plan.Shown(g.Changes), More: g.More, Coarse: g.Coarse, Distinct: g.Distinct, Templates: g.Templates,
		})
	}
	return shown, nil
}

// allRows is more than the rows of any plan.
const allRows = math.MaxInt32

// RolloutRows returns rows of the current plan, in the order of IDs, all as of one moment:
// those of a list are read by one statement.
func (s *RolloutControl) RolloutRows(ctx context.Context, sel tko.RolloutRows) iter.Seq2[tko.RolloutRow, error] {
	return record.Stream(func(yield func(tko.RolloutRow) bool) error {
		ctx, c, err := s.rights.Enter(ctx, tko.KindRollout, access.Read)
		if err != nil {
			return err
		}
		var sites []tko.Pattern
		if sel.Site != "" {
			if sites, err = criteria.IDPatterns("site ID", []string{sel.Site}); err != nil {
				return err
			}
		}
		record, err := s.rights.GetVisible(ctx, c, record.Fields{}, record.RolloutKey(sel.ID))
		if err != nil {
			return err
		}
		st, selected, err := s.selectedRows(ctx, c, sel, sites)
		if err != nil {
			return err
		}
		changed := 0
		for _, r := range selected {
			row := shownRow(r)
			if sel.Changes && (r.Kind.Applies() || r.Kind == plan.Conflict) {
				changed++
				if changed > maxChangedRows {
					return errTooManyChanges
				}
				if row.Changes, err = s.plans.changesOf(ctx, record, st, r); err != nil {
					row.Findings = append(slices.Clip(row.Findings), "the changes can't be shown: "+err.Error())
				}
			}
			if !yield(row) {
				return nil
			}
		}
		return nil
	})
}

// selectedRows returns the state of a rollout, and the rows of its current plan that are
// selected and that the caller may see, as of one moment.
func (s *RolloutControl) selectedRows(ctx context.Context, c *rights.Caller, sel tko.RolloutRows, sites []tko.Pattern) (st record.RolloutState, selected []record.RolloutRow, err error) {
	limit := allRows
	if sel.Limit > 0 && sel.Limit <= record.RowsPage {
		limit = record.RowsPage // most pages are among the first rows
	}
	for range record.MaxAttempts {
		st, number, err := s.currentPlan(ctx, sel.ID)
		if err != nil || number == 0 {
			return st, nil, err
		}
		rows, err := s.store.RolloutRows(ctx, string(sel.ID), number, string(sel.After), limit)
		if err != nil {
			return st, nil, err
		}
		if selected, err = s.visibleSelection(ctx, c, sel, sites, rows); err != nil {
			return st, nil, err
		}
		enough := sel.Limit > 0 && len(selected) == sel.Limit
		if !enough && len(rows) == limit { // the rest is read with these anew: they may have changed
			limit = allRows
			continue
		}
		if _, now, err := s.currentPlan(ctx, sel.ID); err != nil || now == number {
			return st, selected, err
		}
	}
	return st, nil, tko.Errorf(tko.ErrConflict, "rollout %q is planned again and again: list its rows later", sel.ID)
}

// currentPlan returns the state of a rollout, and the number of its plan; 0 if it has none.
func (s *RolloutControl) currentPlan(ctx context.Context, id tko.RolloutID) (st record.RolloutState, number int64, err error) {
	states, _, _, err := s.store.RolloutStates(ctx, string(id))
	if err != nil || len(states) == 0 {
		return st, 0, err
	}
	number, _ = currentPlan(states[0])
	return states[0], number, nil
}

// visibleSelection returns the first rows that are selected and that the caller may see.
func (s *RolloutControl) visibleSelection(ctx context.Context, c *rights.Caller, sel tko.RolloutRows, sites []tko.Pattern, rows []record.RolloutRow) (selected []record.RolloutRow, err error) {
	for page := range slices.Chunk(rows, record.RowsPage) {
		visible, err := s.visibleRows(ctx, c, page)
		if err != nil {
			return nil, err
		}
		for _, r := range visible {
			if !selects(sel, sites, r) {
				continue
			}
			selected = append(selected, r)
			if sel.Limit > 0 && len(selected) == sel.Limit {
				return selected, nil
			}
		}
	}
	return selected, nil
}

func selects(sel tko.RolloutRows, sites []tko.Pattern, r record.RolloutRow) bool {
	return (sel.Deployment == "" || sel.Deployment == r.Deployment) && (sel.Group == nil || *sel.Group == r.Group && r.Kind != plan.Same) && (len(sites) == 0 || r.Site != "" && sites[0].Match(r.Site)) &&
		(len(sel.Kinds) == 0 || slices.Contains(sel.Kinds, r.Kind.String())) && (len(sel.Progress) == 0 || slices.Contains(sel.Progress, string(r.Progress)))
}
