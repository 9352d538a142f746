package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko/api/tkopb"
)

// health is gRPC's health service: everything serves until the server stops.
// It has no state to shut down, unlike grpc's own.
type health struct {
	healthpb.UnimplementedHealthServer

	stopping <-chan struct{}
}

func (h *health) Check(_ context.Context, m *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if !known(m.GetService()) {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", m.GetService())
	}
	return h.now(), nil
}

func (h *health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	return &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{
		"":                                 h.now(),
		tkopb.Data_ServiceDesc.ServiceName: h.now(),
	}}, nil
}

func (h *health) Watch(m *healthpb.HealthCheckRequest, s grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if !known(m.GetService()) {
		if err := s.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVICE_UNKNOWN}); err != nil {
			return err
		}
	} else if err := s.Send(h.now()); err != nil {
		return err
	}
	select {
	case <-s.Context().Done():
		return s.Context().Err()
	case <-h.stopping:
	}
	if known(m.GetService()) {
		return s.Send(h.now())
	}
	return nil
}

func (h *health) now() *healthpb.HealthCheckResponse {
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
