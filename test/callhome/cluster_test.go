package callhome_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A clustered is a world with a Kubernetes cluster, which the server can connect to as well.
type clustered struct {
	*world
	cluster   *kube.Cluster
	namespace string
}

func newClustered(t *testing.T) *clustered {
	t.Helper()
	cluster := kube.Shared(t, kube.Options{})
	folder := t.TempDir()
	text, err := os.ReadFile(cluster.Kubeconfig)
	if err := errors.Join(err, os.WriteFile(filepath.Join(folder, "edge.yaml"), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return &clustered{newWorld(t, "--kubeconfigs="+folder), cluster, "callhome"}
}

// reach registers the site a/1, whose cluster is reached in a way.
func (w *clustered) reach(way string, how any) {
	w.t.Helper()
	_, err := w.client.RegisterSite(w.patient(), tko.Site{ID: "a/1", Package: krm.Package{{
		"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "site"},
		"spec": map[string]any{way: how, "namespace": w.namespace, "inventoryNamespace": w.namespace + "-tko"},
	}}})
	w.check(err)
}

func (w *clustered) dialled()  { w.reach("kubeconfig", map[string]any{"file": "edge.yaml"}) }
func (w *clustered) callHome() { w.reach("agent", map[string]any{}) }

// workload creates a deployment with objects of several kinds, for which the API server adds fields.
func (w *clustered) workload(name, value string) tko.DeploymentID {
	w.t.Helper()
	labels := map[string]any{"app": name}
	meta := func() map[string]any { return map[string]any{"name": name} }
	id, err := w.client.CreateDeployment(w.patient(), tko.NewDeployment{Site: "a/1", Prepared: true, Approved: true, Merge: krm.Package{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": w.namespace}},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(), "data": map[string]any{"value": value}},
		{"apiVersion": "v1", "kind": "Secret", "metadata": meta(), "stringData": map[string]any{"password": value}},
		{"apiVersion": "v1", "kind": "Service", "metadata": meta(), "spec": map[string]any{"selector": labels, "ports": []any{map[string]any{"port": int64(80)}}}},
		{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(), "spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}},
		}},
	}})
	w.check(err)
	return id
}

// objects returns the objects of the site as the API server has them, with versions, managers of
// fields and times, and the inventories.
func (w *clustered) objects() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, namespace := range []string{w.namespace, w.namespace + "-tko"} {
		for _, kinds := range []string{"namespace/" + namespace, "configmaps,secrets,services,deployments.apps"} {
			var list struct{ Items []json.RawMessage }
			text := w.cluster.Kubectl(w.t, "get", kinds, "-n", namespace, "--show-managed-fields", "-o", "json")
			w.check(json.Unmarshal([]byte(text), &list))
			if len(list.Items) == 0 {
				list.Items = append(list.Items, json.RawMessage(text))
			}
			for _, one := range list.Items {
				var o struct {
					Kind     string
					Metadata struct{ Name string }
				}
				w.check(json.Unmarshal(one, &o))
				if o.Metadata.Name != "kube-root-ca.crt" && o.Kind != "List" {
					all[o.Kind+" "+namespace+"/"+o.Metadata.Name] = string(one)
				}
			}
		}
	}
	return all
}

// applied waits until the server itself has applied a deployment.
func (w *clustered) applied(id tko.DeploymentID) {
	w.t.Helper()
	eventually.Within(w.t, timeLimit, fmt.Sprintf("the server applies deployment %q", id), func() error {
		if c := w.now(tko.KindDeployment, string(id), tko.ConditionScheduled); c == nil || c.Status != tko.ConditionTrue || strings.HasPrefix(c.Message, "reported by its agent") {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// One site with a real API server is reached by the server, then by its agent, then by the server
// again. Each finds what the other applied as its own, byte for byte, and writes nothing: objects,
// versions, managers of fields and inventories. The agent is enrolled as users do it in a cluster.
func TestAgentAppliesWhatTheServerWouldByteForByte(t *testing.T) {
	t.Parallel()
	w := newClustered(t)
	w.dialled()
	one := w.workload("one", "first")
	w.applied(one)
	before := w.objects()
	if len(before) < 6 {
		t.Fatalf("the site has only %d objects", len(before))
	}

	w.callHome()
	a := w.enrollInCluster()
	w.reported(one, tko.ConditionScheduled, tko.ConditionTrue)
	if diff := cmp.Diff(before, w.objects()); diff != "" {
		t.Errorf("the agent has changed what the server applied: %s", diff)
	}

	// The agent changes, creates and removes.
	two := w.workload("two", "second")
	gone := w.workload("gone", "third")
	w.change(one, "changed")
	for _, id := range []tko.DeploymentID{one, two, gone} {
		w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	}
	if _, err := w.client.DeleteDeployment(tko.WithConfirmation(w.patient(), 1), gone); err != nil {
		t.Fatal(err)
	}
	var after map[string]string
	eventually.Within(t, timeLimit, "the objects of the deleted deployment are removed", func() error {
		after = w.objects()
		for id := range after {
			if strings.HasSuffix(id, "/gone") {
				return fmt.Errorf("there is %s", id)
			}
		}
		return nil
	})
	if !strings.Contains(after["ConfigMap callhome/one"], `"value": "changed"`) || after["Deployment callhome/two"] == "" {
		t.Errorf("the site has %v", after)
	}
	a.kill()

	w.dialled()
	w.applied(one)
	w.applied(two)
	if diff := cmp.Diff(after, w.objects()); diff != "" {
		t.Errorf("the server has changed what the agent applied: %s", diff)
	}
}

// enrollInCluster applies the manifest of tko site enroll to the cluster, and starts the agent with
// what it has: there is no kubelet that would do so.
func (w *clustered) enrollInCluster() *agent {
	w.t.Helper()
	manifest, stderr, code := w.server.CLI("site", "enroll", "a/1", "--manifest", "--server", w.agents, "--ca", w.ca, "--image", "registry.example/tko-server:v1")
	if code != 0 {
		w.t.Fatal(stderr)
	}
	if _, stderr, code := w.cluster.Try(w.t, w.cluster.Kubeconfig, manifest, "apply", "-f", "-"); code != 0 {
		w.t.Fatalf("kubectl apply: %s", stderr)
	}
	get := func(object, path string) string {
		return w.cluster.Kubectl(w.t, "get", object, "-n", "tko-agent", "-o", "jsonpath={"+path+"}")
	}
	if got := get("deployment/tko-agent", ".spec.template.spec.containers[0].image"); got != "registry.example/tko-server:v1" {
		w.t.Errorf("the image is %q", got)
	}
	token, err := base64.StdEncoding.DecodeString(get("secret/tko-agent-token", ".data.token"))
	w.check(err)
	a := &agent{w: w.world, state: w.state("a/1"), token: filepath.Join(w.dir, "token"), server: get("configmap/tko-agent", ".data.server"), kubeconfig: w.cluster.Kubeconfig}
	ca := filepath.Join(w.dir, "agent-ca.crt")
	w.check(errors.Join(os.WriteFile(a.token, token, 0o600), os.WriteFile(ca, []byte(get("configmap/tko-agent", `.data.ca\.crt`)), 0o600)))
	w.ca = ca
	w.run(a)
	return a
}
