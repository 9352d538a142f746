package catalog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
)

// open returns the sites of edge/ that no stop or freeze holds.
func (w *world) open() (open []tko.SiteID) {
	w.t.Helper()
	freezes, err := w.Freezes(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range all(w.t, w.Sites(w.ctx, tko.SiteSelect{}, tko.ListOptions{})) {
		stop, err := w.SiteStop(w.ctx, s.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		if _, frozen := tko.Frozen(freezes, s.Metadata, time.Now()); !frozen && !stop.Any() {
			open = append(open, s.ID)
		}
	}
	return open
}

// deliver reports that the deployments at sites are scheduled, with a health.
func (w *world) deliver(health string, sites ...tko.SiteID) {
	w.t.Helper()
	for _, site := range sites {
		for _, d := range all(w.t, w.Deployments(w.ctx, tko.DeploymentSelect{Sites: []string{string(site)}}, tko.ListOptions{})) {
			conditions := []tko.Condition{
				{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, ObservedRevision: d.Stamp.Revision},
				{Type: tko.ConditionHealthy, Status: health, ObservedRevision: d.Stamp.Revision},
			}
			if err := w.SetConditions(w.ctx, tko.KindDeployment, string(d.ID), conditions); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

func (w *world) advanceReleases() {
	w.t.Helper()
	if err := w.AdvanceReleases(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

// What waited for the end of a stop or a freeze at many sites is released in the waves of the
// policy of rollouts; at few, or with consent, at once.
func TestReleaseOfManySitesGoesInWaves(t *testing.T) {
	t.Parallel()
	const n = 30
	stop := func(stop tko.Stop) func(*testing.T, *world, func() (int, bool)) {
		return func(t *testing.T, w *world, confirm func() (int, bool)) {
			t.Helper()
			stop.Reason = "wrong image"
			status, err := w.Stop(w.ctx, stop)
			if err != nil {
				t.Fatal(err)
			}
			if len(w.open()) != 0 {
				t.Fatal("the stop holds nothing")
			}
			ctx := w.ctx
			if n, ok := confirm(); ok {
				_, err := w.Resume(tko.WithConfirmation(ctx, n/2), tko.Release{ID: status.Stop.ID})
				wantError(t, err, tko.ErrInvalid, fmt.Sprintf("at %d sites, but %d were confirmed", n, n/2))
				ctx = tko.WithConfirmation(ctx, n)
			}
			if _, err := w.Resume(ctx, tko.Release{ID: status.Stop.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	freeze := func(until time.Duration) func(*testing.T, *world, func() (int, bool)) {
		return func(t *testing.T, w *world, _ func() (int, bool)) {
			t.Helper()
			f, err := w.Freeze(tko.WithConfirmation(w.ctx, n), tko.Freeze{SiteMetadata: map[string]string{"kind": "edge"}, Until: time.Now().Add(until), Reason: "night"})
			if err != nil {
				t.Fatal(err)
			}
			if len(w.open()) != 0 {
				t.Fatal("the freeze holds nothing")
			}
			if until > time.Minute {
				if err := w.Unfreeze(w.ctx, f.ID); err != nil {
					t.Fatal(err)
				}
				return
			}
			over := time.After(time.Until(f.Until) + 10*time.Millisecond)
			<-over
		}
	}
	tests := map[string]struct {
		end     func(*testing.T, *world, func() (int, bool))
		waiting int // sites that wait
		confirm bool
		first   int // sites of the first wave
	}{
		"everything":             {end: stop(tko.Stop{All: true}), waiting: n, first: 1},
		"sites":                  {end: stop(tko.Stop{Sites: []string{"edge/**"}}), waiting: n, first: 1},
		"sites by metadata":      {end: stop(tko.Stop{SiteMetadata: map[string]string{"kind": "edge"}}), waiting: n, first: 1},
		"few":                    {end: stop(tko.Stop{All: true}), waiting: 10, first: n},
		"consent":                {end: stop(tko.Stop{All: true}), waiting: n, confirm: true, first: n},
		"unfreeze":               {end: freeze(time.Hour), waiting: n, first: 1},
		"the time of the freeze": {end: freeze(1100 * time.Millisecond), waiting: n, first: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, catalog.Options{})
			for i := range n {
				id := tko.SiteID(fmt.Sprintf("edge/%02d", i))
				if _, err := w.RegisterSite(w.ctx, tko.Site{ID: id, Metadata: map[string]string{"kind": "edge"}}); err != nil {
					t.Fatal(err)
				}
				w.create(tko.NewDeployment{Site: id, Prepared: true, Approved: true})
				if i >= test.waiting {
					w.deliver(tko.ConditionTrue, id)
				}
			}
			test.end(t, w, func() (int, bool) { return test.waiting, test.confirm })
			first := w.open()
			if len(first) < test.first || len(first) > test.first && test.waiting == n {
				t.Fatalf("%d sites are released at once, want %d", len(first), test.first)
			}
			if test.first == n {
				return
			}
			d := all(t, w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{Packages: true}))[0]
			if _, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: d.ID, Revision: d.Stamp.Revision, Package: append(krm.Package{}, d.Package...)}); err != nil {
				t.Errorf("a release holds more than what is scheduled: %v", err)
			}
			w.advanceReleases()
			if got := w.open(); len(got) != 1 {
				t.Errorf("%d sites are released before the first one has what it waited for", len(got))
			}
			w.deliver(tko.ConditionFalse, first...)
			w.advanceReleases()
			if got := w.open(); len(got) != 1 {
				t.Errorf("%d sites are released while the first one is unhealthy", len(got))
			}
			w.deliver(tko.ConditionTrue, first...)
			w.Service = catalog.New(w.store, w.validator, catalog.Options{}) // another server, or the same after a restart
			w.advanceReleases()
			second := w.open()
			if len(second) != 1+n/10 {
				t.Errorf("%d sites are released in the second wave, want %d", len(second), 1+n/10)
			}
			w.deliver(tko.ConditionTrue, second...)
			w.advanceReleases()
			if got := w.open(); len(got) != n {
				t.Errorf("%d sites are released at the end, want %d", len(got), n)
			}
			stops, err := w.Stops(w.ctx)
			if err != nil || len(stops) != 0 {
				t.Errorf("%+v, %v: want no stop after the release", stops, err)
			}
		})
	}
}

// Deployments that can't change at their sites don't hold back the release of others.
func TestReleaseDoesNotWaitForWhatNeverHappens(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		prepared  bool
		condition tko.Condition
		waits     bool
	}{
		"a site without a target":  {true, tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: tko.ReasonNoScheduler}, false},
		"it could not be prepared": {false, tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "PluginFailed", ObservedRevision: 1}, false},
		"it will be prepared":      {false, tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "NotPrepared", ObservedRevision: 1}, true},
		"it failed at the site":    {true, tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: "Failed", ObservedRevision: 1}, true},
		"the stop holds it":        {true, tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: tko.ReasonStopped, ObservedRevision: 1}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, catalog.Options{})
			for i := range 12 {
				id := tko.SiteID(fmt.Sprintf("edge/%02d", i))
				if _, err := w.RegisterSite(w.ctx, tko.Site{ID: id}); err != nil {
					t.Fatal(err)
				}
				d := w.create(tko.NewDeployment{Site: id, Prepared: test.prepared, Approved: true})
				if err := w.SetConditions(w.ctx, tko.KindDeployment, string(d), []tko.Condition{test.condition}); err != nil {
					t.Fatal(err)
				}
			}
			status, err := w.Stop(w.ctx, tko.Stop{All: true, Reason: "wrong image"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Resume(w.ctx, tko.Release{ID: status.Stop.ID}); err != nil {
				t.Fatal(err)
			}
			if got := len(w.open()); (got == 12) == test.waits {
				t.Errorf("%d of 12 sites are released at once", got)
			}
		})
	}
}

