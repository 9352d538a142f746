package rights

import (
	"context"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
)

type undoingKey struct{}

// WithUndoing marks the writes of rollouts that undo others.
func WithUndoing(ctx context.Context) context.Context {
	return context.WithValue(ctx, undoingKey{}, true)
}

// StopsFor returns the stops that hold the writes of a context.
func StopsFor(ctx context.Context, stops []tko.Stop) []tko.Stop {
	undoing := ctx.Value(undoingKey{}) != nil
	return slices.DeleteFunc(slices.Clone(stops), func(stop tko.Stop) bool { return stop.OnlyUndo && undoing })
}

// StoppedRetry is the time after which work that a stop holds is looked at again. The release
// of the stop makes it due at once.
const StoppedRetry = 5 * time.Minute
