package cli

import (
	"strings"
	"testing"
	"time"
)

func TestFreezeNeedsSitesAnEndAndAReason(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"freeze --until 8h --reason x":                                "--site-metadata",
		"freeze --site-metadata region=north --reason x":              "--until",
		"freeze --site-metadata region=north --until 8h":              "--reason",
		"freeze --site-metadata region=north --until soon --reason x": `"soon"`,
		"unfreeze": "ID",
	} {
		r := run(t, &fake{}, "", strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit code %d, %s", args, r.code, r.err)
		}
	}
}

func TestFreezeEndsAtTimesAndDurations(t *testing.T) {
	t.Parallel()
	a := &app{now: func() time.Time { return noon }}
	for text, want := range map[string]time.Time{
		"8h": noon.Add(8 * time.Hour), "2026-03-05T01:00:00Z": time.Date(2026, 3, 5, 1, 0, 0, 0, time.UTC),
		"2026-03-05 01:00": time.Date(2026, 3, 5, 1, 0, 0, 0, time.Local),
	} {
		if got, err := a.timeAfter(text); err != nil || !got.Equal(want) {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
}
