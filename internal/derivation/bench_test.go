package derivation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/krm"
)

// BenchmarkStepOfPreparation records a step that adds one resource to a package of six
// workloads, and reports the sizes of the record and of the package.
func BenchmarkStepOfPreparation(b *testing.B) {
	var text strings.Builder
	for i := range 6 {
		fmt.Fprintf(&text, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: nf-%d}, spec: {replicas: 2, selector: {matchLabels: {app: nf}}, template: {metadata: {labels: {app: nf}}, spec: {containers: [{name: main, image: "nf:1", env: [{name: A, value: "1"}]}, {name: side, image: "side:1"}]}}}}
---
`, i)
	}
	before := read(b, text.String()+"{apiVersion: a.plugin.nephio.org/v1, kind: One, metadata: {name: one}}")
	after := read(b, text.String()+`{apiVersion: a.plugin.nephio.org/v1, kind: One, metadata: {name: one, annotations: {nephio.org/prepared: "true"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: made}, data: {address: 10.0.0.1, gateway: 10.0.0.254}}`)
	types := derivation.TypesOf()
	_, stored, err := krm.DigestOf(after)
	if err != nil {
		b.Fatal(err)
	}
	var size int
	b.ReportAllocs()
	for b.Loop() {
		r, ok := derivation.Record{Template: "nf:v1", Revision: 1}.After(before, after, types, func(krm.Identity) (string, int64) { return "ipam", 1 })
		if !ok {
			b.Fatal("nothing changed")
		}
		_, encoded, err := r.Encode()
		if err != nil {
			b.Fatal(err)
		}
		size = len(encoded)
	}
	b.ReportMetric(float64(size), "record-bytes")
	b.ReportMetric(float64(len(stored)), "package-bytes")
}
