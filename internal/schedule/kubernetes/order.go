package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tko-orchestrator/tko/krm"
)

const (
	admissionGroup   = "admissionregistration.k8s.io"
	aggregationGroup = "apiregistration.k8s.io"
	rbacGroup        = "rbac.authorization.k8s.io"
)

// kindOrder is the order in which the kinds of a step are applied: Helm's order for
// installation. Other kinds come last, cluster-wide kinds before namespaced ones.
// Removal uses the reverse order. Namespaces and definitions have their own step.
var kindOrder = ranked(
	groupKind{"scheduling.k8s.io", "PriorityClass"},
	groupKind{"networking.k8s.io", "NetworkPolicy"},
	groupKind{"", "ResourceQuota"},
	groupKind{"", "LimitRange"},
	groupKind{"policy", "PodDisruptionBudget"},
	groupKind{"", "ServiceAccount"},
	groupKind{"", "Secret"},
	groupKind{"", "ConfigMap"},
	groupKind{"storage.k8s.io", "StorageClass"},
	groupKind{"", "PersistentVolume"},
	groupKind{"", "PersistentVolumeClaim"},
	groupKind{rbacGroup, "ClusterRole"},
	groupKind{rbacGroup, "ClusterRoleBinding"},
	groupKind{rbacGroup, "Role"},
	groupKind{rbacGroup, "RoleBinding"},
	groupKind{"", "Service"},
	groupKind{"apps", "DaemonSet"},
	groupKind{"", "Pod"},
	groupKind{"", "ReplicationController"},
	groupKind{"apps", "ReplicaSet"},
	groupKind{"apps", "Deployment"},
	groupKind{"autoscaling", "HorizontalPodAutoscaler"},
	groupKind{"apps", "StatefulSet"},
	groupKind{"batch", "Job"},
	groupKind{"batch", "CronJob"},
	groupKind{"networking.k8s.io", "IngressClass"},
	groupKind{"networking.k8s.io", "Ingress"},
	groupKind{aggregationGroup, "APIService"},
	groupKind{admissionGroup, "MutatingWebhookConfiguration"},
	groupKind{admissionGroup, "ValidatingWebhookConfiguration"},
)

func ranked(kinds ...groupKind) map[groupKind]int {
	ranks := make(map[groupKind]int, len(kinds))
	for i, k := range kinds {
		ranks[k] = i
	}
	return ranks
}

// rank returns the position of an object in its step. Objects of the same rank don't
// depend on each other.
func (k key) rank() int {
	if n, ok := kindOrder[groupKind{k.Group, k.Kind}]; ok {
		return n
	}
	if k.Namespace == "" {
		return len(kindOrder)
	}
	return len(kindOrder) + 1
}

func compareRanks(a, b key) int { return cmp.Compare(a.rank(), b.rank()) }

// byRank splits a list that is sorted by rank into parts of the same rank.
func byRank[T any](all []T, keyOf func(T) key) [][]T {
	var parts [][]T
	for _, one := range all {
		if n := len(parts); n > 0 && keyOf(parts[n-1][0]).rank() == keyOf(one).rank() {
			parts[n-1] = append(parts[n-1], one)
			continue
		}
		parts = append(parts, []T{one})
	}
	return parts
}

// backends returns the Services that the API server calls because of an object: a
// webhook configuration or an APIService.
func backends(content krm.Resource, k key) []key {
	var all []key
	service := func(r krm.Resource, path ...string) {
		if name := r.Text(append(path, "name")...); name != "" {
			all = append(all, key{Kind: "Service", Namespace: r.Text(append(path, "namespace")...), Name: name})
		}
	}
	switch {
	case k.Group == aggregationGroup && k.Kind == "APIService":
		service(content, "spec", "service")
	case k.Group == admissionGroup && (k.Kind == "MutatingWebhookConfiguration" || k.Kind == "ValidatingWebhookConfiguration"):
		hooks, _ := content["webhooks"].([]any)
		for _, hook := range hooks {
			if hook, ok := hook.(map[string]any); ok {
				service(hook, "clientConfig", "service")
			}
		}
	}
	return all
}

