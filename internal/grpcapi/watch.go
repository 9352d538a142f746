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

// DefaultSlowWatch is the default maximum time that a watcher may read nothing.
const DefaultSlowWatch = 30 * time.Second

// The limit of unread data of a watcher: enough to keep a connection busy, and
// little enough for thousands of watchers that don't read.
const (
	maxUnread   = 32 << 10 // bytes
	unreadBytes = 256      // approximate overhead of gRPC for each message
)

// A flow counts the messages that were sent to a watcher and not written to its
// connection yet, because the client doesn't read.
type flow struct {
	mutex   sync.Mutex
	bytes   int
	written chan struct{} // has a capacity of one: some was written
	drained func()        // called when all is written; nil during the watch
	slow    func(int)     // called when waiting begins (1) and ends (-1); may be nil
}

func newFlow() *flow { return &flow{written: make(chan struct{}, 1)} }

// Get and Put implement mem.BufferPool: gRPC returns buffers that it has
// written to the connection.
func (f *flow) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put accepts the buffer of a written message.
func (f *flow) Put(data *[]byte) {
	f.mutex.Lock()
	f.bytes -= len(*data) + unreadBytes
	drained := f.drained
	if f.bytes > 0 {
		drained = nil
	}
	f.mutex.Unlock()
	if drained != nil {
		drained()
	}
	select {
	case f.written <- struct{}{}:
	default:
	}
}

// add counts a message that is about to be sent.
func (f *flow) add(data []byte) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.bytes += len(data) + unreadBytes
}

func (f *flow) full() bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.bytes >= maxUnread
}

// wait waits until there is room. ok is false if nothing was written for the
// time slow.
func (f *flow) wait(ctx context.Context, slow time.Duration) (ok bool, err error) {
	if !f.full() {
		return true, nil
	}
	if f.slow != nil {
		f.slow(1)
		defer f.slow(-1)
	}
	timer := time.NewTimer(slow)
	defer timer.Stop()
	for f.full() {
		select {
		case <-f.written:
			timer.Reset(slow)
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}

// whenDrained calls fn once all messages are written.
func (f *flow) whenDrained(fn func()) {
	f.mutex.Lock()
	f.drained = fn
	empty := f.bytes <= 0
	f.mutex.Unlock()
	if empty {
		fn()
	}
}

// changes caches the encoding of each change for all watchers, most of which
// send the same changes at the same time.
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

// watchAfterKey is the key of the trailer with the position after which to
// watch again.
const watchAfterKey = "tko-watch-after"

func (d *data) WatchChanges(m *tkopb.WatchChanges, s grpc.ServerStreamingServer[tkopb.Change]) error {
	kinds, err := wire.Kinds(m.GetKinds())
	if err != nil {
		return err
	}
	ctx, stop := d.untilStopping(s.Context())
	defer stop()
	// gRPC doesn't return compressed buffers, and changes are small.
	if err := grpc.SetSendCompressor(s.Context(), encoding.Identity); err != nil {
		return err
	}
	d.observer.Watching(1)
	defer d.observer.Watching(-1)
	flow := newFlow()
	flow.slow = d.observer.Slow
	defer retainUntilDrained(s.Context(), flow)
	message := wire.Encoded{Pool: flow}
	last := m.GetAfter()
	if newest := int(m.GetNewest()); newest > 0 {
		if last, err = d.backend.BeforeNewest(ctx, newest); err != nil {
			return err
		}
	}
	for change, err := range d.backend.Watch(ctx, last, kinds...) {
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
			d.observer.Dropped()
			s.SetTrailer(metadata.Pairs(watchAfterKey, strconv.FormatInt(last, 10)))
			return tko.Errorf(wire.ErrUnavailable, "the client read no change for %s, so the server closed the watch (--slow-watch): watch again after the position %d", d.slowWatch, last)
		}
		flow.add(message.Data)
		if err := s.SendMsg(&message); err != nil {
			return err
		}
		last = change.Position
	}
	return stopped(ctx, ctx.Err())
}

// retainUntilDrained retains the slot of a watch that ends until its client has
// read all messages: until then they use memory.
func retainUntilDrained(ctx context.Context, f *flow) {
	s := slotOf(ctx)
	if s == nil {
		return
	}
	s.retain()
	f.whenDrained(s.drop)
	if !s.ends() {
		s.drop()
	}
}
