package catalog_test

import (
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// Each message of a condition names its subject once.
func TestMessagesOfConditionsNameTheirSubjectOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("lagos", "")
	err := w.SetConditions(w.ctx, tko.KindSite, "lagos", []tko.Condition{{
		Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: "Invalid", Message: `Repository "r": Repository "r": spec.url: it is missing`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Site(w.ctx, "lagos", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := tko.FindCondition(s.Stamp.Conditions, tko.ConditionScheduled).Message; got != `Repository "r": spec.url: it is missing` {
		t.Errorf("got %q", got)
	}
}

// The last error of work names its subject once.
func TestErrorsOfWorkNameTheirSubjectOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})
	w.create(tko.NewDeployment{})
	claim := func() tko.WorkItem {
		t.Helper()
		items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Worker: "me", Max: 1, Lease: time.Minute, Wait: 10 * time.Second})
		if err != nil || len(items) != 1 {
			t.Fatalf("%+v, %v", items, err)
		}
		return items[0]
	}
	err := w.FinishWork(w.ctx, []tko.FinishedWork{{Item: claim(), Outcome: tko.WorkFailed, Error: `Repository "r": Repository "r": it is missing`}})
	if err != nil {
		t.Fatal(err)
	}
	if got := claim().LastError; got != `Repository "r": it is missing` {
		t.Errorf("got %q", got)
	}
}
