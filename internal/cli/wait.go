package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// A waitFlag has a command wait until what it has begun is done.
type waitFlag struct {
	wait    bool
	timeout time.Duration
}

func (w *waitFlag) flags(f *pflag.FlagSet, usage string) {
	f.BoolVar(&w.wait, "wait", false, usage)
	f.DurationVar(&w.timeout, "wait-timeout", 5*time.Minute, "`time` to wait at most without progress (0: no limit)")
}

const (
	waitPoll  = 2 * time.Second       // the longest time between two polls
	waitPause = 20 * time.Millisecond // the shortest pause between two polls
	waitCost  = 5                     // the pause is this many times the duration of a poll, at least
	waitShow  = 10                    // unprepared deployments that are shown
)

var errWaitTimeout = errors.New("timed out waiting")

// waitPrepared waits until a deployment and all its descendants are prepared, and
// shows the progress. After the timeout without progress, the error reports why some are not.
func waitPrepared(ctx context.Context, s *session, id tko.DeploymentID, timeout time.Duration) error {
	ctx, moved, cancel := patient(ctx, timeout, errWaitTimeout)
	defer cancel()
	changed, stopWatching := s.changesOf(ctx, tko.KindDeployment, "")
	defer stopWatching()
	w := waiter{progressLine: newProgressLine(s), done: map[tko.DeploymentID]int{}}
	defer w.clear()
	for {
		began := time.Now()
		seen, err := w.poll(ctx, id)
		took := time.Since(began)
		switch {
		case err == nil && len(seen.pending) == 0:
			w.clear()
			s.app.notice("prepared %s", count(seen.total, "deployment", "deployments"))
			return nil
		case errors.Is(context.Cause(ctx), errWaitTimeout):
			return w.late(id, timeout)
		case err != nil:
			return err
		}
		if w.show(seen) {
			moved()
		}
		w.pending = seen.pending
		if err := untilChanged(ctx, changed, max(waitPause, waitCost*took)); err != nil && !errors.Is(err, errWaitTimeout) {
			return err
		}
	}
}

