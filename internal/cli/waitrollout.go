package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	rolloutPoll = 300 * time.Millisecond
	// rolloutQuiet is the time without progress after which the wait for a rollout shows
	// what its deployments wait for, again and again.
	rolloutQuiet = 15 * time.Second
)

// waitRollout waits until a rollout is done, and shows the progress. A rollout that stops
// before, or that makes no progress for the timeout, is an error, which says what it waits for.
func waitRollout(ctx context.Context, s *session, id tko.RolloutID, timeout time.Duration) error {
	within, moved, cancel := patient(ctx, timeout, errWaitTimeout)
	defer cancel()
	w := rolloutWaiter{progressLine: newProgressLine(s), moved: time.Now()}
	defer w.clear()
	for {
		status, err := s.status(within, id)
		if err == nil {
			w.status = status
			switch status.State {
			case "Done":
				if status.Failures > 0 {
					return fmt.Errorf("rollout %q: %s: see tko rollout status %s", id, count(status.Failures, "deployment failed", "deployments failed"), id)
				}
				return nil
			case "Paused", "Undone", "Undoing", "Cancelled":
				return fmt.Errorf("rollout %q is %s: %s", id, status.State, status.Reason)
			}
			if w.hasMoved() {
				moved()
			}
			err = w.show(within)
		}
		if err == nil {
			err = pause.For(within, rolloutPoll)
		}
		switch {
		case err == nil:
		case errors.Is(context.Cause(within), errWaitTimeout):
			return w.late(ctx, id, timeout)
		default:
			return fmt.Errorf("rollout %q is %s: %w", id, w.status.State, err)
		}
	}
}

// A rolloutWaiter follows a rollout.
type rolloutWaiter struct {
	progressLine
	status tko.RolloutStatus
	moved  time.Time // when the progress changed, or what holds it up was shown
	before []tko.RolloutWave
}

// hasMoved reports whether the rollout has made progress since the last call.
func (w *rolloutWaiter) hasMoved() bool {
	same := slices.EqualFunc(w.before, w.status.Waves, func(a, b tko.RolloutWave) bool {
		return a.Approval == b.Approval && maps.Equal(a.Progress, b.Progress)
	})
	w.before = w.status.Waves
	return !same
}

// show shows the progress: on a terminal as a bar that is drawn in place. If there was none
// for some time, it shows what the deployments wait for, each reason once.
func (w *rolloutWaiter) show(ctx context.Context) error {
	all := tko.RolloutWave{Progress: map[string]int{}}
	for _, wave := range w.status.Waves {
		all.Rows += wave.Rows
		for progress, n := range wave.Progress {
			all.Progress[progress] += n
		}
	}
	left := all.Progress["Waiting"] + all.Progress["Applied"] + all.Progress["Soaking"] + all.Progress["Stale"]
	line := fmt.Sprintf("rollout %s: %d of %s settled, %d in progress", w.status.ID, all.Rows-left, count(all.Rows, "deployment", "deployments"), all.Progress["Applied"]+all.Progress["Soaking"])
	quiet := time.Since(w.moved) >= rolloutQuiet
	if quiet {
		reasons, err := w.reasons(ctx)
		if err != nil {
			return err
		}
		for _, text := range reasons {
			w.report(text)
		}
	}
	switch {
	case line == w.last && !quiet:
		return nil
	case w.isBar():
		w.draw(all, line)
	case line != w.last || len(w.shown) < waitShow:
		w.app.notice("%s", line)
	}
	w.last, w.moved = line, time.Now()
	return nil
}

// maxHeldUp is the maximum number of deployments that are read for their reasons.
const maxHeldUp = 3

// reasons returns what the rollout waits for: what keeps deployments from being changed,
// and what the first ones that were changed lack.
func (w *rolloutWaiter) reasons(ctx context.Context) ([]string, error) {
	all := append([]string{}, w.status.Blocks...)
	var ids []tko.DeploymentID
	for row, err := range w.RolloutRows(ctx, tko.RolloutRows{ID: w.status.ID, Progress: []string{"Applied"}, Limit: maxHeldUp}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, row.Deployment)
	}
	for _, id := range ids {
		d, err := w.deployment(ctx, id, 0)
		switch {
		case errors.Is(err, tko.ErrNotFound): // it was deleted, and is to be removed from its site
			all = append(all, fmt.Sprintf("deployment %q was deleted, and its site has not reported its removal yet: check that a server with the role meta-scheduler runs", id))
		case err != nil:
			return nil, err
		default:
			if text := heldUp(d); text != "" {
				all = append(all, text)
			}
		}
	}
	return all, nil
}

// heldUp returns what a deployment lacks to be healthy, and the remedy; "" if it lacks
// nothing.
func heldUp(d tko.Deployment) string {
	scheduled, healthy := tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled), tko.FindCondition(d.Stamp.Conditions, tko.ConditionHealthy)
	isOf := func(c *tko.Condition) bool { return c != nil && c.ObservedRevision >= d.Stamp.Revision }
	says := func(what string, c *tko.Condition) string {
		return fmt.Sprintf("deployment %q %s: %s", d.ID, what, strings.Trim(c.Reason+": "+c.Text(), ": "))
	}
	switch {
	case !d.Prepared:
		if text := trouble(d.ID, d.Stamp.Conditions); text != "" {
			return text
		}
		return fmt.Sprintf("deployment %q is not prepared yet: check that a server with the role preparer runs", d.ID)
	case !d.Approved:
		return fmt.Sprintf("deployment %q is not approved: tko deployment approve %s", d.ID, d.ID)
	case d.Site == "":
		return ""
	case !isOf(scheduled):
		return fmt.Sprintf("deployment %q is not scheduled at site %q yet: check that a server with the role meta-scheduler runs, and see tko site get %s", d.ID, d.Site, d.Site)
	case scheduled.Status != tko.ConditionTrue:
		return says(fmt.Sprintf("is not scheduled at site %q", d.Site), scheduled)
	case healthy != nil && !isOf(healthy):
		return fmt.Sprintf("deployment %q: site %q has not reported its health yet: see tko site get %s", d.ID, d.Site, d.Site)
	case healthy != nil && healthy.Status != tko.ConditionTrue:
		return says(fmt.Sprintf("is not healthy at site %q", d.Site), healthy)
	}
	return ""
}

// late returns the error after the timeout.
func (w *rolloutWaiter) late(ctx context.Context, id tko.RolloutID, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, waitPoll)
	defer cancel()
	reasons, err := w.reasons(ctx)
	if err != nil || len(reasons) == 0 {
		reasons = append(reasons, "the server has not reported a reason")
	}
	return &hintedError{
		err:  fmt.Errorf("rollout %q is %s, and not done after %v without progress: %s", id, w.status.State, timeout, reasonsText(reasons)),
		hint: "it continues: see tko rollout status " + string(id),
	}
}
