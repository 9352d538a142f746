package grpcapi_test

import (
	"context"
	"errors"
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
)

// overTCP serves a backend on loopback, and returns what connects to it.
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

// endless is a backend that has changes without end, and counts those that were
// taken.
func endless(told *atomic.Int64) *fake {
	return &fake{watch: func(ctx context.Context, after int64, _ ...tko.Kind) iter.Seq2[tko.Change, error] {
		return func(yield func(tko.Change, error) bool) {
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

// quiet is a backend on which nothing ever happens. It tells of each watch that
// begins.
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

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * patience); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", 2*patience, what)
		}
	}
}

func TestWatcherThatNeverReadsLosesItsStreamAndGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	dial := overTCP(t, endless(&told), grpcapi.Options{SlowWatch: 300 * time.Millisecond, Limits: grpcapi.Limits{Client: 1}})
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
	// It ends while it reads nothing, and is held little for until it does.
	before := int64(-1)
	until(t, "no more is sent", func() bool {
		time.Sleep(time.Second)
		now := told.Load()
		same := now == before
		before = now
		return same
	})
	if n := told.Load(); n > 8000 { // 64 KiB on the client's side, and 32 KiB on ours
		t.Errorf("%d changes were taken for a watcher that reads none", n)
	}
	if err := another(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("another watch while the first one's changes are held: %v, want ResourceExhausted", err)
	}
	last := int64(5)
	for {
		m, err := watch.Recv()
		if err != nil {
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "watch again after the position "+strconv.FormatInt(last, 10)) {
				t.Errorf("after %d it ended with %v, want Unavailable and where to go on", last, err)
			}
			if !errors.Is(wire.Error(err), tko.ErrUnavailable) {
				t.Errorf("%v is no ErrUnavailable", err)
			}
			break
		}
		if last++; m.GetPosition() != last {
			t.Fatalf("the position %d came, want %d", m.GetPosition(), last)
		}
	}
	if after := watch.Trailer().Get("tko-watch-after"); len(after) != 1 || after[0] != strconv.FormatInt(last, 10) {
		t.Errorf("the trailer says %v, want %d", after, last)
	}
	var again tkopb.Data_WatchChangesClient
	until(t, "the watch can be resumed", func() bool {
		again, err = data.WatchChanges(t.Context(), &tkopb.WatchChanges{After: last})
		if err != nil {
			t.Fatal(err)
		}
		m, err := again.Recv()
		return err == nil && m.GetPosition() == last+1
	})
}

func TestWatcherThatReadsIsNotCutOff(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	dial := overTCP(t, endless(&told), grpcapi.Options{SlowWatch: time.Minute})
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
			t.Fatalf("%v came, want the position %d", m, position)
		}
	}
}

func TestStreamsAreLimited(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 100)
	dial := overTCP(t, quiet(begun), grpcapi.Options{Limits: grpcapi.Limits{Connection: 2, Client: 3, Total: -1}})
	first, second := dial(), dial()
	// opened says how a watch begins: it is refused at once, or goes on.
	opened := func(conn *grpc.ClientConn) (end context.CancelFunc, refused error) {
		ctx, cancel := context.WithCancel(t.Context())
		watch, err := tkopb.NewDataClient(conn).WatchChanges(ctx, &tkopb.WatchChanges{})
		if err != nil {
			t.Fatal(err)
		}
		came := make(chan error, 1)
		go func() {
			_, err := watch.Recv()
			came <- err
		}()
		select {
		case err := <-came:
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
		until(t, "a watch is let in", func() bool {
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
		came := make(chan error, 1)
		go func() {
			_, err := watch.Recv()
			came <- err
		}()
		select {
		case err := <-came:
			if n < 20 || status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "(--streams)") {
				t.Errorf("watch %d: %v, want 20 of them, then ResourceExhausted", n, err)
			}
		case <-begun:
			if n >= 20 {
				t.Errorf("watch %d is let in, where 20 are the limit", n)
			}
		}
	}
}
