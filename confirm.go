package tko

import "context"

// What a request may delete or approve without a confirmation, unless the server
// is set otherwise: as many as either says.
const (
	DefaultConfirmAbove   = 100 // entities
	DefaultConfirmPercent = 50  // of the entities of a kind
)

type confirmationKey struct{}

// WithConfirmation confirms how many entities deletions and approvals made with
// the context concern, descendants included. They are refused with an
// [ErrInvalid] if the count is another one. A count below 1 confirms nothing.
func WithConfirmation(ctx context.Context, count int) context.Context {
	return context.WithValue(ctx, confirmationKey{}, count)
}

// ConfirmationOf returns the count that the context confirms. ok is false if it
// confirms none.
func ConfirmationOf(ctx context.Context) (count int, ok bool) {
	count, _ = ctx.Value(confirmationKey{}).(int)
	return count, count > 0
}

type keepPackageKey struct{}

// WithPackageRequired lets registrations made with the context refuse to replace a
// package that has resources because none was given: an [ErrInvalid].
func WithPackageRequired(ctx context.Context) context.Context {
	return context.WithValue(ctx, keepPackageKey{}, true)
}

// PackageRequired says whether the context was made by [WithPackageRequired].
func PackageRequired(ctx context.Context) bool {
	keeps, _ := ctx.Value(keepPackageKey{}).(bool)
	return keeps
}
