package agents

import (
	"errors"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/agentpb"
)

func TestWhatOwnersSayIsChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hold   *agentpb.OwnerHold
		status string // "": it is refused
	}{
		"permits":        {nil, tko.ConditionFalse},
		"refuses":        {&agentpb.OwnerHold{Reason: tko.ReasonOwnerRefuses, Message: "at sea"}, tko.ConditionTrue},
		"unknown":        {&agentpb.OwnerHold{Reason: "Whatever", Message: "x"}, ""},
		"permits, held":  {&agentpb.OwnerHold{Reason: tko.ReasonOwnerPermits, Message: "x"}, ""},
		"no text":        {&agentpb.OwnerHold{Reason: tko.ReasonOwnerFreeze}, ""},
		"too long":       {&agentpb.OwnerHold{Reason: tko.ReasonOwnerFreeze, Message: strings.Repeat("x", maxOwnerText+1)}, ""},
		"no text at all": {&agentpb.OwnerHold{Reason: tko.ReasonOwnerFreeze, Message: "\xff"}, ""},
	} {
		c, err := ownerCondition(test.hold)
		if test.status == "" {
			if !errors.Is(err, tko.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil || c.Status != test.status {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// The condition is written when it differs, also after a new revision of the site, and never at sites
// whose owner never held it.
func TestConditionsOfOwnersAreWrittenOnce(t *testing.T) {
	t.Parallel()
	c := connection{owner: &tko.Condition{Type: tko.ConditionHeldByOwner, Status: tko.ConditionFalse, Reason: tko.ReasonOwnerPermits}}
	site := tko.Site{Stamp: tko.Stamp{Revision: 3}}
	if got := c.ownerChanges(site); got != nil {
		t.Errorf("%+v", got)
	}
	c.owner = &tko.Condition{Type: tko.ConditionHeldByOwner, Status: tko.ConditionTrue, Reason: tko.ReasonOwnerRefuses, Message: "at sea"}
	got := c.ownerChanges(site)
	if len(got) != 1 || got[0].ObservedRevision != 3 || got[0].LastTransition.IsZero() {
		t.Fatalf("%+v", got)
	}
	site.Stamp.Conditions = got
	if again := c.ownerChanges(site); again != nil {
		t.Errorf("%+v", again)
	}
	site.Stamp.Revision = 4
	if again := c.ownerChanges(site); len(again) != 1 || again[0].ObservedRevision != 4 || !again[0].LastTransition.Equal(got[0].LastTransition) {
		t.Errorf("%+v", again)
	}
}
