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

// kindOrder is the order in which the kinds of a step are applied: Helm's order
// for installing. Kinds that aren't here come after them, those of the cluster
// before those in namespaces. Removal goes the other way. Namespaces and
// definitions are a step of their own.
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

// rank is the place of an object among those of its step: objects of one rank
// don't depend on each other.
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

// byRank parts what follows each other in the order of ranks.
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

// backends are the Services to which the API server sends requests because of an
// object: a webhook configuration or an APIService.
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

// unserved returns why an object that makes the API server depend on a Service
// isn't applied yet; empty if there is no reason. A Service of the site's
// deployments must be there, and the workloads that it selects must be healthy:
// a webhook that nothing serves would refuse them for ever. Other Services aren't
// considered, nor is what the deployment itself orders after the object.
func (l *look) unserved(o *object) string {
	if o.rank() >= len(kindOrder) {
		return l.unjudged(o)
	}
	later := func(other *object) bool { return other.deployment == o.deployment && other.step > o.step }
	for _, k := range backends(o.content, o.key) {
		service := l.wanted.objects[k]
		if service == nil || later(service) {
			continue
		}
		s := l.states[k]
		if s.problem != nil || s.live == nil {
			return fmt.Sprintf("waits for %s: %s", k, s.unready())
		}
		selector, _, _ := unstructured.NestedStringMap(s.live.Object, "spec", "selector")
		if len(selector) == 0 {
			continue
		}
		for _, w := range slices.SortedFunc(maps.Keys(l.wanted.objects), compareKeys) {
			workload := l.wanted.objects[w]
			if w.Namespace != k.Namespace || later(workload) || !l.selects(selector, workload) {
				continue
			}
			if why := l.states[w].unready(); why != "" {
				return fmt.Sprintf("waits for %s, which serves it: %s", w, why)
			}
		}
	}
	return ""
}

// selects says whether a selector is of the pods of an object.
func (l *look) selects(selector map[string]string, o *object) bool {
	content := o.content
	if content == nil { // what a release holds is known as it was observed
		if live := l.states[o.key].live; live != nil {
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

// unjudged returns why a custom resource isn't created yet: a webhook that would
// refuse it as long as nothing serves the webhook waits for that. Without the
// wait, the resource would come unseen by the webhook. Webhooks for all groups,
// or for some objects only, hold back nothing: what serves them may need it.
func (l *look) unjudged(o *object) string {
	found, known := l.conn.knownKind(krm.GVK{Group: o.Group, Version: o.version, Kind: o.Kind})
	if !known {
		return ""
	}
	for _, k := range slices.SortedFunc(maps.Keys(l.wanted.objects), compareKeys) {
		if k.Group != admissionGroup || !l.states[k].pending() {
			continue
		}
		hooks, _ := l.wanted.objects[k].content["webhooks"].([]any)
		for _, hook := range hooks {
			if hook, ok := hook.(map[string]any); ok && judges(krm.Resource(hook), found.resource) {
				return fmt.Sprintf("waits for %s, which judges it and %s", k, l.states[k].waits)
			}
		}
	}
	return ""
}

// judges says whether a webhook must be asked about each new object of a kind.
func judges(hook krm.Resource, kind schema.GroupVersionResource) bool {
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
