package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko/api/tkopb"
)

// A health implements gRPC's health service: all services are serving until the
// server stops. Unlike grpc's own, it has no state to shut down.
type health struct {
	healthpb.UnimplementedHealthServer

	stopping <-chan struct{}
}

func (h *health) Check(_ context.Context, m *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if !known(m.GetService()) {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", m.GetService())
	}
	return h.status(), nil
}

func (h *health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	return &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{
		"":                                 h.status(),
		tkopb.Data_ServiceDesc.ServiceName: h.status(),
	}}, nil
}

func (h *health) Watch(m *healthpb.HealthCheckRequest, s grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if !known(m.GetService()) {
		if err := s.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVICE_UNKNOWN}); err != nil {
			return err
		}
	} else if err := s.Send(h.status()); err != nil {
		return err
	}
	select {
	case <-s.Context().Done():
		return s.Context().Err()
	case <-h.stopping:
	}
	if known(m.GetService()) {
		return s.Send(h.status())
	}
	return nil
}

func (h *health) status() *healthpb.HealthCheckResponse {
	select {
	case <-h.stopping:
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}
	default:
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}
	}
}

func known(service string) bool {
	return service == "" || service == tkopb.Data_ServiceDesc.ServiceName
}
