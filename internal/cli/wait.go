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

// A waitFlag says whether to wait until a deployment is prepared.
type waitFlag struct {
	wait    bool
	timeout time.Duration
}

func (w *waitFlag) flags(f *pflag.FlagSet) {
	f.BoolVar(&w.wait, "wait", false, "wait until it and all its descendants are prepared")
	f.DurationVar(&w.timeout, "wait-timeout", 5*time.Minute, "wait at most for this `time` (0: no limit)")
}

const (
	waitLook = 2 * time.Second       // look at least this often
	waitRest = 20 * time.Millisecond // and not more often than this
	waitCost = 5                     // and rest this many times as long as a look took
	waitShow = 10                    // of the deployments that are not prepared
)

var errWaitTimeout = errors.New("the wait is over")

// waitPrepared waits until a deployment is prepared, and all its descendants,
// and shows how far it is. When the time is over the error says what is wrong
// with those that aren't.
func waitPrepared(ctx context.Context, s *session, id tko.DeploymentID, timeout time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if timeout > 0 {
		timer := time.AfterFunc(timeout, func() { cancel(errWaitTimeout) })
		defer timer.Stop()
	}
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	watchCtx, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	watching.Go(func() {
		// Without the feed it still looks every now and then.
		for _, err := range s.Watch(watchCtx, -1, tko.KindDeployment) {
			if err != nil {
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	w := waiter{session: s, done: map[tko.DeploymentID]int{}, shown: map[string]bool{}}
	for {
		began := time.Now()
		seen, err := w.look(ctx, id)
		took := time.Since(began)
		timedOut := errors.Is(context.Cause(ctx), errWaitTimeout)
		switch {
		case err == nil && len(seen.pending) == 0:
			s.app.notice("prepared %s", count(seen.total, "deployment", "deployments"))
			return nil
		case timedOut:
			return w.late(id, timeout)
		case err != nil:
			return err
		}
		w.show(seen)
		w.pending = seen.pending
		if err := w.rest(ctx, changed, max(waitRest, waitCost*took)); err != nil {
			return w.orLate(err, id, timeout)
		}
	}
}

// A waiter follows the preparation of a deployment and its descendants.
type waiter struct {
	*session
	done    map[tko.DeploymentID]int // those whose descendants are all prepared, with the number of them and itself
	pending []tko.Deployment         // seen last
	shown   map[string]bool
	last    string
}

// A sight is how far preparation is.
type sight struct {
	total, prepared int
	pending         []tko.Deployment
}

func (w *waiter) look(ctx context.Context, id tko.DeploymentID) (sight, error) {
	var seen sight
	root, err := call(ctx, w.session, func(ctx context.Context) (tko.Deployment, error) { return w.Deployment(ctx, id, 0) })
	if err == nil {
		err = w.visit(ctx, root, &seen)
	}
	return seen, err
}

// visit adds a deployment and its descendants. A deployment has all its
// children once it is prepared, so until then they aren't looked at.
func (w *waiter) visit(ctx context.Context, d tko.Deployment, seen *sight) error {
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

// show tells how far it is, and what is in the way, where that is new.
func (w *waiter) show(seen sight) {
	if line := fmt.Sprintf("prepared %d of %s", seen.prepared, count(seen.total, "deployment", "deployments")); line != w.last {
		w.app.notice("%s", line)
		w.last = line
	}
	for _, d := range seen.pending {
		if text := trouble(d); text != "" && !w.shown[text] && len(w.shown) < waitShow {
			w.shown[text] = true
			w.app.notice("%s", text)
		}
	}
}

// trouble is what the conditions of a deployment say against its preparation.
func trouble(d tko.Deployment) string {
	for _, c := range d.Stamp.Conditions {
		if c.Type == tko.ConditionPrepared && c.Status != tko.ConditionTrue && (c.Reason != "" || c.Message != "") {
			return fmt.Sprintf("deployment %q is not prepared: %s", d.ID, strings.Trim(c.Reason+": "+c.Text(), ": "))
		}
	}
	return ""
}

// rest waits for a while, so that many changes are one, and then for a change.
func (w *waiter) rest(ctx context.Context, changed <-chan struct{}, pause time.Duration) error {
	look, rest := time.NewTimer(pause+waitLook), time.NewTimer(pause)
	defer look.Stop()
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
	case <-look.C:
	}
	return nil
}

func (w *waiter) orLate(err error, id tko.DeploymentID, timeout time.Duration) error {
	if errors.Is(err, errWaitTimeout) {
		return w.late(id, timeout)
	}
	return err
}

// late names the deployments that aren't prepared, and why.
func (w *waiter) late(id tko.DeploymentID, timeout time.Duration) error {
	var reasons []string
	for i, d := range w.pending {
		if i == waitShow {
			reasons = append(reasons, fmt.Sprintf("and %d more", len(w.pending)-i))
			break
		}
		text := trouble(d)
		if text == "" {
			text = fmt.Sprintf("deployment %q is not prepared yet", d.ID)
		}
		reasons = append(reasons, text)
	}
	if len(reasons) == 0 {
		reasons = []string{"the server has not said yet what is missing"}
	}
	return &hintedError{
		err:  fmt.Errorf("deployment %q was created, but is not all prepared after %v: %s", id, timeout, strings.Join(reasons, "; ")),
		hint: "it goes on by itself once the reason is gone: see tko deployment list --prepared=false -o wide",
	}
}
