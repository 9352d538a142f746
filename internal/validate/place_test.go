package validate

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	places "github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/krm"
)

// The resources of each built-in target are checked when packages are written: a secret in
// place of the file that holds it is refused, with the name of the field for the file.
func TestEachKindOfPlacesIsChecked(t *testing.T) {
	t.Parallel()
	v, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range places.All {
		refused := func(what, says string, path ...string) {
			t.Helper()
			r := krm.Resource{"apiVersion": k.GVK.APIVersion(), "kind": k.GVK.Kind, "metadata": map[string]any{"name": "x"}}
			r.Set(what, path...)
			found := v.Validate(t.Context(), tko.Validation{Package: krm.Package{r}})
			at := strings.Join(path, ".") + ": "
			if found == nil || !strings.Contains(found.Error(), at) || !strings.Contains(found.Error(), says) || strings.Contains(found.Error(), "canary") {
				t.Errorf("%s: %s %q gives %v, want a finding with %q", k.GVK, at, what, found, says)
			}
		}
		if len(k.Credentials) > 0 != (k.Secrets != "") || len(k.Credentials) == 0 && !k.Kubeconfig {
			t.Errorf("%s has no credentials, or its folder of secrets has no name: %+v", k.GVK, k)
		}
		for _, field := range k.Credentials {
			refused("../../etc/shadow", "folder of secrets", "spec", "credentials", field)
			named := slices.ContainsFunc(slices.Collect(maps.Values(inline)), func(fields []string) bool { return slices.Contains(fields, field) })
			if !named {
				t.Errorf("%s: no property is refused in place of credentials.%s: add those that users choose to inline", k.GVK, field)
			}
		}
		for name, fields := range inline {
			if i := slices.IndexFunc(fields, func(field string) bool { return slices.Contains(k.Credentials, field) }); i >= 0 {
				refused("canary", "spec.credentials."+fields[i], "spec", "credentials", name)
				refused("canary", "spec.credentials."+fields[i], "spec", name)
			}
		}
		if k.CA {
			refused("canary", "spec.caFile", "spec", "ca")
		}
		if k.Kubeconfig {
			refused("canary", "packages hold no credentials", "spec", "token")
		}
		for _, tool := range places.Tools {
			if k.Pulled {
				refused("canary", "packages hold no credentials", "spec", "status", tool, "kubeconfig", "token")
			}
		}
	}
}
