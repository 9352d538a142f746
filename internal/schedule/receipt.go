package schedule

import (
	"fmt"
	"slices"

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
	if !attested(condition, revision, receipts) {
		return notAsked(revision)
	}
	return v
}

// attested reports whether receipts state a condition of a revision: there are some, and all of
// them do.
func attested(condition string, revision int64, receipts []report.Receipt) bool {
	return len(receipts) > 0 && !slices.ContainsFunc(receipts, func(r report.Receipt) bool { return !r.Of(condition, revision) })
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
