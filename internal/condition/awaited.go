package condition

import (
	"fmt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// OfAwaited returns the conditions that report what a record waits for. current are those that
// it has. Those of a site, which isn't prepared, are those of a prepared deployment.
func OfAwaited(a record.Awaited, kind tko.Kind, current []tko.Condition, prepared bool) []tko.Condition {
	const resolved = tko.ConditionResolvedRefs
	if a.IsZero() {
		if tko.ConditionIs(current, resolved) != tko.ConditionFalse {
			return nil
		}
		now := []tko.Condition{{Type: resolved, Status: tko.ConditionTrue, Reason: tko.ReasonResolved}}
		if !prepared && tko.HasCondition(current, tko.ConditionPrepared, tko.ReasonWaitsForReferences) {
			now = append(now, tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "NotPrepared"})
		}
		return now
	}
	what := "it is"
	if a.Template != "" && a.Site != "" {
		what = "they are"
	}
	message := fmt.Sprintf("%s: the %s waits until %s registered", a, kind, what)
	now := []tko.Condition{{Type: resolved, Status: tko.ConditionFalse, Reason: tko.ReasonWaitsForReferences, Message: message}}
	if !prepared {
		now = append(now, tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: tko.ReasonWaitsForReferences, Message: message})
	}
	return now
}

// OfState returns the conditions that must change so that none contradicts what a deployment
// is: its flags, and what it waits for.
func OfState(r record.Record, current []tko.Condition) []tko.Condition {
	return append(OfAwaited(r.Awaited(), tko.KindDeployment, current, r.Prepared), OfFlags(current, r.Prepared, r.Approved)...)
}
