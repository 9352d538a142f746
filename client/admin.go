package client

import (
	"context"
	"io"
	"iter"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// Admin returns the client of tko.Admin: backups, and work that is held after a
// restore. It uses the connection and the settings of the client.
func (c *Client) Admin() *Admin { return &Admin{client: c, stub: c.admin} }

// Admin calls tko.Admin. Its methods may be called concurrently. Their errors are of
// the kinds of package tko.
type Admin struct {
	client *Client
	stub   tkopb.AdminClient
}

// Backup writes an archive of everything in the store to w. The archive is complete
// only if Backup returns nil.
func (a *Admin) Backup(ctx context.Context, w io.Writer) error {
	ended := false
	for chunk, err := range rows(ctx, a.client, a.stub.Backup, &emptypb.Empty{}, same[tkopb.BackupChunk]) {
		if err != nil {
			return err
		}
		if _, err := w.Write(chunk.GetData()); err != nil {
			return err
		}
		ended = chunk.GetEnd()
	}
	if !ended {
		return tko.Errorf(tko.ErrUnavailable, "the server ended the backup before its end: try again")
	}
	return nil
}

// Holds streams the work that is held after a restore.
func (a *Admin) Holds(ctx context.Context) iter.Seq2[*tkopb.Hold, error] {
	return rows(ctx, a.client, a.stub.ListHolds, &emptypb.Empty{}, same[tkopb.Hold])
}

// ReleaseHolds releases held work, and returns what it released.
func (a *Admin) ReleaseHolds(ctx context.Context, m *tkopb.ReleaseHolds) (*tkopb.ReleaseHoldsResponse, error) {
	return call(ctx, a.client, a.stub.ReleaseHolds, m)
}
