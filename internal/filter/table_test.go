package filter

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Each field of a select is one filter of its table, which has one value for it: a filter that
// a form doesn't know selects everything.
func TestEachFieldOfASelectIsOneFilter(t *testing.T) {
	t.Parallel()
	checkTable(t, Templates)
	checkTable(t, Sites)
	checkTable(t, Deployments)
	checkTable(t, Rollouts)
}

func checkTable[S any](t *testing.T, fields []Field[S]) {
	t.Helper()
	typ := reflect.TypeFor[S]()
	known := map[string]string{}
	for _, f := range fields {
		var sel S
		kinds := 0
		if f.Patterns != nil {
			*f.Patterns(&sel) = []string{"a"}
			kinds++
		}
		if f.Metadata != nil {
			*f.Metadata(&sel) = map[string]string{"k": "a"}
			kinds++
		}
		if f.Text != nil {
			*f.Text(&sel) = "a"
			kinds++
		}
		if f.Flag != nil {
			*f.Flag(&sel) = new(bool)
			kinds++
		}
		if f.Since != nil {
			*f.Since(&sel) = time.UnixMicro(1)
			kinds++
		}
		if f.Conditions != nil {
			*f.Conditions(&sel) = []tko.ConditionSelect{{Type: "T"}}
			kinds++
		}
		if kinds != 1 || !f.IsSet(&sel) || f.IsSet(new(S)) {
			t.Errorf("%s: the filter %q has %d values; set: %t, in an empty select: %t", typ, f.Wire, kinds, f.IsSet(&sel), f.IsSet(new(S)))
		}
		if f.Column != "" && f.Flag == nil && f.Since == nil {
			t.Errorf("%s: the filter %q names a column, and compares none", typ, f.Wire)
		}
		set := ""
		var setSb59 strings.Builder
		for i := range typ.NumField() {
			if !reflect.ValueOf(sel).Field(i).IsZero() {
				setSb59.WriteString(typ.Field(i).Name)
			}
		}
		set += setSb59.String()
		if other, ok := known[set]; ok {
			t.Errorf("%s.%s is the filter %q, and %q", typ, set, other, f.Wire)
		}
		known[set] = f.Wire
	}
	for field := range typ.Fields() {
		if _, ok := known[field.Name]; !ok {
			t.Errorf("%s.%s is no filter: add it to the table", typ, field.Name)
		}
	}
}

func TestMomentsAreTimesOfThePast(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "2026-11-22T13:00:00+01:00": now.Add(-2 * time.Hour), "2026-11-22": now.Add(-14 * time.Hour),
	} {
		if got, err := ParseSince(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"1234", "tomorrow", "2026-11-23T00:00:00Z", ""} {
		if got, err := ParseSince(text, now); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}
