package kubeapi

import (
	"context"
	"errors"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/changelog"
	"github.com/tko-orchestrator/tko/internal/crowd"
	"github.com/tko-orchestrator/tko/internal/record"
)

// The limits of the cached events.
const (
	maxEvents = 512
	maxBytes  = 32 << 20 // of packages
)

// An event is a change, encoded once for all watchers.
type event struct {
	changelog.Event

	views  map[view]func() (object, error) // the returned objects are shared: don't change them
	before func(context.Context) (record.Record, error)
}

// A hub caches the changes of one kind for all its watchers. The first watcher
// that needs a change reads it, and the others get it from the cache. A watcher
// that is behind the cached events reads from the catalog itself.
type hub struct {
	kind    *kind
	catalog Catalog
	lock    chan struct{} // holds one element if unlocked; guards the fields below it

	// watchers wait for changes. pending counts the signals that they have waited for: the
	// crowd must not wait for an older one than the newest.
	watchers crowd.Crowd
	pending  atomic.Int64
	signal   <-chan struct{} // the newest one

	events []*event // all changes after start, up to head
	bytes  int
	start  int64
	head   int64
}

func newHub(k *kind, c Catalog) *hub {
	h := &hub{kind: k, catalog: c, lock: make(chan struct{}, 1)}
	h.lock <- struct{}{}
	return h
}

// A signal tells watchers that there may be changes.
type signal struct {
	closed <-chan struct{} // once there may be some
	number int64           // of the hub's signals
}

// after returns the events after a position, and the position up to which they
// are complete. If there are none, the caller may wait for more with join.
func (h *hub) after(ctx context.Context, position int64) (events []*event, upTo int64, more signal, err error) {
	select {
	case <-h.lock:
	case <-ctx.Done():
		return nil, 0, more, ctx.Err()
	}
	events, upTo, wait, missed, err := h.cached(ctx, position)
	if wait != h.signal && wait != closed && !missed && err == nil {
		h.signal = wait
		h.pending.Add(1)
	}
	more = signal{wait, h.pending.Load()}
	h.lock <- struct{}{}
	if !missed || err != nil {
		return events, upTo, more, err
	}
	events, upTo, _, err = h.read(ctx, position)
	return events, upTo, signal{closed: closed}, err // from upTo on, the cache has the changes
}

// join adds a watcher to those that wait for a signal. ok is false if there may be changes
// already.
func (h *hub) join(s signal) (w *crowd.Waiter, ok bool) {
	w = h.watchers.Join(s.closed)
	if s.number != h.pending.Load() {
		w.Leave()
		return nil, false
	}
	return w, true
}

// cached is after with the lock held. missed reports that the cache begins after
// the position.
func (h *hub) cached(ctx context.Context, position int64) (events []*event, upTo int64, wait <-chan struct{}, missed bool, err error) {
	if h.head == 0 { // nothing was read yet
		h.restart(position)
	}
	if position < h.start {
		return nil, 0, nil, true, nil
	}
	for position >= h.head {
		before := h.head
		more, upTo, wait, err := h.read(ctx, h.head)
		if err != nil && (!errors.Is(err, tko.ErrGone) || position <= h.head) {
			return nil, 0, nil, false, err
		}
		if err == nil {
			h.add(more, upTo)
		}
		switch {
		case position > h.head: // there was no watcher for a while: don't read all that was missed
			h.restart(position)
		case h.head == before: // there are no more
			return nil, position, wait, false, nil
		}
	}
	first := sort.Search(len(h.events), func(i int) bool { return h.events[i].Position > position })
	return h.events[first:len(h.events):len(h.events)], h.head, closed, false, nil
}

// restart empties the cache, which goes on after a position.
func (h *hub) restart(position int64) {
	h.events, h.bytes, h.start, h.head = nil, 0, position, position
}

// closed is a channel that is always ready.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// add adds events to the cache and drops the oldest beyond the limits. It does
// not modify slices that were returned earlier.
func (h *hub) add(more []*event, upTo int64) {
	h.head = upTo
	h.events = append(h.events, more...)
	for _, e := range more {
		h.bytes += len(e.Record.Package)
	}
	drop := 0
	for drop < len(h.events) && (len(h.events)-drop > maxEvents || h.bytes > maxBytes) {
		h.bytes -= len(h.events[drop].Record.Package)
		h.start = h.events[drop].Position
		drop++
	}
	if drop > 0 {
		h.events = append([]*event(nil), h.events[drop:]...)
	}
}

// read returns events from the catalog.
func (h *hub) read(ctx context.Context, position int64) ([]*event, int64, <-chan struct{}, error) {
	list, upTo, wait, err := h.catalog.Events(ctx, h.kind.kind, position)
	if err != nil {
		return nil, 0, nil, err
	}
	events := make([]*event, len(list))
	for i, e := range list {
		events[i] = h.event(e)
	}
	return events, upTo, wait, nil
}

func (h *hub) event(e changelog.Event) *event {
	at := e.Record
	at.Position = e.Position // also for a deletion
	own := &event{Event: e, views: map[view]func() (object, error){}}
	for _, v := range []view{{}, {whole: true}, {secrets: true}, {whole: true, secrets: true}} {
		shown := v
		shown.whole = v.whole && (at.Package != nil || at.Kind == tko.KindPlugin && at.Plugin != nil)
		own.views[v] = sync.OnceValues(func() (object, error) { return h.kind.object(at, shown) })
	}
	var mutex sync.Mutex
	var known *record.Record
	own.before = func(ctx context.Context) (record.Record, error) {
		mutex.Lock()
		defer mutex.Unlock()
		if known == nil {
			r, err := h.catalog.Before(ctx, e)
			if err != nil {
				return r, err
			}
			known = &r
		}
		return *known, nil
	}
	return own
}
