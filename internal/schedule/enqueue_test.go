package schedule_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// Changes of objects by other clients are corrected, and changes of health reported,
// long before the site's work is due.
func TestEventsOfAClusterEnqueueItsSite(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t, kube.Options{})
	text, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lagos"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	ns := fmt.Sprintf("watched-%d", time.Now().UnixNano()) // it stays: the test may run again
	c.Kubectl(t, "create", "namespace", ns)
	d := deployment("a", tko.SiteID(ns))
	pod := krm.Resource{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p"},
		"spec": map[string]any{"automountServiceAccountToken": false, "containers": []any{map[string]any{"name": "c", "image": "i:1"}}},
	}
	d.Package = krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "m"}, "data": map[string]any{"mode": "live"}}, pod}
	cluster := krm.Resource{
		"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "c"},
		"spec": map[string]any{"kubeconfig": map[string]any{"file": "lagos"}, "namespace": ns, "inventoryNamespace": ns},
	}
	r := world([]tko.Site{site(tko.SiteID(ns), cluster)}, []tko.Deployment{d})
	r.retry = true
	r.queue = []tko.WorkItem{{Queue: tko.QueueSchedule, Key: ns, Claim: "c"}} // once
	s := schedule.New(r, &runner{}, schedule.Options{Kubernetes: clusters(kubernetes.Options{Kubeconfigs: dir, Interval: 24 * time.Hour})})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()
	becomes := func(typ, want string) {
		t.Helper()
		eventually.NoError(t, fmt.Sprintf("the condition %s becomes %q", typ, want), func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			got := ""
			for _, c := range r.deployments["a"].Stamp.Conditions {
				if c.Type == typ {
					got = c.Status + " " + c.Reason + " " + c.Message
				}
			}
			if !strings.Contains(got, want) {
				return fmt.Errorf("it is %q", got)
			}
			return nil
		})
	}
	becomes(tko.ConditionHealthy, "False InProgress")
	c.Kubectl(t, "patch", "pod", "p", "-n", ns, "--subresource=status", "-p", `{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`)
	becomes(tko.ConditionHealthy, "True Healthy")
	edit := c.Command(c.Kubeconfig, "edit", "configmap", "m", "-n", ns)
	edit.Env = append(edit.Env, "KUBE_EDITOR=sed -i s/live/test/")
	if out, err := edit.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.Eventually(t, "live", "get", "configmap", "m", "-n", ns, "-o", "jsonpath={.data.mode}")
	becomes(tko.ConditionScheduled, `/data/mode is "test", should be "live"`)
	c.Kubectl(t, "delete", "configmap", "m", "-n", ns)
	c.Eventually(t, "live", "get", "configmap", "m", "-n", ns, "-o", "jsonpath={.data.mode}", "--ignore-not-found")
}
