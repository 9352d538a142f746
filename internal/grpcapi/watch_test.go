package grpcapi_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// overTCP serves a backend on loopback, and returns a function that connects to
// it.
func overTCP(t *testing.T, backend grpcapi.Backend, o grpcapi.Options) (dial func() *grpc.ClientConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpcapi.NewServer(backend, o)
	done := make(chan error, 1)
	go func() { done <- server.Serve(grpcapi.Listen(l)) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return func() *grpc.ClientConn {
		t.Helper()
		conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

// endless is a backend with an endless stream of changes. It counts the changes
// that were read, and the streams that have ended.
func endless(told, ended *atomic.Int64) *fake {
	return &fake{watch: func(ctx context.Context, after int64, _ ...tko.Kind) iter.Seq2[tko.Change, error] {
		return func(yield func(tko.Change, error) bool) {
			defer ended.Add(1)
			for ctx.Err() == nil {
				after++
				told.Add(1)
				c := tko.Change{Position: after, Kind: tko.KindSite, ID: "site/" + strconv.FormatInt(after, 10), Op: tko.OpWritten, Revision: 1}
				if !yield(c, nil) {
					return
				}
			}
			yield(tko.Change{}, ctx.Err())
		}
	}}
}

// quiet is a backend without changes. It reports the beginning of each watch.
func quiet(begun chan<- struct{}) *fake {
	return &fake{
		watch: func(ctx context.Context, _ int64, _ ...tko.Kind) iter.Seq2[tko.Change, error] {
			return func(yield func(tko.Change, error) bool) {
				begun <- struct{}{}
				<-ctx.Done()
				yield(tko.Change{}, ctx.Err())
			}
		},
		claim: func(ctx context.Context, c tko.ClaimWork) ([]tko.WorkItem, error) {
			if c.Wait == 0 {
				return nil, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
}

func TestWatchThatIsNeverReadIsClosedAndCanBeResumed(t *testing.T) {
	t.Parallel()
	var told, ended atomic.Int64
	dial := overTCP(t, endless(&told, &ended), grpcapi.Options{SlowWatch: 300 * time.Millisecond, Limits: grpcapi.Limits{Client: 1}})
	data := tkopb.NewDataClient(dial())
	watch, err := data.WatchChanges(t.Context(), &tkopb.WatchChanges{After: 5})
	if err != nil {
		t.Fatal(err)
	}
	another := func() error {
		second, err := data.WatchChanges(t.Context(), &tkopb.WatchChanges{})
		if err == nil {
			_, err = second.Recv()
		}
		return err
	}
	// The server closes the watch while the client reads nothing. Until the client
	// reads, the server holds few changes for it.
	eventually.True(t, "the server has closed the watch", func() bool { return ended.Load() == 1 })
	if n := told.Load(); n > 8000 { // 64 KiB on the client's side, and 32 KiB on the server's
		t.Errorf("%d changes were read for a watcher that reads none, want at most 8000", n)
	}
	if err := another(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("another watch while the server holds the first one's changes: %v, want ResourceExhausted", err)
	}
	last := int64(5)
	for {
		m, err := watch.Recv()
		if err != nil {
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "watch again after the position "+strconv.FormatInt(last, 10)) {
				t.Errorf("after %d the watch ended with %v, want Unavailable and the position to resume from", last, err)
			}
			if !errors.Is(wire.Error(err), tko.ErrUnavailable) {
				t.Errorf("the error of the watch is %v, want ErrUnavailable", err)
			}
			break
		}
		last++
		if m.GetPosition() != last {
			t.Fatalf("received the position %d, want %d", m.GetPosition(), last)
		}
	}
	if after := watch.Trailer().Get("tko-watch-after"); len(after) != 1 || after[0] != strconv.FormatInt(last, 10) {
		t.Errorf("the trailer is %v, want %d", after, last)
	}
	var again tkopb.Data_WatchChangesClient
	eventually.True(t, "the watch can be resumed", func() bool {
		again, err = data.WatchChanges(t.Context(), &tkopb.WatchChanges{After: last})
		if err != nil {
			t.Fatal(err)
		}
		m, err := again.Recv()
		return err == nil && m.GetPosition() == last+1
	})
}

func TestWatchThatIsReadStaysOpen(t *testing.T) {
	t.Parallel()
	var told, ended atomic.Int64
	dial := overTCP(t, endless(&told, &ended), grpcapi.Options{SlowWatch: time.Minute})
	watch, err := tkopb.NewDataClient(dial()).WatchChanges(t.Context(), &tkopb.WatchChanges{}, grpc.UseCompressor("gzip"))
	if err != nil {
		t.Fatal(err)
	}
	for position := int64(1); position <= 20_000; position++ {
		m, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetPosition() != position || m.GetId() != "site/"+strconv.FormatInt(position, 10) {
			t.Fatalf("received %v, want the position %d", m, position)
		}
	}
}

func TestStreamsAreLimited(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 100)
	dial := overTCP(t, quiet(begun), grpcapi.Options{Limits: grpcapi.Limits{Connection: 2, Client: 3, Total: -1}})
	first, second := dial(), dial()
	// opened begins a watch, and returns whether the server refuses it or serves it.
	opened := func(conn *grpc.ClientConn) (end context.CancelFunc, refused error) {
		ctx, cancel := context.WithCancel(t.Context())
		watch, err := tkopb.NewDataClient(conn).WatchChanges(ctx, &tkopb.WatchChanges{})
		if err != nil {
			t.Fatal(err)
		}
		received := make(chan error, 1)
		go func() {
			_, err := watch.Recv()
			received <- err
		}()
		select {
		case err := <-received:
			cancel()
			return nil, err
		case <-begun:
			return cancel, nil
		}
	}
	wantRefused := func(conn *grpc.ClientConn, flag string) {
		t.Helper()
		if _, err := opened(conn); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), flag) {
			t.Errorf("%v, want ResourceExhausted and %s", err, flag)
		}
	}
	wantOpened := func(conn *grpc.ClientConn) context.CancelFunc {
		t.Helper()
		var end context.CancelFunc
		eventually.True(t, "the server accepts a watch", func() bool {
			var err error
			end, err = opened(conn)
			return err == nil
		})
		return end
	}
	end := wantOpened(first)
	wantOpened(first)
	wantRefused(first, "--streams-per-connection")
	wantOpened(second)
	wantRefused(second, "--streams-per-client")
	wait := &tkopb.ClaimWork{Queue: "prepare", MaxItems: 1, Lease: durationpb.New(time.Second), Wait: durationpb.New(time.Hour)}
	if _, err := tkopb.NewDataClient(second).ClaimWork(t.Context(), wait); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a wait for work: %v, want ResourceExhausted", err)
	}
	wait.Wait = nil
	if _, err := tkopb.NewDataClient(second).ClaimWork(t.Context(), wait); err != nil {
		t.Errorf("work without a wait is not limited: %v", err)
	}
	end()
	end = wantOpened(second) // once the first has ended
	wantRefused(second, "--streams-per-connection")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	wantOpened(dial()) // once a connection has ended
	end()
}

func TestStreamsAreLimitedInTotal(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 100)
	dial := overTCP(t, quiet(begun), grpcapi.Options{Limits: grpcapi.Limits{Connection: -1, Client: -1, Total: 20}})
	for n := range 25 {
		watch, err := tkopb.NewDataClient(dial()).WatchChanges(t.Context(), &tkopb.WatchChanges{})
		if err != nil {
			t.Fatal(err)
		}
		received := make(chan error, 1)
		go func() {
			_, err := watch.Recv()
			received <- err
		}()
		select {
		case err := <-received:
			if n < 20 || status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "(--streams)") {
				t.Errorf("watch %d: %v, want 20 of them, then ResourceExhausted", n, err)
			}
		case <-begun:
			if n >= 20 {
				t.Errorf("watch %d is accepted, want the limit 20", n)
			}
		}
	}
}

// Positions are no counts: the backend says where the newest changes begin, and a position that a client computed is for servers of earlier
// versions.
func TestWatchBeginsWithTheNewestChanges(t *testing.T) {
	t.Parallel()
	for want, m := range map[int64]*tkopb.WatchChanges{9_700: {After: 4, Newest: 3}, 4: {After: 4}} {
		from := make(chan int64, 1)
		f := &fake{watch: func(_ context.Context, after int64, _ ...tko.Kind) iter.Seq2[tko.Change, error] {
			from <- after
			return func(func(tko.Change, error) bool) {}
		}}
		conn, _ := serve(t, f, grpcapi.Options{})
		watch, err := tkopb.NewDataClient(conn).WatchChanges(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if got := <-from; got != want {
			t.Errorf("%v begins after %d, want %d", m, got, want)
		}
	}
}
