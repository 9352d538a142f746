package osm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
)

// fleet returns deployments of a network service each, of which the first has a number of replicas.
func fleet(t *testing.T, n, replicas int) []tko.Deployment {
	t.Helper()
	all := []tko.Deployment{deployment(t, "p", packages)}
	for i := range n {
		text := strings.Replace(instance("upf", map[bool]int{true: replicas, false: 1}[i == 0]), "{name: edge}", fmt.Sprintf("{name: edge-%02d}", i), 1)
		all = append(all, deployment(t, tko.DeploymentID(fmt.Sprintf("d%02d", i)), text))
	}
	return all
}

// The upgrade of one of ten network services, whose records have 11 kB as those of a real OSM, took
// two lists of all of them: 224 of 273 kB. It is to take a quarter at the most.
func TestUpgradeOfOneOfManyReadsNoOthers(t *testing.T) {
	t.Parallel()
	const services, limit = 10, 273_000 / 4
	w := newWorld(t, osmtest.Options{Padding: 11_000, Delay: 20 * time.Millisecond})
	w.settle(fleet(t, services, 1))
	w.server.Reset()
	w.settle(fleet(t, services, 2))
	c := w.server.Counts()
	t.Logf("%d requests, %d records of services, %d bytes: %v", c.Total, c.Listed, c.BytesIn+c.BytesOut, c.Requests)
	reads := c.Requests["GET /nslcm/v1/ns_instances"]
	polls := int64(max(0, reads-4)) * 12_000 // as long as the upgrade lasts on a busy machine
	if got := c.BytesIn + c.BytesOut - polls; got > limit {
		t.Errorf("the upgrade took %d bytes without further polls, want %d at most", got, limit)
	}
	if c.Listed > reads || c.Requests["POST /nslcm/v1/ns_instances/{id}/action"] != 1 {
		t.Errorf("%d records were read in %d requests, each of which is to read the upgraded one only: %v", c.Listed, reads, c.Requests)
	}

	// If nothing is to be done, all are listed: another client may have changed them.
	broken := slices.IndexFunc(w.names(), func(name string) bool { return strings.Contains(name, "05") })
	if broken < 0 {
		t.Fatalf("the services are %v", w.names())
	}
	w.server.Break(w.names()[broken])
	r, err := w.reconcile(fleet(t, services, 2))
	if err != nil || r.Deployments["d05"].Healthy.Status != tko.ConditionFalse {
		t.Errorf("after another service broke: %v, %+v", err, r.Deployments["d05"])
	}
	// What isn't as it should be is read with each change.
	if r, err = w.reconcile(fleet(t, services, 3)); err != nil || r.Deployments["d05"].Healthy.Status != tko.ConditionFalse {
		t.Errorf("with another change: %v, %+v", err, r.Deployments["d05"])
	}
}

// A report counts only for the process that saved the state: another one may have changed it.
func TestStateOfAnotherProcessIsObservedWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.settle(fleet(t, 5, 1))
	w.records.mu.Lock()
	for key, s := range w.records.states {
		s.Version++
		w.records.states[key] = s
	}
	w.records.mu.Unlock()
	w.server.Reset()
	if _, err := w.reconcile(fleet(t, 5, 2)); err != nil {
		t.Fatal(err)
	}
	if c := w.server.Counts(); c.Listed < 5 {
		t.Errorf("%d records were read, want all 5", c.Listed)
	}
}

// A site that begins anew takes over packages that OSM has with the same content, and sends none.
func TestPackagesThatOSMHasAreNotSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.settle(fleet(t, 3, 1))
	sent := func() (n int) {
		for request, count := range w.server.Counts().Requests {
			if !strings.HasPrefix(request, "GET") && (strings.Contains(request, "vnfpkgm") || strings.Contains(request, "/nsd/")) {
				n += count
			}
		}
		return n
	}
	if sent() == 0 {
		t.Fatal("the test doesn't see that packages are sent")
	}
	w.server.Reset()
	w.records.mu.Lock()
	w.records.states = map[string]tko.TargetState{}
	w.records.mu.Unlock()
	w.settle(fleet(t, 3, 1))
	if n := sent(); n > 0 {
		t.Errorf("%d packages were sent again: %v", n, w.server.Counts().Requests)
	}
}
