package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/krm"
)

// A stager is a target that can pull images at the place that a trigger names, before
// deployments need them.
type stager interface {
	// Stage begins a pull, or looks how far it is, and returns it with its state. What is over at
	// the place is removed there; of a pull that isn't wanted any more (Over), all is, and the state
	// is Ended then. A call repeats nothing that another one began. An error is one of the call, and
	// says nothing of the pull.
	Stage(ctx context.Context, of krm.Resource, p tko.SiteStaging) (tko.SiteStaging, error)
}

// stagePause is the time between two looks at a pull that is going on.
const stagePause = 5 * time.Second

// stage makes the pulls that rollouts want at a site, and reports how far they are. It returns the
// time after which to look again; 0 if nothing is being pulled. A pull doesn't disturb the rest of
// the reconciliation: what is wrong with it is reported to its rollout.
func (s *Scheduler) stage(ctx context.Context, seen snapshot, p plan) (again time.Duration, err error) {
	if p.keep { // the store was restored from a backup: its rollouts may be of the past
		return 0, nil
	}
	wanted, err := s.client.SiteStagings(ctx, seen.site.ID)
	if err != nil {
		return 0, fmt.Errorf("asking for the images to pull at site %q: %w", seen.site.ID, err)
	}
	for _, one := range wanted {
		done, err := s.pull(ctx, seen, p, one)
		switch {
		case err == nil && one.Over && done.State != tko.StagingEnded, err != nil && one.Over && ctx.Err() == nil:
			again = pause.About(stagePause, 0.1) // its deadline ends it in any case
			continue
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case fence.Is(err): // nothing more begins there; the rollout knows of the stop
			return pause.About(stagePause, 0.1), nil
		case err != nil:
			done.State, done.Text = tko.StagingPulling, err.Error()
		}
		if done.State == tko.StagingPulling {
			again = pause.About(stagePause, 0.1)
		}
		if err := s.client.ReportSiteStaging(ctx, done); err != nil {
			return 0, fmt.Errorf("reporting the pull of images at site %q for rollout %q: %w", seen.site.ID, one.Rollout, err)
		}
	}
	return again, nil
}

// pull makes one pull at all clusters of a site.
func (s *Scheduler) pull(ctx context.Context, seen snapshot, p plan, wanted tko.SiteStaging) (tko.SiteStaging, error) {
	all := wanted
	for _, step := range p.steps {
		target, ok := step.target.(stager)
		if !ok || step.place.GVK != place.Kubernetes.GVK {
			continue
		}
		one, err := target.Stage(ctx, step.trigger, wanted)
		if err != nil {
			return wanted, err
		}
		switch { // the worst of all clusters
		case one.State == tko.StagingFailed, all.State == "", all.State == tko.StagingPulled, all.State == tko.StagingEnded:
			all = one
		}
		if all.State == tko.StagingFailed {
			return all, nil
		}
	}
	if all.State == "" && wanted.Over { // the site has no cluster any more
		all.State = tko.StagingEnded
	}
	if all.State == "" {
		why := place.HindersStaging(seen.site.Package)
		if why == "" {
			why = "this meta-scheduler has no client of Kubernetes"
		}
		all.State, all.Text = tko.StagingFailed, fmt.Sprintf("nothing can be pulled at site %q, because %s: plan what is left again, or create a rollout without spec.stage", seen.site.ID, why)
	}
	return all, nil
}
