package krm_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/krm"
)

// Resources for local tools, and of orchestration groups that no controller at a
// site handles, are never deployed; a List is deployed as its items.
func TestLocalResourcesAreNotDeployable(t *testing.T) {
	t.Parallel()
	made := func(apiVersion, kind, name string, annotations ...string) krm.Resource {
		r := krm.Resource{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
		for i := 0; i < len(annotations); i += 2 {
			r.SetAnnotation(annotations[i], annotations[i+1])
		}
		return r
	}
	list := func(items ...any) krm.Resource {
		return krm.Resource{"apiVersion": "v1", "kind": "List", "items": items}
	}
	const local, deploy = "config.kubernetes.io/local-config", "nephio.org/deploy"
	tests := map[string]struct {
		why        string
		resource   krm.Resource
		deployable []string // names of the resources that Deployable returns
		toSites    []string // and what of that goes to a site
	}{
		"plain":              {"it is for the site", made("v1", "ConfigMap", "a"), []string{"a"}, []string{"a"}},
		"kpt's":              {"tools read it", made("kpt.dev/v1", "Kptfile", "a", local, "true"), nil, nil},
		"local of false":     {"only true counts", made("v1", "ConfigMap", "a", local, "false"), []string{"a"}, []string{"a"}},
		"orchestration":      {"schedulers read it, sites don't", made("infra.nephio.org/v1alpha1", "X", "a"), []string{"a"}, nil},
		"a network function": {"an operator there watches it", made("workload.nephio.org/v1alpha1", "NFDeployment", "a", deploy, "true"), []string{"a"}, []string{"a"}},
		"deploy of false":    {"only true counts", made("nephio.org/v1", "X", "a", deploy, "yes"), []string{"a"}, nil},
		"deploy and local":   {"local is never handed out", made("nephio.org/v1", "X", "a", deploy, "true", local, "true"), nil, nil},
		"a list":             {"it is its items", list(map[string]any(made("v1", "ConfigMap", "a")), map[string]any(made("nephio.org/v1", "X", "b"))), []string{"a", "b"}, []string{"a"}},
		"a local list": {"its items are local, too", func() krm.Resource {
			r := list(map[string]any(made("v1", "ConfigMap", "a")))
			r.SetAnnotation(local, "true")
			return r
		}(), nil, nil},
		"a local item":        {"items have annotations, too", list(map[string]any(made("v1", "ConfigMap", "a", local, "true"))), nil, nil},
		"lists in a list":     {"they are their items", list(map[string]any(list(map[string]any(made("v1", "ConfigMap", "a"))))), []string{"a"}, []string{"a"}},
		"an empty list":       {"it is nothing", list(), nil, nil},
		"a list of something": {"what is malformed is left for the target to refuse", list("x"), []string{""}, []string{""}},
		"another List":        {"only v1's is a list of resources", krm.Resource{"apiVersion": "example.com/v1", "kind": "List", "metadata": map[string]any{"name": "a"}}, []string{"a"}, []string{"a"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := test.resource.Clone()
			var deployable, toSites []string
			for _, r := range (krm.Package{test.resource}).Deployable() {
				deployable = append(deployable, r.Name())
				if !r.IsLocal() {
					toSites = append(toSites, r.Name())
				}
			}
			if diff := cmp.Diff(test.deployable, deployable); diff != "" {
				t.Errorf("%s: deployable: -want +got:\n%s", test.why, diff)
			}
			if diff := cmp.Diff(test.toSites, toSites); diff != "" {
				t.Errorf("%s: to sites: -want +got:\n%s", test.why, diff)
			}
			if diff := cmp.Diff(before, test.resource); diff != "" {
				t.Errorf("the resource changed: -before +now:\n%s", diff)
			}
		})
	}
}
