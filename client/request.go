package client

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// WithRequestID returns a context whose calls have a request ID: the server's log
// and audit log have it in all that the calls cause. It is 1 to 64 letters,
// digits and the characters . _ : / + = @ - and otherwise an ErrInvalid. Without
// one, the server makes an ID for each call.
//
// A call whose context is in a trace of OpenTelemetry passes the trace on to the
// server.
func WithRequestID(ctx context.Context, id string) (context.Context, error) {
	if !trail.IsRequest(id) {
		return nil, tko.Errorf(tko.ErrInvalid, "request ID %.80q: use 1 to 64 letters, digits and . _ : / + = @ -", id)
	}
	return trail.WithRequest(ctx, id), nil
}

// RequestID returns the ID of the request that an error of a call is about; "" if
// the server didn't respond. The server's log has the ID.
func RequestID(err error) string { return wire.RequestOf(err) }
