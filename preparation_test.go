package tko_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

func TestBoundStepsKeepsFirstStepsAndNotes(t *testing.T) {
	few := []tko.PreparationStep{
		{Resource: `v1 ConfigMap "a"`, Plugin: "network/addresses", Iteration: 1, Took: 312 * time.Millisecond},
		{Resource: `v1 ConfigMap "b"`, Iteration: 2, Notes: []string{"warning: old", "info: v1 X \"y\" by TKO (iteration 3, 1s)"}},
	}
	if diff := cmp.Diff(few, tko.BoundSteps(few)); diff != "" {
		t.Errorf("steps within the bounds changed (-want +got):\n%s", diff)
	}
	if got := tko.BoundSteps(nil); got != nil {
		t.Errorf("no steps became %v", got)
	}

	many := make([]tko.PreparationStep, 500)
	for i := range many {
		many[i] = few[0]
		many[i].Notes = []string{strings.Repeat("x", 300), "and more"}
	}
	got := tko.BoundSteps(many)
	bytes, left := 0, 0
	for _, s := range got {
		for _, note := range s.Notes {
			bytes += len(note)
		}
		left += s.NotesLeftOut + len(s.Notes)
	}
	if len(got) != 20 || bytes > 2000 || bytes < 1500 || left != 2*20 {
		t.Errorf("%d steps with %d bytes of notes, %d notes in all: want 20, at most 2000, 40", len(got), bytes, left)
	}
	if diff := cmp.Diff(got, tko.BoundSteps(got)); diff != "" {
		t.Errorf("bounding twice differs from bounding once (-once +twice):\n%s", diff)
	}
	if len(many[0].Notes) != 2 || len(many[19].Notes) != 2 {
		t.Error("the caller's steps changed")
	}
}

func TestBoundStepsMakesTextsValid(t *testing.T) {
	s := tko.BoundSteps([]tko.PreparationStep{{
		Resource: strings.Repeat("ä", 1000), Plugin: "a\xff", Iteration: -1, Took: -1, Notes: []string{"b\xff"}, NotesLeftOut: -1,
	}})[0]
	if len(s.Resource) > 400 || !utf8.ValidString(s.Resource) || !strings.HasSuffix(s.Resource, "ä…") {
		t.Errorf("resource: %d bytes, %q", len(s.Resource), s.Resource)
	}
	if s.Plugin != "a\uFFFD" || s.Notes[0] != "b\uFFFD" || s.Iteration != 0 || s.Took != 0 || s.NotesLeftOut != 0 {
		t.Errorf("%+v: want valid UTF-8 and no negative numbers", s)
	}
}

func TestConditionTextHasAttemptAndNextTry(t *testing.T) {
	next := time.Date(2026, 3, 4, 12, 0, 1, 0, time.FixedZone("", 3600))
	tests := map[string]struct {
		why       string
		condition tko.Condition
		want      string
	}{
		"failed":           {why: "people read when it is tried again", condition: tko.Condition{Message: "a", Attempt: 3, NextTry: next}, want: "a (attempt 3, next try 2026-03-04T11:00:01Z)"},
		"stalled":          {why: "only a change helps", condition: tko.Condition{Message: "a", Attempt: 12}, want: "a (attempt 12)"},
		"without attempts": {why: "not everything is tried again", condition: tko.Condition{Message: "a (attempted)"}, want: "a (attempted)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.condition.Text(); got != test.want {
				t.Errorf("%s: got %q, want %q", test.why, got, test.want)
			}
		})
	}
}
