package eventually_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko/test/eventually"
)

// A recorder is a test whose failure is recorded instead.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r)
}

func failureOf(t *testing.T, f func(testing.TB)) (failure string) {
	r := &recorder{TB: t}
	defer func() {
		switch p := recover(); p {
		case nil:
		case any(r):
			failure = r.failure
		default:
			panic(p)
		}
	}()
	f(r)
	return ""
}

func TestWaitEndsWhenConditionHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		eventually.True(t, "a minute", func() bool { return time.Since(start) >= time.Minute })
		if waited := time.Since(start); waited > time.Minute+time.Second {
			t.Errorf("it waited %s for a minute", waited)
		}
	})
}

func TestWaitFailsAtLimitWithLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		failure := failureOf(t, func(t testing.TB) {
			eventually.NoError(t, "the moon", func() error { return errors.New("there is none") })
		})
		if !strings.Contains(failure, "the moon") || !strings.Contains(failure, "there is none") {
			t.Errorf("the failure %q names neither what was awaited nor the error", failure)
		}
		if waited := time.Since(start); waited < eventually.Limit || waited > eventually.Limit+time.Second {
			t.Errorf("it waited %s, want %s", waited, eventually.Limit)
		}
	})
}

func TestBufferIsReadWhileItIsWritten(t *testing.T) {
	var b eventually.Buffer
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() { fmt.Fprint(&b, "x") })
	}
	eventually.True(t, "four writes", func() bool { return b.String() == "xxxx" })
	writers.Wait()
	if b.Reset(); b.String() != "" {
		t.Errorf("after Reset it holds %q", b.String())
	}
}
