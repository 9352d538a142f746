package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/pause"
)

func rowWatch(watchers int) string {
	return fmt.Sprintf("change feed: write to watcher, %d watchers", watchers)
}

const rowResume = "change feed: resume after missed changes"

const (
	watchersPerConnection = 100
	maxWatchedWrites      = 50
	watchedPause          = 100 * time.Millisecond
)

// position returns the newest position of the server's change feed.
func (r *run) position(ctx context.Context) (int64, error) {
	about, err := r.client.About(ctx)
	if err == nil && about.Position == 0 {
		err = &notMeasuredError{"the server has no change feed"}
	}
	return about.Position, err
}

// watch measures the time from the start of a write until each of many watchers has
// received it.
func (r *run) watch(ctx context.Context) (err error) {
	position, err := r.position(ctx)
	if err != nil {
		return err
	}
	writes, own := min(r.Samples, maxWatchedWrites), r.scope("watched")
	defer func() { err = errors.Join(err, own.purge(ctx)) }()
	w := &watchers{began: map[string]time.Time{}, failed: make(chan error, 1)}
	watching, stop := context.WithCancel(ctx)
	defer w.wait.Wait()
	defer stop()
	w.ready.Add(r.Watchers)
	w.arrived.Add(r.Watchers * writes)
	for from := 0; from < r.Watchers; from += watchersPerConnection {
		c, err := client.Dial(client.Options{Address: r.Address})
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		for range min(watchersPerConnection, r.Watchers-from) {
			w.wait.Go(func() { w.watch(watching, c, position-1) })
		}
	}
	if err := w.until(ctx, &w.ready); err != nil {
		return err
	}
	for i := range writes {
		id := own.site(i)
		w.lock.Lock()
		w.began[string(id)] = time.Now()
		w.lock.Unlock()
		if _, err := r.client.RegisterSite(ctx, tko.Site{ID: id}); err != nil {
			return err
		}
		if err := pause.For(ctx, watchedPause); err != nil {
			return err
		}
	}
	if err := w.until(ctx, &w.arrived); err != nil {
		return err
	}
	stop()
	w.wait.Wait()
	r.add(latency(rowWatch(r.Watchers), w.times.took, 250*time.Millisecond))
	return nil
}

// watchers are independent watchers of the change feed.
type watchers struct {
	lock           sync.RWMutex
	began          map[string]time.Time // start times of writes, by ID
	times          stopwatch
	ready, arrived sync.WaitGroup
	wait           sync.WaitGroup
	failed         chan error
}

// watch watches from a position on. The change after that position exists, and shows that
// the watch has begun.
func (w *watchers) watch(ctx context.Context, c *client.Client, after int64) {
	var begun sync.Once
	seen := map[string]bool{} // other clients may write the same ID
	for change, err := range c.Watch(ctx, after) {
		if err != nil {
			if ctx.Err() == nil {
				select {
				case w.failed <- err:
				default:
				}
			}
			return
		}
		begun.Do(w.ready.Done)
		w.lock.RLock()
		began, ok := w.began[change.ID]
		w.lock.RUnlock()
		if ok && !seen[change.ID] {
			seen[change.ID] = true
			w.times.add(time.Since(began))
			w.arrived.Done()
		}
	}
}

// until waits for a group, or for the first failure of a watcher.
func (w *watchers) until(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case err := <-w.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Minute):
		return errors.New("not all watchers have received the last write within a minute")
	}
}

// resume measures how long a watch takes to receive the changes of the last positions that it missed.
func (r *run) resume(ctx context.Context) error {
	position, err := r.position(ctx)
	if err != nil {
		return err
	}
	after := max(0, position-int64(r.Missed))
	began, n, last := time.Now(), 0, after // positions ascend, and may leave gaps
	for change, err := range r.client.Watch(ctx, after) {
		if errors.Is(err, tko.ErrGone) {
			return &notMeasuredError{fmt.Sprintf("the server does not retain the newest %d changes", r.Missed)}
		}
		if err != nil {
			return err
		}
		if change.Position <= last {
			return fmt.Errorf("the change at position %d follows the one at %d", change.Position, last)
		}
		n, last = n+1, change.Position
		if last >= position {
			break
		}
	}
	if last < position {
		return fmt.Errorf("the feed ended at position %d of %d", last, position)
	}
	took := time.Since(began)
	r.add(Row{
		What: rowResume, Value: float64(n) / took.Seconds(), Unit: PerSecond,
		Note: fmt.Sprintf("%d changes in %s, in order, without a relist", n, short(took)),
	})
	return nil
}
