package notify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A gap is shown for a day. It can't be mended, so the condition must not stay False.
func TestGapIsShownForADay(t *testing.T) {
	t.Parallel()
	for age, status := range map[time.Duration]string{time.Hour: tko.ConditionFalse, 25 * time.Hour: tko.ConditionTrue} {
		at := time.Now().Add(-age)
		c := tko.FindCondition(statusOf(state{Gap: "the changes after position 3", GapAt: at}, false, 0).Conditions, tko.ConditionComplete)
		if c == nil || c.Status != status || !strings.Contains(c.Message, "the changes after position 3") {
			t.Errorf("%s after a gap, the condition is %+v, want the status %s, and the positions", age, c, status)
		}
	}
}

// What is remembered is bounded: rollouts that have ended make room for those that go on.
func TestEndedRolloutsAreForgottenForOthers(t *testing.T) {
	t.Parallel()
	st, all := state{}, map[string]string{}
	for i := range maxTold {
		all[fmt.Sprint(aboutRollout, i)] = "Done:as planned"
	}
	all[aboutRollout+"0"] = "Paused:a reason"
	st.remember(all)
	st.remember(map[string]string{aboutRollout + "new": "Running:"})
	if len(st.Told) != 2 || st.Told[aboutRollout+"new"] != "Running:" || st.Told[aboutRollout+"0"] == "" {
		t.Errorf("%d are remembered", len(st.Told))
	}
}
