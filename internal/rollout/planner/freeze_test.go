package planner_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

func TestRolloutChangesNothingAtFrozenSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(4) // in pairs
	f, err := w.Freeze(w.ctx, tko.Freeze{SiteMetadata: map[string]string{"pair": "0"}, Until: time.Now().Add(time.Hour), Reason: "peak"})
	if err != nil {
		t.Fatal(err)
	}
	w.started("r", strings.Replace(upgrade, "  waves: [{name: canary, count: 1}, {name: rest}]\n", "", 1))
	for range 3 {
		w.settle(ids...)
		w.advance("r")
	}
	if got := w.versions(ids); got != "v1 v1 v2 v2" {
		t.Errorf("versions %s: %+v", got, w.status("r"))
	}
	if text := strings.Join(w.status("r").Blocks, "; "); !strings.Contains(text, "peak") && !strings.Contains(text, "rozen") {
		t.Errorf("the status doesn't say what it waits for: %q", text)
	}
	if err := w.Unfreeze(w.ctx, f.ID); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.advance("r")
		w.settle(ids...)
	}
	if got := w.versions(ids); got != "v2 v2 v2 v2" {
		t.Errorf("after the freeze: %s", got)
	}
}

func TestFreezeDuringAnAdmissionHoldsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(2)
	s := w.create("r", strings.Replace(upgrade, "  waves: [{name: canary, count: 1}, {name: rest}]\n", "", 1))
	w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
	w.planner.meanwhile = func() { // the executor has decided what to apply, and hasn't committed it
		w.planner.meanwhile = nil
		if _, err := w.Freeze(w.ctx, tko.Freeze{SiteMetadata: map[string]string{"pair": "0"}, Until: time.Now().Add(time.Hour), Reason: "peak"}); err != nil {
			t.Error(err)
		}
	}
	w.advance("r")
	if w.planner.meanwhile != nil {
		t.Error("the executor applied nothing")
	}
	if got := w.versions(ids); got != "v1 v1" {
		t.Errorf("versions %s", got)
	}
}

func TestRolloutChangesNoSuspendedDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(2)
	d := w.deployment(ids[0])
	put := tko.Put{Kind: tko.KindDeployment, ID: string(d.ID), Parent: d.Parent, Template: d.Template, Site: d.Site, Package: d.Package, Metadata: map[string]string{tko.MetadataSuspend: "true"}}
	if _, err := w.PutEntity(w.ctx, put); err != nil {
		t.Fatal(err)
	}
	w.started("r", strings.Replace(upgrade, "  waves: [{name: canary, count: 1}, {name: rest}]\n", "", 1))
	for range 3 {
		w.settle(ids...)
		w.advance("r")
	}
	if got := w.versions(ids); got != "v1 v2" {
		t.Errorf("versions %s: %+v", got, w.status("r"))
	}
	if text := strings.Join(w.status("r").Blocks, "; "); !strings.Contains(text, "1 deployment waits: they are suspended") {
		t.Errorf("the status doesn't say what it waits for: %q", text)
	}
}
