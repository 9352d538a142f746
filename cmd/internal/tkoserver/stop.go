package tkoserver

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
	// goodbye bounds running requests after the server was asked to stop. The
	// controllers have had up to 5 s before.
	goodbye = 8 * time.Second
	// lastCalls bounds running requests after their contexts have ended.
	lastCalls = 2 * time.Second
	// maxStacks bounds the logged stacks, in bytes.
	maxStacks = 64 << 10
)

// endWithin runs do. Once the context has ended, it waits for do no longer than
// limit, because a call that never ends must not keep a server from stopping. All
// acknowledged writes are stored by then.
func endWithin(ctx context.Context, limit time.Duration, log *slog.Logger, do func() error) error {
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = do()
	}()
	select {
	case <-ended:
		return err
	case <-ctx.Done():
	}
	if endedWithin(ended, limit) {
		return err
	}
	log.ErrorContext(ctx, "stopping although some goroutines still run", "after", limit, "stacks", stacks())
	return fmt.Errorf("stopping took longer than %s (--stop-timeout): some goroutines still run", limit)
}

func stacks() string {
	text := make([]byte, maxStacks)
	return string(text[:runtime.Stack(text, true)])
}

// stopGRPC waits for running calls, then cancels them, and returns even if some
// ignore that.
func stopGRPC(ctx context.Context, api *grpc.Server, log *slog.Logger) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		api.GracefulStop()
	}()
	if endedWithin(ended, goodbye) {
		return
	}
	go api.Stop() // closes the connections, which ends the contexts of calls
	if !endedWithin(ended, lastCalls) {
		log.ErrorContext(ctx, "stopping although some calls still run after their clients were disconnected", "stacks", stacks())
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
