package manifest_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
)

// kustomize adds spec.selector and spec.template to each object of the kind Deployment, also
// to those of TKO. They mean nothing, and everything else there is unknown.
func TestFieldsThatOnlyKustomizeAddsAreIgnored(t *testing.T) {
	t.Parallel()
	read := func(spec string) ([]manifest.Manifest, error) {
		return manifest.Read(fstest.MapFS{"d.yaml": {Data: []byte("apiVersion: tko.nephio.org/v1alpha1\nkind: Deployment\nmetadata: {name: d, labels: {team: core}}\nspec: {templateId: t, " + spec + "}\n")}}, "")
	}
	plain, err := read("siteId: s")
	if err != nil {
		t.Fatal(err)
	}
	got, err := read("siteId: s, selector: {matchLabels: {team: core}}, template: {metadata: {labels: {team: core}, annotations: {a: b}}}")
	if err != nil || len(got) != 1 || got[0].Digest != plain[0].Digest {
		t.Errorf("with what kustomize adds, it is %+v, %v: want %+v", got, err, plain)
	}
	for _, spec := range []string{"selector: {matchExpressions: []}", "selector: {}", "template: {spec: {containers: []}}", "template: {metadata: {name: x}}", "template: {metadata: {}}", "selector: x"} {
		if _, err := read(spec); err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%s: the error is %v", spec, err)
		}
	}
}
