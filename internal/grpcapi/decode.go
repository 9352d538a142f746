package grpcapi

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tko-orchestrator/tko/internal/wire"
)

// The limits of requests without a package, in bytes, and of the number of
// messages in a message: far more than any accepted request needs.
const (
	maxSmallMessage = 8 << 20
	maxParts        = 50_000
	maxSourceParts  = 2_000_000
)

// bounded returns a request of a method with its limits.
func bounded(method string, m proto.Message, maxMessage int) *wire.Bounded {
	row := table()[method]
	b := &wire.Bounded{Message: m, MaxBytes: maxMessage, MaxParts: cmp.Or(row.Parts, maxParts)}
	if !row.Large {
		b.MaxBytes = min(maxMessage, maxSmallMessage)
	}
	return b
}

// decodeBounded decodes a request within its limits, or refuses it.
func decodeBounded(ctx context.Context, method string, decode func(any) error, m any, maxMessage int) error {
	message, ok := m.(proto.Message)
	if !ok {
		return decode(m)
	}
	b := bounded(method, message, maxMessage)
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
		handle, method := m.Handler, "/"+service.ServiceName+"/"+m.MethodName
		m.Handler = func(server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			return handle(server, ctx, func(m any) error { return decodeBounded(ctx, method, decode, m, maxMessage) }, interceptor)
		}
		methods[i] = m
	}
	service.Methods = methods
	return &service
}