// changesOf signals changes of a kind of entities, or of one, until stop is called. Without
// the change feed it signals none: callers poll in addition.
func (s *session) changesOf(ctx context.Context, kind tko.Kind, id string) (_ <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		for change, err := range s.Watch(ctx, -1, kind) {
			if err != nil {
				return
			}
			if id != "" && change.ID != id {
				continue
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	return changed, func() {
		cancel()
		watching.Wait()
	}
}

// untilChanged waits at least for a time, so that concurrent changes need one poll, and
// then for a change or the next poll.
func untilChanged(ctx context.Context, changed <-chan struct{}, least time.Duration) error {
	if err := pause.For(ctx, least); err != nil {
		return err
	}
	poll := time.NewTimer(waitPoll)
	defer poll.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
	case <-poll.C:
	}
	return nil
}

// A progressLine shows the progress of a wait, on a terminal as a bar that is drawn in place,
// and what holds it up, each reason once.
type progressLine struct {
	*session
	last  string // that was shown
	shown map[string]bool
}

func newProgressLine(s *session) progressLine {
	return progressLine{session: s, shown: map[string]bool{}}
}

// isBar reports whether the progress is a bar.
func (p *progressLine) isBar() bool { return p.app.progress && !p.app.globals.quiet }

func (p *progressLine) draw(w tko.RolloutWave, line string) {
	fmt.Fprintf(p.app.streams.Err, "\r%s %s\x1b[K", bar(w), line)
}

// clear removes the bar; the next one is drawn again.
func (p *progressLine) clear() {
	if p.last != "" && p.isBar() {
		fmt.Fprint(p.app.streams.Err, "\r\x1b[K")
		p.last = ""
	}
}

// report shows a reason, unless it was shown or is "".
func (p *progressLine) report(reason string) {
	if reason != "" && !p.shown[reason] && len(p.shown) < waitShow {
		p.shown[reason] = true
		p.clear()
		p.app.notice("%s", reason)
	}
}

// reasonsText joins reasons, and states how many are left out.
func reasonsText(reasons []string) string {
	if more := len(reasons) - waitShow; more > 0 {
		reasons = append(slices.Clip(reasons[:waitShow]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(reasons, "; ")
}

// A waiter follows the preparation of a deployment and its descendants.
type waiter struct {
	progressLine
	done    map[tko.DeploymentID]int // sizes of subtrees that are all prepared, by their root
	pending []tko.Deployment         // at the last poll
	before  preparedCount            // at the last poll
}

// A preparedCount counts the deployments of a tree.
type preparedCount struct{ total, prepared int }

// progress is how far the deployments of a tree are.
type progress struct {
	preparedCount
	pending []tko.Deployment
}

// poll reads the tree of a deployment.
func (w *waiter) poll(ctx context.Context, id tko.DeploymentID) (progress, error) {
	var seen progress
	root, err := w.deployment(ctx, id, 0)
	if err == nil {
		err = w.visit(ctx, root, &seen)
	}
	return seen, err
}

// visit counts a deployment and its descendants. A deployment has all its children
// once it is prepared, so until then they aren't read.
func (w *waiter) visit(ctx context.Context, d tko.Deployment, seen *progress) error {
	if n, ok := w.done[d.ID]; ok {
		seen.total += n
		seen.prepared += n
		return nil
	}
	seen.total++
	if !d.Prepared {
		seen.pending = append(seen.pending, d)
		return nil
	}
	seen.prepared++
	total, pending := seen.total, len(seen.pending)
	var found []tko.Deployment
	err := w.eachDeployment(ctx, tko.DeploymentSelect{Parent: d.ID}, tko.ListOptions{}, func(child tko.Deployment) { found = append(found, child) })
	if err != nil {
		return err
	}
	for _, child := range found {
		if err := w.visit(ctx, child, seen); err != nil {
			return err
		}
	}
	if len(seen.pending) == pending {
		w.done[d.ID] = seen.total - total + 1
	}
	return nil
}

// show prints the problems of deployments, each once, and the progress. It reports whether
// there was some.
func (w *waiter) show(seen progress) (moved bool) {
	line := fmt.Sprintf("prepared %d of %s", seen.prepared, count(seen.total, "deployment", "deployments"))
	if line != w.last && !w.app.progress {
		w.app.notice("%s", line)
	}
	for _, d := range seen.pending {
		w.report(trouble(d.ID, d.Stamp.Conditions))
	}
	if line != w.last && w.isBar() {
		w.draw(tko.RolloutWave{Rows: seen.total, Progress: map[string]int{"Healthy": seen.prepared}}, line)
	}
	moved = w.before != seen.preparedCount
	w.last, w.before = line, seen.preparedCount
	return moved
}

// trouble returns the message of a deployment's Prepared condition that isn't true; "" if
// there is none.
func trouble[ID ~string](id ID, conditions []tko.Condition) string {
	if c := tko.FindCondition(conditions, tko.ConditionPrepared); c != nil && c.Status != tko.ConditionTrue && (c.Reason != "" || c.Message != "") {
		return fmt.Sprintf("deployment %q is not prepared: %s", id, strings.Trim(c.Reason+": "+c.Text(), ": "))
	}
	return ""
}

// late returns the error after the timeout: the deployments that aren't prepared,
// and why.
func (w *waiter) late(id tko.DeploymentID, timeout time.Duration) error {
	var reasons []string
	for _, d := range w.pending {
		reasons = append(reasons, cmp.Or(trouble(d.ID, d.Stamp.Conditions), fmt.Sprintf("deployment %q is not prepared yet", d.ID)))
	}
	if len(reasons) == 0 {
		reasons = []string{"the server has not reported a reason yet"}
	}
	return &hintedError{
		err:  fmt.Errorf("deployment %q was created, but is not completely prepared after %v without progress: %s", id, timeout, reasonsText(reasons)),
		hint: "preparation continues once the reason is resolved: see tko deployment list --prepared=false -o wide",
	}
}
