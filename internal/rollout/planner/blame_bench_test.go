package planner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// BenchmarkBlame explains a package of six workloads that has 30 revisions.
func BenchmarkBlame(b *testing.B) {
	w := newWorld(b)
	var text strings.Builder
	for i := range 6 {
		fmt.Fprintf(&text, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: nf-%d}, spec: {replicas: 2, selector: {matchLabels: {app: nf}}, template: {metadata: {labels: {app: nf}}, spec: {containers: [{name: main, image: "nf:1", env: [{name: A, value: "1"}]}, {name: side, image: "side:1"}]}}}}
---
`, i)
	}
	w.template("t:v1", text.String()+config("c", "x: one"))
	id := w.deploy("t:v1", "", "")
	for n := range 28 {
		w.edit(id, set(b, fmt.Sprintf(`apps/v1 Deployment "nf-%d"`, n%6), int64(n+3), "spec", "replicas"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Blame(w.ctx, tko.BlameRequest{Kind: tko.KindDeployment, ID: string(id)}); err != nil {
			b.Fatal(err)
		}
	}
}
