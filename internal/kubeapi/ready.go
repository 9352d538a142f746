package kubeapi

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// conditionReady is the condition that sums the others up, for tools that wait
// for it. It is derived, and not stored.
const conditionReady = "Ready"

// Reasons of Ready. Otherwise it has the reason of the condition that decides.
const (
	reasonReady        = "Ready"
	reasonNotScheduled = "NotScheduled"
	reasonNoSite       = "NoSite"
	reasonOutdated     = "Reconciling" // what is known is of an earlier revision
)

// conditions are those of a record, with Ready.
func conditions(r catalog.Record) []metav1.Condition {
	r.Conditions = storedConditions(r)
	list := conditionsOf(r)
	if ready, ok := readyOf(r); ok {
		list = append(list, ready)
		slices.SortFunc(list, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	}
	return list
}

// storedConditions are those of a record but for a Ready that somebody wrote.
func storedConditions(r catalog.Record) []tko.Condition {
	return slices.DeleteFunc(slices.Clone(r.Conditions), func(c tko.Condition) bool { return c.Type == conditionReady })
}

// conditionsOf are conditions that are stored.
func conditionsOf(r catalog.Record) []metav1.Condition {
	var list []metav1.Condition
	for _, c := range r.Conditions {
		reason := c.Reason
		if reason == "" {
			reason = "Unknown" // Kubernetes wants one
		}
		observed := c.ObservedRevision
		if r.Revision > observed && c.Status == tko.ConditionTrue && (c.Type == tko.ConditionPrepared || c.Type == tko.ConditionApproved) {
			observed = r.Revision // each revision says anew whether it is so, and kubectl waits for that
		}
		list = append(list, metav1.Condition{
			Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: reason, Message: c.Text(),
			LastTransitionTime: metav1.NewTime(c.LastTransition), ObservedGeneration: observed,
		})
	}
	return list
}

// withoutReady takes Ready out of a status that is written. It is an ErrInvalid
// to change it.
func withoutReady(current catalog.Record, list []metav1.Condition) ([]metav1.Condition, error) {
	ready, _ := readyOf(current)
	for _, c := range list {
		if c.Type == conditionReady && !sameCondition(c, ready) {
			return nil, &fieldsError{field.ErrorList{field.Forbidden(field.NewPath("status", "conditions").Key(conditionReady),
				"it follows from the other conditions: leave it out, or as it is")}}
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(c metav1.Condition) bool { return c.Type == conditionReady }), nil
}

// readyOf is the condition Ready. A deployment is ready once it is prepared,
// approved, scheduled, and healthy as far as its site reports that; a site once
// all that belongs there is. A site of which nothing was ever asked has none.
func readyOf(r catalog.Record) (metav1.Condition, bool) {
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionTrue, Reason: reasonReady, ObservedGeneration: r.Revision}
	since := r.Created
	byType := map[string]tko.Condition{}
	for _, c := range r.Conditions {
		byType[c.Type] = c
	}
	// not says why it isn't ready, since when.
	not := func(status, reason, message string, since time.Time) (metav1.Condition, bool) {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionStatus(status), cmp.Or(reason, "Unknown"), message
		ready.LastTransitionTime = metav1.NewTime(since)
		return ready, true
	}
	if c, ok := byType[tko.ConditionDeleting]; ok && c.Status == tko.ConditionTrue {
		return not(tko.ConditionFalse, c.Reason, c.Text(), c.LastTransition)
	}
	_, asked := byType[tko.ConditionScheduled]
	switch r.Kind {
	case tko.KindSite:
		if !asked {
			return ready, false
		}
	case tko.KindDeployment:
		for _, flag := range []struct {
			typ string
			is  bool
		}{{tko.ConditionPrepared, r.Prepared}, {tko.ConditionApproved, r.Approved}} {
			c := byType[flag.typ]
			if since = laterOf(since, c.LastTransition); !flag.is {
				return not(tko.ConditionFalse, cmp.Or(c.Reason, "Not"+flag.typ), c.Text(), since)
			}
		}
		if c, ok := byType[tko.ConditionPlaced]; ok && c.Status != tko.ConditionTrue {
			return not(c.Status, c.Reason, c.Text(), c.LastTransition)
		}
		if r.Site == "" {
			return not(tko.ConditionFalse, reasonNoSite, "it has no site: if it is a topology, wait for its children, whose spec.parentDeploymentId it is", since)
		}
		if !asked {
			return not(tko.ConditionFalse, reasonNotScheduled, fmt.Sprintf("the meta-scheduler has yet to hand it to site %q", r.Site), since)
		}
	case tko.KindTemplate, tko.KindPlugin:
		return ready, false
	}
	for _, typ := range []string{tko.ConditionScheduled, tko.ConditionHealthy} {
		c, ok := byType[typ]
		if !ok {
			continue
		}
		if since = laterOf(since, c.LastTransition); c.Status != tko.ConditionTrue {
			return not(c.Status, c.Reason, c.Text(), c.LastTransition)
		}
		if c.ObservedRevision < r.Revision {
			return not(tko.ConditionUnknown, reasonOutdated, fmt.Sprintf("%s is known of revision %d only", typ, c.ObservedRevision), laterOf(since, r.Updated))
		}
	}
	ready.LastTransitionTime = metav1.NewTime(since)
	return ready, true
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
