package kubernetes

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

// Soon is the shortest time to the next reconciliation.
const Soon = soon

// MaxProbes is the number of unreachable clusters that are tried concurrently.
const MaxProbes = maxProbes

// FieldsOf returns a hash of the fields that TKO owns.
var FieldsOf = fieldsOf

// Watching returns the number of watched sites.
func (t *Target) Watching() int {
	t.watches.mu.Lock()
	defer t.watches.mu.Unlock()
	return len(t.watches.sites)
}

// Watches returns the number of open watches.
func (t *Target) Watches() int {
	t.watches.mu.Lock()
	defer t.watches.mu.Unlock()
	n := 0
	for _, s := range t.watches.sites {
		n += int(s.open.Load())
	}
	return n
}

// HealthOf returns the health of an object as the reason and message of a condition, by
// rules.
func HealthOf(r *unstructured.Unstructured, rules ...trigger.HealthRule) (reason, why string) {
	compiled, err := compileHealth(rules)
	if err != nil {
		return "", err.Error()
	}
	h, why := compiled.healthOf(r)
	return map[health]string{healthy: trigger.ReasonHealthy, inProgress: trigger.ReasonInProgress, failing: trigger.ReasonUnhealthy}[h], why
}
