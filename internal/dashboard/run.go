package dashboard

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// Options are the settings of [Run].
type Options struct {
	In       io.Reader
	Out      io.Writer
	Every    time.Duration  // between two redraws because of changes
	Timeout  time.Duration  // of a request; 0 for none
	Location *time.Location // of times
	Color    bool
	ASCII    bool // no characters beyond ASCII for states
	Mouse    bool
	Now      func() time.Time
}

// eventsBefore is the number of changes that are shown at the start.
const eventsBefore = 200

// maxFeed is the number of changes that are held between two redraws. If there are
// more, what is visible is read again.
const maxFeed = 1000

// Run shows the dashboard until the user quits or the context ends. It fails at once
// if the server can't be reached.
func Run(ctx context.Context, s Server, o Options) error {
	about, err := limited(ctx, o.Timeout, s.About)
	if err != nil {
		return err
	}
	me, err := limited(ctx, o.Timeout, s.WhoAmI)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	m := newModel(s, o, about, me)
	m.tick = everySecond
	m.do = func(work func(ctx context.Context) tea.Msg) tea.Cmd {
		return func() tea.Msg {
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			return work(ctx)
		}
	}
	program := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler())
	f := &feed{position: about.Position, live: true}
	running.Go(func() { f.follow(ctx, s, about.Position) })
	running.Go(func() { f.forward(ctx, o.Every, program.Send) })
	_, err = program.Run()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) {
		return ctx.Err()
	}
	return err
}

// limited makes a call within a time limit.
func limited[T any](ctx context.Context, limit time.Duration, call func(ctx context.Context) (T, error)) (T, error) {
	if limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, limit)
		defer stop()
	}
	return call(ctx)
}

// A feed holds the changes since the last redraw.
type feed struct {
	mutex    sync.Mutex
	changes  []tko.Change
	lost     bool // some changes are missing
	fresh    bool // there is something to forward
	position int64
	live     bool
	err      error
}

// A feedMsg has the changes since the last one.
type feedMsg struct {
	changes  []tko.Change
	lost     bool
	position int64
	live     bool
	err      error
}

func (f *feed) add(c tko.Change) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.fresh, f.live, f.err, f.position = true, true, nil, c.Position
	if len(f.changes) == maxFeed {
		f.changes, f.lost = f.changes[1:], true
	}
	f.changes = append(f.changes, c)
}

func (f *feed) set(live, lost bool, position int64, err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.fresh, f.live, f.lost, f.err, f.position = true, live, f.lost || lost, err, position
}

// follow watches changes until the context ends, and begins again after failures.
func (f *feed) follow(ctx context.Context, s Server, position int64) {
	after, delay := position, time.Duration(0)
	changes := s.WatchNewest(ctx, position, eventsBefore)
	for ctx.Err() == nil {
		for c, err := range changes {
			if err != nil {
				f.fail(ctx, s, &after, err)
				break
			}
			after, delay = c.Position, 0
			f.add(c)
		}
		delay = min(max(2*delay, time.Second), 30*time.Second)
		_ = pause.For(ctx, pause.Between(delay/2, delay))
		if about, err := s.About(ctx); err == nil { // a watch without changes says nothing
			f.set(true, false, max(after, about.Position), nil)
		}
		changes = s.Watch(ctx, after)
	}
}

// fail notes why the watch has ended, and where it goes on.
func (f *feed) fail(ctx context.Context, s Server, after *int64, err error) {
	lost := errors.Is(err, tko.ErrGone)
	if lost {
		about, aboutErr := s.About(ctx)
		if aboutErr == nil {
			*after, err = about.Position, nil
		}
	}
	f.set(err == nil, lost, *after, err)
}

// forward sends what has changed, at most once in the given time.
func (f *feed) forward(ctx context.Context, every time.Duration, send func(tea.Msg)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		f.mutex.Lock()
		message, fresh := feedMsg{f.changes, f.lost, f.position, f.live, f.err}, f.fresh
		f.changes, f.lost, f.fresh = nil, false, false
		f.mutex.Unlock()
		if fresh {
			send(message)
		}
	}
}
