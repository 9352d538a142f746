package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// Statuses sets the conditions of entities.
type Statuses struct {
	rights *rights.Authorizer // callers enter and commit through it
	reader record.Lookup
}

// SetConditions replaces conditions of a site, deployment or plugin, by type.
// The other conditions and the revision don't change. LastTransition changes
// only with the status. If nothing else would change, nothing is written.
func (s *Statuses) SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error {
	if kind != tko.KindSite && kind != tko.KindDeployment && kind != tko.KindPlugin {
		return tko.Errorf(tko.ErrInvalid, "a %q has no conditions: use site, deployment or plugin", string(kind))
	}
	if err := condition.Check(conditions); err != nil {
		return err
	}
	ctx, _, err := s.rights.Enter(ctx, kind, access.Condition)
	if err != nil {
		return err
	}
	return s.setConditions(ctx, record.Key{Kind: kind, ID: id}, conditions, nil, record.Requirement{})
}

// setConditions replaces conditions, and removes those of the types without
// that have attached data.
func (s *Statuses) setConditions(ctx context.Context, key record.Key, conditions []tko.Condition, without []string, require record.Requirement) error {
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
		if err := require.Check(key, current); err != nil {
			return record.Final(err)
		}
		heard, err := s.isHeard(ctx, current, conditions)
		if err != nil {
			return err
		}
		merged := condition.Merge(condition.WithoutAttached(current.Conditions, without), condition.Timely(current.Stamp(), conditions, heard), current.Revision, time.Now())
		if err := condition.CheckMerged(key, current.Conditions, merged); err != nil {
			return err
		}
		if condition.Same(current.Conditions, merged) {
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

// isHeard reports whether the agent of the site of a record is heard now, if one of changed
// conditions says that it isn't. The record was read before: a report of the agent after that
// changes the record, and one before it follows that the agent was heard.
func (s *Statuses) isHeard(ctx context.Context, current record.Record, changed []tko.Condition) (bool, error) {
	if !condition.SaysNotHeard(changed) {
		return false, nil
	}
	site := current
	if current.Kind == tko.KindDeployment {
		var err error
		if site, err = s.reader.One(ctx, record.Fields{}, record.Key{Kind: tko.KindSite, ID: current.Site}); err != nil {
			return false, err
		}
	}
	_, by, ok := tko.HeardAt(tko.FindCondition(site.Conditions, tko.ConditionConnected))
	return ok && time.Now().Before(by), nil
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
		if slices.Contains(condition.OfControllers, typ) {
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
		now = content.Content{}.Conditions(current.Conditions)
	}
	return condition.Merge(current.Conditions, now, current.Revision+1, time.Now())
}
