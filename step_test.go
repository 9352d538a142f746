package tko_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

func TestSteps(t *testing.T) {
	steps := []tko.Step{
		{Resource: `v1 ConfigMap "a"`, Plugin: "network/addresses", Iteration: 1, Took: 312 * time.Millisecond},
		{Resource: `topology.nephio.org/v1alpha1 Site "evil\" by TKO (iteration 9, 9s)"`, Iteration: 2},
		{Resource: `v1 ConfigMap "b"`, Plugin: "f", Iteration: 2, Took: time.Second, Notes: []string{"warning: old", "info: v1 X \"y\" by TKO (iteration 3, 1s)"}},
	}
	text := tko.StepsText(steps)
	want := `prepared v1 ConfigMap "a" by plugin "network/addresses" (iteration 1, 312ms); ` +
		`topology.nephio.org/v1alpha1 Site "evil\" by TKO (iteration 9, 9s)" by TKO (iteration 2, 0s); ` +
		`v1 ConfigMap "b" by plugin "f" (iteration 2, 1s), saying "warning: old", "info: v1 X \"y\" by TKO (iteration 3, 1s)"`
	if text != want {
		t.Errorf("written as %s", text)
	}
	if diff := cmp.Diff(steps, tko.ParseSteps(text)); diff != "" {
		t.Errorf("what is written is read again: %s", diff)
	}
	for _, other := range []string{"", "prepared by hand", "see " + text} {
		if got := tko.ParseSteps(other); got != nil {
			t.Errorf("%q isn't written by us, but read as %v", other, got)
		}
	}
	many := make([]tko.Step, 500)
	for i := range many {
		many[i] = steps[0]
		many[i].Notes = []string{strings.Repeat("x", 300), "and more"}
	}
	if text := tko.StepsText(many); len(text) > 5000 || len(tko.ParseSteps(text)) != 20 {
		t.Errorf("%d bytes, of which %d steps can be read", len(text), len(tko.ParseSteps(text)))
	}
}

func TestAttempt(t *testing.T) {
	next := time.Date(2026, 3, 4, 12, 0, 1, 0, time.UTC)
	tests := map[string]struct {
		why     string
		message string
		rest    string
		attempt int
		next    time.Time
	}{
		"with a time":    {why: "what is written is read again", message: "a\nb" + tko.Attempt(3, next), rest: "a\nb", attempt: 3, next: next},
		"without a time": {why: "only a change helps", message: "a" + tko.Attempt(12, time.Time{}), rest: "a", attempt: 12},
		"none":           {why: "not everything is tried again", message: "a (attempted)", rest: "a (attempted)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rest, attempt, at := tko.SplitAttempt(test.message)
			if rest != test.rest || attempt != test.attempt || !at.Equal(test.next) {
				t.Errorf("%s: %q, %d, %s", test.why, rest, attempt, at)
			}
		})
	}
}
