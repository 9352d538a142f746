// Package condition has the rules of conditions that don't depend on who writes them: their
// limits, how new ones replace old ones, and which follow from a deployment's flags.
package condition

import (
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
)

// The limits of conditions, in number or bytes.
const (
	maxCount    = 64
	maxType     = 316 // as in Kubernetes
	maxReason   = 1024
	maxMessage  = 32768
	maxAttached = 64 << 10
	maxBytes    = 1 << 20 // of all conditions of one entity
)

// CheckMerged refuses conditions that would exceed the limits of an entity. An
// entity that exceeds them already may stay as it is.
func CheckMerged(key record.Key, before, merged []tko.Condition) error {
	if len(merged) > max(maxCount, len(before)) {
		return tko.Errorf(tko.ErrInvalid, "%s %q would have %d conditions: use at most %d", key.Kind, key.ID, len(merged), maxCount)
	}
	if n := bytesOf(merged); n > max(maxBytes, bytesOf(before)) {
		return tko.Errorf(tko.ErrInvalid, "the conditions of %s %q would have %d bytes: use at most %d, with shorter messages", key.Kind, key.ID, n, maxBytes)
	}
	return nil
}

func bytesOf(conditions []tko.Condition) int {
	n := 0
	for _, c := range conditions {
		n += len(c.Type) + len(c.Reason) + len(c.Message) + len(c.Attached)
	}
	return n
}

// Check refuses conditions that are incomplete, ambiguous or too large, as an ErrInvalid.
func Check(conditions []tko.Condition) error {
	if len(conditions) > maxCount {
		return tko.Errorf(tko.ErrInvalid, "there are %d conditions: give at most %d", len(conditions), maxCount)
	}
	seen := map[string]bool{}
	for _, c := range conditions {
		switch {
		case c.Type == "":
			return tko.Errorf(tko.ErrInvalid, "a condition has no type: name it, for example %q", tko.ConditionPrepared)
		case len(c.Type) > maxType || !record.Storable(c.Type):
			return tko.Errorf(tko.ErrInvalid, "the condition type %.40q is too long or not plain text: use at most %d bytes of UTF-8", c.Type, maxType)
		case seen[c.Type]:
			return tko.Errorf(tko.ErrInvalid, "the condition %q is given twice: give it once", c.Type)
		case c.Status != tko.ConditionTrue && c.Status != tko.ConditionFalse && c.Status != tko.ConditionUnknown:
			return tko.Errorf(tko.ErrInvalid, "the condition %q has the status %.40q: use True, False or Unknown", c.Type, c.Status)
		case len(c.Attached) > maxAttached:
			return tko.Errorf(tko.ErrInvalid, "the attached data of the condition %q has %d bytes: use at most %d", c.Type, len(c.Attached), maxAttached)
		case c.Attempt < 0:
			return tko.Errorf(tko.ErrInvalid, "the condition %q has the negative attempt %d", c.Type, c.Attempt)
		case c.NextTry.Year() < 1 || c.NextTry.Year() > 9999:
			return tko.Errorf(tko.ErrInvalid, "the condition %q has a next try outside the years 1 to 9999", c.Type)
		case c.ObservedRevision < 0:
			return tko.Errorf(tko.ErrInvalid, "the condition %q has the negative observed revision %d", c.Type, c.ObservedRevision)
		}
		seen[c.Type] = true
	}
	return nil
}

// WithoutAttached removes the conditions of the given types that have
// attached data: a transport wrote them. Other conditions stay.
func WithoutAttached(current []tko.Condition, types []string) []tko.Condition {
	if len(types) == 0 {
		return current
	}
	return slices.DeleteFunc(slices.Clone(current), func(c tko.Condition) bool {
		return c.Attached != "" && slices.Contains(types, c.Type)
	})
}

// Merge replaces the conditions of the same type as of now, with their texts
// bounded. revision is the ObservedRevision of changed conditions that have none.
func Merge(current, changed []tko.Condition, revision int64, now time.Time) []tko.Condition {
	changed = slices.Clone(changed)
	for i := range changed {
		c := &changed[i]
		c.Reason = printable.Kept(c.Reason, maxReason)
		c.Message = printable.Kept(printable.Once(c.Message), maxMessage)
		c.LastTransition, c.NextTry = now.UTC(), c.NextTry.UTC()
		if c.ObservedRevision == 0 {
			c.ObservedRevision = revision
		}
	}
	return tko.MergeConditions(current, changed...)
}

// SaysNotHeard reports whether one of changed conditions says that the agent of a site was not heard.
func SaysNotHeard(changed []tko.Condition) bool {
	return slices.ContainsFunc(changed, func(c tko.Condition) bool { return c.Reason == tko.ReasonNotHeard })
}

// Timely returns those of changed conditions that aren't outdated: who says that an agent has not
// reported a revision, or was not heard, may have read the entity before the agent reported it.
// heard is true if the agent of the site is heard now.
func Timely(entity tko.Stamp, changed []tko.Condition, heard bool) []tko.Condition {
	return slices.DeleteFunc(slices.Clone(changed), func(c tko.Condition) bool {
		return c.Reason == tko.ReasonByAgent && entity.IsReported(c.Type) || c.Reason == tko.ReasonNotHeard && heard
	})
}

// Same reports whether conditions are equal.
func Same(a, b []tko.Condition) bool {
	return slices.EqualFunc(a, b, func(a, b tko.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
			a.ObservedRevision == b.ObservedRevision && a.LastTransition.Equal(b.LastTransition) && a.Attempt == b.Attempt && a.NextTry.Equal(b.NextTry) && a.Attached == b.Attached
	})
}

// OfFlags returns the conditions that must change so that none
// contradicts the flags of a deployment: flags that are true are reported, and
// outdated reports are reversed. A condition that explains why a flag is false
// stays.
func OfFlags(current []tko.Condition, prepared, approved bool) []tko.Condition {
	var changed []tko.Condition
	for _, flag := range []struct {
		typ        string
		isSet      bool
		set, unset string // reasons
	}{
		{tko.ConditionPrepared, prepared, "Prepared", "NotPrepared"},
		{tko.ConditionApproved, approved, "Approved", "NotApproved"},
	} {
		status := tko.ConditionIs(current, flag.typ)
		switch {
		case flag.isSet && status != tko.ConditionTrue:
			changed = append(changed, tko.Condition{Type: flag.typ, Status: tko.ConditionTrue, Reason: flag.set})
		case !flag.isSet && status == tko.ConditionTrue:
			changed = append(changed, tko.Condition{Type: flag.typ, Status: tko.ConditionFalse, Reason: flag.unset})
		}
	}
	return changed
}

// OfControllers are the conditions that our own controllers set.
var OfControllers = []string{
	tko.ConditionPrepared, tko.ConditionApproved, tko.ConditionScheduled, tko.ConditionHealthy, tko.ConditionDeleting,
	tko.ConditionPlaced, tko.ConditionHandled, tko.ConditionMatched, tko.ConditionRunnable, tko.ConditionCleanedUp, tko.ConditionFrozen, tko.ConditionResolvedRefs, tko.ConditionKnownProperties, tko.ConditionDelivered, tko.ConditionConnected, tko.ConditionHeldByOwner,
}
