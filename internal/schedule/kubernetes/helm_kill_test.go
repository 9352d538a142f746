package kubernetes_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
)

// A meta-scheduler dies at any write of an installation, an upgrade, a rollback
// or a removal of a chart, also after the cluster did what it was asked but
// before anybody knew. The next one is not held up by what Helm noted, and ends
// with what is wanted.
func TestKilledWithCharts(t *testing.T) {
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
		before string           // what is there, if anything
		dying  []tko.Deployment // what is wanted then
		after  []string         // what may be wanted by the next one; nothing if empty
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
				w.gate.lost = (n%2 == 1) != step.fails // in turn: the other way where the same writes come first
				w.chart("1.0.0", map[string]string{
					"templates/a.yaml": webMap, "templates/b.yaml": `{apiVersion: v1, kind: ConfigMap, metadata: {name: "of-{{ .Values.mode }}"}}`,
					"templates/c.yaml": `{{ if eq .Values.mode "refused" }}{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: c, image: i}], nodeName: nowhere}}{{ end }}`,
				})
				if step.before != "" {
					w.look(deployed(step.before)...)
					w.look(deployed(step.before)...)
				}
				w.gate.writes.Store(0)
				w.gate.last.Store(n)
				_, _ = w.schedule(t.Context(), step.dying...)
				done = !w.gate.dead.Load()
				w.target.Close()
				await(t, "what is under way to end", func() bool { return w.gate.active.Load() == 0 })
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
					w.look(deployed(after)...)
					check(t, w, after)
				}
				if t.Failed() {
					t.Fatalf("killed at write %d, %s, and %q was wanted then", n, map[bool]string{true: "its answer was lost", false: "which wasn't done"}[w.gate.lost], after)
				}
			}
		})
	}
}

// calm looks until what the one that died had asked for doesn't come between.
func (w *helmWorld) calm(t *testing.T, deployments ...tko.Deployment) {
	t.Helper()
	await(t, "a look that nobody disturbs", func() bool {
		_, err := w.schedule(t.Context(), deployments...)
		if err != nil && !errors.Is(err, tko.ErrConflict) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// A meta-scheduler dies while it rolls an upgrade back that didn't become
// healthy: the next one goes on with that.
func TestKilledInRollback(t *testing.T) {
	t.Parallel()
	for n, done := int64(0), false; !done; n++ {
		w := newHelmWorld(t, kubernetes.Options{})
		w.gate.lost = n%2 == 1
		w.chart("1.0.0", map[string]string{"templates/a.yaml": webDeployment, "templates/b.yaml": webMap})
		a, b := deployment("a", release("web", map[string]any{"mode": "one"})), deployment("a", release("web", map[string]any{"mode": "two"}))
		w.look(a)
		w.rolledOut(progressed)
		w.look(a)
		w.look(b)
		w.rolledOut(stuck)
		w.gate.writes.Store(0)
		w.gate.last.Store(n)
		_, _ = w.schedule(t.Context(), b)
		done = !w.gate.dead.Load()
		w.target.Close()
		await(t, "what is under way to end", func() bool { return w.gate.active.Load() == 0 })
		w.gate.last.Store(-1)
		w.gate.dead.Store(false)
		w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Charts: w.charts})
		for range 2 {
			r, err := w.schedule(t.Context(), b)
			if err == nil || said(r)["a"] != "False Invalid" {
				t.Errorf("said %s: %v", said(r)["a"], err)
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
