package kubernetes_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A meta-scheduler is killed at each of its writes, also when the write is executed
// but its response is lost. The next one, whose desired state may be different,
// reaches that state with a matching inventory.
func TestReconciliationRecoversFromKillAtAnyWrite(t *testing.T) {
	t.Parallel()
	anew := func(value string) krm.Resource {
		return annotated(frozen("anew", value), kubernetes.AnnotationRecreate, "true")
	}
	before := func(w *world) []tko.Deployment {
		all := []tko.Deployment{
			deployment("a", annotated(configMap("late", "1"), kubernetes.AnnotationOrder, "1"), configMap("stays", "1"), anew("1")),
			deployment("b", configMap("moves", "1"), configMap("goes", "1")),
			deployment("c", configMap("of-c", "1")),
		}
		if !w.gate.lost {
			all[1].Package = append(all[1].Package, definition(w.ns+".example.com"), resource(w.ns+".example.com/v1", "Thing", "one"))
		}
		return all
	}
	after := func(w *world) []tko.Deployment {
		all := []tko.Deployment{
			deployment("a", configMap("stays", "2"), configMap("moves", "1"), configMap("comes", "1"), anew("2")),
			deployment("b"),
		}
		if !w.gate.lost {
			all[1].Package = append(all[1].Package, definition(w.ns+".example.com"), resource(w.ns+".example.com/v1", "Thing", "two"))
		}
		return all
	}
	check := func(t *testing.T, w *world, all []tko.Deployment) {
		t.Helper()
		var objects, maps []string
		for _, d := range all {
			for _, r := range d.Package[1:] {
				objects = append(objects, fmt.Sprintf("%s %s %s", d.ID, r["kind"], r.Name()))
				if r["kind"] == "ConfigMap" {
					maps = append(maps, r.Name())
					got := w.must("ConfigMap", r.Name())
					same(t, r.Name(), r.Text("data", "key"), got.Text("data", "key"))
					same(t, r.Name(), string(d.ID), got.Text("metadata", "labels", kubernetes.LabelDeployment))
				}
			}
		}
		slices.Sort(objects)
		slices.Sort(maps)
		same(t, "inventory", objects, w.inventory())
		same(t, "what is there", maps, w.there("ConfigMap"))
	}
	// dying reconciles a site until the n-th write, which is executed if lost. It
	// returns whether the reconciliation was complete.
	dying := func(w *world, n int64, all []tko.Deployment) (ended bool) {
		w.gate.writes.Store(0)
		w.gate.last.Store(n)
		_, err := w.schedule(w.t.Context(), all...)
		w.target.Close()
		eventually.True(w.t, "what is under way to end", func() bool { return w.gate.active.Load() == 0 })
		w.gate.last.Store(-1)
		w.gate.dead.Store(false)
		w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir})
		return err == nil
	}
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("responses lost %t", lost), func(t *testing.T) {
			t.Parallel()
			for n, done := int64(0), false; !done; n++ {
				w := newWorld(t, kubernetes.Options{})
				w.gate.lost = lost
				done = dying(w, n, before(w))
				w.reconcile(after(w)...)
				check(t, w, after(w))
				if t.Failed() {
					t.Fatalf("killed at write %d of the first reconciliation", n)
				}
				if n%4 > 0 {
					continue
				}
				eventually.True(t, "everything to go", func() bool {
					w.reconcile()
					return len(w.inventory()) == 0
				})
				same(t, "what is left", []string{}, w.there("ConfigMap"))
			}
			for n, done := int64(0), false; !done; n++ {
				w := newWorld(t, kubernetes.Options{})
				w.gate.lost = lost
				w.reconcile(before(w)...)
				done = dying(w, n, after(w))
				w.reconcile(before(w)...) // restore the state from before
				check(t, w, before(w))
				if t.Failed() {
					t.Fatalf("killed at write %d of a change", n)
				}
			}
		})
	}
}
