package tko

import (
	"context"
	"time"
)

// The defaults for how many entities a request may delete or approve without a
// confirmation. It needs one only if it exceeds both.
const (
	DefaultConfirmAbove   = 100 // entities
	DefaultConfirmPercent = 50  // of the entities of a kind
)

type confirmationKey struct{}

// WithConfirmation returns a context that confirms the number of entities,
// descendants included, that a deletion or approval made with it affects. The
// request is refused with an [ErrInvalid] if it affects another number. A count
// below 1 confirms nothing.
func WithConfirmation(ctx context.Context, count int) context.Context {
	return context.WithValue(ctx, confirmationKey{}, count)
}

// ConfirmationOf returns the count that the context confirms. ok is false if it
// confirms none.
func ConfirmationOf(ctx context.Context) (count int, ok bool) {
	count, _ = ctx.Value(confirmationKey{}).(int)
	return count, count > 0
}

type packageRequiredKey struct{}

// WithPackageRequired returns a context with which a registration without a
// package is refused, with an [ErrInvalid], if the entity has a package that
// isn't empty.
func WithPackageRequired(ctx context.Context) context.Context {
	return context.WithValue(ctx, packageRequiredKey{}, true)
}

// PackageRequired reports whether the context was made by
// [WithPackageRequired].
func PackageRequired(ctx context.Context) bool {
	required, _ := ctx.Value(packageRequiredKey{}).(bool)
	return required
}

// MaxModification is the longest validity of a modification token that a client can
// ask for.
const MaxModification = time.Hour

type modificationTimeKey struct{}

// WithModificationTime returns a context that sets the validity of a modification token,
// at most [MaxModification].
func WithModificationTime(ctx context.Context, validity time.Duration) context.Context {
	return context.WithValue(ctx, modificationTimeKey{}, validity)
}

// ModificationTimeOf returns the validity that the context sets. ok is false if it sets
// none.
func ModificationTimeOf(ctx context.Context) (validity time.Duration, ok bool) {
	validity, ok = ctx.Value(modificationTimeKey{}).(time.Duration)
	return validity, ok
}
