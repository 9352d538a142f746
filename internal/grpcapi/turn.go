package grpcapi

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/turn"
)

// readVerbs are the verbs of methods that take turns. Methods with other verbs change
// something, or are called by our own controllers.
var readVerbs = []access.Verb{access.Open, access.Read, access.Inspect, access.Audit}

// noTurns are the methods with readVerbs that take no turns, and why.
var noTurns = map[string]string{
	tkopb.Data_WatchChanges_FullMethodName:      "waits for changes",
	tkopb.Why_CompareSite_FullMethodName:        "waits for a meta-scheduler",
	tkopb.Data_BreakModification_FullMethodName: "changes",
	tkopb.Access_BreakGlass_FullMethodName:      "changes",
}

// lightMethods read one entity, or none. All others may read many.
var lightMethods = []string{
	tkopb.Data_About_FullMethodName, tkopb.Data_WhoAmI_FullMethodName, tkopb.Access_CanI_FullMethodName, tkopb.Access_GetOwner_FullMethodName,
	tkopb.Data_GetTemplate_FullMethodName, tkopb.Data_GetSite_FullMethodName, tkopb.Data_GetDeployment_FullMethodName, tkopb.Data_GetPlugin_FullMethodName,
	tkopb.Rollouts_GetRollout_FullMethodName,
}

// turnWeights returns the weights of the methods that take turns, by their full names.
func turnWeights() map[string]int {
	weights := map[string]int{}
	for method, right := range Rights() {
		_, without := noTurns[method]
		reads := !slices.ContainsFunc(right.Verbs, func(v access.Verb) bool { return !slices.Contains(readVerbs, v) })
		switch {
		case !reads || without:
		case slices.Contains(lightMethods, method):
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
