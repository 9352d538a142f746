package grpcapi

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// DefaultSlowWatch is how long a watcher may take nothing of what it was sent.
const DefaultSlowWatch = 30 * time.Second

// What a watcher is sent before it has taken what came before: enough to keep a
// connection busy, and little enough for thousands of watchers that take
// nothing.
const (
	maxUntaken   = 32 << 10 // bytes
	untakenBytes = 256      // what gRPC needs for each message, roughly
)

// A flow is what a watcher was sent and its connection has not taken yet,
// because the client doesn't read.
type flow struct {
	mutex sync.Mutex
	bytes int
	taken chan struct{} // holds one: some was taken
	drawn func()        // called once all is taken; nil while the watch goes on
}

func newFlow() *flow { return &flow{taken: make(chan struct{}, 1)} }

// Get and Put implement mem.BufferPool: gRPC puts back what it has written to
// the connection.
func (f *flow) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put takes back a message.
func (f *flow) Put(data *[]byte) {
	f.mutex.Lock()
	f.bytes -= len(*data) + untakenBytes
	drawn := f.drawn
	if f.bytes > 0 {
		drawn = nil
	}
	f.mutex.Unlock()
	if drawn != nil {
		drawn()
	}
	select {
	case f.taken <- struct{}{}:
	default:
	}
}

// add counts a message that is about to be sent.
func (f *flow) add(data []byte) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.bytes += len(data) + untakenBytes
}

func (f *flow) full() bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.bytes >= maxUntaken
}

// wait waits until there is room. It returns false if nothing was taken for as
// long as slow says.
func (f *flow) wait(ctx context.Context, slow time.Duration) (ok bool, err error) {
	if !f.full() {
		return true, nil
	}
	timer := time.NewTimer(slow)
	defer timer.Stop()
	for f.full() {
		select {
		case <-f.taken:
			timer.Reset(slow)
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}

// whenDrawn calls fn once all that was sent is taken.
func (f *flow) whenDrawn(fn func()) {
	f.mutex.Lock()
	f.drawn = fn
	empty := f.bytes <= 0
	f.mutex.Unlock()
	if empty {
		fn()
	}
}

// changes encodes each change once for all watchers, who mostly want the same
// ones at the same time.
type changes [1024]atomic.Pointer[encodedChange]

type encodedChange struct {
	change tko.Change
	data   []byte
}

func (c *changes) encode(change tko.Change) ([]byte, error) {
	slot := &c[uint64(change.Position)%uint64(len(c))] //nolint:gosec // any number will do
	if e := slot.Load(); e != nil && e.change == change {
		return e.data, nil
	}
	data, err := wire.Encode(wire.NewChange(change))
	if err == nil {
		slot.Store(&encodedChange{change, data})
	}
	return data, err
}

// watchAfterKey is the key of the trailer that says where a watch can be
// resumed.
const watchAfterKey = "tko-watch-after"

func (d *data) WatchChanges(m *tkopb.WatchChanges, s grpc.ServerStreamingServer[tkopb.Change]) error {
	kinds, err := wire.Kinds(m.GetKinds())
	if err != nil {
		return err
	}
	ctx, stop := d.untilStopping(s.Context())
	defer stop()
	// What is compressed is not given back, and changes are small.
	if err := grpc.SetSendCompressor(s.Context(), encoding.Identity); err != nil {
		return err
	}
	flow := newFlow()
	defer keepUntilDrawn(s.Context(), flow)
	message := wire.Encoded{Taken: flow}
	last := m.GetAfter()
	for change, err := range d.backend.Watch(ctx, m.GetAfter(), kinds...) {
		if err != nil {
			return stopped(ctx, err)
		}
		if message.Data, err = d.changes.encode(change); err != nil {
			return err
		}
		ok, err := flow.wait(ctx, d.slowWatch)
		if err != nil {
			return stopped(ctx, err)
		}
		if !ok {
			s.SetTrailer(metadata.Pairs(watchAfterKey, strconv.FormatInt(last, 10)))
			return tko.Errorf(wire.ErrUnavailable, "the client took no change for %s, so the watch was ended (--slow-watch): watch again after the position %d", d.slowWatch, last)
		}
		flow.add(message.Data)
		if err := s.SendMsg(&message); err != nil {
			return err
		}
		last = change.Position
	}
	return stopped(ctx, ctx.Err())
}

// keepUntilDrawn keeps the slot of a watch that ends until its client has taken
// all that it was sent: until then it costs memory.
func keepUntilDrawn(ctx context.Context, f *flow) {
	s := slotOf(ctx)
	if s == nil {
		return
	}
	s.keep()
	f.whenDrawn(s.drop)
	if !s.ends() {
		s.drop()
	}
}
