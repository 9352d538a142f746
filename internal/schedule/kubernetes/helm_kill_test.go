package kubernetes_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A meta-scheduler is killed at each write of an installation, upgrade, rollback and
// removal of a chart, also when the write is executed but its response is lost. The
// next one reaches the desired state, whatever Helm recorded.
func TestChartsRecoverFromKillAtAnyWrite(t *testing.T) {
	t.Parallel()
	deployed := func(mode string) []tko.Deployment {
		return []tko.Deployment{deployment("a", release("web", map[string]any{"mode": mode}))}
	}
	check := func(t *testing.T, w *helmWorld, mode string) {
		t.Helper()
		same(t, "what is there", []string{"of-" + mode, "web"}, w.there("ConfigMap"))
		same(t, "inventory", []string{"a ConfigMap of-" + mode, "a ConfigMap web", "a HelmChart web"}, w.inventory())
		same(t, "mode", mode, w.data("web", "mode"))
		all := w.revisions()
		same(t, "nothing is pending", false, slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, "pending") }))
		if len(all) == 0 || !strings.HasSuffix(all[len(all)-1], " deployed") {
			t.Errorf("the last revision: %v", all)
		}
		r := w.quiet(2, deployed(mode)...)
		same(t, "said", "True Applied", said(r)["a"])
	}
	steps := map[string]struct {
		before string           // the initial state, if any
		dying  []tko.Deployment // desired by the one that is killed
		after  []string         // desired by the next one; unchanged if empty
		fails  bool
	}{
		"installation":        {dying: deployed("one"), after: []string{"one", "two"}},
		"upgrade":             {before: "one", dying: deployed("two"), after: []string{"two", "one"}},
		"upgrade that fails":  {before: "one", dying: deployed("Bad_Name"), after: []string{"two", "one"}, fails: true},
		"removal":             {before: "one", after: []string{"", "two"}},
		"first that fails":    {dying: deployed("Bad_Name"), after: []string{"one"}, fails: true},
		"upgrade that breaks": {before: "one", dying: deployed("refused"), after: []string{"two"}},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n, done := int64(0), false; !done; n++ {
				w := newHelmWorld(t, kubernetes.Options{})
				w.gate.lost = (n%2 == 1) != step.fails // alternate; start with the other one if the first writes are the same
				w.chart("1.0.0", map[string]string{
					"templates/a.yaml": webMap, "templates/b.yaml": `{apiVersion: v1, kind: ConfigMap, metadata: {name: "of-{{ .Values.mode }}"}}`,
					"templates/c.yaml": `{{ if eq .Values.mode "refused" }}{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: c, image: i}], nodeName: nowhere}}{{ end }}`,
				})
				if step.before != "" {
					w.reconcile(deployed(step.before)...)
					w.reconcile(deployed(step.before)...)
				}
				w.gate.writes.Store(0)
				w.gate.last.Store(n)
				_, _ = w.schedule(t.Context(), step.dying...)
				done = !w.gate.dead.Load()
				w.target.Close()
				eventually.True(t, "what is under way to end", func() bool { return w.gate.active.Load() == 0 })
				w.gate.last.Store(-1)
				w.gate.dead.Store(false)
				w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Charts: w.charts})
				after := step.after[int(n/2)%len(step.after)]
				if after == "" {
					w.calm(t)
					same(t, "what is there", []string{}, w.there("ConfigMap"))
					same(t, "inventory", []string{}, w.inventory())
					same(t, "revisions", []string{}, w.revisions())
				} else {
					w.calm(t, deployed(after)...)
					w.reconcile(deployed(after)...)
					check(t, w, after)
				}
				if t.Failed() {
					t.Fatalf("killed at write %d, %s, then %q was wanted", n, map[bool]string{true: "its answer was lost", false: "which wasn't done"}[w.gate.lost], after)
				}
			}
		})
	}
}

// calm reconciles until requests of the killed meta-scheduler no longer interfere.
func (w *helmWorld) calm(t *testing.T, deployments ...tko.Deployment) {
	t.Helper()
	eventually.True(t, "a reconciliation without interference", func() bool {
		_, err := w.schedule(t.Context(), deployments...)
		if err != nil && !errors.Is(err, tko.ErrConflict) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// The next meta-scheduler continues the rollback of an unhealthy upgrade.
func TestRollbackRecoversFromKillAtAnyWrite(t *testing.T) {
	t.Parallel()
	for n, done := int64(0), false; !done; n++ {
		w := newHelmWorld(t, kubernetes.Options{})
		w.gate.lost = n%2 == 1
		w.chart("1.0.0", map[string]string{"templates/a.yaml": webDeployment, "templates/b.yaml": webMap})
		a, b := deployment("a", release("web", map[string]any{"mode": "one"})), deployment("a", release("web", map[string]any{"mode": "two"}))
		w.reconcile(a)
		w.rolledOut(progressed)
		w.reconcile(a)
		w.reconcile(b)
		w.rolledOut(stuck)
		w.gate.writes.Store(0)
		w.gate.last.Store(n)
		_, _ = w.schedule(t.Context(), b)
		done = !w.gate.dead.Load()
		w.target.Close()
		eventually.True(t, "what is under way to end", func() bool { return w.gate.active.Load() == 0 })
		w.gate.last.Store(-1)
		w.gate.dead.Store(false)
		w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Charts: w.charts})
		for range 2 {
			r, err := w.schedule(t.Context(), b)
			if err == nil || said(r)["a"] != "False Invalid" {
				t.Errorf("the condition is %s: %v", said(r)["a"], err)
			}
		}
		same(t, "mode", "one", w.data("web", "mode"))
		same(t, "mode", "one", w.must("Deployment", "web").Text("spec", "template", "metadata", "labels", "mode"))
		w.rolledOut(progressed)
		w.quiet(3, b)
		if all := w.revisions(); !strings.HasSuffix(all[len(all)-1], " deployed") {
			t.Error(all)
		}
		if t.Failed() {
			t.Fatalf("killed at write %d of a rollback, with its answer lost: %t (%s)", n, w.gate.lost, fmt.Sprint(w.revisions()))
		}
	}
}
