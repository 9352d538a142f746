package kubeapi

import (
	"context"
	"sort"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// The newest events that are kept for all watchers.
const (
	keptEvents = 512
	keptBytes  = 32 << 20 // of packages
)

// maxAhead is how far behind a watcher the kept events may end: beyond, they
// are forgotten rather than brought up.
const maxAhead = 1000

// An event is a change, encoded once for all watchers.
type event struct {
	catalog.Event

	views  map[view]func() (object, error) // what they return must not be changed
	before func(context.Context) (catalog.Record, error)
}

// A hub reads the changes of a kind for all of its watchers: whichever comes
// first reads them, and what it reads is there for the others. Those who are
// far behind read by themselves.
type hub struct {
	kind    *kind
	catalog Catalog
	turn    chan struct{} // holds one: whoever took it may use what follows

	events []*event // all after start, up to head
	bytes  int
	start  int64
	head   int64
}

func newHub(k *kind, c Catalog) *hub {
	h := &hub{kind: k, catalog: c, turn: make(chan struct{}, 1)}
	h.turn <- struct{}{}
	return h
}

// after answers events after a position, and up to which that is all. If there
// are none, wait is closed once there may be some.
func (h *hub) after(ctx context.Context, position int64) (events []*event, upTo int64, wait <-chan struct{}, err error) {
	select {
	case <-h.turn:
	case <-ctx.Done():
		return nil, 0, nil, ctx.Err()
	}
	events, upTo, wait, missed, err := h.look(ctx, position)
	h.turn <- struct{}{}
	if !missed || err != nil {
		return events, upTo, wait, err
	}
	return h.read(ctx, position)
}

func (h *hub) look(ctx context.Context, position int64) (events []*event, upTo int64, wait <-chan struct{}, missed bool, err error) {
	if position-h.head > maxAhead {
		h.events, h.bytes, h.start, h.head = nil, 0, position, position
	}
	if position < h.start {
		return nil, 0, nil, true, nil
	}
	for position >= h.head {
		before := h.head
		more, upTo, wait, err := h.read(ctx, h.head)
		if err != nil {
			return nil, 0, nil, false, err
		}
		h.add(more, upTo)
		if h.head == before { // that is all there is
			return nil, position, wait, false, nil
		}
	}
	first := sort.Search(len(h.events), func(i int) bool { return h.events[i].Position > position })
	return h.events[first:len(h.events):len(h.events)], h.head, closed, false, nil
}

// closed is what is not to be waited for.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// add keeps events. Those that others were given stay as they are.
func (h *hub) add(more []*event, upTo int64) {
	h.head = upTo
	h.events = append(h.events, more...)
	for _, e := range more {
		h.bytes += len(e.Record.Package)
	}
	drop := 0
	for drop < len(h.events) && (len(h.events)-drop > keptEvents || h.bytes > keptBytes) {
		h.bytes -= len(h.events[drop].Record.Package)
		h.start = h.events[drop].Position
		drop++
	}
	if drop > 0 {
		h.events = append([]*event(nil), h.events[drop:]...)
	}
}

// read reads events of the catalog.
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

func (h *hub) event(e catalog.Event) *event {
	at := e.Record
	at.Position = e.Position // a deletion's too
	own := &event{Event: e, views: map[view]func() (object, error){}}
	for _, v := range []view{{}, {whole: true}, {secrets: true}, {whole: true, secrets: true}} {
		shown := v
		shown.whole = v.whole && (at.Package != nil || at.Kind == tko.KindPlugin && at.Plugin != nil)
		own.views[v] = sync.OnceValues(func() (object, error) { return h.kind.object(at, shown) })
	}
	var mutex sync.Mutex
	var known *catalog.Record
	own.before = func(ctx context.Context) (catalog.Record, error) {
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
