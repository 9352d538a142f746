package schedule

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// An observer reads what the tools report that pull commits.
type observer interface {
	// Observe reads the object of a tool, and the objects of deployments. What can't be
	// read is a part of the report; an error is one of the observer itself.
	Observe(ctx context.Context, q puller.Question) (puller.Report, error)
}

// A writer is a target that writes what a site shall have to where a tool pulls it.
type writer interface {
	comparer
	// Deliver writes exactly these deployments of the site to the place that the trigger
	// names, and leaves the held ones there unchanged. Its errors are as those of Schedule.
	Deliver(ctx context.Context, of krm.Resource, site tko.Site, deployments []tko.Deployment, held ...tko.DeploymentID) (puller.Delivery, error)
}

// pulledTarget is a writer with the health that the tools report which pull what it writes.
type pulledTarget struct {
	writer

	observer observer      // nil if the tools can't be asked
	interval time.Duration // between two readings of a site at which nothing changes
}

// Schedule writes the deployments, and reports them as scheduled. It reports their health if
// the trigger names a tool that knows it.
func (t pulledTarget) Schedule(ctx context.Context, of krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Report, error) {
	r := report.Report{Kept: held}
	spec, err := puller.Read(of, site.ID)
	if err != nil {
		return r, err
	}
	delivery, err := t.Deliver(ctx, of, site, deployments, held...)
	r.Removed = delivery.Removed
	if err != nil {
		return r, err
	}
	r.Deployments = map[tko.DeploymentID]report.State{}
	for _, d := range deployments {
		v := report.Outcome{Status: tko.ConditionTrue, Reason: ReasonScheduled, Message: "by " + of.Identity().String()}
		if !slices.ContainsFunc(d.Package, func(r krm.Resource) bool { return !r.IsLocal() }) {
			v = report.Nothing()
		}
		r.Deployments[d.ID] = report.State{Scheduled: v}
	}
	if spec != nil {
		said := t.observe(ctx, *spec, site, deployments, delivery, &r)
		r.Requeue = t.again(site, deployments, r, said, *spec)
	}
	for _, d := range deployments {
		r.Attest(d.ID, d.Stamp.Revision)
	}
	r.AttestSite(site.Stamp.Revision)
	return r, nil
}

// observe adds the health of the deployments, and of the site, to a report. It returns what the
// tool said.
func (t pulledTarget) observe(ctx context.Context, spec puller.Spec, site tko.Site, deployments []tko.Deployment, delivery puller.Delivery, to *report.Report) puller.Report {
	q := puller.Question{Site: site.ID, Spec: spec}
	commits := make([]puller.Commit, len(deployments))
	for i, d := range deployments {
		for _, o := range puller.ObjectsOf(d.Package) {
			commits[i].Objects = append(commits[i].Objects, len(q.Objects))
			q.Objects = append(q.Objects, o)
		}
	}
	said := t.ask(ctx, q)
	if said.Problem == "" {
		contents, err := delivery.In(ctx, slices.Concat(said.Applied, said.Attempted))
		if err != nil {
			said.Problem = "what its revisions have isn't known: " + err.Error()
		}
		for i, d := range deployments {
			commits[i].Applied, commits[i].Attempted = contents.Best(d.ID, said.Applied), contents.Best(d.ID, said.Attempted)
		}
	}
	now, worst := time.Now(), report.Outcome{}
	rank := map[string]int{tko.ConditionTrue: 1, tko.ConditionUnknown: 2, tko.ConditionFalse: 3}
	for i, d := range deployments {
		state := to.Deployments[d.ID]
		state.Healthy = said.Judge(spec, q, commits[i], now)
		if len(commits[i].Objects) == 0 {
			state.Healthy = report.Outcome{Status: tko.ConditionTrue, Reason: trigger.ReasonHealthy, Message: "it has no objects"}
		}
		to.Deployments[d.ID] = state
		if rank[state.Healthy.Status] > rank[worst.Status] {
			worst = state.Healthy
			worst.Message = printable.Prefixed(fmt.Sprintf("deployment %q", d.ID), worst.Message)
		}
	}
	to.Site.Healthy = worst
	if worst.Status == "" || worst.Status == tko.ConditionTrue {
		to.Site.Healthy = report.Outcome{Status: tko.ConditionTrue, Reason: trigger.ReasonHealthy, Message: fmt.Sprintf("all %d deployments are healthy", len(deployments))}
	}
	return said
}

func (t pulledTarget) ask(ctx context.Context, q puller.Question) puller.Report {
	if t.observer == nil {
		return puller.Report{Problem: "this meta-scheduler has no client of Kubernetes"}
	}
	said, err := t.observer.Observe(ctx, q)
	if err != nil {
		return puller.Report{Problem: err.Error()}
	}
	return said
}

const (
	pullSoon    = 2 * time.Second  // until the next reading after a change, at least
	pullWatched = 20 * time.Second // if changes are watched
)

// again returns the time until the next reading: a quarter of the time for which the health is
// what it is, so that a change is noticed early in a soak and a site at which nothing happens is
// read rarely. If all that is known is watched, only silence has to be noticed.
func (t pulledTarget) again(site tko.Site, deployments []tko.Deployment, r report.Report, said puller.Report, spec puller.Spec) time.Duration {
	least, most := pullSoon, t.interval
	if said.Watched {
		least = pullWatched
		if said.Elsewhere {
			most = max(most, said.Silence(spec))
		}
	}
	steady := func(s tko.Stamp, now report.Outcome) time.Duration {
		was := tko.FindCondition(s.Conditions, tko.ConditionHealthy)
		if was == nil || was.Status != now.Status || was.ObservedRevision != s.Revision {
			return 0
		}
		return time.Since(was.LastTransition)
	}
	age := steady(site.Stamp, r.Site.Healthy)
	for _, d := range deployments {
		age = min(age, steady(d.Stamp, r.Deployments[d.ID].Healthy))
	}
	return pause.About(min(max(least, age/4), most), 0.1)
}
