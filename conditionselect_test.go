package tko_test

import (
	"errors"
	"testing"

	"github.com/tko-orchestrator/tko"
)

func TestConditionSelectIsParsedAndMatched(t *testing.T) {
	t.Parallel()
	conditions := []tko.Condition{
		{Type: tko.ConditionHealthy, Status: tko.ConditionFalse, Reason: "Lost"},
		{Type: tko.ConditionPrepared, Status: tko.ConditionTrue},
	}
	for text, want := range map[string]bool{
		"Healthy": false, "Healthy=False": true, "Healthy=false": true, "Healthy:Lost": true, "Healthy=False:Lost": true,
		"Healthy=False:Other": false, "Healthy!=True": true, "Healthy!=False": false, "Healthy!=False:Other": true,
		"Prepared": true, "Scheduled": false, "Scheduled=Unknown": false, "Scheduled!=True": true,
	} {
		c, err := tko.ParseConditionSelect(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := c.Match(conditions); got != want {
			t.Errorf("%s matches: %t, want %t", text, got, want)
		}
		if again, err := tko.ParseConditionSelect(c.String()); err != nil || again != c {
			t.Errorf("%s is written as %s, which is %+v, error %v", text, c, again, err)
		}
	}
	for _, text := range []string{"", "=True", "Healthy=", "Healthy!=", "Healthy=Flase", "Healthy:", "He althy", "1=True", "Healthy=True:a b", "!=True"} {
		if c, err := tko.ParseConditionSelect(text); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%q: %+v, error %v, want an ErrInvalid", text, c, err)
		}
	}
}
