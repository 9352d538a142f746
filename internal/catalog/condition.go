package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// The limits of conditions, in number or bytes.
const (
	maxConditions        = 64
	maxConditionType     = 316 // as in Kubernetes
	maxConditionReason   = 1024
	maxConditionMessage  = 32768
	maxConditionAttached = 64 << 10
	maxConditionBytes    = 1 << 20 // of all conditions of one entity
)

// Statuses sets the conditions of entities.
type Statuses struct{ *core }

// SetConditions replaces conditions of a site, deployment or plugin, by type.
// The other conditions and the revision don't change. LastTransition changes
// only with the status. If nothing else would change, nothing is written.
func (s *Statuses) SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error {
	if kind != tko.KindSite && kind != tko.KindDeployment && kind != tko.KindPlugin {
		return tko.Errorf(tko.ErrInvalid, "a %q has no conditions: use site, deployment or plugin", string(kind))
	}
	if err := checkConditions(conditions); err != nil {
		return err
	}
	ctx, _, err := s.rights.Enter(ctx, kind, access.Condition)
	if err != nil {
		return err
	}
	return s.setConditions(ctx, record.Key{Kind: kind, ID: id}, conditions, nil, Requirement{})
}

// setConditions replaces conditions, and removes those of the types without
// that have attached data.
func (s *Statuses) setConditions(ctx context.Context, key record.Key, conditions []tko.Condition, without []string, require Requirement) error {
	kind, id := key.Kind, key.ID
	if err := record.CheckKey(key); err != nil {
		return err
	}
	if err := s.permitConditions(ctx, key, conditions, without); err != nil {
		return err
	}
	return record.Retry(ctx, func() error {
		current, err := s.reader.One(ctx, record.Fields{}, key)
		if err != nil {
			return err
		}
		if current.Revision == 0 {
			return tko.NotFound(kind, id)
		}
		if c, ok := rights.CallerOf(ctx); ok {
			if err := s.rights.Visible(c, current); err != nil {
				return record.Final(err)
			}
		}
		if err := s.rights.Permit(ctx, &current, nil, access.Condition, access.Commit); err != nil {
			return record.Final(err)
		}
		if err := require.check(key, current); err != nil {
			return record.Final(err)
		}
		merged := mergeConditions(withoutConditions(current.Conditions, without), conditions, current.Revision, time.Now())
		if err := checkMerged(key, current.Conditions, merged); err != nil {
			return err
		}
		if sameConditions(current.Conditions, merged) {
			return nil
		}
		_, err = s.rights.Commit(ctx, record.Write{
			Op:       tko.OpStatus,
			Record:   record.Record{Key: key, Author: rights.Author(ctx), Conditions: merged},
			Expect:   record.Any,
			Position: current.Position,
		})
		return err
	})
}

// checkMerged refuses conditions that would exceed the limits of an entity. An
// entity that exceeds them already may stay as it is.
func checkMerged(key record.Key, before, merged []tko.Condition) error {
	if len(merged) > max(maxConditions, len(before)) {
		return tko.Errorf(tko.ErrInvalid, "%s %q would have %d conditions: use at most %d", key.Kind, key.ID, len(merged), maxConditions)
	}
	if n := conditionBytes(merged); n > max(maxConditionBytes, conditionBytes(before)) {
		return tko.Errorf(tko.ErrInvalid, "the conditions of %s %q would have %d bytes: use at most %d, with shorter messages", key.Kind, key.ID, n, maxConditionBytes)
	}
	return nil
}

func conditionBytes(conditions []tko.Condition) int {
	n := 0
	for _, c := range conditions {
		n += len(c.Type) + len(c.Reason) + len(c.Message) + len(c.Attached)
	}
	return n
}

