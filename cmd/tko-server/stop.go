package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"google.golang.org/grpc"
)

const (
	// goodbye is how long requests under way may take when the server stops.
	// The controllers have had up to 5 s before.
	goodbye = 8 * time.Second
	// lastCalls is how long calls may take to end after their contexts have.
	lastCalls = 2 * time.Second
	// maxStacks is how much of the stacks is logged when something doesn't end.
	maxStacks = 64 << 10
)

// endWithin runs do, but doesn't wait for it for longer than limit once the
// context has ended: one call that never ends must not keep a server from
// stopping. What was acknowledged is stored by then.
func endWithin(ctx context.Context, limit time.Duration, log *slog.Logger, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		log.ErrorContext(ctx, "something does not end: stopping without it", "after", limit, "stacks", stacks())
		return fmt.Errorf("not everything ended within %s of being told to stop (--stop-timeout): stopped without it", limit)
	}
}

func stacks() string {
	text := make([]byte, maxStacks)
	return string(text[:runtime.Stack(text, true)])
}

// stopGRPC lets calls under way end, then ends them, and doesn't wait for those
// that don't notice.
func stopGRPC(ctx context.Context, api *grpc.Server, log *slog.Logger) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		api.GracefulStop()
	}()
	if endedWithin(ended, goodbye) {
		return
	}
	go api.Stop() // ends connections, and with them the contexts of calls
	if !endedWithin(ended, lastCalls) {
		log.ErrorContext(ctx, "calls go on although their clients were disconnected: stopping without them", "stacks", stacks())
	}
}

func endedWithin(ended <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

func stopHTTP(ctx context.Context, web *http.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	if err := web.Shutdown(ctx); err != nil {
		return web.Close()
	}
	return nil
}
