package grpcapi_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
)

func TestClientThatCallsTooOftenIsLimited(t *testing.T) {
	calls := 0
	backend := &fake{about: func(context.Context) (tko.About, error) { calls++; return tko.About{}, nil }}
	dial := overTCP(t, backend, grpcapi.Options{Limits: grpcapi.Limits{Rate: 1.0 / 3600, Burst: 3}})
	var refused error
	for range 5 { // over several connections: the limit is the client's
		if _, err := tkopb.NewDataClient(dial()).About(t.Context(), &emptypb.Empty{}); err != nil {
			refused = err
		}
	}
	if calls != 3 || status.Code(refused) != codes.ResourceExhausted {
		t.Errorf("%d calls arrived, then %v; want 3, then %s", calls, refused, codes.ResourceExhausted)
	}
}
