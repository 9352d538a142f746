package bench_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/rollout/planner"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// anything accepts all packages as valid.
type anything struct{}

func (anything) Validate(context.Context, tko.Validation) error { return nil }

// additions are the methods of tko.Data that other servers don't have.
var additions = []string{
	"approveDeployments", "commitDeployment", "createChildren", "provisionSite", "setConditions",
	"claimWork", "renewWork", "finishWork", "watchChanges", "getFleet",
}

// contractOnly returns options of a server without the additions.
func contractOnly() []grpc.ServerOption {
	refuse := func(method string) error {
		if name := method[strings.LastIndex(method, "/")+1:]; slices.Contains(additions, name) || strings.Contains(method, "Rollouts/") || strings.Contains(method, "Past/") || strings.Contains(method, "Why/") {
			return status.Errorf(codes.Unimplemented, "unknown method %s", name)
		}
		return nil
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, m any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := refuse(info.FullMethod); err != nil {
				return nil, err
			}
			return handle(ctx, m)
		}),
		grpc.ChainStreamInterceptor(func(s any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := refuse(info.FullMethod); err != nil {
				return err
			}
			return handle(s, stream)
		}),
	}
}

// serve serves an empty catalog.
func serve(t *testing.T, options ...grpc.ServerOption) (address string, c *client.Client) {
	t.Helper()
	return serveAs(t, func(s *catalog.Service) grpcapi.Backend { return s }, options...)
}

// serveAs serves an empty catalog through a backend.
func serveAs(t *testing.T, as func(*catalog.Service) grpcapi.Backend, options ...grpc.ServerOption) (address string, c *client.Client) {
	t.Helper()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stopping := make(chan struct{})
	service := catalog.New(store, anything{}, catalog.Options{})
	service.PlanWith(planner.New(planner.OnCatalog(service), planner.Options{}))
	server := grpcapi.NewServer(as(service), grpcapi.Options{Stopping: stopping, ServerOptions: options})
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	c, err = client.Dial(client.Options{Address: listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		close(stopping)
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String(), c
}
