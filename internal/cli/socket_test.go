package cli

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

type aboutServer struct{ tkopb.UnimplementedDataServer }

func (aboutServer) About(context.Context, *emptypb.Empty) (*tkopb.AboutResponse, error) {
	return &tkopb.AboutResponse{InstanceName: "by socket"}, nil
}

// TKO_GRPC_ADDRESS=unix:PATH, as other gRPC programs have it, is a socket, and no host with a
// malformed port.
func TestAddressMayBeASocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	tkopb.RegisterDataServer(server, aboutServer{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for _, address := range []string{"unix:" + path, "unix://" + path} {
		g := globals{address: address, ipStack: "dual", port: 50050, grpcFormat: string(krm.CBOR)}
		to, err := g.target()
		if err != nil {
			t.Fatal(err)
		}
		s, err := dial(to)
		if err != nil {
			t.Fatal(err)
		}
		about, err := s.About(t.Context())
		if err != nil || about.InstanceName != "by socket" {
			t.Errorf("%s: %+v, %v", address, about, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := run(t, example(), "", "about", "--grpc-address", "unix:"); got.code != exitUsage || !strings.Contains(got.err, "unix:/PATH") {
		t.Errorf("an address without a path: %+v", got)
	}
}
