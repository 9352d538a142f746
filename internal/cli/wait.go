package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
)

// A waitFlag has a command wait until a deployment is prepared.
type waitFlag struct {
	wait    bool
	timeout time.Duration
}

func (w *waitFlag) flags(f *pflag.FlagSet) {
	f.BoolVar(&w.wait, "wait", false, "wait until the deployment and all its descendants are prepared")
	f.DurationVar(&w.timeout, "wait-timeout", 5*time.Minute, "`time` to wait at most (0: no limit)")
}

const (
	waitPoll  = 2 * time.Second       // the longest time between two polls
	waitPause = 20 * time.Millisecond // the shortest pause between two polls
	waitCost  = 5                     // the pause is this many times the duration of a poll, at least
	waitShow  = 10                    // unprepared deployments that are shown
)

var errWaitTimeout = errors.New("timed out waiting")

// waitPrepared waits until a deployment and all its descendants are prepared, and
// shows the progress. After the timeout, the error reports why some are not.
func waitPrepared(ctx context.Context, s *session, id tko.DeploymentID, timeout time.Duration) error {
	ctx, cancel := withWaitTimeout(ctx, timeout)
	defer cancel()
	changed, stopWatching := s.changesOf(ctx, tko.KindDeployment, "")
	defer stopWatching()
	w := waiter{session: s, done: map[tko.DeploymentID]int{}, shown: map[string]bool{}}
	defer w.clear()
	for {
		began := time.Now()
		seen, err := w.poll(ctx, id)
		took := time.Since(began)
		timedOut := errors.Is(context.Cause(ctx), errWaitTimeout)
		switch {
		case err == nil && len(seen.pending) == 0:
			w.clear()
			s.app.notice("prepared %s", count(seen.total, "deployment", "deployments"))
			return nil
		case timedOut:
			return w.late(id, timeout)
		case err != nil:
			return err
		}
		w.show(seen)
		w.pending = seen.pending
		if err := w.pause(ctx, changed, max(waitPause, waitCost*took)); err != nil {
			return w.orLate(err, id, timeout)
		}
	}
}

// withWaitTimeout returns a context that ends with errWaitTimeout after a time; 0: never.
func withWaitTimeout(ctx context.Context, timeout time.Duration) (_ context.Context, cancel func()) {
	ctx, cancelCause := context.WithCancelCause(ctx)
	if timeout <= 0 {
		return ctx, func() { cancelCause(nil) }
	}
	timer := time.AfterFunc(timeout, func() { cancelCause(errWaitTimeout) })
	return ctx, func() {
		timer.Stop()
		cancelCause(nil)
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

// A waiter follows the preparation of a deployment and its descendants.
type waiter struct {
	*session
	done    map[tko.DeploymentID]int // sizes of subtrees that are all prepared, by their root
	pending []tko.Deployment         // at the last poll
	shown   map[string]bool
	last    string
}

// progress counts the deployments of a tree.
type progress struct {
	total, prepared int
	pending         []tko.Deployment
}

// poll reads the tree of a deployment.
func (w *waiter) poll(ctx context.Context, id tko.DeploymentID) (progress, error) {
	var seen progress
	root, err := call(ctx, w.session, func(ctx context.Context) (tko.Deployment, error) { return w.Deployment(ctx, id, 0) })
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
	children := func(ctx context.Context) iter.Seq2[tko.Deployment, error] {
		return w.Deployments(ctx, tko.DeploymentSelect{Parent: d.ID}, tko.ListOptions{})
	}
	var found []tko.Deployment
	err := each(ctx, w.session, children, func(child tko.Deployment) error {
		found = append(found, child)
		return nil
	})
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

// show prints the problems of deployments, each once, and the progress: on a terminal as a
// bar that is drawn in place.
func (w *waiter) show(seen progress) {
	line := fmt.Sprintf("prepared %d of %s", seen.prepared, count(seen.total, "deployment", "deployments"))
	if line != w.last && !w.app.progress {
		w.app.notice("%s", line)
	}
	for _, d := range seen.pending {
		if text := trouble(d.ID, d.Stamp.Conditions); text != "" && !w.shown[text] && len(w.shown) < waitShow {
			w.shown[text] = true
			w.clear()
			w.app.notice("%s", text)
		}
	}
	if line != w.last && w.app.progress && !w.app.globals.quiet {
		wave := tko.RolloutWave{Rows: seen.total, Progress: map[string]int{"Healthy": seen.prepared}}
		fmt.Fprintf(w.app.streams.Err, "\r%s %s\x1b[K", bar(wave), line)
	}
	w.last = line
}

// clear removes the bar; the next show draws it again.
func (w *waiter) clear() {
	if w.last != "" && w.app.progress && !w.app.globals.quiet {
		fmt.Fprint(w.app.streams.Err, "\r\x1b[K")
		w.last = ""
	}
}

// trouble returns the message of a deployment's Prepared condition that isn't true; "" if
// there is none.
func trouble[ID ~string](id ID, conditions []tko.Condition) string {
	if c := tko.FindCondition(conditions, tko.ConditionPrepared); c != nil && c.Status != tko.ConditionTrue && (c.Reason != "" || c.Message != "") {
		return fmt.Sprintf("deployment %q is not prepared: %s", id, strings.Trim(c.Reason+": "+c.Text(), ": "))
	}
	return ""
}

// pause waits at least for a time, so that concurrent changes need one poll, and
// then for a change or the next poll.
func (w *waiter) pause(ctx context.Context, changed <-chan struct{}, least time.Duration) error {
	poll, rest := time.NewTimer(least+waitPoll), time.NewTimer(least)
	defer poll.Stop()
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-rest.C:
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
	case <-poll.C:
	}
	return nil
}

func (w *waiter) orLate(err error, id tko.DeploymentID, timeout time.Duration) error {
	if errors.Is(err, errWaitTimeout) {
		return w.late(id, timeout)
	}
	return err
}

// late returns the error after the timeout: the deployments that aren't prepared,
// and why.
func (w *waiter) late(id tko.DeploymentID, timeout time.Duration) error {
	var reasons []string
	for i, d := range w.pending {
		if i == waitShow {
			reasons = append(reasons, fmt.Sprintf("and %d more", len(w.pending)-i))
			break
		}
		text := trouble(d.ID, d.Stamp.Conditions)
		if text == "" {
			text = fmt.Sprintf("deployment %q is not prepared yet", d.ID)
		}
		reasons = append(reasons, text)
	}
	if len(reasons) == 0 {
		reasons = []string{"the server has not reported a reason yet"}
	}
	return &hintedError{
		err:  fmt.Errorf("deployment %q was created, but is not completely prepared after %v: %s", id, timeout, strings.Join(reasons, "; ")),
		hint: "preparation continues once the reason is resolved: see tko deployment list --prepared=false -o wide",
	}
}
