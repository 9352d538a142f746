package record

import (
	"context"

	"github.com/tko-orchestrator/tko"
)

// A Tallier counts entities without reading each.
type Tallier interface {
	// Tally returns the numbers of all sites and deployments by their classes, as of one
	// snapshot, by reading as many rows as there are classes and groups of failures. ok is false
	// if the store doesn't have the numbers now: it never returns any that may be wrong. Then the
	// caller counts the entities, and the store prepares the numbers in the background.
	Tally(ctx context.Context) (t Tally, ok bool, err error)
}

// A Tally is the numbers of entities as of a position of the log.
type Tally struct {
	Position int64
	Classes  []Counted
	Oldest   []OldestFailure // one for each kind of entities, type and reason of False conditions
}

// A Counted is a class with the number of its entities, at least 1.
type Counted struct {
	Class

	Count int64
}

// A Class is all of sites and deployments that counts of the fleet depend on. Conditions have
// only types, statuses and reasons, in the order of the record.
type Class struct {
	Kind       tko.Kind
	Prepared   bool // of deployments, as the next three
	Approved   bool
	AtSite     bool
	Outdated   bool // the condition Scheduled is that of an earlier revision
	Conditions []tko.Condition
}

// ClassOf returns the class of a record; ok is false for kinds that have none.
func ClassOf(r *Record) (c Class, ok bool) {
	switch r.Kind {
	case tko.KindSite:
		c = Class{Kind: r.Kind}
	case tko.KindDeployment:
		scheduled := tko.FindCondition(r.Conditions, tko.ConditionScheduled)
		c = Class{
			Kind: r.Kind, Prepared: r.Prepared, Approved: r.Approved, AtSite: r.Site != "",
			Outdated: scheduled != nil && scheduled.ObservedRevision < r.Revision,
		}
	case tko.KindTemplate, tko.KindPlugin, tko.KindRollout, tko.KindSource, tko.KindSubscription:
		return Class{}, false
	}
	c.Conditions = make([]tko.Condition, len(r.Conditions))
	for i, condition := range r.Conditions {
		c.Conditions[i] = tko.Condition{Type: condition.Type, Status: condition.Status, Reason: condition.Reason}
	}
	return c, true
}

// The revisions of the entities that stand for a class.
const (
	classRevision = 2
	classOutdated = 1
)

// stamp returns the stamp of an entity of the class.
func (c Class) stamp() tko.Stamp {
	s := tko.Stamp{Revision: classRevision, Conditions: make([]tko.Condition, len(c.Conditions))}
	for i, condition := range c.Conditions {
		condition.ObservedRevision = classRevision
		if c.Outdated {
			condition.ObservedRevision = classOutdated
		}
		s.Conditions[i] = condition
	}
	return s
}

// Site returns a site of the class, without an ID, messages and times.
func (c Class) Site() tko.Site { return tko.Site{Stamp: c.stamp()} }

// Deployment returns a deployment of the class, without an ID, messages and times.
func (c Class) Deployment() tko.Deployment {
	d := tko.Deployment{Prepared: c.Prepared, Approved: c.Approved, Stamp: c.stamp()}
	if c.AtSite {
		d.Site = "site"
	}
	return d
}

// An OldestFailure is the entity of a kind that has had a condition with the status False for
// longest, of those with the same type and reason; of several the one with the first ID.
type OldestFailure struct {
	Key       Key
	Condition tko.Condition
}

// CanFail reports whether a condition is one of those whose oldest one a [Tally] has: it is False, and
// more than an approval that is missing, or a freeze that isn't there.
func CanFail(c *tko.Condition) bool {
	return c.Status == tko.ConditionFalse && c.Type != tko.ConditionApproved && c.Type != tko.ConditionFrozen
}
