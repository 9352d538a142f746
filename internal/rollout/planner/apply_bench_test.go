package planner_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

// BenchmarkRolloutOfAnUpgrade applies and undoes an upgrade of TKO_BENCH_PLAN deployments
// (1,000 if it isn't set), without waiting for health.
func BenchmarkRolloutOfAnUpgrade(b *testing.B) {
	size, err := strconv.Atoi(os.Getenv("TKO_BENCH_PLAN"))
	if err != nil {
		size = 1000
	}
	for b.Loop() {
		w := newWorld(b)
		w.template("nf:v1", workload("1"))
		w.template("nf:v2", workload("2"))
		for range size {
			if _, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "nf:v1", Prepared: true, Approved: true}); err != nil {
				b.Fatal(err)
			}
		}
		s := w.create("r", `apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits: [{upgrade: {to: "nf:v2"}, select: {templateIdPatterns: ["nf:v1"]}}]
  limits: {concurrent: 1000000}
`)
		run := func(id tko.RolloutID) (each time.Duration) {
			began := time.Now()
			for {
				if _, err := w.AdvanceRollout(w.ctx, id); err != nil {
					b.Fatal(err)
				}
				if s := w.status(id); s.State == "Done" {
					return time.Since(began) / time.Duration(size)
				} else if s.State != "Running" {
					b.Fatalf("%+v", s)
				}
			}
		}
		w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
		b.ReportMetric(float64(run("r").Microseconds()), "µs/applied")
		w.do("r", "undo")
		b.ReportMetric(float64(run("r-undo").Microseconds()), "µs/undone")
		began := time.Now()
		w.status("r")
		b.ReportMetric(float64(time.Since(began).Microseconds()), "µs/status")
	}
}
