package kubernetes

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// Soon is when to look again at what has just begun.
const Soon = soon

// MaxProbes is how many clusters that were away are tried at once.
const MaxProbes = maxProbes

// FieldsOf tells what is ours of an object.
var FieldsOf = fieldsOf

// Watching is how many sites are watched.
func (t *Target) Watching() int {
	t.watches.mu.Lock()
	defer t.watches.mu.Unlock()
	return len(t.watches.sites)
}

// Watches is how many watches are open.
func (t *Target) Watches() int {
	t.watches.mu.Lock()
	defer t.watches.mu.Unlock()
	n := 0
	for _, s := range t.watches.sites {
		n += int(s.open.Load())
	}
	return n
}

// HealthOf says how an object does, as a condition would.
func HealthOf(r *unstructured.Unstructured) (reason, why string) {
	h, why := healthOf(r)
	return map[health]string{healthy: ReasonHealthy, inProgress: ReasonInProgress, failing: ReasonUnhealthy}[h], why
}
