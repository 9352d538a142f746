package decide

import (
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// MarkDeleting sets the condition Deleting of a record whose deletion has begun. From then on, no new
// record may refer to it, so that the deletion ends.
func MarkDeleting(r *record.Record, now time.Time) {
	r.Conditions = append(tko.WithoutCondition(r.Conditions, tko.ConditionDeleting), tko.Condition{
		Type: tko.ConditionDeleting, Status: tko.ConditionTrue, Reason: "DeletionBegan", LastTransition: now, ObservedRevision: r.Revision,
		Message: "deleting the records that depend on it; if this was interrupted, delete it again",
	})
}

// HasChild returns the error of a deployment that can't be deleted in a single step.
func HasChild(id, child string) error {
	return tko.Errorf(tko.ErrConflict, "deployment %q has the child %q: read it again", id, child)
}

// CheckSingleKind returns an ErrInvalid for a record of a kind that can't be deleted in a single step.
func CheckSingleKind(key record.Key) error {
	if key.Kind != tko.KindDeployment {
		return tko.Errorf(tko.ErrInvalid, "%s %q can't be deleted in a single step: only deployments can", key.Kind, key.ID)
	}
	return nil
}
