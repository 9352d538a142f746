package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/work"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	compareLimit       = 2 * time.Minute // of one comparison
	compareConcurrency = 4               // comparisons at the same time
)

// A comparer is a target that can compare a site with its desired state.
type comparer interface {
	// Compare returns what Schedule would change with the same arguments, and the orphans
	// at the target. It changes nothing. The changes have no values of Secrets; their
	// targets are empty.
	Compare(ctx context.Context, of krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Differences, error)
}

// comparisons returns the loop of the requests to compare sites.
func (s *Scheduler) comparisons() *work.Loop {
	return &work.Loop{
		Client: s.client, Queue: tko.QueueCompare, Worker: s.options.Worker,
		Concurrency: compareConcurrency, Lease: s.options.Lease, Log: s.options.Log, Observer: s.options.Observer,
		Do: func(ctx context.Context, item tko.WorkItem) work.Result {
			ctx, cancel := context.WithTimeout(ctx, compareLimit)
			defer cancel()
			return s.compare(ctx, item)
		},
	}
}

// compare compares a site with its desired state, and saves the result.
func (s *Scheduler) compare(ctx context.Context, item tko.WorkItem) work.Result {
	id := tko.SiteID(item.Key)
	seen, err := s.observe(ctx, id)
	if errors.Is(err, tko.ErrNotFound) {
		return work.Result{Outcome: tko.WorkDone}
	}
	if err != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
	text, err := encodeComparison(s.differences(ctx, seen))
	if err != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), compareLimit) // also what a time-out left
	defer cancel()
	if _, err := s.client.SaveTargetState(saving, tko.TargetState{Site: id, Name: tko.ComparisonState, State: text}, item); err != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: fmt.Errorf("saving the comparison of site %q: %w", id, err)}
	}
	return work.Result{Outcome: tko.WorkDone}
}

// differences asks the targets of a site for the differences.
func (s *Scheduler) differences(ctx context.Context, seen snapshot) tko.SiteComparison {
	p := decide(seen, s.targets)
	c := tko.SiteComparison{Site: seen.site.ID, Time: time.Now().UTC().Truncate(time.Millisecond)}
	switch {
	case p.isDelivered():
		c.Problems = append(c.Problems, "the agent of the site applies its deployments from bundles: what is there can't be compared here")
	case len(p.steps) == 0:
		c.Problems = append(c.Problems, "no resource of the site's package names a place where its deployments are applied: add one, such as a git.plugin.nephio.org/v1alpha1 Repository")
	}
	for _, step := range p.steps {
		target, ok := step.target.(comparer)
		if !ok {
			c.Problems = append(c.Problems, fmt.Sprintf("%s: what is there can't be compared; the conditions Scheduled and Healthy of the site report what is known", step))
			continue
		}
		all := slices.Concat(p.deployments, p.suspended)
		contest := step.contestOf(all, nil)
		if len(contest.conflict) > 0 {
			former, err := s.recall(ctx, seen.site.ID)
			if err != nil {
				c.Problems = append(c.Problems, printable.Prefixed(step.String(), err.Error()))
				continue
			}
			contest = step.contestOf(all, former.Shared[step.String()])
		}
		apply, held := contest.withhold(p.deployments)
		found, err := target.Compare(ctx, step.trigger, seen.site, apply, slices.Concat(p.held, held))
		if err != nil {
			c.Problems = append(c.Problems, printable.Prefixed(step.String(), err.Error()))
		}
		for _, id := range held {
			found.Changes = append(found.Changes, tko.SiteChange{Verb: tko.SiteBlocked, Object: "all objects", Deployment: id, Details: []string{contest.outcome(id).Message}})
		}
		c.Changes = append(c.Changes, at(step, found.Changes)...)
		c.Orphans = append(c.Orphans, at(step, found.Orphans)...)
		for _, text := range found.Unsearched {
			c.Unsearched = append(c.Unsearched, printable.Prefixed(step.String(), text))
		}
	}
	return c
}

// at sets the target of changes.
func at(s step, changes []tko.SiteChange) []tko.SiteChange {
	for i := range changes {
		changes[i].Target = s.String()
	}
	return changes
}

// encodeComparison encodes a comparison. It leaves out the last changes, orphans and
// problems if there are too many.
func encodeComparison(c tko.SiteComparison) ([]byte, error) {
	changes, orphans := len(c.Changes)+c.More, len(c.Orphans)+c.MoreOrphans
	c.Changes, c.Orphans = first(c.Changes, tko.MaxSiteChanges), first(c.Orphans, tko.MaxSiteChanges)
	c.Problems, c.Unsearched = first(c.Problems, tko.MaxSiteChanges), first(c.Unsearched, tko.MaxSiteChanges)
	for {
		c.More, c.MoreOrphans = changes-len(c.Changes), orphans-len(c.Orphans)
		text, err := json.Marshal(c)
		if err != nil || len(text) <= tko.MaxComparison {
			return text, err
		}
		switch {
		case len(c.Orphans) > len(c.Changes):
			c.Orphans = c.Orphans[:len(c.Orphans)/2]
		case len(c.Changes) > 0:
			c.Changes = c.Changes[:len(c.Changes)/2]
		case len(c.Unsearched) > 0:
			c.Unsearched = c.Unsearched[:len(c.Unsearched)/2]
		case len(c.Problems) > 0:
			c.Problems = c.Problems[:len(c.Problems)/2]
		default:
			return nil, fmt.Errorf("the comparison of site %q has %d bytes", c.Site, len(text))
		}
	}
}

func first[T any](all []T, most int) []T { return all[:min(len(all), most)] }
