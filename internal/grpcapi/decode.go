package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// The limits of requests without a package, in bytes, and of the number of
// messages in a message: far more than any accepted request needs.
const (
	maxSmallMessage = 8 << 20
	maxParts        = 50_000
	maxSourceParts  = 2_000_000
)

// bounded returns a request with its limits.
func bounded(m proto.Message, maxMessage int) *wire.Bounded {
	b := &wire.Bounded{Message: m, MaxBytes: min(maxMessage, maxSmallMessage), MaxParts: maxParts}
	switch m.(type) {
	case *tkopb.Template, *tkopb.Site, *tkopb.CreateDeployment, *tkopb.EndDeploymentModification, *tkopb.CommitDeployment, *tkopb.CommitDeployments,
		*tkopb.CreateChildren, *tkopb.ProvisionSite, *tkopb.PutEntity, // have packages
		*tkopb.SaveTargetState,
		*tkopb.RenewWork, *tkopb.FinishWork: // have errors
		b.MaxBytes = maxMessage
	case *tkopb.SaveSource: // has the state of a controller
		b.MaxBytes, b.MaxParts = maxMessage, maxSourceParts
	}
	return b
}

// decodeBounded decodes a request within its limits, or refuses it.
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

// withBounds returns a service that limits its requests while they are decoded.
// [authoredStream.RecvMsg] limits those of streams.
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
