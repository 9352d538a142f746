package grpcapi_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/identity"
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

// calling returns a context whose calls have a token.
func calling(t *testing.T, token string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
}

func TestClientsAtOneAddressHaveLimitsOfTheirOwn(t *testing.T) {
	backend := &fake{about: func(context.Context) (tko.About, error) { return tko.About{}, nil }}
	dial := overTCP(t, backend, grpcapi.Options{Callers: named{}, Limits: grpcapi.Limits{Rate: 1.0 / 3600, Burst: 3}})
	data := tkopb.NewDataClient(dial())
	for i := range 4 {
		if _, err := data.About(calling(t, "token:ann"), &emptypb.Empty{}); (i == 3) != (status.Code(err) == codes.ResourceExhausted) {
			t.Errorf("call %d of ann: %v", i+1, err)
		}
	}
	if _, err := data.About(calling(t, "token:bob"), &emptypb.Empty{}); err != nil {
		t.Errorf("bob's call after ann's calls from the same address: %v, want none", err)
	}
}

// rejecting is an Authenticator that accepts no token.
type rejecting struct{ checked int }

func (g *rejecting) Identify(_ context.Context, c authn.Connection, _ string) (identity.Identity, error) {
	g.checked++
	return identity.Identity{}, tko.Errorf(tko.ErrUnauthenticated, "unknown token, from %s", c.From)
}

func TestCallsWithInvalidTokensAreLimitedByAddress(t *testing.T) {
	callers := &rejecting{}
	dial := overTCP(t, &fake{}, grpcapi.Options{Callers: callers, Limits: grpcapi.Limits{Rate: 1.0 / 3600, Burst: 3}})
	for i, want := range []codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated, codes.ResourceExhausted, codes.ResourceExhausted} {
		_, err := tkopb.NewDataClient(dial()).About(calling(t, fmt.Sprint("unknown", i)), &emptypb.Empty{})
		if status.Code(err) != want {
			t.Errorf("call %d: %v, want %s", i+1, err, want)
		}
	}
	if callers.checked != 3 {
		t.Errorf("%d tokens were checked, want 3", callers.checked)
	}
}
