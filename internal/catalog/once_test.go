package catalog_test

import (
	"testing"

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
