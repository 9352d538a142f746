package client

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// A warned is a connection that reports the warnings of the server to the contexts of calls: see
// [tko.WithWarnings].
type warned struct{ grpc.ClientConnInterface }

// Invoke makes a call, and reports its warnings.
func (w warned) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	var trailer metadata.MD
	err := w.ClientConnInterface.Invoke(ctx, method, args, reply, append(slices.Clip(opts), grpc.Trailer(&trailer))...)
	for _, text := range trailer.Get(wire.WarningKey) {
		tko.Warn(ctx, text)
	}
	return err
}
