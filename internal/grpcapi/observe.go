package grpcapi

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An Observer counts calls, for metrics. Its methods are called by many goroutines,
// and must return at once.
type Observer interface {
	// Called is called at the end of each call, with the code that its client gets.
	Called(method string, code codes.Code, took time.Duration)
	// Streaming is called when a streaming call begins (1) and ends (-1).
	Streaming(method string, change int)
	// Refused is called when a call exceeds a limit, one of LimitNames.
	Refused(limit string)
	// Watching is called when a watch begins (1) and ends (-1).
	Watching(change int)
	// Slow is called when a watch begins (1) and ends (-1) to wait until its client
	// reads.
	Slow(change int)
	// Dropped is called when a watch is closed because its client doesn't read.
	Dropped()
}

// The names of limits.
const (
	limitRate       = "rate"       // of calls of a client
	limitFailures   = "failures"   // of calls of an address that failed to authenticate
	limitConnection = "connection" // of streams of a connection
	limitClient     = "client"     // of streams of a client
	limitTotal      = "total"      // of streams
	limitWaiting    = "waiting"    // of calls of a client that wait for their turns
)

// LimitNames returns the names of all limits.
func LimitNames() []string {
	return []string{limitRate, limitFailures, limitConnection, limitClient, limitTotal, limitWaiting}
}

// noObserver is the observer of servers without one.
type noObserver struct{}

func (noObserver) Called(string, codes.Code, time.Duration) {}
func (noObserver) Streaming(string, int)                    {}
func (noObserver) Refused(string)                           {}
func (noObserver) Watching(int)                             {}
func (noObserver) Slow(int)                                 {}
func (noObserver) Dropped()                                 {}

// observeUnary is the outermost interceptor, so that it sees the codes that clients
// get.
func observeUnary(o Observer) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, m any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		began := time.Now()
		response, err := handle(ctx, m)
		o.Called(info.FullMethod, status.Code(err), time.Since(began))
		return response, err
	}
}

func observeStream(o Observer) grpc.StreamServerInterceptor {
	return func(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		began := time.Now()
		o.Streaming(info.FullMethod, 1)
		defer o.Streaming(info.FullMethod, -1)
		err := handle(server, s)
		o.Called(info.FullMethod, status.Code(err), time.Since(began))
		return err
	}
}
