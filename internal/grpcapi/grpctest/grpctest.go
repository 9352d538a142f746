// Package grpctest has a data controller for tests: the real one, with a database
// in memory, served in this process.
package grpctest

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/rollout/planner"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/validate"
)

// Start starts an empty data controller, and returns a client of it. Failed work
// is due again after at most 100 ms. Both end with the test.
func Start(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	return StartWith(t, o, catalog.Options{})
}

// StartWith is Start with settings of the catalog, in which those that concern failed work
// are replaced.
func StartWith(t testing.TB, o client.Options, settings catalog.Options) *client.Client {
	t.Helper()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	validator, err := validate.New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	settings.MinBackoff, settings.MaxBackoff = 10*time.Millisecond, 100*time.Millisecond
	service := catalog.New(store, validator, settings)
	service.PlanWith(planner.New(planner.OnCatalog(service), planner.Options{}))
	server := grpcapi.NewServer(service, grpcapi.Options{})
	listener := bufconn.Listen(1 << 20)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	o.WaitForReady = true
	o.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
	c, err := client.Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = store.Close()
	})
	return c
}
