package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
)

func TestWaitForARolloutSaysWhatADeploymentLacks(t *testing.T) {
	t.Parallel()
	condition := func(typ, status string, revision int64) tko.Condition {
		return tko.Condition{Type: typ, Status: status, Reason: "Failed", Message: "why", ObservedRevision: revision}
	}
	tests := map[string]struct {
		prepared, approved bool
		site               tko.SiteID
		conditions         []tko.Condition
		want               string
	}{
		"no preparer":            {want: "role preparer runs"},
		"not prepared":           {conditions: []tko.Condition{condition(tko.ConditionPrepared, tko.ConditionFalse, 2)}, want: "is not prepared: Failed: why"},
		"not approved":           {prepared: true, site: "s", want: "tko deployment approve d"},
		"of no site":             {prepared: true, approved: true},
		"no meta-scheduler":      {prepared: true, approved: true, site: "s", want: `not scheduled at site "s" yet: check that a server with the role meta-scheduler runs`},
		"an old revision":        {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionTrue, 1)}, want: "role meta-scheduler runs"},
		"not scheduled":          {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionFalse, 2)}, want: `is not scheduled at site "s": Failed: why`},
		"scheduled":              {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionTrue, 2)}},
		"no report of health":    {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionTrue, 2), condition(tko.ConditionHealthy, tko.ConditionTrue, 1)}, want: "has not reported its health yet"},
		"unhealthy":              {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionTrue, 2), condition(tko.ConditionHealthy, tko.ConditionFalse, 2)}, want: `is not healthy at site "s": Failed: why`},
		"scheduled, and healthy": {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionTrue, 2), condition(tko.ConditionHealthy, tko.ConditionTrue, 2)}},
	}
	for name, test := range tests {
		d := tko.Deployment{ID: "d", Prepared: test.prepared, Approved: test.approved, Site: test.site, Stamp: tko.Stamp{Revision: 2, Conditions: test.conditions}}
		if got := heldUp(d); !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Time begins again with each progress: of a tree that grows, of one that is prepared, and of
// the waves of a rollout.
func TestAWaitEndsAfterATimeWithoutProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("late")
		ctx, moved, stop := patient(t.Context(), time.Minute, cause)
		defer stop()
		for range 5 {
			time.Sleep(50 * time.Second)
			moved()
		}
		if ctx.Err() != nil {
			t.Error("a wait with progress has ended")
		}
		time.Sleep(61 * time.Second)
		if !errors.Is(context.Cause(ctx), cause) {
			t.Errorf("a wait without progress goes on: %v", context.Cause(ctx))
		}
		moved()
		if ctx.Err() == nil {
			t.Error("it began again")
		}
	})
	w := rolloutWaiter{}
	for _, step := range []struct {
		progress map[string]int
		moved    bool
	}{{map[string]int{"Waiting": 3}, true}, {map[string]int{"Waiting": 3}, false}, {map[string]int{"Waiting": 2, "Applied": 1}, true}} {
		w.status.Waves = []tko.RolloutWave{{Name: "all", Progress: step.progress}}
		if got := w.hasMoved(); got != step.moved {
			t.Errorf("%v: moved %t", step.progress, got)
		}
	}
}
