package schedule

import (
	"fmt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
)

// certified returns an outcome of the condition Scheduled or Healthy as it may be written
// for a revision. True needs the receipts of all targets that have a part in it: whatever
// was skipped, held back or not asked is not True. All conditions pass it; those of other
// types are returned as they are.
func certified(condition string, v report.Outcome, revision int64, receipts []report.Receipt) report.Outcome {
	if v.Status != tko.ConditionTrue || condition != tko.ConditionScheduled && condition != tko.ConditionHealthy {
		return v
	}
	if condition == tko.ConditionScheduled && v.Reason == report.ReasonNothing {
		return v // there is nothing that a target could have
	}
	for _, r := range receipts {
		if !r.Of(condition, revision) {
			return notAsked(revision)
		}
	}
	if len(receipts) == 0 {
		return notAsked(revision)
	}
	return v
}

// notAsked returns the outcome of a revision about which a target has made no statement.
func notAsked(revision int64) report.Outcome {
	return report.Outcome{Status: tko.ConditionUnknown, Reason: tko.ReasonNotAsked, Message: fmt.Sprintf("no target of the site has reported revision %d: it was not asked, or did not say", revision)}
}

// healthNotReported returns the health at a site whose targets report none.
func healthNotReported(site tko.SiteID, p plan) report.Outcome {
	return report.Outcome{Status: tko.ConditionUnknown, Reason: tko.ReasonHealthNotReported, Message: fmt.Sprintf(
		"%s of site %q reports no health: whether what it has works is not known here", p.steps[0], site)}
}
