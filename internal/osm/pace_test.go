package osm_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
)

// upgrades are those that the server carried out, in order.
type upgrades struct {
	mu   sync.Mutex
	all  []string
	at   map[string]time.Time
	fail map[string]bool
}

func (u *upgrades) record(o osmtest.Operation) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if o.Type != "action" {
		return ""
	}
	u.all = append(u.all, o.Instance)
	u.at[o.Instance] = time.Now()
	if u.fail[o.Instance] {
		return "timed out"
	}
	return ""
}

func (u *upgrades) reset() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.all
	u.all = nil
	return all
}

func watchUpgrades(w *world) *upgrades {
	u := &upgrades{at: map[string]time.Time{}, fail: map[string]bool{}}
	w.server.LCM(u.record)
	return u
}

const paced = 6

// pacedFleet wants instances i0 to i5 with a value.
func pacedFleet(replicas int) osm.Desired {
	d := osm.Desired{Packages: packages()}
	for i := range paced {
		d.Instances = append(d.Instances, instance(fmt.Sprint("i", i), values("replicaCount", replicas, "kdu_model", "ops/upf:1.4.2")))
	}
	return d
}

// wavesOf has waves of 1, 2 and 3 instances, in the order of names.
func wavesOf(soak time.Duration) *osm.Pace {
	return &osm.Pace{
		Soak: soak, Concurrent: 2, Waves: []osm.PaceWave{{Name: "canary"}, {Name: "some"}, {Name: "rest"}},
		Assign: func(names []string) []int {
			waves := make([]int, len(names))
			for i := range names {
				waves[i] = []int{0, 1, 1, 2, 2, 2}[i]
			}
			return waves
		},
		Exceeded: func(failed, _ int) bool { return failed > 0 }, Open: func(time.Time) bool { return true },
	}
}

// Instances are upgraded wave by wave, with a soak between them, and not more at once than
// allowed. What reverts an upgrade is one wave.
func TestUpgradesAreMadeInWaves(t *testing.T) {
	t.Parallel()
	const soak = 300 * time.Millisecond
	w := newWorld(t, osmtest.Options{Delay: 20 * time.Millisecond})
	w.policy.Pace = wavesOf(soak)
	w.settle(pacedFleet(1))
	u := watchUpgrades(w)
	w.settle(pacedFleet(2))
	if all := u.reset(); len(all) != paced || all[0] != "i0" || slices.Max(all[1:3]) != "i2" || slices.Min(all[3:]) != "i3" {
		t.Errorf("the upgrades are %v", all)
	}
	if gap := u.at["i1"].Sub(u.at["i0"]); gap < soak {
		t.Errorf("the second wave began after %s", gap)
	}
	if gap := u.at["i3"].Sub(u.at["i2"]); gap < soak {
		t.Errorf("the third wave began after %s", gap)
	}
	w.settle(pacedFleet(1))
	if all := u.reset(); len(all) != paced {
		t.Errorf("the upgrades back are %v", all)
	}
	if s := w.saved().Rollout; s == nil || len(s.Waves) != 1 {
		t.Errorf("the upgrades back are %+v", s)
	}
}

// A failed operation stops the next wave, and the rest of its own. When it succeeds, the
// upgrades go on.
func TestAFailedUpgradeStopsTheNextWave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.policy.Pace, w.policy.Wait = wavesOf(0), 0
	w.settles(pacedFleet(1))
	u := watchUpgrades(w)
	u.mu.Lock()
	u.fail["i1"] = true
	u.mu.Unlock()
	for range 60 {
		w.apply(pacedFleet(2))
		time.Sleep(3 * time.Millisecond)
	}
	all := u.reset()
	if !slices.Contains(all, "i1") || slices.ContainsFunc(all, func(name string) bool { return name > "i2" }) {
		t.Errorf("the upgrades are %v", all)
	}
	if s := w.saved().Rollout; s == nil || !strings.Contains(s.Stopped, "1 of 6 instances failed, such as i1") || s.Wave != 1 {
		t.Errorf("the state is %+v", s)
	}
	u.mu.Lock()
	u.fail = nil
	u.mu.Unlock()
	w.settles(pacedFleet(2))
	for i := range paced {
		if got := w.instance(fmt.Sprint("i", i)).Releases["upf/upf"].Values["replicaCount"]; fmt.Sprint(got) != "2" {
			t.Errorf("instance %d has %v", i, got)
		}
	}
}

// A process that dies at any save continues with the same waves, and upgrades nothing twice.
func TestWavesSurviveCrashes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.policy.Pace = wavesOf(0)
	w.settle(pacedFleet(1))
	u := watchUpgrades(w)
	saves := 0
	died := errors.New("died")
	w.fail = func() error {
		saves++
		if slices.Contains([]int{1, 3, 6, 10, 15, 21}, saves) {
			return died
		}
		return nil
	}
	w.settles(pacedFleet(2), died, tko.ErrUnavailable)
	all := u.reset()
	if len(all) != paced || all[0] != "i0" || slices.Max(all[1:3]) != "i2" {
		t.Errorf("the upgrades are %v", all)
	}
}

// A wave that needs an approval waits for it, and upgrades wait for a window.
func TestWavesWaitForApprovalsAndWindows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.policy.Pace = wavesOf(0)
	w.policy.Pace.Waves[1].Approval = true
	open := false
	w.policy.Pace.Open = func(time.Time) bool { return open }
	w.policy.Wait = 0
	w.settles(pacedFleet(1))
	u := watchUpgrades(w)
	w.apply(pacedFleet(2))
	if all := u.reset(); len(all) > 0 {
		t.Errorf("outside the window: %v", all)
	}
	open = true
	var r osm.Report
	for range 60 {
		r = w.apply(pacedFleet(2))
		time.Sleep(2 * time.Millisecond)
	}
	if all := u.reset(); r.Approval == nil || r.Approval.Wave != 2 || len(all) != 1 {
		t.Fatalf("the upgrades are %v, and the approval is %+v", all, r.Approval)
	}
	w.policy.Approve = r.Approval.Key
	w.settles(pacedFleet(2))
}
