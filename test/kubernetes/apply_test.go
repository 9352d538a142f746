package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"
)

// appliedKinds are manifests of each kind that clients apply, with %s for the resources of their packages.
var appliedKinds = map[string]string{
	"tkot/plain": "apiVersion: tko.nephio.org/v1alpha1\nkind: Template\nmetadata: {name: plain, labels: {a: b}}\nspec: {package: {resources: [%s]}}\n",
	"tkos/plain": "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {name: plain, labels: {a: b}}\nspec: {package: {resources: [%s]}}\n",
	"tkod/plain": "apiVersion: tko.nephio.org/v1alpha1\nkind: Deployment\nmetadata: {name: plain, annotations: {tko.nephio.org/name: Keep}}\nspec: {package: {resources: [%s]}}\n",
}

// What is deployed has a revision for each change of it, and none for what kubectl keeps about who
// applied it: the move from one way of applying to the other takes four writes of kubectl.
func TestAppliesMakeRevisionsOfChangesOnly(t *testing.T) {
	w := newWorld(t, "data")
	resource := "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: %s}}"
	for name, manifest := range appliedKinds {
		t.Run(name, func(t *testing.T) {
			w.t = t
			generation := func(want string) {
				t.Helper()
				w.prints(want, "get", name, "-o", "jsonpath={.metadata.generation}")
			}
			first, second := fmt.Sprintf(manifest, fmt.Sprintf(resource, "v")), fmt.Sprintf(manifest, fmt.Sprintf(resource, "w"))
			w.with(first, "apply", "-f", "-")
			generation("1")
			w.with(first, "apply", "--server-side", "--force-conflicts", "-f", "-")
			generation("1")
			w.with(second, "apply", "--server-side", "--force-conflicts", "-f", "-")
			generation("2")
			w.with(second, "apply", "-f", "-")
			generation("2")
			w.with(first, "apply", "--server-side", "--force-conflicts", "-f", "-")
			generation("3")
			if managers := w.with("", "get", name, "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}"); !strings.Contains(managers, "kubectl") {
				t.Errorf("the managers are %q", managers)
			}
			w.with("", "delete", name)
		})
	}
}

// An empty list of resources is the same as none. kubectl calls a deployment configured, because TKO
// adds the Deployment resource to the list, but nothing is written.
func TestEmptyPackagesAreUnchangedWhenAppliedAgain(t *testing.T) {
	w := newWorld(t, "data")
	for name, manifest := range appliedKinds {
		for form, text := range map[string]string{
			"empty list":    fmt.Sprintf(manifest, ""),
			"empty package": strings.Replace(manifest, "{resources: [%s]}", "{}", 1),
			"no package":    strings.Replace(manifest, "{package: {resources: [%s]}}", "{}", 1),
		} {
			t.Run(name+" "+form, func(t *testing.T) {
				w.t = t
				for _, how := range [][]string{{"apply", "-f", "-"}, {"apply", "--server-side", "--force-conflicts", "-f", "-"}} {
					w.with(text, how...)
					before := w.with("", "get", name, "-o", "jsonpath={.metadata.resourceVersion}")
					out := w.with(text, how...)
					if len(how) == 3 && !strings.HasPrefix(name, "tkod/") && !strings.HasSuffix(out, "unchanged") {
						t.Errorf("applied again: %s", out)
					}
					w.prints(before, "get", name, "-o", "jsonpath={.metadata.resourceVersion}")
				}
				w.with("", "delete", name)
			})
		}
	}
}
