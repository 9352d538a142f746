package chart_test

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/chart"
	"github.com/tko-orchestrator/tko/krm"
)

func TestValuesAreHiddenInAllForms(t *testing.T) {
	t.Parallel()
	values := map[string]any{"a": []any{"first\nsecond \"line\"\n", int64(123456)}, "b": "ab", "c": "firstandmore"}
	for text, want := range map[string]string{
		"is first, or second": krm.Redacted + ", or second", "ab stays": "ab stays", `"second \"line\""`: `"` + krm.Redacted + `"`,
		"firstandmore first": krm.Redacted + " " + krm.Redacted, "n=123456": "n=" + krm.Redacted, "Zmlyc3Q=": krm.Redacted, "": "",
	} {
		want = strings.Replace(want, krm.Redacted+", or", "is "+krm.Redacted+", or", 1)
		if got := (chart.Secrets{values}).Hide(text); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
	if got := chart.Secrets(nil).Hide("first"); got != "first" {
		t.Error(got)
	}
}
