package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// The bounds of requests that have no package, and of how many messages there
// may be in a message: far more than any request needs that is taken.
const (
	maxSmallMessage = 8 << 20
	maxParts        = 50_000
	maxSourceParts  = 2_000_000
)

// bounded is a request with its bounds.
func bounded(m proto.Message, maxMessage int) *wire.Bounded {
	b := &wire.Bounded{Message: m, MaxBytes: min(maxMessage, maxSmallMessage), MaxParts: maxParts}
	switch m.(type) {
	case *tkopb.Template, *tkopb.Site, *tkopb.CreateDeployment, *tkopb.EndDeploymentModification, *tkopb.CommitDeployment,
		*tkopb.CreateChildren, *tkopb.ProvisionSite, *tkopb.PutEntity, // with packages
		*tkopb.SaveTargetState,
		*tkopb.RenewWork, *tkopb.FinishWork: // with errors
		b.MaxBytes = maxMessage
	case *tkopb.SaveSource: // of a controller
		b.MaxBytes, b.MaxParts = maxMessage, maxSourceParts
	}
	return b
}

// decodeBounded decodes a request, or refuses it.
func decodeBounded(ctx context.Context, decode func(any) error, m any, maxMessage int) error {
	message, ok := m.(proto.Message)
	if !ok {
		return decode(m)
	}
	b := bounded(message, maxMessage)
	err := decode(b)
	if b.Refused != nil {
		return wire.Status(b.Refused, errorSize(ctx)).Err()
	}
	return err
}

// withBounds is a service whose requests are bounded as they are decoded. Those
// of streams are in [authoredStream.RecvMsg].
func withBounds(service grpc.ServiceDesc, maxMessage int) *grpc.ServiceDesc {
	methods := make([]grpc.MethodDesc, len(service.Methods))
	for i, m := range service.Methods {
		handle := m.Handler
		m.Handler = func(server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			return handle(server, ctx, func(m any) error { return decodeBounded(ctx, decode, m, maxMessage) }, interceptor)
		}
		methods[i] = m
	}
	service.Methods = methods
	return &service
}
