package grpcapi

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/turn"
)

// readVerbs are the verbs of methods that take turns. Methods with other verbs change
// something, or are called by our own controllers.
var readVerbs = []access.Verb{access.Open, access.Read, access.Inspect, access.Audit}

// turnWeights returns the weights of the methods that take turns, by their full names.
func turnWeights() map[string]int {
	weights := map[string]int{}
	for method, right := range table() {
		reads := !slices.ContainsFunc(right.Verbs, func(v access.Verb) bool { return !slices.Contains(readVerbs, v) })
		switch {
		case !reads || right.NoTurn != "":
		case right.Light:
			weights[method] = turn.Light
		default:
			weights[method] = turn.Heavy
		}
	}
	return weights
}

// begin waits for the turn of a call. Calls of our own controllers take none: they work for
// all clients, and their settings limit how many there are.
func (l *limiter) begin(ctx context.Context, caller identity.Identity, method string) (context.Context, *turn.Turn, error) {
	weight := l.weights[method]
	if weight == 0 || inProcess(ctx) || caller.Role() != "" {
		return ctx, nil, nil
	}
	t, err := l.turns.Begin(ctx, clientOf(ctx, caller), weight)
	if errors.Is(err, turn.ErrFull) {
		l.refused(limitWaiting)
		return ctx, nil, status.Error(codes.ResourceExhausted, err.Error())
	}
	if err != nil {
		return ctx, nil, err
	}
	return turn.With(ctx, t), t, nil
}
