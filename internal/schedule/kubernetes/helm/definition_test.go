package helm_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
)

// A definition is served when it is established, and all its served versions are listed:
// the cluster lists new versions of an established definition later.
func TestDefinitionsAreServedWhenAllVersionsAreListed(t *testing.T) {
	t.Parallel()
	condition := func(name, status string) any {
		return map[string]any{"type": name, "status": status, "message": "of " + name}
	}
	version := func(name string, served bool) any { return map[string]any{"name": name, "served": served} }
	for name, test := range map[string]struct {
		conditions, versions []any
		want                 string
	}{
		"new":               {nil, []any{version("v1", true)}, "not established"},
		"not established":   {[]any{condition("Established", "False")}, []any{version("v1", true)}, "not established"},
		"names are in use":  {[]any{condition("NamesAccepted", "False"), condition("Established", "False")}, []any{version("v1", true)}, "of NamesAccepted"},
		"served":            {[]any{condition("NamesAccepted", "True"), condition("Established", "True")}, []any{version("v1", true), version("v0", false)}, ""},
		"not yet listed":    {[]any{condition("Established", "True")}, []any{version("v1", true), version("v2", true)}, "version v2 is not listed"},
		"of another's kind": {[]any{condition("Established", "True")}, []any{version("v3", true)}, "version v3 is not listed"},
	} {
		kinds := &fake.FakeDiscovery{Fake: &kubetesting.Fake{Resources: []*metav1.APIResourceList{
			{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing"}}},
			{GroupVersion: "example.com/v3", APIResources: []metav1.APIResource{{Name: "others", Kind: "Other"}}},
		}}}
		d := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"group": "example.com", "names": map[string]any{"kind": "Thing"}, "versions": test.versions}, "status": map[string]any{"conditions": test.conditions},
		}}
		if got := helm.Unserved(d, kinds); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, not %q", name, got, test.want)
		}
	}
}
