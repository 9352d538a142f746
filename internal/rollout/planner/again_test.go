package planner_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/krm"
)

// randomEdit changes something that a plan depends on, or not.
func (w *world) randomEdit(r *rand.Rand, ids []tko.DeploymentID) {
	id := ids[r.IntN(len(ids))]
	switch r.IntN(6) {
	case 0, 1:
		if _, err := w.Deployment(w.ctx, id, 0); err == nil {
			w.edit(id, set(w.t, `v1 ConfigMap "a"`, strconv.Itoa(r.IntN(5)), "data", "mine"))
		}
	case 2:
		_, _ = w.DeleteDeployment(w.ctx, id)
	case 3:
		w.template("t:v2", config("a", fmt.Sprintf(`image: "%d"`, r.IntN(100))))
	case 4:
		w.template("t:v1", config("a", fmt.Sprintf(`image: "%d"`, r.IntN(100))))
	case 5:
		w.deploy("t:v1", "", "")
	}
}

func TestRowsAreAppliedAsPlannedOrNotAtAll(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		w.template("t:v1", config("a", `image: "1"`))
		w.template("t:v2", config("a", `image: "2"`))
		var ids []tko.DeploymentID
		for i := range 10 {
			id := w.deploy("t:v1", config("own", fmt.Sprintf(`n: "%d"`, i%3)), "")
			if i%2 == 0 {
				w.edit(id, set(t, `v1 ConfigMap "a"`, strconv.Itoa(i), "data", "mine"))
			}
			ids = append(ids, id)
		}
		w.upgrade("t:v1", "t:v2")
		planned := w.plan()
		if len(planned) != len(ids) {
			t.Fatalf("%d deployments are planned", len(planned))
		}
		for range 10 {
			w.randomEdit(r, ids)
		}
		for id, d := range planned {
			now, err := w.Deployment(w.ctx, id, 0)
			if d.Check(err == nil, now.Stamp.UID, now.Stamp.Revision) != nil {
				continue
			}
			state, err := w.again(d)
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
				continue
			}
			if state.Digest != d.After || !bytes.Equal(encoded(t, state), encoded(t, *d.AfterState)) {
				t.Errorf("seed %d: the state after isn't as planned:\n%s\n%s", seed, encoded(t, state), encoded(t, *d.AfterState))
			}
		}
	}
}

func encoded(t testing.TB, s plan.State) []byte {
	t.Helper()
	data, err := krm.Encode(krm.CBOR, s.Deployment.Package)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestChildrenAreMadeAgainFromTheirRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.regions()
	w.template("cu:v1", config("cu", `x: "1"`))
	w.template("du:v1", config("du", `x: "1"`))
	w.template("ran:v1", topology("north", "cu:v1"))
	w.template("ran:v2", topology("north", "cu:v1", "du:v1"))
	w.deploy("ran:v1", "", "")
	w.upgrade("ran:v1", "ran:v2")
	planned := w.plan()
	w.template("du:v1", config("du", `x: "2"`))
	for id, d := range planned {
		state, err := w.again(d)
		if err != nil || state.Digest != d.After {
			t.Errorf("%s %s: %v\n%s\n%s", d.Kind, id, err, encoded(t, state), encoded(t, *d.AfterState))
		}
	}
}

func TestPlanSeesOneSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.template("t:v1", config("a", `image: "1"`))
	w.template("t:v2", config("a", `image: "2"`))
	var ids []tko.DeploymentID
	for range 450 { // more than a page
		id, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t:v1"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	w.upgrade("t:v1", "t:v2")
	want := w.plan()
	n := 0
	if err := w.planner.Plan(w.ctx, w.request(), func(d plan.Draft) error {
		if n == 0 { // while planning goes on
			w.template("t:v2", config("a", `image: "3"`))
			for _, id := range ids[100:450] {
				w.edit(id, set(t, `v1 ConfigMap "a"`, "mine", "data", "image"))
			}
			if _, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t:v1"}); err != nil {
				t.Fatal(err)
			}
		}
		n++
		if d.After != want[d.Deployment].After || d.Revision != 1 {
			t.Errorf("deployment %s at revision %d is planned as of a later state", d.Deployment, d.Revision)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n != len(ids) {
		t.Errorf("%d deployments are planned, want %d", n, len(ids))
	}
}
