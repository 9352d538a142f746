package kubernetes_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

func TestHealthOfKinds(t *testing.T) {
	t.Parallel()
	const job = "{apiVersion: batch/v1, kind: Job, metadata: {name: x, generation: 1}, spec: {completions: 1, parallelism: 1}, "
	const own = "{apiVersion: example.com/v1, kind: Thing, metadata: {name: x, generation: 2}, "
	tests := map[string]struct{ why, object, reason, says string }{
		"plain":                              {"what has no status is well", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}", "Healthy", ""},
		"a job that began":                   {"it isn't done", job + "status: {}}", "InProgress", "Job"},
		"a job that runs":                    {"what comes after it must wait", job + `status: {active: 1, ready: 1, startTime: "2026-01-01T00:00:00Z"}}`, "InProgress", "has not completed"},
		"a suspended job":                    {"nothing of it was done", job[:len(job)-len(", parallelism: 1}, ")] + `, suspend: true}, status: {startTime: "2026-01-01T00:00:00Z", conditions: [{type: Suspended, status: "True"}]}}`, "InProgress", "is suspended"},
		"a job that is done":                 {"it is what it should be", job + `status: {succeeded: 1, startTime: "2026-01-01T00:00:00Z", conditions: [{type: Complete, status: "True"}]}}`, "Healthy", ""},
		"a job that failed":                  {"it does not recover", job + `status: {failed: 1, startTime: "2026-01-01T00:00:00Z", conditions: [{type: Failed, status: "True", message: no room}]}}`, "Unhealthy", "Job Failed"},
		"own, without status":                {"its controller may say nothing", own + "spec: {}}", "Healthy", ""},
		"own, not seen yet":                  {"what its controller says is of before", own + `status: {observedGeneration: 1, conditions: [{type: Ready, status: "True"}]}}`, "InProgress", "generation"},
		"own, not ready":                     {"it may come", own + `status: {observedGeneration: 2, conditions: [{type: Ready, status: "False", reason: Wait, message: waits for a disk}]}}`, "InProgress", "waits for a disk"},
		"own, ready":                         {"it says so", own + `status: {observedGeneration: 2, conditions: [{type: Ready, status: "True"}]}}`, "Healthy", ""},
		"own, stalled":                       {"it won't come by itself", own + `status: {observedGeneration: 2, conditions: [{type: Stalled, status: "True", message: bad values}]}}`, "Unhealthy", "bad values"},
		"a load balancer without an address": {"clients can't reach it", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: LoadBalancer, clusterIP: 10.0.0.1}, status: {loadBalancer: {}}}", "InProgress", "waits for the address of its load balancer"},
		"a load balancer with an address":    {"it is reached", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: LoadBalancer, clusterIP: 10.0.0.1}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}", "Healthy", ""},
		"a load balancer with a name":        {"so it is", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: LoadBalancer, clusterIP: 10.0.0.1}, status: {loadBalancer: {ingress: [{hostname: lb.example.com}]}}}", "Healthy", ""},
		"a service of the cluster":           {"it needs none", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: ClusterIP, clusterIP: 10.0.0.1}}", "Healthy", ""},
		"on its way out":                     {"it isn't what is wanted", `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, deletionTimestamp: "2026-01-01T00:00:00Z"}}`, "InProgress", "is being removed"},
		"a broken status":                    {"its health is unknown", own + "status: {conditions: 5}}", "Unhealthy", "status is invalid"},
		"a very long message":                {"conditions stay readable", own + `status: {observedGeneration: 2, conditions: [{type: Stalled, status: "True", message: "` + strings.Repeat("x", 10_000) + `"}]}}`, "Unhealthy", "x…"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := yaml.YAMLToJSON([]byte(test.object))
			if err != nil {
				t.Fatal(err)
			}
			var r unstructured.Unstructured
			if err := r.UnmarshalJSON(text); err != nil {
				t.Fatal(err)
			}
			reason, says := kubernetes.HealthOf(&r)
			if reason != test.reason || !strings.Contains(says, test.says) || len(says) > 400 {
				t.Errorf("%s: %s, %q", test.why, reason, says)
			}
		})
	}
}

