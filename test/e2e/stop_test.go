package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// The fleet as revisions of deployments and commits of the sites' repository show it.
func (w *world) snapshot() string {
	w.t.Helper()
	var text strings.Builder
	for d, err := range w.client.Deployments(w.t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		fmt.Fprintln(&text, d.ID, d.Stamp.Revision)
	}
	commits, err := exec.CommandContext(w.t.Context(), "git", "--git-dir", w.repository, "rev-list", "--all", "--count").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	return text.String() + string(commits)
}

// Everything is stopped in the midst of a placement. Once nothing is in flight, nothing changes:
// no deployment and no commit at the sites, although each process is killed and started again.
// After the release, the placement is completed.
func TestStopHoldsWhileProcessesAreKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, anyStore(t), 60)
	topology := w.place(patient(t), func() {
		time.Sleep(300 * time.Millisecond) // so that the placement has begun
		var stop tko.StopStatus
		eventually.NoError(t, "the stop", func() (err error) {
			stop, err = w.client.Stop(t.Context(), tko.Stop{All: true, Reason: "storm"})
			return err
		})
		nothingInFlight := func() {
			eventually.NoError(t, "nothing in flight", func() error {
				stops, err := w.client.Stops(t.Context())
				if err != nil {
					return err
				}
				if len(stops) != 1 || stops[0].InFlightCount > 0 || stops[0].Stop.ID != stop.Stop.ID {
					return fmt.Errorf("stops: %+v", stops)
				}
				return nil
			})
		}
		nothingInFlight()
		before := w.snapshot()
		for _, role := range w.roles {
			w.kill(role)
			nothingInFlight()
			for range 5 { // workers look at their queues meanwhile
				if _, err := w.client.CreateDeployment(t.Context(), tko.NewDeployment{}); err == nil || !strings.Contains(err.Error(), "storm") && !strings.Contains(err.Error(), "connect") {
					t.Errorf("a deployment is created after %s was killed: %v", role, err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if after := w.snapshot(); after != before {
				t.Errorf("after %s was killed, the fleet changed from\n%s to\n%s", role, before, after)
			}
		}
		if _, err := w.client.Resume(t.Context(), tko.Release{ID: stop.Stop.ID}); err != nil {
			t.Error(err)
		}
	})
	if got := w.outcome(topology); len(got) != 60+hubs {
		t.Errorf("the placement has %d children, want %d", len(got), 60+hubs)
	}
}
