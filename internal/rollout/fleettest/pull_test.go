package fleettest

import (
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// A pull is what a site does for a key: once for all that ask for it.
type pull struct {
	begun, takes time.Duration // of real time
	ends         string        // the state that the site reports; "": none
}

// stage makes some rollouts stage. Its choices are from a stream of their own.
func (w *world) stage(x *rolled) {
	if w.p.IntN(100) >= 40 {
		return
	}
	s := &spec.Stage{Within: time.Duration(1+w.p.IntN(3)) * time.Minute, Concurrent: 1 + w.p.IntN(4), OnFailure: spec.StageWait}
	if w.p.IntN(3) == 0 {
		s.OnFailure = spec.StageGo
	}
	if w.p.IntN(2) == 0 {
		s.Per = []spec.Per{{Key: "tac", Max: 1 + w.p.IntN(2)}}
	}
	if len(x.state.Spec.Windows) > 0 && w.p.IntN(2) == 0 {
		s.Before = time.Duration(1+w.p.IntN(3)) * time.Hour
	}
	x.state.Spec.Stage = s
	for i := range x.rows {
		if x.rows[i].Kind != plan.Delete && w.p.IntN(5) > 0 {
			x.rows[i].Images = []string{"nf:2"}
		}
	}
}

// pull lets the sites pull, and report.
func (w *world) pull() {
	for _, x := range w.rollouts {
		for i, row := range x.rows {
			wanted, ok := x.state.PullOf(row)
			if !ok {
				continue
			}
			key := x.state.ID + " " + wanted.Key
			p, known := w.pulls[key]
			if !known {
				p = pull{begun: w.real, takes: time.Duration(w.p.IntN(90)) * time.Second, ends: tko.StagingPulled}
				switch n := w.p.IntN(100); {
				case w.calm:
				case n < 15:
					p.ends = tko.StagingFailed
				case n < 30:
					p.ends = "" // the site is silent
				}
				w.pulls[key] = p
			}
			if p.ends == "" || w.real-p.begun < p.takes {
				continue
			}
			to, changes := x.state.Staged(row, wanted.Key, p.ends, "as the site says", w.now)
			if !changes {
				continue
			}
			x.rows[i], x.has[row.Deployment] = to, p.ends == tko.StagingPulled
			if p.ends == tko.StagingPulled {
				w.stats.Pulled++
			}
		}
	}
}

// checkPulls checks the pulls that an evaluation began, and their limits.
func (w *world) checkPulls(x *rolled, out execute.Output) error {
	s := x.state.Spec.Stage
	for _, i := range out.Pull {
		if out.Rows[i].Ends() { // the site is woken to end it
			continue
		}
		row := out.Rows[i]
		x.tac[row.Deployment] = w.sites[row.Site].metadata["tac"]
		until, isFrozen := w.frozen[row.Site]
		switch {
		case s == nil:
			return fmt.Errorf("%s pulls for %s, and doesn't stage", x.state.ID, row.Deployment)
		case out.Rollout.State == execute.Cancelled || out.Rollout.State == execute.Paused && !out.Changed:
			return fmt.Errorf("%s pulls for %s while it is %s", x.state.ID, row.Deployment, out.Rollout.State)
		case isFrozen && w.now.Before(until):
			return fmt.Errorf("%s pulls for %s at %s, which is frozen", x.state.ID, row.Deployment, row.Site)
		case x.state.Spec.Waves[row.Wave].Approval && x.state.Approvals[row.Wave].Plan != x.state.Plan:
			return fmt.Errorf("%s pulls for %s of wave %d without approval", x.state.ID, row.Deployment, row.Wave)
		}
		if windows := x.state.Spec.Windows; len(windows) > 0 && !x.state.AnyTime {
			clock := time.Duration(w.now.Hour())*time.Hour + time.Duration(w.now.Minute())*time.Minute + time.Duration(w.now.Second())*time.Second
			from := windows[0].From - s.Before
			if clock < windows[0].To && clock >= from || clock >= from+24*time.Hour {
				continue
			}
			return fmt.Errorf("%s pulls for %s at %s, earlier than %s before its window", x.state.ID, row.Deployment, w.now, s.Before)
		}
	}
	if s == nil {
		return nil
	}
	pulling, per := 0, map[string]int{}
	for _, row := range x.rows {
		if _, ok := x.state.PullOf(row); ok {
			pulling++
			per[x.tac[row.Deployment]]++
		}
	}
	if pulling > s.Concurrent {
		return fmt.Errorf("%s: %d pull at once, more than %d", x.state.ID, pulling, s.Concurrent)
	}
	for _, p := range s.Per {
		for value, n := range per {
			if n > p.Max {
				return fmt.Errorf("%s: %d pull at once at sites with tac %q, more than %d", x.state.ID, n, value, p.Max)
			}
		}
	}
	return nil
}

// checkStaged checks that a row that is about to be applied has its images at its site.
func (w *world) checkStaged(x *rolled, row execute.Row) error {
	s := x.state.Spec.Stage
	if s == nil || len(row.Images) == 0 || x.has[row.Deployment] {
		return nil
	}
	if s.OnFailure == spec.StageGo && row.Stage.State == tko.StagingFailed {
		w.stats.Unpulled++
		return nil
	}
	return fmt.Errorf("%s applies %s, whose images are not at %s", x.state.ID, row.Deployment, row.Site)
}
