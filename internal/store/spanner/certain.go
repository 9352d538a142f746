package spanner

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A certainty says whether a commit may have happened although its response was an error. The client of Spanner runs a transaction
// again after some of these: what the second run reads may be what the first one wrote.
type certainty struct{ lost atomic.Bool }

type certaintyKey struct{}

func withCertainty(ctx context.Context) (context.Context, *certainty) {
	c := new(certainty)
	return context.WithValue(ctx, certaintyKey{}, c), c
}

const commitMethod = "/google.spanner.v1.Spanner/Commit"

// noteCommits notes commits whose outcome is unknown. The client calls Commit again after some errors, with the same transaction, which
// has the same outcome: then it is known.
func noteCommits(ctx context.Context, method string, request, response any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := invoke(ctx, method, request, response, conn, options...)
	if c, ok := ctx.Value(certaintyKey{}).(*certainty); ok && method == commitMethod {
		switch status.Code(err) {
		case codes.OK:
			c.lost.Store(false)
		case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable, codes.Unknown, codes.Internal:
			c.lost.Store(true)
		default: // it was refused
		}
	}
	return err
}
