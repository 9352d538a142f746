package kubernetes_test

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// Resources of nephio.org groups are applied if they are marked for an operator at
// the site. A deployment without resources for its cluster is reported as such.
func TestOrchestrationResourcesAreAppliedOnlyIfDeployable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	group := strings.ReplaceAll(w.ns, "-", "") + ".nephio.org"
	definition := resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "functions."+group)
	definition["spec"] = map[string]any{
		"group": group, "scope": "Namespaced", "names": map[string]any{"kind": "Function", "plural": "functions"},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
	}
	function := resource(group+"/v1", "Function", "upf")
	r := w.reconcile(
		deployment("a", definition, annotated(function, krm.AnnotationDeploy, "true")),
		deployment("b", resource(group+"/v1", "Function", "smf")),
		deployment("c", annotated(configMap("local", "1"), krm.AnnotationLocal, "true")),
	)
	same(t, "a", "True Applied", said(r)["a"])
	same(t, "a", "2 objects are as they should be", r.Deployments["a"].Scheduled.Message)
	for _, id := range []tko.DeploymentID{"b", "c"} {
		same(t, string(id), report.Nothing(), r.Deployments[id].Scheduled)
	}
	if w.get("ConfigMap", "local") != nil {
		t.Error("a resource for local tools is in the cluster")
	}
}
