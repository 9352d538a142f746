package kubeapi

import (
	"strings"
	"testing"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tko-orchestrator/tko/kubename"
)

// What manifests may set is what objects may have: package kubename checks it without the
// libraries of Kubernetes, and must agree with them.
func TestMarksAreCheckedAsByKubernetes(t *testing.T) {
	t.Parallel()
	parts := []string{"", "a", "A", "-", "a-", "a.b", "a..b", "a_b", "ä", "a b", "/", strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x.", 120) + "x", strings.Repeat("x.", 127) + "x"}
	n := 0
	for _, prefix := range parts {
		for _, name := range parts {
			for _, key := range []string{name, prefix + "/" + name} {
				if is, want := kubename.CheckAnnotation(key), apivalidation.ValidateAnnotations(map[string]string{key: ""}, field.NewPath("a")); (is == nil) != (len(want) == 0) {
					t.Errorf("the annotation %q: %v, and Kubernetes says %v", key, is, want)
				}
				for _, value := range parts {
					if is, want := kubename.CheckLabel(key, value), checkLabel(key, value); (is == nil) != (len(want) == 0) {
						t.Errorf("the label %q=%q: %v, and Kubernetes says %v", key, value, is, want)
					}
					n++
				}
			}
		}
	}
	if n < 5000 {
		t.Errorf("%d labels were checked", n)
	}
}
