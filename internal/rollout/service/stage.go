package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// Sites pull images before rollouts change deployments there. The catalog says which pulls begin
// and what their ends mean; they are recorded with the rows of the rollout, before a site begins.
// The meta-scheduler makes them at the site, under the claim of the site's work, and only
// reports: whatever is killed, a pull has the same key again.

// stages reports whether sites pull for a rollout, or remove pulls.
func stages(st record.RolloutState) bool {
	return st.Stages && (st.State == execute.Running || st.State == execute.Paused || st.State == execute.Cancelled && st.Settling)
}

// SiteStagings returns the pulls that rollouts want at a site now, and those that are to be
// removed there, each once, for the meta-scheduler. Nothing is recorded.
func (s *RolloutRunner) SiteStagings(ctx context.Context, id tko.SiteID) ([]tko.SiteStaging, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Schedule)
	if err != nil {
		return nil, err
	}
	ctx = rights.WithAllRights(ctx, c)
	states, _, _, err := s.store.RolloutStates(ctx)
	if err != nil {
		return nil, err
	}
	var all []tko.SiteStaging
	for _, st := range states {
		if !stages(st) {
			continue
		}
		err := s.withStaged(ctx, tko.RolloutID(st.ID), func(_ record.Record, v record.RolloutView, sp spec.Rollout) error {
			found, _ := pullsOf(v, sp, id)
			all = append(all, found...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// withStaged calls do with a rollout for which sites pull; not if it is none any more. Calls for
// a rollout are made one after the other.
func (s *RolloutRunner) withStaged(ctx context.Context, id tko.RolloutID, do func(record.Record, record.RolloutView, spec.Rollout) error) error {
	known := s.staged.of(string(id))
	unlock, err := known.lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r, v, err := s.viewKnown(ctx, id, known)
	defer func() { s.staged.trim(known, stages(v.State)) }()
	if errors.Is(err, tko.ErrNotFound) || err == nil && !stages(v.State) {
		return nil
	}
	if err != nil {
		return err
	}
	sp, err := s.specOf(ctx, r, v.State)
	if err != nil || sp.Stage == nil {
		return err
	}
	return do(r, v, sp)
}

// pullsOf returns the pulls that a rollout wants at a site, and those that are over, each once, and
// the indexes of the rows of the view that wait for one. A pull that another row wants isn't over.
func pullsOf(v record.RolloutView, sp spec.Rollout, site tko.SiteID) (all []tko.SiteStaging, waiting []int) {
	to := executionOf(v, sp)
	rows, index := executionRows(v)
	here, seen := rowsAt(v, rows, site), map[string]bool{}
	for _, over := range []bool{false, true} {
		of := to.PullOf
		if over {
			of = to.EndOf
		}
		for _, n := range here {
			pull, ok := of(rows[n])
			if !ok {
				continue
			}
			waiting = append(waiting, index[n])
			if seen[pull.Key] {
				continue
			}
			seen[pull.Key] = true
			all = append(all, tko.SiteStaging{
				Site: site, Rollout: tko.RolloutID(v.State.ID), Key: pull.Key, Images: pull.Images, Namespace: sp.Stage.Namespace, PullSecrets: sp.Stage.PullSecrets,
				EveryNode: sp.Stage.EveryNode, Until: pull.Until, Over: over,
			})
		}
	}
	return all, waiting
}

// rowsAt returns the indexes of the rows at a site. Each reconciliation of a site asks for them, so
// views of known rows have them.
func rowsAt(v record.RolloutView, rows []execute.Row, site tko.SiteID) (here []int) {
	if v.AtSite != nil {
		return v.AtSite[site]
	}
	for n := range rows {
		if rows[n].Site == site {
			here = append(here, n)
		}
	}
	return here
}

// ReportSiteStaging records how far a pull at a site is. One that nothing waits for any more
// changes nothing.
func (s *RolloutRunner) ReportSiteStaging(ctx context.Context, p tko.SiteStaging) error {
	ctx, c, err := s.rights.Enter(ctx, "", access.Schedule)
	if err != nil {
		return err
	}
	ctx = rights.WithAllRights(ctx, c)
	if p.State != tko.StagingPulling && p.State != tko.StagingPulled && p.State != tko.StagingFailed && p.State != tko.StagingEnded {
		return tko.Errorf(tko.ErrInvalid, "rollout %q: the state %.40q of a pull is unknown: use Pulling, Pulled, Failed or Ended", p.Rollout, p.State)
	}
	if err := record.CheckKey(record.RolloutKey(p.Rollout)); err != nil {
		return err
	}
	text := printable.Kept(p.Text, maxReason)
	return record.Retry(ctx, func() error {
		return s.withStaged(ctx, p.Rollout, func(r record.Record, v record.RolloutView, sp spec.Rollout) error {
			_, waiting := pullsOf(v, sp, p.Site)
			from, change := executionOf(v, sp), record.RolloutWrite{}
			for _, i := range waiting {
				if row, changes := from.Staged(executionRow(&v.Rows[i]), p.Key, p.State, text, v.Now); changes {
					change.Rows = append(change.Rows, rowWith(v.Rows[i], row))
				}
			}
			if len(change.Rows) == 0 {
				return nil
			}
			if p.State != tko.StagingPulling {
				change.Wake = []string{r.ID}
			}
			return s.saveRollout(ctx, r, v, v.State, change)
		})
	})
}

// stagingText returns how far the pull of the images of a row is, in words; "" if it pulls none.
func stagingText(r record.RolloutRow) string {
	if len(r.Images) == 0 {
		return ""
	}
	text := map[string]string{tko.StagingPulling: "being pulled", tko.StagingPulled: "pulled", tko.StagingFailed: "not pulled", tko.StagingEnding: "no longer to be pulled"}[r.Stage.State]
	images := "1 image"
	if n := len(r.Images); n != 1 {
		images = fmt.Sprintf("%d images", n)
	}
	if text == "" {
		return images + " to be pulled"
	}
	text = fmt.Sprintf("%s %s, since %s", images, text, r.Stage.Since.UTC().Format(time.RFC3339))
	if r.Stage.Text != "" {
		text += ": " + r.Stage.Text
	}
	return text
}
