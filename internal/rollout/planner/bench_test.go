package planner_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// workload is a template of about 4 KB.
func workload(image string) string {
	var text strings.Builder
	for i := range 6 {
		fmt.Fprintf(&text, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: nf-%d, labels: {app: nf}}, spec: {replicas: 2, selector: {matchLabels: {app: nf}}, template: {metadata: {labels: {app: nf}}, spec: {containers: [{name: main, image: "nf:%s", args: ["--a", "--b"], ports: [{containerPort: 8080}], env: [{name: A, value: "1"}, {name: B, value: "2"}], resources: {limits: {cpu: "1", memory: 1Gi}}}, {name: side, image: "side:1"}]}}}}
---
`, i, image)
	}
	return text.String() + config("common", `a: "1", b: "2"`)
}

// BenchmarkPlanOfAnUpgrade plans an upgrade of TKO_BENCH_PLAN deployments (2,000 if it
// isn't set), of which each has own values or not.
func BenchmarkPlanOfAnUpgrade(b *testing.B) {
	size, err := strconv.Atoi(os.Getenv("TKO_BENCH_PLAN"))
	if err != nil {
		size = 2000
	}
	for _, own := range []bool{false, true} {
		b.Run(fmt.Sprintf("%d/own=%t", size, own), func(b *testing.B) {
			w := newWorld(b)
			w.template("nf:v1", workload("1"))
			w.template("nf:v2", workload("2"))
			for i := range size {
				request := tko.NewDeployment{Template: "nf:v1", Prepared: true, Approved: true}
				if own {
					request.Merge = read(b, config("own", fmt.Sprintf(`n: "%d"`, i)))
				}
				if _, err := w.CreateDeployment(w.ctx, request); err != nil {
					b.Fatal(err)
				}
			}
			w.upgrade("nf:v1", "nf:v2")
			b.ReportAllocs()
			var most uint64
			used, plans := processorTime(b), 0
			for b.Loop() {
				plans++
				n := 0
				var memory runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&memory)
				start := memory.HeapAlloc
				if err := w.planner.Plan(w.ctx, w.request(), func(d plan.Draft) error {
					n++
					if n%1000 == 0 {
						runtime.GC()
						runtime.ReadMemStats(&memory)
						most = max(most, memory.HeapAlloc-min(start, memory.HeapAlloc))
					}
					if d.Kind != plan.Change {
						b.Errorf("%s %q", d.Kind, d.Findings)
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(size), "µs/deployment")
			b.ReportMetric(float64((processorTime(b)-used).Microseconds())/float64(plans)/float64(size), "µs-processor/deployment")
			b.ReportMetric(float64(most)/(1<<20), "MiB-live")
		})
	}
}
