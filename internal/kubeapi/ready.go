package kubeapi

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// conditionReady is the condition that summarizes the others for tools that
// wait for it. It is derived, not stored.
const conditionReady = "Ready"

// Reasons of Ready. Otherwise it has the reason of the condition that
// determines it.
const (
	reasonReady        = "Ready"
	reasonNotScheduled = "NotScheduled"
	reasonNoSite       = "NoSite"
	reasonOutdated     = "Reconciling" // the condition was observed at an earlier revision
	// reasonNoHealth is the reason of a Ready that is True although the site's targets report
	// no health: tools that wait for it would wait for ever.
	reasonNoHealth = tko.ReasonHealthNotReported
)

// conditions returns the conditions of a record, including Ready.
func conditions(r record.Record) []metav1.Condition {
	r.Conditions = storedConditions(r)
	list := conditionsOf(r)
	if ready, ok := readyOf(r); ok {
		list = append(list, ready)
		slices.SortFunc(list, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	}
	return list
}

// storedConditions returns the stored conditions of a record, except Ready,
// which a client may have written.
func storedConditions(r record.Record) []tko.Condition {
	return tko.WithoutCondition(r.Conditions, conditionReady)
}

// conditionsOf returns the stored conditions in Kubernetes' form.
func conditionsOf(r record.Record) []metav1.Condition {
	var list []metav1.Condition
	for _, c := range r.Conditions {
		reason := c.Reason
		if reason == "" {
			reason = "Unknown" // Kubernetes requires a reason
		}
		observed := c.ObservedRevision
		if r.Revision > observed && c.Status == tko.ConditionTrue && (c.Type == tko.ConditionPrepared || c.Type == tko.ConditionApproved) {
			observed = r.Revision // each revision sets it again, and kubectl waits for the observed generation
		}
		list = append(list, metav1.Condition{
			Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: reason, Message: c.Text(),
			LastTransitionTime: metav1.NewTime(c.LastTransition), ObservedGeneration: observed,
		})
	}
	return list
}

// withoutReady removes Ready from a status that a client writes. Changing Ready
// is an ErrInvalid.
func withoutReady(current record.Record, list []metav1.Condition) ([]metav1.Condition, error) {
	ready, _ := readyOf(current)
	for _, c := range list {
		if c.Type == conditionReady && !sameCondition(c, ready) {
			return nil, &fieldsError{field.ErrorList{field.Forbidden(field.NewPath("status", "conditions").Key(conditionReady),
				"Ready is derived from the other conditions: leave it out, or unchanged")}}
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(c metav1.Condition) bool { return c.Type == conditionReady }), nil
}

// readyOf returns the condition Ready. A deployment is ready once what it
// names exists, it is prepared, approved, scheduled, and, unless its site can't report that, healthy; a site
// once all its deployments are scheduled and healthy, or can't report it. A site without conditions
// has no Ready.
func readyOf(r record.Record) (metav1.Condition, bool) {
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionTrue, Reason: reasonReady, ObservedGeneration: r.Revision}
	since := r.Created
	byType := map[string]tko.Condition{}
	for _, c := range r.Conditions {
		byType[c.Type] = c
	}
	// not returns Ready with a status other than True, since a time.
	not := func(status, reason, message string, since time.Time) (metav1.Condition, bool) {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionStatus(status), cmp.Or(reason, "Unknown"), message
		ready.LastTransitionTime = metav1.NewTime(since)
		return ready, true
	}
	if c, ok := byType[tko.ConditionDeleting]; ok && c.Status == tko.ConditionTrue {
		return not(tko.ConditionFalse, c.Reason, c.Text(), c.LastTransition)
	}
	if c, ok := byType[tko.ConditionResolvedRefs]; ok && c.Status != tko.ConditionTrue {
		return not(c.Status, c.Reason, c.Text(), c.LastTransition)
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
			since = laterOf(since, c.LastTransition)
			if !flag.is {
				return not(tko.ConditionFalse, cmp.Or(c.Reason, "Not"+flag.typ), c.Text(), since)
			}
		}
		if c, ok := byType[tko.ConditionPlaced]; ok && c.Status != tko.ConditionTrue {
			return not(c.Status, c.Reason, c.Text(), c.LastTransition)
		}
		if r.Site == "" {
			return not(tko.ConditionFalse, reasonNoSite, "the deployment has no site: if it is a topology, wait for its children, which name it in spec.parentDeploymentId", since)
		}
		if !asked {
			return not(tko.ConditionFalse, reasonNotScheduled, fmt.Sprintf("the meta-scheduler has not yet sent it to site %q", r.Site), since)
		}
	case tko.KindTemplate, tko.KindPlugin, tko.KindRollout, tko.KindSource, tko.KindSubscription:
		return ready, false
	}
	for _, typ := range []string{tko.ConditionScheduled, tko.ConditionHealthy} {
		c, ok := byType[typ]
		if !ok {
			continue
		}
		since = laterOf(since, c.LastTransition)
		if c.Reason == tko.ReasonHealthNotReported && c.ObservedRevision >= r.Revision {
			ready.Reason, ready.Message = reasonNoHealth, c.Text()
			continue
		}
		if c.Status != tko.ConditionTrue {
			return not(c.Status, c.Reason, c.Text(), c.LastTransition)
		}
		if c.ObservedRevision < r.Revision {
			return not(tko.ConditionUnknown, reasonOutdated, fmt.Sprintf("%s was observed at revision %d only", typ, c.ObservedRevision), laterOf(since, r.Updated))
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
