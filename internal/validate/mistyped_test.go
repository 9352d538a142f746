package validate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
)

func resultOf(t *testing.T, text string, complete bool) string {
	t.Helper()
	pkg, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := validate.New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = v.Validate(t.Context(), tko.Validation{Package: pkg, Complete: complete})
	if err == nil {
		return ""
	}
	if !errors.Is(err, tko.ErrInvalid) {
		t.Fatal(err)
	}
	return err.Error()
}

// A mistyped kind of TKO's own is refused with the nearest kind, instead of
// being ignored.
func TestMistypedKindsAreRefused(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"topology.nephio.org/v1alpha1 Placment":             "do you mean Placement?",
		"topology.nephio.org/v1alpha1 placement":            "do you mean Placement?",
		"topology.nephio.org/v1alpha1 Tempalte":             "do you mean Template?", //nolint:misspell // mistyped on purpose
		"topology.nephio.org/v1 Placement":                  "write topology.nephio.org/v1alpha1",
		"topology.nephio.org/v1alpha1 Rollout":              "use Placement, Site, Sites, TOSCA, Template",
		"deployment.nephio.org/v1alpha1 Deploymnet":         "do you mean Deployment?",
		"workload.nephio.org/v1alpha1 HelmCharts":           "do you mean HelmChart?",
		"git.plugin.nephio.org/v1alpha1 Repositry":          "do you mean Repository?",
		"workload.nephio.org/v1alpha1 NFDeployment":         "",
		"infra.nephio.org/v1alpha1 Placment":                "",
		"metadata.nephio.org/v1alpha1 Anything":             "",
		"kind.plugin.nephio.org/v1alpha1 Cluster":           "",
		"topology.example.org/v1alpha1 Placment":            "",
		"free5gc.plugin.nephio.org/v1alpha1 Free5gcControl": "",
	} {
		apiVersion, kind, _ := strings.Cut(id, " ")
		for _, complete := range []bool{false, true} {
			got := resultOf(t, "{apiVersion: "+apiVersion+", kind: "+kind+", metadata: {name: x}}", complete)
			if want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s, complete %v: %q, want %q", id, complete, got, want)
			}
		}
	}
}

// A selector selects everything only with all: true.
func TestEmptySelectorsAreRefused(t *testing.T) {
	t.Parallel()
	for spec, ok := range map[string]bool{
		"{select: {metadata: {}}}":                 false,
		"{select: {}}":                             false,
		"{select: {metadata: {a: b}, all: true}}":  false,
		"{select: {all: false}}":                   false,
		"{select: {metadata: {a: b}}}":             true,
		"{select: {all: true}}":                    true,
		"{select: {metadata: {}, all: true}}":      true,
		"{select: {metadata: {a: b}, all: false}}": true,
	} {
		for _, kind := range []string{"Sites", "Site", "Template"} {
			got := resultOf(t, "{apiVersion: topology.nephio.org/v1alpha1, kind: "+kind+", metadata: {name: x}, spec: "+spec+"}", true)
			if (got == "") != ok {
				t.Errorf("%s %s: %q", kind, spec, got)
			}
		}
	}
}

// The items of a List must be resources.
func TestMalformedListsAreRefused(t *testing.T) {
	t.Parallel()
	for items, ok := range map[string]bool{
		"[]": true, "[{apiVersion: v1, kind: Namespace, metadata: {name: n}}]": true, "[5]": false, "[{kind: X}]": false, "{}": false,
	} {
		if got := resultOf(t, "{apiVersion: v1, kind: List, items: "+items+"}", false); (got == "") != ok {
			t.Errorf("%s: %q", items, got)
		}
	}
}