func checkConditions(conditions []tko.Condition) error {
	if len(conditions) > maxConditions {
		return tko.Errorf(tko.ErrInvalid, "there are %d conditions: give at most %d", len(conditions), maxConditions)
	}
	seen := map[string]bool{}
	for _, c := range conditions {
		switch {
		case c.Type == "":
			return tko.Errorf(tko.ErrInvalid, "a condition has no type: name it, for example %q", tko.ConditionPrepared)
		case len(c.Type) > maxConditionType || !record.Storable(c.Type):
			return tko.Errorf(tko.ErrInvalid, "the condition type %.40q is too long or not plain text: use at most %d bytes of UTF-8", c.Type, maxConditionType)
		case seen[c.Type]:
			return tko.Errorf(tko.ErrInvalid, "the condition %q is given twice: give it once", c.Type)
		case c.Status != tko.ConditionTrue && c.Status != tko.ConditionFalse && c.Status != tko.ConditionUnknown:
			return tko.Errorf(tko.ErrInvalid, "the condition %q has the status %.40q: use True, False or Unknown", c.Type, c.Status)
		case len(c.Attached) > maxConditionAttached:
			return tko.Errorf(tko.ErrInvalid, "the attached data of the condition %q has %d bytes: use at most %d", c.Type, len(c.Attached), maxConditionAttached)
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

// withoutConditions removes the conditions of the given types that have
// attached data: a transport wrote them. Other conditions stay.
func withoutConditions(current []tko.Condition, types []string) []tko.Condition {
	if len(types) == 0 {
		return current
	}
	return slices.DeleteFunc(slices.Clone(current), func(c tko.Condition) bool {
		return c.Attached != "" && slices.Contains(types, c.Type)
	})
}

// mergeConditions replaces the conditions of the same type as of now, with their texts
// bounded. revision is the ObservedRevision of changed conditions that have none.
func mergeConditions(current, changed []tko.Condition, revision int64, now time.Time) []tko.Condition {
	changed = slices.Clone(changed)
	for i := range changed {
		c := &changed[i]
		c.Reason = printable.Kept(c.Reason, maxConditionReason)
		c.Message = printable.Kept(printable.Once(c.Message), maxConditionMessage)
		c.LastTransition, c.NextTry = now.UTC(), c.NextTry.UTC()
		if c.ObservedRevision == 0 {
			c.ObservedRevision = revision
		}
	}
	return tko.MergeConditions(current, changed...)
}

// sameConditions reports whether conditions are equal.
func sameConditions(a, b []tko.Condition) bool {
	return slices.EqualFunc(a, b, func(a, b tko.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
			a.ObservedRevision == b.ObservedRevision && a.LastTransition.Equal(b.LastTransition) && a.Attempt == b.Attempt && a.NextTry.Equal(b.NextTry) && a.Attached == b.Attached
	})
}

// flagConditions returns the conditions that must change so that none
// contradicts the flags of a deployment: flags that are true are reported, and
// outdated reports are reversed. A condition that explains why a flag is false
// stays.
func flagConditions(current []tko.Condition, prepared, approved bool) []tko.Condition {
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

// controllerConditions are the conditions that our own controllers set.
var controllerConditions = []string{
	tko.ConditionPrepared, tko.ConditionApproved, tko.ConditionScheduled, tko.ConditionHealthy, tko.ConditionDeleting,
	tko.ConditionPlaced, tko.ConditionHandled, tko.ConditionMatched, tko.ConditionRunnable, tko.ConditionCleanedUp, tko.ConditionFrozen, tko.ConditionResolvedRefs, tko.ConditionKnownProperties, tko.ConditionDelivered, tko.ConditionConnected, tko.ConditionHeldByOwner,
}

// permitConditions refuses conditions of our own controllers to users of the Kubernetes
// API, whatever the cluster permits them: others rely on these.
func (s *Statuses) permitConditions(ctx context.Context, key record.Key, conditions []tko.Condition, without []string) error {
	c, ok := rights.CallerOf(ctx)
	if !ok || !c.Bound || c.Identity.Authenticator != identity.Delegated {
		return nil
	}
	types := slices.Clone(without)
	for _, one := range conditions {
		types = append(types, one.Type)
	}
	for _, typ := range types {
		if slices.Contains(controllerConditions, typ) {
			if err := s.rights.Refuse(ctx, c, key.Kind, key.ID, access.Condition); err != nil {
				return tko.Errorf(tko.ErrDenied, "%s %q: the condition %s is set by the server's own controllers only: set conditions of other types", key.Kind, key.ID, typ)
			}
		}
	}
	return nil
}

// warnedAfter returns the conditions of a record that replaces current: those that it has, with
// the warnings about the new package.
func warnedAfter(current, rec record.Record) []tko.Condition {
	now := rec.Conditions
	if len(now) == 0 && rec.Kind == tko.KindSite {
		now = content{}.conditions(current.Conditions)
	}
	return mergeConditions(current.Conditions, now, current.Revision+1, time.Now())
}
