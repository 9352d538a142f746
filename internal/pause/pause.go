// Package pause has waits that end with their context, and the spread of delays.
package pause

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// For waits. It returns the cause of the end of the context if that ends first, or has
// ended.
func For(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Between returns a random duration from least to most, so that what began together
// does not go on together.
func Between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + rand.N(most-least+1) //nolint:gosec // spreads load, hides nothing
}

// About returns d with a random deviation of at most a part, such as 0.1 for a tenth.
func About(d time.Duration, part float64) time.Duration {
	deviation := time.Duration(float64(d) * part)
	return Between(d-deviation, d+deviation)
}

// A Mutex excludes others, like a [sync.Mutex], and waiting for it ends with a context. The zero
// value is not locked.
type Mutex struct {
	once  sync.Once
	token chan struct{}
}

// Lock waits until the caller has the mutex, or the context ends.
func (m *Mutex) Lock(ctx context.Context) (unlock func(), err error) {
	m.once.Do(func() { m.token = make(chan struct{}, 1) })
	select {
	case m.token <- struct{}{}:
		return func() { <-m.token }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
