package tko_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

func TestMomentsAreParsed(t *testing.T) {
	zone := time.FixedZone("zone", 2*60*60)
	now := time.Date(2026, 11, 22, 10, 30, 0, 0, zone)
	for text, want := range map[string]tko.AsOf{
		"1234":                        {Position: 1234},
		"2026-11-21T14:00:00Z":        {Time: time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)},
		"2026-11-21T14:00:00.5+01:00": {Time: time.Date(2026, 11, 21, 13, 0, 0, 500_000_000, time.UTC)},
		"2h":                          {Time: now.Add(-2 * time.Hour)},
		"1h30m ago":                   {Time: now.Add(-90 * time.Minute)},
		"3d":                          {Time: now.Add(-72 * time.Hour)},
		"09:15":                       {Time: time.Date(2026, 11, 22, 9, 15, 0, 0, zone)},
		"yesterday 14:00":             {Time: time.Date(2026, 11, 21, 14, 0, 0, 0, zone)},
		"today 08:00:30":              {Time: time.Date(2026, 11, 22, 8, 0, 30, 0, zone)},
		"2026-11-01":                  {Time: time.Date(2026, 11, 1, 0, 0, 0, 0, zone)},
		"2026-11-01 23:59":            {Time: time.Date(2026, 11, 1, 23, 59, 0, 0, zone)},
	} {
		got, err := tko.ParseAsOf(text, now)
		if err != nil || got.Position != want.Position || !got.Time.Equal(want.Time) {
			t.Errorf("%q is %+v, %v, want %+v", text, got, err, want)
		}
		again, err := tko.ParseAsOf(got.String(), now)
		if err != nil || again.Position != want.Position || !again.Time.Equal(want.Time) {
			t.Errorf("%q, written and parsed, is %+v, %v", text, again, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "99999999999999999999", "tomorrow", "-2h", "11:00", "2027-01-01", "25:00", "2026-13-01", "now", "ago"} {
		if got, err := tko.ParseAsOf(text, now); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%q is %+v, %v, want an ErrInvalid", text, got, err)
		}
	}
}
