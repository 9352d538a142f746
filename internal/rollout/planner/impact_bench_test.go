package planner_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// BenchmarkImpact computes the impact of a template that TKO_BENCH_PLAN deployments (2,000
// if it isn't set) are made from. Each has values of its own or not. It reports what the
// memory in use grows by.
func BenchmarkImpact(b *testing.B) {
	size, err := strconv.Atoi(os.Getenv("TKO_BENCH_PLAN"))
	if err != nil {
		size = 2000
	}
	for _, own := range []bool{false, true} {
		b.Run(fmt.Sprintf("%d/own=%t", size, own), func(b *testing.B) {
			w := newWorld(b)
			w.template("nf:v1", workload("1"))
			for i := range size {
				request := tko.NewDeployment{Template: "nf:v1", Prepared: true, Approved: true}
				if own {
					request.Merge = read(b, config("own", fmt.Sprintf(`n: "%d"`, i)))
				}
				if _, err := w.CreateDeployment(w.ctx, request); err != nil {
					b.Fatal(err)
				}
			}
			request := tko.TemplateImpactRequest{Template: "nf:v1", Package: read(b, workload("2"))}
			b.ReportAllocs()
			var most uint64
			used := processorTime(b)
			for b.Loop() {
				var memory runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&memory)
				start := memory.HeapAlloc
				w.planner.during = func() {
					runtime.GC()
					runtime.ReadMemStats(&memory)
					most = max(most, memory.HeapAlloc-min(start, memory.HeapAlloc))
				}
				i, err := w.TemplateImpact(w.ctx, request)
				if err != nil || i.Deployments != size || len(i.Groups) != 1 || i.Groups[0].Deployments != size {
					b.Fatalf("%d deployments in %d groups, %v", i.Deployments, len(i.Groups), err)
				}
			}
			b.ReportMetric(float64((processorTime(b)-used).Milliseconds())/float64(b.N), "ms-processor/impact")
			b.ReportMetric(float64(most)/(1<<20), "MiB-live")
		})
	}
}
