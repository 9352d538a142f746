package schedule

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
	"github.com/tko-orchestrator/tko/internal/work"
)

// minGather is the first time that a site waits for its other deployments. Each further one is about twice as long.
const minGather = 250 * time.Millisecond

// clockTolerance is by how much the clocks of the database and of this process may differ in their measure of a wait.
const clockTolerance = 20 * time.Millisecond

// A gatherer delays the reconciliation of sites at which some deployments are ready while others are still being
// prepared, so that a topology with fifty deployments at a site isn't fifty reconciliations and commits of the site.
// Sites with the same repository become due together, and share commits.
//
// The time that a site has waited is known to this process only: after a restart, or in another process, it begins anew.
type gatherer struct {
	most time.Duration // nothing waits if 0

	mu    sync.Mutex
	sites map[tko.SiteID]gathering
}

// A gathering is a site that waits.
type gathering struct {
	since time.Time
	due   time.Time
	place string // sites with the same place become due together
}

func newGatherer(most time.Duration) *gatherer {
	return &gatherer{most: most, sites: map[tko.SiteID]gathering{}}
}

// await returns how long a site waits now; 0 if it has waited long enough.
func (g *gatherer) await(id tko.SiteID, place string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	of, ok := g.sites[id]
	if !ok {
		g.prune(now)
		of = gathering{since: now, place: place}
	}
	period := minGather
	age := now.Sub(of.since)
	for 2*period <= min(age, g.most/2) {
		period *= 2
	}
	if age+period > g.most {
		g.sites[id] = of
		return 0
	}
	// The moments at which sites of a place are due are the multiples of the period, after a phase of the place.
	h := fnv.New64a()
	_, _ = h.Write([]byte(of.place))
	wait := period - time.Duration((now.UnixNano()-int64(h.Sum64()%uint64(period)))%int64(period)) //nolint:gosec // the rest is less than the period
	if wait < period/2 {
		wait += period
	}
	wait = min(wait, g.most-age)
	of.due = now.Add(wait)
	g.sites[id] = of
	return wait
}

// of returns how a site waits; ok is false if it doesn't.
func (g *gatherer) of(id tko.SiteID) (of gathering, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	of, ok = g.sites[id]
	return of, ok
}

// isEarly reports whether the work of a site is done before it was to be: something came that doesn't wait.
func (g *gatherer) isEarly(of gathering) bool { return time.Now().Before(of.due.Add(-clockTolerance)) }

// end ends the waiting of a site.
func (g *gatherer) end(id tko.SiteID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sites, id)
}

// prune forgets sites whose waiting another process has ended.
func (g *gatherer) prune(now time.Time) {
	if len(g.sites)%1000 != 999 {
		return
	}
	for id, of := range g.sites {
		if now.Sub(of.since) > 2*g.most {
			delete(g.sites, id)
		}
	}
}

// later is the result of a reconciliation that waits.
func later(wait time.Duration) work.Result {
	return work.Result{Outcome: tko.WorkLater, Retry: wait, Gather: true}
}

// stillGathers returns how long a site that waited already waits again; 0 if it doesn't. It reads no packages.
func (s *Scheduler) stillGathers(ctx context.Context, id tko.SiteID) (time.Duration, error) {
	of, waited := s.gatherer.of(id)
	if !waited || s.gatherer.isEarly(of) {
		return 0, nil
	}
	var all []tko.Deployment
	for d, err := range s.client.Deployments(ctx, tko.DeploymentSelect{Sites: []string{string(id)}}, tko.ListOptions{}) {
		if err != nil {
			return 0, fmt.Errorf("reading the deployments at site %q: %w", id, err)
		}
		all = append(all, d)
	}
	if !isIncomplete(all) {
		return 0, nil
	}
	return s.gatherer.await(id, of.place), nil
}

// gather returns how long the work of a site waits for deployments that are being prepared; 0 if it doesn't.
func (s *Scheduler) gather(seen snapshot, p plan) time.Duration {
	if _, waited := s.gatherer.of(seen.site.ID); waited || s.gatherer.most == 0 || !isIncomplete(seen.deployments) {
		return 0 // one that waited was looked at before
	}
	place := string(seen.site.ID)
	for _, step := range p.steps {
		if step.place.Pulled {
			place = cmp.Or(step.trigger.Text("spec", "url"), place)
			break
		}
	}
	return s.gatherer.await(seen.site.ID, place)
}

// isIncomplete reports whether some deployments of a site have yet to be delivered to it, and others are about to be
// prepared: no preparation of their revision has failed or waits for something.
func isIncomplete(all []tko.Deployment) bool {
	ready, coming := false, false
	for _, d := range all {
		switch {
		case tko.Suspended(d.Metadata):
		case d.Prepared:
			ready = ready || d.Approved && !isScheduled(d)
		case d.AwaitedTemplate == "" && d.AwaitedSite == "":
			c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionPrepared)
			coming = coming || c == nil || c.ObservedRevision < d.Stamp.Revision
		}
	}
	return ready && coming
}

// gathered returns the context of a reconciliation: the commit of a site that has waited waits a moment for those of others.
func (s *Scheduler) gathered(ctx context.Context, id tko.SiteID) context.Context {
	of, waited := s.gatherer.of(id)
	if !waited {
		return ctx
	}
	s.gatherer.end(id)
	if s.gatherer.isEarly(of) {
		return ctx
	}
	return git.Patient(ctx)
}
