package tko

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// The limits of the warnings of one call: all of them fit into headers, which many programs limit
// to 8 KiB.
const (
	maxWarnings     = 10
	maxWarningBytes = 400
	maxCounted      = 1000 // further ones aren't counted
)

type warningsKey struct{}

// WithWarnings returns a context whose calls report their warnings to warn: what the call accepted,
// and its caller should know, such as properties that no definition has. The data controller and
// its clients report them with [Warn]. warn may be called concurrently, and again with the same
// text.
func WithWarnings(ctx context.Context, warn func(text string)) context.Context {
	return context.WithValue(ctx, warningsKey{}, warn)
}

// Warn reports a warning to the caller of ctx, if that takes warnings.
func Warn(ctx context.Context, text string) {
	if warn, ok := ctx.Value(warningsKey{}).(func(string)); ok {
		warn(text)
	}
}

// CollectWarnings returns a context that collects warnings, and a function that returns those so
// far: the first ones, each once and shortened, and how many more there are.
func CollectWarnings(ctx context.Context) (context.Context, func() []string) {
	var mu sync.Mutex
	var all []string
	ctx = WithWarnings(ctx, func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if len(all) < maxCounted && !slices.Contains(all, text) {
			all = append(all, text)
		}
	})
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		shown := slices.Clone(all[:min(len(all), maxWarnings)])
		for i, text := range shown {
			shown[i] = printable.Short(text, maxWarningBytes)
		}
		if more := len(all) - maxWarnings; more > 0 {
			shown = append(shown, fmt.Sprintf("and %d more warnings", more))
		}
		return shown
	}
}
