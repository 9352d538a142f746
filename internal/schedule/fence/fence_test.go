package fence_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
)

func TestFenceClosesWhenMoreIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, asked := tko.SiteStop{}, 0
		var fail error
		f := fence.New("a", tko.SiteStop{Held: []tko.DeploymentID{"d"}}, time.Now(), func(context.Context) (tko.SiteStop, error) { asked++; return now, fail })
		ctx := fence.With(t.Context(), f.Check)
		check := func(want error) {
			t.Helper()
			time.Sleep(fence.Age)
			err := fence.Check(ctx)
			if (err == nil) != (want == nil) || want != nil && (!errors.Is(err, want) || !fence.Is(err)) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		check(nil)
		for range 10 {
			if err := fence.Check(ctx); err != nil || asked != 1 {
				t.Fatalf("%v, asked %d times", err, asked)
			}
		}
		now = tko.SiteStop{Held: []tko.DeploymentID{"d"}}
		check(nil) // it is held already
		fail = tko.Errorf(tko.ErrUnavailable, "away")
		check(tko.ErrUnavailable)
		fail = nil
		check(nil)
		now = tko.SiteStop{Held: []tko.DeploymentID{"d", "e"}, Reason: "storm"}
		check(tko.ErrStopped)
		now = tko.SiteStop{}
		check(tko.ErrStopped) // what the reconciliation knows is too old
		if err := fence.Check(t.Context()); err != nil {
			t.Errorf("without a fence: %v", err)
		}
	})
}
