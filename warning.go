package tko

import "context"

type warningsKey struct{}

// WithWarnings returns a context whose calls report their warnings to warn: what the call accepted,
// and its caller should know, such as properties that no definition has. The data controller and
// its clients report them with [Warn]. warn may be called concurrently, and again for the same
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
