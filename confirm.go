package tko

import (
	"context"
	"time"
)

// The defaults for how many entities a cause may remove without a confirmation. What
// exceeds one of them needs it. Callers that can't confirm ([WithoutConsent]) may remove,
// and approve, the larger of the two.
const (
	DefaultConfirmAbove   = 100 // entities
	DefaultConfirmPercent = 50  // of the entities of a kind
)

type confirmationKey struct{}

// WithConfirmation returns a context that consents to the number of entities that a
// request affects: of a deletion, descendants and the entities that lose their template
// or site included. The count is an upper bound. The request is refused with an
// [ErrInvalid] if it affects more, or if the count is far above: see [Consents]. A count
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