func TestHealthOfAKindFollowsItsExpressions(t *testing.T) {
	t.Parallel()
	rule := trigger.HealthRule{Group: "example.com", Kind: "Thing", Current: "status.phase == 'Up' && size(status.peers) >= spec.peers", Failed: "status.phase == 'Broken'"}
	const own = "{apiVersion: example.com/v1, kind: Thing, metadata: {name: x, generation: 2}, spec: {peers: 2}, "
	tests := map[string]struct {
		why, object, reason, says string
		rule                      trigger.HealthRule
	}{
		"no status":        {"kstatus takes it for healthy", own + "spec: {peers: 2}}", "InProgress", "no such key", rule},
		"too few":          {"the expression is false", own + "status: {phase: Up, peers: [a]}}", "InProgress", "is not healthy yet", rule},
		"enough":           {"the expression is true", own + "status: {phase: Up, peers: [a, b]}}", "Healthy", "", rule},
		"broken":           {"it doesn't come by itself", own + "status: {phase: Broken}}", "Unhealthy", "has failed", rule},
		"seen before":      {"its status is of another generation", own + "status: {observedGeneration: 1, phase: Up, peers: [a, b]}}", "InProgress", "generation 2", rule},
		"of another kind":  {"kstatus decides", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}", "Healthy", "", rule},
		"on its way out":   {"it isn't what is wanted", `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x, deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {phase: Up}}`, "InProgress", "is being removed", rule},
		"a syntax error":   {"a user must correct it", own + "status: {}}", "", "spec.health[0].current", trigger.HealthRule{Group: "example.com", Kind: "Thing", Current: "status.phase =="}},
		"no boolean":       {"a user must correct it", own + "status: {}}", "", "true or false", trigger.HealthRule{Group: "example.com", Kind: "Thing", Current: "'yes'"}},
		"a dynamic number": {"it says nothing of its health", own + "status: {phase: 5}}", "InProgress", "not true or false", trigger.HealthRule{Group: "example.com", Kind: "Thing", Current: "status.phase"}},
		"too expensive":    {"it ends", own + "status: {l: [" + strings.Repeat("1,", 999) + "1]}}", "InProgress", "cost", trigger.HealthRule{Group: "example.com", Kind: "Thing", Current: "status.l.all(a, status.l.all(b, a == b))"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r unstructured.Unstructured
			text, err := yaml.YAMLToJSON([]byte(strings.Replace(test.object, "spec: {peers: 2}, spec:", "spec:", 1)))
			if err == nil {
				err = r.UnmarshalJSON(text)
			}
			if err != nil {
				t.Fatal(err)
			}
			reason, says := kubernetes.HealthOf(&r, test.rule)
			if reason != test.reason || !strings.Contains(says, test.says) || len(says) > 400 {
				t.Errorf("%s: %s, %q", test.why, reason, says)
			}
		})
	}
}

func TestNextStepWaitsForTheHealthOfAnExpression(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.set([]any{map[string]any{"kind": "ConfigMap", "current": "object.data.key == 'ready'"}}, "health")
	steps := func(value string) tko.Deployment {
		return deployment("a", configMap("first", value), annotated(configMap("second", "ready"), kubernetes.AnnotationOrder, "1"))
	}
	r := w.reconcile(steps("starting"))
	if got := r.Deployments["a"]; got.Scheduled.Reason != trigger.ReasonWaiting || got.Healthy.Reason != trigger.ReasonInProgress {
		t.Errorf("%+v", got)
	}
	if w.get("ConfigMap", "second") != nil {
		t.Error("the next step didn't wait")
	}
	r = w.reconcile(steps("ready"))
	if got := r.Deployments["a"]; got.Scheduled.Reason != trigger.ReasonApplied || got.Healthy.Reason != trigger.ReasonHealthy {
		t.Errorf("%+v", got)
	}
	w.set([]any{map[string]any{"kind": "ConfigMap", "current": "status.("}}, "health")
	if _, err := w.schedule(t.Context(), steps("ready")); err == nil || !strings.Contains(err.Error(), "spec.health[0].current") {
		t.Errorf("an expression that doesn't compile: %v", err)
	}
}
