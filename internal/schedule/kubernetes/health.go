package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// A health is the health of an object.
type health int

const (
	healthy health = iota
	inProgress
	failing
)

// healthOf returns the health of an object according to the rule of its kind, or else to
// kstatus, except that a Job is in progress until it has completed, and a Service of type
// LoadBalancer until it has an address. If it is not healthy, it also returns the reason.
func (rules healthRules) healthOf(r *unstructured.Unstructured) (health, string) {
	h, why := rules.statusOf(r)
	if _, ok := rules[r.GroupVersionKind().GroupKind()]; !ok && h == healthy {
		why = cmp.Or(unfinished(r), unaddressed(r))
		if why != "" {
			return inProgress, why
		}
	}
	return h, why
}

// unfinished returns why a Job that has not failed is not complete; empty if it is,
// or if the object is not a Job. kstatus reports a Job as current from its start.
func unfinished(r *unstructured.Unstructured) string {
	if gvk := r.GroupVersionKind(); gvk.Group != "batch" || gvk.Kind != "Job" {
		return ""
	}
	if isComplete(r) {
		return ""
	}
	if suspended, _, _ := unstructured.NestedBool(r.Object, "spec", "suspend"); suspended {
		return "is suspended, and has not completed"
	}
	succeeded, _, _ := unstructured.NestedInt64(r.Object, "status", "succeeded")
	return fmt.Sprintf("is running, and has not completed (%d pods succeeded)", succeeded)
}

// unaddressed returns why a Service of type LoadBalancer has no address yet; empty if it has
// one, or if the object is no such Service. kstatus reports it as current without one.
func unaddressed(r *unstructured.Unstructured) string {
	if gvk := r.GroupVersionKind(); gvk.Group != "" || gvk.Kind != "Service" {
		return ""
	}
	if kind, _, _ := unstructured.NestedString(r.Object, "spec", "type"); kind != "LoadBalancer" {
		return ""
	}
	if addresses, _, _ := unstructured.NestedSlice(r.Object, "status", "loadBalancer", "ingress"); len(addresses) > 0 {
		return ""
	}
	return "waits for the address of its load balancer"
}

// expires returns whether an object is a completed Job that Kubernetes removes after
// a time. It is not recreated afterwards.
func expires(r *unstructured.Unstructured) bool {
	if r == nil {
		return false
	}
	_, limited, _ := unstructured.NestedFieldNoCopy(r.Object, "spec", "ttlSecondsAfterFinished")
	gvk := r.GroupVersionKind()
	return limited && gvk.Group == "batch" && gvk.Kind == "Job" && isComplete(r)
}

func isComplete(job *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Complete" && condition["status"] == "True"
	})
}

// statusOf returns the status of an object by the rule of its kind, or else its kstatus, and
// the reason if it is not healthy.
func (rules healthRules) statusOf(r *unstructured.Unstructured) (health, string) {
	if r.GetDeletionTimestamp() != nil {
		return inProgress, "is being removed"
	}
	if rule, ok := rules[r.GroupVersionKind().GroupKind()]; ok {
		return rule.evaluate(r)
	}
	result, err := status.Compute(r)
	if err != nil {
		return failing, "its status is invalid: " + bounded(err.Error())
	}
	switch result.Status {
	case status.CurrentStatus:
		return healthy, ""
	case status.FailedStatus:
		return failing, cmp.Or(bounded(result.Message), "has failed")
	default:
		return inProgress, cmp.Or(bounded(result.Message), "is in progress")
	}
}

// maxText bounds texts of other programs in messages, in bytes.
const maxText = 300

func bounded(text string) string { return printable.Short(text, maxText) }

// firstFew joins the first lines, and adds the number of the rest.
func firstFew(lines []string, few int) string {
	if len(lines) <= few {
		return strings.Join(lines, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(lines[:few], "; "), len(lines)-few)
}

// isNetwork returns whether an error is a network error.
func isNetwork(err error) bool {
	var network *net.OpError
	var address *url.Error
	return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &address) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
