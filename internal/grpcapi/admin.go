package grpcapi

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// An AdminBackend implements tko.Admin.
type AdminBackend interface {
	// Backup writes an archive of everything in the store.
	Backup(ctx context.Context, w io.Writer) error
	// ReleaseHolds releases held work, and returns what it released.
	ReleaseHolds(ctx context.Context, r tko.ReleaseHolds) ([]tko.Hold, error)
}

// admin implements tko.Admin on a backend.
type admin struct {
	tkopb.UnimplementedAdminServer

	backend Backend
}

// chunkSize is the maximum size of a chunk of a backup.
const chunkSize = 256 << 10

// maxStall is the time for which a client may read nothing of a backup: the snapshot of
// the backup makes the database retain what others change.
const maxStall = 5 * time.Minute

func (a *admin) Backup(_ *emptypb.Empty, s grpc.ServerStreamingServer[tkopb.BackupChunk]) error {
	return streamBackup(s.Context(), a.backend.Backup, maxStall, s.Send)
}

// streamBackup sends what backup writes. If a send takes longer than stall, the backup
// ends, although the send may last.
func streamBackup(ctx context.Context, backup func(context.Context, io.Writer) error, stall time.Duration, send func(*tkopb.BackupChunk) error) error {
	from, to := io.Pipe()
	var writing sync.WaitGroup
	writing.Go(func() {
		_ = to.CloseWithError(backup(ctx, to)) // never fails
	})
	defer writing.Wait()
	defer from.Close() //nolint:errcheck // never fails
	buffer := make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(from, buffer)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if n > 0 {
			timer := time.AfterFunc(stall, func() {
				_ = from.CloseWithError(tko.Errorf(tko.ErrUnavailable, "the client read nothing of the backup for %s: try again", stall)) // never fails
			})
			sendErr := send(&tkopb.BackupChunk{Data: buffer[:n]})
			timer.Stop()
			if sendErr != nil {
				return sendErr
			}
		}
		if err != nil {
			return send(&tkopb.BackupChunk{End: true})
		}
	}
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