// awaitedBackend returns why an object that makes the API server depend on a Service
// can't be applied yet; empty if it can. If a deployment of the site has the Service,
// it must exist and the workloads that it selects must be healthy: otherwise a
// webhook without a backend would reject them for ever. Other Services are not
// considered, nor are objects that the deployment orders after this one.
func (rc *reconciliation) awaitedBackend(o *object) string {
	if o.rank() >= len(kindOrder) {
		return rc.awaitedWebhook(o)
	}
	later := func(other *object) bool { return other.deployment == o.deployment && other.step > o.step }
	for _, k := range backends(o.content, o.key) {
		service := rc.wanted.objects[k]
		if service == nil || later(service) {
			continue
		}
		s := rc.states[k]
		if s.problem != nil || s.live == nil {
			return fmt.Sprintf("waits for %s: %s", k, s.unready(rc.health))
		}
		selector, _, _ := unstructured.NestedStringMap(s.live.Object, "spec", "selector")
		if len(selector) == 0 {
			continue
		}
		for _, w := range slices.SortedFunc(maps.Keys(rc.wanted.objects), compareKeys) {
			workload := rc.wanted.objects[w]
			if w.Namespace != k.Namespace || later(workload) || !rc.selects(selector, workload) {
				continue
			}
			if why := rc.states[w].unready(rc.health); why != "" {
				return fmt.Sprintf("waits for %s, which serves it: %s", w, why)
			}
		}
	}
	return ""
}

// selects returns whether a selector matches the pods of an object.
func (rc *reconciliation) selects(selector map[string]string, o *object) bool {
	content := o.content
	if content == nil { // the content of a release's objects is known as observed
		if live := rc.states[o.key].live; live != nil {
			content = live.Object
		}
	}
	path := []string{"spec", "template", "metadata", "labels"}
	if o.Group == "" && o.Kind == "Pod" {
		path = path[2:]
	}
	labels, _, _ := unstructured.NestedMap(content, path...)
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// awaitedWebhook returns why a custom resource can't be created yet: it waits for a
// webhook that intercepts it and that itself waits for its backend. Without the wait,
// the webhook would not see the resource. Webhooks for all groups or for selected
// objects don't delay anything, because their backends may need those objects.
func (rc *reconciliation) awaitedWebhook(o *object) string {
	found, known := rc.conn.knownKind(krm.GVK{Group: o.Group, Version: o.version, Kind: o.Kind})
	if !known {
		return ""
	}
	for _, k := range slices.SortedFunc(maps.Keys(rc.wanted.objects), compareKeys) {
		if k.Group != admissionGroup || !rc.states[k].pending() {
			continue
		}
		hooks, _ := rc.wanted.objects[k].content["webhooks"].([]any)
		for _, hook := range hooks {
			if hook, ok := hook.(map[string]any); ok && intercepts(krm.Resource(hook), found.resource) {
				return fmt.Sprintf("waits for %s, which checks it and %s", k, rc.states[k].waits)
			}
		}
	}
	return ""
}

// intercepts returns whether the API server calls a webhook for each new object of a
// kind.
func intercepts(hook krm.Resource, kind schema.GroupVersionResource) bool {
	for _, name := range []string{"namespaceSelector", "objectSelector"} {
		if selector, _ := hook[name].(map[string]any); len(selector) > 0 {
			return false
		}
	}
	if conditions, _ := hook["matchConditions"].([]any); len(conditions) > 0 || hook["failurePolicy"] == "Ignore" {
		return false
	}
	rules, _ := hook["rules"].([]any)
	return slices.ContainsFunc(rules, func(rule any) bool {
		r, _ := rule.(map[string]any)
		has := func(name string, values ...any) bool {
			all, _ := r[name].([]any)
			return slices.ContainsFunc(all, func(v any) bool { return slices.Contains(values, v) })
		}
		return has("apiGroups", kind.Group) && has("resources", kind.Resource, "*", "*/*") && has("operations", "CREATE", "*")
	})
}
