package form

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

func TestConditionsAreParsedAsFormatted(t *testing.T) {
	t.Parallel()
	moment := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	prepared := tko.Condition{
		Type: tko.ConditionPrepared, Status: tko.ConditionTrue, Reason: tko.ConditionPrepared, LastTransition: moment, ObservedRevision: 7,
	}
	tests := map[string]struct {
		why        string
		conditions []tko.Condition
		most       int // bytes
	}{
		"none":  {why: "most records of other kinds have none", most: 0},
		"usual": {why: "every deployment has one", conditions: []tko.Condition{prepared}, most: 22},
		"several": {why: "each begins where the one before ends", conditions: []tko.Condition{
			prepared, {Type: tko.ConditionHealthy, Status: tko.ConditionUnknown}, {Type: tko.ConditionDeleting, Status: tko.ConditionFalse}, prepared,
		}, most: 70},
		"unknown words": {why: "controllers may set any text", conditions: []tko.Condition{{
			Type: "example.com/Ours", Status: "Maybe", Reason: "12:Odd;", Message: "line 1\n!PT=0:\x1f;ä;", LastTransition: moment, ObservedRevision: -1,
		}}, most: 120},
		"one-letter words": {why: "a word is never parsed as a letter code", conditions: []tko.Condition{{
			Type: "P", Status: "T", Reason: "=", Message: "A",
		}}, most: 40},
		"attached": {why: "attachments of transports are stored", conditions: []tko.Condition{
			prepared, {Type: "T", LastTransition: moment, Attached: `[{"manager":"a"}]`},
		}, most: 400},
		"retried": {why: "attempts are stored, in a form that earlier versions read", conditions: []tko.Condition{
			prepared, {Type: "T", Message: "m", LastTransition: moment, Attempt: 3, NextTry: moment.Add(time.Minute)},
		}, most: 400},
		"last attempt":       {why: "an attempt without a next one is stored", conditions: []tko.Condition{{Type: "T", Attempt: 1}}, most: 200},
		"zero time":          {why: "the zero time stays zero", conditions: []tko.Condition{{Type: "T", LastTransition: time.Time{}}}, most: 40},
		"before 1970":        {why: "numbers may be negative", conditions: []tko.Condition{{Type: "T", LastTransition: time.Unix(-1, 5).UTC()}}, most: 40},
		"beyond nanoseconds": {why: "any time that can be set is stored", conditions: []tko.Condition{{Type: "T", LastTransition: moment.AddDate(900, 0, 0)}}, most: 300},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := FormatConditions(test.conditions)
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > test.most {
				t.Errorf("%q has %d bytes, want %d at most", text, len(text), test.most)
			}
			got, err := ParseConditions(text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.conditions, got); diff != "" {
				t.Errorf("%s: read from %q (-want +got):\n%s", test.why, text, diff)
			}
		})
	}
}

// Earlier versions of TKO stored conditions as JSON.
func TestConditionsOfEarlierVersionsAreParsed(t *testing.T) {
	t.Parallel()
	got, err := ParseConditions(`[{"Type":"Approved","Status":"True","Reason":"Approved","Message":"","LastTransition":"2026-11-21T16:32:04.241142328Z","ObservedRevision":1}]`)
	if err != nil {
		t.Fatal(err)
	}
	want := []tko.Condition{{
		Type: tko.ConditionApproved, Status: tko.ConditionTrue, Reason: "Approved",
		LastTransition: time.Date(2026, 11, 21, 16, 32, 4, 241142328, time.UTC), ObservedRevision: 1,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// While servers are upgraded, servers of the earlier version read what this one writes:
// attempts must not be in the short form, whose parser knows no further fields.
func TestConditionsWithAttemptAreWrittenAsJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []tko.Condition{{Type: "T", Attempt: 1}, {Type: "T", NextTry: time.Unix(1, 0)}} {
		if text, err := FormatConditions([]tko.Condition{c}); err != nil || !strings.HasPrefix(text, `[{"Type":"T"`) {
			t.Errorf("%+v is stored as %s, %v, want JSON", c, text, err)
		}
	}
	if text, err := FormatConditions([]tko.Condition{{Type: "T", Attached: "a"}}); err != nil || strings.Contains(text, "Attempt") || strings.Contains(text, "NextTry") {
		t.Errorf("without an attempt: stored as %s, %v, want no fields of attempts", text, err)
	}
}

// Any text in the database is parsed or refused.
func FuzzConditions(f *testing.F) {
	for _, text := range []string{
		"!", "!P", "!PT=0:", "!PT=0:1;", "!PT=0:1;1", "!PT=9:1;1;", "!?T=0:1;1;", "!PT=0:zz zz;1;", "!PT=0:;x;", "!99999999999999999999:a", "!PT=-1:;1;", "[", "{}", "!==0:0:;;",
	} {
		if _, err := ParseConditions(text); err == nil && text != "!" {
			f.Errorf("%q was parsed as conditions, want an error", text)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		conditions, err := ParseConditions(text)
		if err != nil || !strings.HasPrefix(text, "!") {
			return
		}
		again, err := FormatConditions(conditions)
		if err != nil {
			t.Fatal(err)
		}
		same, err := ParseConditions(again)
		if err != nil {
			t.Fatalf("%q, of %q: %v", again, text, err)
		}
		if len(same)+len(conditions) > 0 && !cmp.Equal(same, conditions) {
			t.Errorf("%q isn't read as %q", again, text)
		}
	})
}
