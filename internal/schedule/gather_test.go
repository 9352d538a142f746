package schedule_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule"
)

// coming is a deployment that is about to be prepared.
func coming(id tko.DeploymentID, at tko.SiteID) tko.Deployment {
	d := deployment(id, at)
	d.Prepared, d.Approved = false, false
	return d
}

// Ready deployments wait for others of their site that are about to be prepared, and for no others.
func TestReadyDeploymentsWaitForOthersOfTheirSite(t *testing.T) {
	t.Parallel()
	failed := coming("failed", "lagos")
	failed.Stamp.Conditions = []tko.Condition{{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "Failed", ObservedRevision: 1}}
	again := failed
	again.Stamp.Revision = 2
	suspended := coming("suspended", "lagos")
	suspended.Metadata = map[string]string{tko.MetadataSuspend: "true"}
	awaits := coming("awaits", "lagos")
	awaits.AwaitedTemplate = "late"
	unapproved := deployment("unapproved", "lagos")
	unapproved.Approved = false
	delivered := deployment("delivered", "lagos")
	delivered.Stamp.Conditions = scheduled(1)
	for name, test := range map[string]struct {
		deployments []tko.Deployment
		waits       bool
	}{
		"a lone one":                           {[]tko.Deployment{deployment("a", "lagos")}, false},
		"others are ready":                     {[]tko.Deployment{deployment("a", "lagos"), deployment("b", "lagos")}, false},
		"another is about to be prepared":      {[]tko.Deployment{deployment("a", "lagos"), coming("b", "lagos")}, true},
		"one is prepared again after a change": {[]tko.Deployment{deployment("a", "lagos"), again}, true},
		"at another site":                      {[]tko.Deployment{deployment("a", "lagos"), coming("b", "accra")}, false},
		"the preparation has failed":           {[]tko.Deployment{deployment("a", "lagos"), failed}, false},
		"it is suspended":                      {[]tko.Deployment{deployment("a", "lagos"), suspended}, false},
		"it waits for its template":            {[]tko.Deployment{deployment("a", "lagos"), awaits}, false},
		"nothing is ready":                     {[]tko.Deployment{unapproved, coming("b", "lagos")}, false},
		"what is ready is there already":       {[]tko.Deployment{delivered, coming("b", "lagos")}, false},
	} {
		r := world([]tko.Site{site("lagos", trigger("e"))}, test.deployments, plugin("p", edge))
		run := &runner{}
		got := schedule.New(r, run, schedule.Options{Gather: time.Minute}).Reconcile(t.Context(), "lagos")
		if waits := got.Outcome == tko.WorkLater && got.Gather && got.Retry > 0 && len(run.runs) == 0; waits != test.waits {
			t.Errorf("%s: %+v, runs %v", name, got, run.runs)
		}
		run = &runner{}
		if got := schedule.New(r, run, schedule.Options{}).Reconcile(t.Context(), "lagos"); got.Gather || len(run.runs) != 1 {
			t.Errorf("%s, without gathering: %+v, runs %v", name, got, run.runs)
		}
	}
}

// The times of waiting grow, end when all is ready, and end in any case.
func TestWaitingForOtherDeploymentsIsBounded(t *testing.T) {
	for _, most := range []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second, 30 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r := world([]tko.Site{site("lagos", trigger("e"))}, []tko.Deployment{deployment("a", "lagos"), coming("b", "lagos")}, plugin("p", edge))
			run := &runner{}
			s := schedule.New(r, run, schedule.Options{Gather: most})
			began, looks := time.Now(), 0
			for len(run.runs) == 0 {
				looks++
				got := s.Reconcile(t.Context(), "lagos")
				if got.Gather && (got.Retry <= 0 || time.Since(began)+got.Retry > most) {
					t.Fatalf("%s: waits %s more after %s", most, got.Retry, time.Since(began))
				}
				time.Sleep(got.Retry)
				if looks > 20 {
					t.Fatalf("%s: it waits for ever", most)
				}
			}
			if waited := time.Since(began); most >= time.Second && waited < most/2 {
				t.Errorf("%s: it waited for %s only", most, waited)
			}
			// What becomes ready later is gathered again.
			d := r.deployments["b"]
			d.Prepared, d.Approved = true, true
			r.deployments["b"] = d
			r.deployments["c"] = coming("c", "lagos")
			if got := s.Reconcile(t.Context(), "lagos"); most >= time.Second && !got.Gather {
				t.Errorf("%s: the next one does not wait: %+v", most, got)
			}
			c := deployment("c", "lagos")
			r.deployments["c"] = c
			if got := s.Reconcile(t.Context(), "lagos"); got.Outcome != tko.WorkDone || run.runs[len(run.runs)-1] != "p e lagos [a b c]" {
				t.Errorf("%s: all is ready: %+v, runs %v", most, got, run.runs)
			}
		})
	}
}

// What doesn't wait makes the work due earlier, and ends the waiting.
func TestUrgentWorkEndsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := world([]tko.Site{site("lagos", trigger("e"))}, []tko.Deployment{deployment("a", "lagos"), coming("b", "lagos")}, plugin("p", edge))
		run := &runner{}
		s := schedule.New(r, run, schedule.Options{Gather: time.Minute})
		for range 4 {
			time.Sleep(s.Reconcile(t.Context(), "lagos").Retry)
		}
		got := s.Reconcile(t.Context(), "lagos")
		time.Sleep(got.Retry / 2)
		if len(run.runs) != 0 || !got.Gather {
			t.Fatalf("%+v, runs %v", got, run.runs)
		}
		if got := s.Reconcile(t.Context(), "lagos"); got.Gather || len(run.runs) != 1 {
			t.Errorf("earlier than it was to be: %+v, runs %v", got, run.runs)
		}
	})
}

// Sites of the same repository become due at the same moments, those of others at others.
func TestSitesOfARepositoryBecomeDueTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sites []tko.Site
		var deployments []tko.Deployment
		for i := range 40 {
			id := tko.SiteID(fmt.Sprint("s", i))
			sites = append(sites, site(id, repository(fmt.Sprintf("file:///r%d", i%4))))
			deployments = append(deployments, deployment(tko.DeploymentID(fmt.Sprint("a", i)), id), coming(tko.DeploymentID(fmt.Sprint("b", i)), id))
		}
		s := schedule.New(world(sites, deployments), &runner{}, schedule.Options{Gather: time.Hour})
		due := make([]time.Time, len(sites))
		for range 8 { // until a site waits for minutes
			for i := range sites {
				time.Sleep(time.Until(due[i]))
				got := s.Reconcile(t.Context(), sites[i].ID)
				if !got.Gather {
					t.Fatalf("site %d: %+v", i, got)
				}
				due[i] = time.Now().Add(got.Retry)
				time.Sleep(3 * time.Millisecond) // the sites become ready one after the other
			}
		}
		moments := map[time.Time]map[int]bool{}
		for i, at := range due {
			if moments[at] == nil {
				moments[at] = map[int]bool{}
			}
			moments[at][i%4] = true
		}
		for at, of := range moments {
			if len(of) > 1 {
				t.Errorf("sites of %d repositories are due at %s", len(of), at)
			}
		}
		if len(moments) > 12 { // those that became ready last may be a period earlier or later
			t.Errorf("40 sites of 4 repositories are due at %d moments", len(moments))
		}
	})
}
