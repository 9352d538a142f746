package grpcapi

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// An AdminBackend implements tko.Admin: *catalog.Service in production. A backend
// without it doesn't serve tko.Admin.
type AdminBackend interface {
	// Backup writes an archive of everything in the store.
	Backup(ctx context.Context, w io.Writer) error
	// Holds returns the work that is held after a restore.
	Holds(ctx context.Context) ([]tko.Hold, error)
	// ReleaseHolds releases held work, and returns what it released.
	ReleaseHolds(ctx context.Context, r tko.ReleaseHolds) ([]tko.Hold, error)
}

// admin implements tko.Admin on a backend.
type admin struct {
	tkopb.UnimplementedAdminServer

	backend AdminBackend
}

// chunkSize is the maximum size of a chunk of a backup.
const chunkSize = 256 << 10

// A chunker sends what is written to it.
type chunker struct {
	stream grpc.ServerStreamingServer[tkopb.BackupChunk]
}

func (c chunker) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), chunkSize)]
		if err := c.stream.Send(&tkopb.BackupChunk{Data: part}); err != nil {
			return n, err
		}
		n += len(part)
		p = p[len(part):]
	}
	return n, nil
}

func (a *admin) Backup(_ *emptypb.Empty, s grpc.ServerStreamingServer[tkopb.BackupChunk]) error {
	if err := a.backend.Backup(s.Context(), chunker{s}); err != nil {
		return err
	}
	return s.Send(&tkopb.BackupChunk{End: true})
}

func (a *admin) ListHolds(_ *emptypb.Empty, s grpc.ServerStreamingServer[tkopb.Hold]) error {
	holds, err := a.backend.Holds(s.Context())
	if err != nil {
		return err
	}
	for _, h := range holds {
		if err := s.Send(&tkopb.Hold{Queue: h.Queue, Key: h.Key, Mode: h.Mode}); err != nil {
			return err
		}
	}
	return nil
}

func (a *admin) ReleaseHolds(ctx context.Context, m *tkopb.ReleaseHolds) (*tkopb.ReleaseHoldsResponse, error) {
	released, err := a.backend.ReleaseHolds(ctx, tko.ReleaseHolds{Sites: m.GetSites(), Queues: m.GetQueues(), Remove: m.GetRemove(), DryRun: m.GetDryRun()})
	if err != nil {
		return nil, err
	}
	response := &tkopb.ReleaseHoldsResponse{}
	for _, h := range released {
		if h.Key == "" {
			response.Queues = append(response.Queues, h.Queue)
			continue
		}
		response.Sites = append(response.Sites, h.Key)
	}
	return response, nil
}
