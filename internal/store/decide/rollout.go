package decide

import (
	"cmp"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// RolloutRows returns the rows that a write of a rollout puts, with the revisions that were applied: those that the deployments have in
// the transaction. state returns a record, or nil if it doesn't exist or isn't known.
func RolloutRows(w *record.RolloutWrite, state func(tko.DeploymentID) *record.Record) []record.RolloutRow {
	rows := slices.Clone(w.Rows)
	for i := range rows {
		r := &rows[i]
		if r.Progress != execute.Applied || r.Applied != 0 {
			continue
		}
		r.Applied = r.Revision
		if now := state(r.Deployment); now != nil {
			r.Applied, r.UID = now.Revision, cmp.Or(r.UID, now.UID)
		}
		r.Chain = r.Applied
	}
	return rows
}

// Holds reports whether an active rollout holds the deployments that it has in rows that aren't final, before another one: it is of
// another family, and started earlier, or at all if the other one has not started.
func Holds(h, before *record.RolloutState) bool {
	return h.ID != before.ID && h.Started > 0 && (h.Started < before.Started || before.Started == 0) && h.Family != before.Family && h.State.Active()
}

// HoldingProgress are the values of the progress of rows that aren't final.
func HoldingProgress() []string {
	return []string{string(execute.Waiting), string(execute.Applied), string(execute.Soaking), string(execute.Failed), string(execute.Stale)}
}

// LeftProgress are the values of the progress of rows that weren't applied, and still may be.
func LeftProgress() []string { return []string{string(execute.Waiting), string(execute.Stale)} }

// AppliedKinds are the kinds of rows that a rollout applies, and BlockedKinds those that it can't apply.
var (
	AppliedKinds = []int64{int64(plan.Change), int64(plan.Create), int64(plan.Delete)}
	BlockedKinds = []int64{int64(plan.Conflict), int64(plan.Invalid)}
)
