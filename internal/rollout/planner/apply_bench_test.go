package planner_test

import (
	"os"
	"strconv"
	"syscall"
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

// BenchmarkEvaluationOfARollout evaluates a rollout of TKO_BENCH_PLAN deployments (1,000 if
// it isn't set) after a change of one that is in flight.
func BenchmarkEvaluationOfARollout(b *testing.B) {
	size, err := strconv.Atoi(os.Getenv("TKO_BENCH_PLAN"))
	if err != nil {
		size = 1000
	}
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
  limits: {concurrent: 50}
  health: {soak: 1h}
`)
	w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
	for range 3 {
		if _, err := w.AdvanceRollout(w.ctx, "r"); err != nil {
			b.Fatal(err)
		}
	}
	n, used := 0, processorTime(b)
	for b.Loop() {
		if _, err := w.AdvanceRollout(w.ctx, "r"); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64((processorTime(b)-used).Microseconds())/float64(n), "µs-processor/op")
}

// processorTime returns the processor time that this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
