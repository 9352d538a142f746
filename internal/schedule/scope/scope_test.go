package scope_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/schedule/scope"
	"github.com/tko-orchestrator/tko/krm"
)

func TestSplitSeparatesClusterScopedResources(t *testing.T) {
	t.Parallel()
	resource := func(apiVersion, kind, name string) krm.Resource {
		return krm.Resource{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
	}
	crd := func(name, where string) krm.Resource {
		r := resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
		r["spec"] = map[string]any{"group": "example.com", "scope": where, "names": map[string]any{"kind": name}}
		return r
	}
	tests := map[string]struct {
		why        string
		resource   krm.Resource
		clusterful bool
	}{
		"namespace":            {"the first of all", resource("v1", "Namespace", "x"), true},
		"cluster role":         {"of any version", resource("rbac.authorization.k8s.io/v1beta1", "ClusterRole", "x"), true},
		"role":                 {"is in a namespace", resource("rbac.authorization.k8s.io/v1", "Role", "x"), false},
		"another's namespace":  {"the group counts", resource("example.com/v1", "Namespace", "x"), false},
		"defined as cluster":   {"its definition is in the package", resource("example.com/v1", "Zone", "x"), true},
		"defined as namespace": {"its definition is in the package", resource("example.com/v1", "Plot", "x"), false},
		"unknown":              {"most are in namespaces", resource("example.org/v1", "Thing", "x"), false},
		"definition":           {"of any scope", crd("Thing", "Namespaced"), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone, plot := crd("Zone", "Cluster"), crd("Plot", "Namespaced")
			cluster, namespaced := scope.Split(krm.Package{test.resource, zone, plot})
			wantCluster, wantNamespaced := krm.Package{zone, plot}, krm.Package(nil)
			if test.clusterful {
				wantCluster = krm.Package{test.resource, zone, plot}
			} else {
				wantNamespaced = krm.Package{test.resource}
			}
			if diff := cmp.Diff([]krm.Package{wantCluster, wantNamespaced}, []krm.Package{cluster, namespaced}); diff != "" {
				t.Errorf("%s: -want +got:\n%s", test.why, diff)
			}
		})
	}
}
