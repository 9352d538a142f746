package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// connectParams reconnect quickly: calls of controllers are on the critical
// path of a rollout, and there are few such clients.
var connectParams = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

func isUnavailable(err error) bool { return errors.Is(err, ErrUnavailable) }

// A method is a unary method of the generated client.
type method[M, A any] func(ctx context.Context, m M, calls ...grpc.CallOption) (A, error)

// call makes a call. If the server becomes unavailable, the client waits for it, and the
// method may be called again, it calls again.
func call[M, A any](ctx context.Context, c *Client, method method[M, A], m M) (A, error) {
	return callFor(ctx, c, c.options.Timeout, method, m)
}

// callFor is call with a timeout of each attempt.
func callFor[M, A any](ctx context.Context, c *Client, timeout time.Duration, method method[M, A], m M) (A, error) {
	var name string
	named := context.WithValue(ctx, nameKey{}, &name)
	for attempt := 0; ; attempt++ {
		response, err := callOnce(named, c, timeout, method, m)
		if err == nil || !callableAgain[name] || !c.again(ctx, err, attempt) {
			return response, err
		}
	}
}

// A namer is a connection that reports the name of the method that is called: a method of the
// generated client doesn't.
type namer struct{ grpc.ClientConnInterface }

type nameKey struct{}

// Invoke makes a unary call.
func (n namer) Invoke(ctx context.Context, method string, m, response any, calls ...grpc.CallOption) error {
	if name, ok := ctx.Value(nameKey{}).(*string); ok {
		*name = method
	}
	return n.ClientConnInterface.Invoke(ctx, method, m, response, calls...)
}

func callOnce[M, A any](ctx context.Context, c *Client, timeout time.Duration, method method[M, A], m M) (A, error) {
	if _, ok := ctx.Deadline(); !ok && timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	if err := c.checkFields(ctx, m); err != nil {
		var none A
		return none, err
	}
	calls, header := c.calls, metadata.MD{}
	past := isPast(m)
	if past {
		calls = append(slices.Clip(calls), grpc.Header(&header))
	}
	response, err := method(c.outgoing(ctx), m, calls...)
	if err == nil && past {
		err = checkPast(header)
	}
	return response, c.failed(err)
}

// isPast reports whether a request reads as of a moment of the past.
func isPast(m any) bool {
	past, ok := m.(interface{ GetAsOf() string })
	return ok && past.GetAsOf() != ""
}

// checkPast returns an error if the server, which is older than reads of the past, has
// responded with the current state.
func checkPast(header metadata.MD) error {
	if len(header.Get(wire.AsOfKey)) > 0 {
		return nil
	}
	return tko.Errorf(tko.ErrInvalid, "the server doesn't support reads of the past: upgrade it")
}

// again reports whether to repeat a call, after a delay.
func (c *Client) again(ctx context.Context, err error, attempt int) bool {
	if !c.options.WaitForReady || !isUnavailable(err) || ctx.Err() != nil {
		return false
	}
	delay := min(100*time.Millisecond<<min(attempt, 10), 5*time.Second)
	return pause.For(ctx, pause.Between(delay/2, delay)) == nil
}

// A streamer is a method of the generated client that returns a stream.
type streamer[M, R any] func(ctx context.Context, m *M, calls ...grpc.CallOption) (grpc.ServerStreamingClient[R], error)

// rows streams a list. It begins again after an error if no row was received
// yet.
func rows[M, R, T any](ctx context.Context, c *Client, method streamer[M, R], m *M, read func(*R) (T, error)) iter.Seq2[T, error] {
	return rowsBy(ctx, c, method, m, func(s grpc.ServerStreamingClient[R]) (t T, invalid, err error) {
		row, err := s.Recv()
		if err == nil {
			t, invalid = read(row)
		}
		return t, invalid, err
	})
}

// rowsBy is rows with receive, which returns a received row, the error in a
// row, or the error of the stream.
func rowsBy[M, R, T any](
	ctx context.Context, c *Client, method streamer[M, R], m *M, receive func(grpc.ServerStreamingClient[R]) (t T, invalid, err error), calls ...grpc.CallOption,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		m := m
		n, ended := uint32(0), false // rows of this page; the caller needs no more
		for attempt := 0; ; attempt++ {
			came, err := once(ctx, c, method, m, func(s grpc.ServerStreamingClient[R]) (more bool, err error) {
				t, invalid, err := receive(s)
				if err != nil {
					return false, err
				}
				if invalid != nil {
					t = none
				}
				n++
				ended = !yield(t, invalid) || invalid != nil
				return !ended, nil
			}, calls...)
			if err == nil && !ended {
				var next *M
				if next, err = nextPage(ctx, c, m, n); next != nil {
					m, n = next, 0
					continue
				}
				came = came || n > 0
			}
			if err == nil {
				return
			}
			if came || !c.again(ctx, err, attempt) {
				yield(none, err)
				return
			}
		}
	}
}

// nextPage returns the request for the rows after n that were read of a list without a
// limit; nil if there are no more. Servers of the original TKO may cut such a list; then
// the last page has no rows.
func nextPage[M any](ctx context.Context, c *Client, m *M, n uint32) (next *M, err error) {
	list, ok := any(m).(interface {
		proto.Message
		GetWindow() *tkopb.Window
	})
	if !ok || n == 0 || list.GetWindow() == nil || list.GetWindow().GetMaxCount() >= 0 {
		return nil, nil //nolint:nilnil // as documented
	}
	if original, err := c.isOriginal(ctx); err != nil || !original {
		return nil, err
	}
	copied := proto.CloneOf(list)
	copied.GetWindow().Offset += n
	next, _ = any(copied).(*M)
	return next, nil
}

// collect returns the entries of a list, or an error and none.
func collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for entry, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, entry)
	}
	return all, nil
}

// once makes a streaming call, and ends it when take needs no more. came
// reports whether a message was received.
func once[M, R any](
	ctx context.Context, c *Client, method streamer[M, R], m *M, take func(grpc.ServerStreamingClient[R]) (more bool, err error), calls ...grpc.CallOption,
) (came bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := c.checkFields(ctx, m); err != nil {
		return false, err
	}
	stream, err := method(c.outgoing(ctx), m, slices.Concat(c.calls, calls)...)
	if err != nil {
		return false, c.failed(err)
	}
	if isPast(m) {
		header, err := stream.Header()
		if err == nil && header != nil {
			err = checkPast(header)
		}
		if err != nil {
			return false, c.failed(err)
		}
	}
	for {
		more, err := take(stream)
		if errors.Is(err, io.EOF) {
			if header, err := stream.Header(); err == nil {
				c.lineage.note(header)
			}
			return came, nil
		}
		if err != nil {
			return came, c.failed(err)
		}
		came = true
		if !more {
			return came, nil
		}
	}
}
