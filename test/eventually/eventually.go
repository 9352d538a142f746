// Package eventually waits in tests for conditions that other goroutines, processes
// and servers bring about. A test waits for the condition itself, never for a
// time: how long it takes depends on what else the machine does.
package eventually

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"
)

// Limit bounds each wait. It is generous: only a failing test reaches it.
const Limit = 3 * time.Minute

// The intervals between two checks: short at first, longer when it takes longer.
const (
	minInterval = 2 * time.Millisecond
	maxInterval = 200 * time.Millisecond
)

// True waits until condition returns true. It fails the test at once if the test's
// context ends, and after [Limit]; the message names what was awaited.
func True(t testing.TB, what string, condition func() bool) {
	t.Helper()
	NoError(t, what, func() error {
		if !condition() {
			return errFalse
		}
		return nil
	})
}

var errFalse = errors.New("the condition is false")

// NoError waits until check returns nil. It fails the test at once if the test's
// context ends, and after [Limit]; the message names what was awaited and the
// last error.
func NoError(t testing.TB, what string, check func() error) {
	t.Helper()
	Within(t, Limit, what, check)
}

// Within is NoError with a limit of its own, for waits that must be longer.
func Within(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	start := time.Now()
	for interval := minInterval; ; interval = min(2*interval, maxInterval) {
		err := check()
		if err == nil {
			return
		}
		if time.Since(start) > limit {
			t.Fatalf("waited %s for: %s: %v", limit, what, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("the test ended while it waited for: %s: %v", what, err)
		case <-time.After(interval):
		}
	}
}

// A Buffer holds what goroutines write while a test reads it, such as a log. The
// zero value is empty. It is safe for concurrent use.
type Buffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

// Write appends p. The error is always nil.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.Write(p)
}

// String returns what was written since the start or the last Reset.
func (b *Buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}

// Reset empties the buffer.
func (b *Buffer) Reset() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.buffer.Reset()
}