// The number of sites that wait is the one that is confirmed, whatever the sites wait for, and also while a release goes on.
func TestStopShowsTheNumberThatItsEndNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	states := []tko.NewDeployment{{}, {}, {Prepared: true}, {Prepared: true, Approved: true}, {Prepared: true, Approved: true, Metadata: map[string]string{tko.MetadataSuspend: "true"}}}
	for i := range 40 {
		d := states[i%len(states)]
		d.Site = tko.SiteID(fmt.Sprintf("edge/%02d", i))
		if _, err := w.RegisterSite(w.ctx, tko.Site{ID: d.Site}); err != nil {
			t.Fatal(err)
		}
		w.create(d)
		if i == 3 {
			w.deliver(tko.ConditionTrue, d.Site)
		}
	}
	status, err := w.Stop(w.ctx, tko.Stop{All: true, Reason: "wrong image"})
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, want int) {
		t.Helper()
		stops, err := w.Stops(w.ctx)
		if err != nil || len(stops) != 1 {
			t.Fatalf("%s: %+v, %v", when, stops, err)
		}
		if got := stops[0].WaitingSites; got != want {
			t.Errorf("%s, %d sites wait, want %d", when, got, want)
		}
		_, err = w.Resume(tko.WithConfirmation(w.ctx, 1), tko.Release{ID: status.Stop.ID})
		wantError(t, err, tko.ErrInvalid, fmt.Sprintf("at %d sites", want))
	}
	check("while all is stopped", 16+7) // to be prepared, and to be scheduled
	if _, err := w.Resume(w.ctx, tko.Release{ID: status.Stop.ID}); err != nil {
		t.Fatal(err)
	}
	check("after the first wave", 16+7-1)
}

// The end of the suspension of a site, or of a deployment, is a change at the site: at many
// sites, it needs consent.
func TestEndOfManySuspensionsNeedsConsent(t *testing.T) {
	t.Parallel()
	for _, kind := range []tko.Kind{tko.KindSite, tko.KindDeployment} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, catalog.Options{})
			suspend := func(who string, confirm, i int, value string) error {
				ctx := w.by(who)
				if confirm > 0 {
					ctx = tko.WithConfirmation(ctx, confirm)
				}
				metadata := map[string]string{}
				if value != "" {
					metadata[tko.MetadataSuspend] = value
				}
				put := tko.Put{Kind: kind, ID: fmt.Sprintf("edge/%02d", i), Metadata: metadata}
				if kind == tko.KindDeployment {
					d := all(t, w.Deployments(w.ctx, tko.DeploymentSelect{Sites: []string{put.ID}}, tko.ListOptions{Packages: true}))[0]
					put.ID, put.Site, put.Package = string(d.ID), d.Site, d.Package
				}
				_, err := w.PutEntity(ctx, put)
				return err
			}
			w.running(12)
			for i := range 12 {
				if err := suspend("ana", 0, i, "true"); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 10 {
				if err := suspend("bob", 0, i, ""); err != nil {
					t.Fatal(err)
				}
			}
			wantError(t, suspend("bob", 0, 10, ""), tko.ErrInvalid, "at 1 site", "after 10 without consent", "--confirm=1")
			if err := suspend("bob", 0, 0, "true"); err != nil {
				t.Errorf("a new suspension: %v", err)
			}
			if err := suspend("bob", 1, 10, ""); err != nil {
				t.Errorf("with consent: %v", err)
			}
		})
	}
}
