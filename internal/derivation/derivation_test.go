package derivation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

func read(t testing.TB, text string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRecordKeepsAllOfADerivation(t *testing.T) {
	t.Parallel()
	types, err := merge.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	before := read(t, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: x, ports: [{containerPort: 53, protocol: UDP}]}]}}\n---\n{apiVersion: a.plugin.nephio.org/v1, kind: One, metadata: {name: one}}")
	after := read(t, `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: b, image: 'y'}, {name: a, ports: [{containerPort: 53, protocol: UDP}], weight: 1.5, none: null}]}}
---
{apiVersion: a.plugin.nephio.org/v1, kind: One, metadata: {name: one, annotations: {nephio.org/prepared: "true"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: made}, data: {x: "1"}}`)
	start := derivation.Record{Template: "t:v1", Revision: 3, Merge: read(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {x: "1"}}`)}
	r, ok := start.After(before, after, types, func(krm.Identity) (string, int64) { return "p", 7 })
	if !ok || len(r.Steps) != 1 || len(start.Steps) != 0 {
		t.Fatalf("%+v", r)
	}
	if got := r.Steps[0].Triggers; len(got) != 1 || got[0].Plugin != "p" || got[0].Revision != 7 || got[0].Resource.Kind != "One" {
		t.Errorf("the triggers are %+v", got)
	}
	digest, encoded, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := derivation.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back, cmp.Comparer(merge.Equal)); diff != "" {
		t.Error(diff)
	}
	if again, _, err := back.Encode(); err != nil || again != digest {
		t.Errorf("the digest changes: %v", err)
	}
	if left := merge.Differences(merge.Patched(merge.WithoutBookkeeping(before), back.Steps[0].Patch, types, false), merge.WithoutBookkeeping(after), types); len(left) > 0 {
		t.Errorf("the decoded patch leaves %+v", left)
	}
	if _, ok := r.After(after, after, types, nil); ok {
		t.Error("a step that changes nothing is recorded")
	}
	if _, err := derivation.Decode([]byte("x")); err == nil {
		t.Error("other data is read")
	}
}
