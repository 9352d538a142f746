package krm_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/krm"
)

const manifests = `# a comment alone
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  annotations: {nephio.org/prepared: "true"}
spec:
  replicas: 3
  ratio: 5.0
  day: 2024-01-02
  enabled: yes
  command: [sh, -c, "on"]
  text: |
    one

      two
  1: x
---
- apiVersion: v1
  kind: Namespace
  metadata: {name: ns}
- null
- kind: Cluster
  apiVersion: kind.x-k8s.io/v1alpha4
  name: here
---
`

func TestManifestsSurviveBothFormats(t *testing.T) {
	t.Parallel()
	p, err := krm.Decode(krm.YAML, []byte(manifests), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := krm.Package{
		{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "web", "annotations": map[string]any{"nephio.org/prepared": "true"}},
			"spec": map[string]any{
				"replicas": int64(3), "ratio": 5.0, "day": "2024-01-02", "enabled": true,
				"command": []any{"sh", "-c", "on"}, "text": "one\n\n  two\n", "1": "x",
			},
		},
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "ns"}},
		{"apiVersion": "kind.x-k8s.io/v1alpha4", "kind": "Cluster", "name": "here"},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Fatal(diff)
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for _, format := range []krm.Format{krm.YAML, krm.CBOR} {
		data, err := krm.Encode(format, p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := krm.Decode(format, data, krm.Limits{})
		if err != nil {
			t.Fatalf("%s: %v\n%s", format, err, data)
		}
		if diff := cmp.Diff(p, again); diff != "" {
			t.Errorf("%s: %s\n%s", format, diff, data)
		}
	}
	if _, err := krm.Decode("xml", []byte("x"), krm.Limits{}); !errors.Is(err, krm.ErrInvalid) {
		t.Errorf("unknown format: %v", err)
	}
}
