package spec

import (
	"slices"
	"time"
	_ "time/tzdata" // so that zones don't depend on the system

	"github.com/tko-orchestrator/tko"
)

// Windows are the times at which deployments may be changed. Without windows that is
// always.
type Windows []Window

// A Window opens on days of the week, in the local time of a site. One whose From is
// later than its To closes on the next day; it belongs to the day on which it opens.
type Window struct {
	Days [7]bool       // by time.Weekday
	From time.Duration // since midnight, by the clock on the wall
	To   time.Duration // up to 24 h
	Key  string        // key of site metadata with the name of the zone; "": Zone counts
	Zone *time.Location
	// Required makes sites without the key invalid.
	Required bool
}

// Open reports whether a deployment at a site with this metadata may be changed now.
func (w Windows) Open(now time.Time, site map[string]string) bool {
	if len(w) == 0 {
		return true
	}
	for _, one := range w {
		if one.open(now, site) {
			return true
		}
	}
	return false
}

// NextOpening returns the first time from now on, in steps of minutes, at which a window
// is open for a site. It is zero if none opens within the next two weeks.
func (w Windows) NextOpening(now time.Time, site map[string]string) time.Time {
	if w.Open(now, site) {
		return now
	}
	var next time.Time
	for _, one := range w {
		if t := one.nextOpening(now, site); !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// location returns the zone for a site. If its metadata names no zone, that is the default:
// callers refuse such sites, which UnknownZone reports.
func (w Window) location(site map[string]string) *time.Location {
	if name, ok := site[w.Key]; ok && w.Key != "" {
		if zone, err := loadZone(name); err == nil {
			return zone
		}
	}
	return w.Zone
}

// UnknownZone returns the metadata of a site that a window depends on and that names no
// time zone, so that it isn't known when the window opens there. ok is false if there is
// none.
func (w Windows) UnknownZone(site map[string]string) (key, value string, ok bool) {
	for _, one := range w {
		if name, has := site[one.Key]; has && one.Key != "" {
			if _, err := loadZone(name); err != nil {
				return one.Key, name, true
			}
		}
	}
	return "", "", false
}

// slot is the resolution with which Overlap compares windows.
const slot = 15 * time.Minute

// Overlap reports whether there is a time, within a week from now on, at which a site of
// one set and a site of another one may be changed. Each set has the metadata of sites.
func (w Windows) Overlap(now time.Time, one, other []map[string]string) bool {
	if len(w) == 0 || len(one) == 0 || len(other) == 0 {
		return true
	}
	now = now.Truncate(slot)
	anyOpen := func(sites []map[string]string, at time.Time) bool {
		return slices.ContainsFunc(sites, func(site map[string]string) bool { return w.Open(at, site) })
	}
	for at := now; at.Before(now.Add(7 * 24 * time.Hour)); at = at.Add(slot) {
		if anyOpen(one, at) && anyOpen(other, at) {
			return true
		}
	}
	return false
}

func (w Window) open(now time.Time, site map[string]string) bool {
	local := now.In(w.location(site))
	clock := clockOf(local)
	if w.From < w.To {
		return w.Days[local.Weekday()] && w.From <= clock && clock < w.To
	}
	yesterday := (local.Weekday() + 6) % 7
	return w.Days[local.Weekday()] && clock >= w.From || w.Days[yesterday] && clock < w.To
}

func (w Window) nextOpening(now time.Time, site map[string]string) time.Time {
	local := now.In(w.location(site))
	year, month, day := local.Date()
	for i := range 15 {
		at := time.Date(year, month, day+i, int(w.From/time.Hour), int(w.From%time.Hour/time.Minute), 0, 0, local.Location())
		// If the clock skips From, the window opens when the clock goes on; if it shows From
		// twice, the window opens twice, and at is any of both times.
		for _, later := range []time.Duration{-time.Hour, -30 * time.Minute, 0, 30 * time.Minute, time.Hour} {
			if t := at.Add(later); t.After(now) && w.open(t, site) {
				return t
			}
		}
	}
	return time.Time{}
}

// clockOf returns the time on the wall since midnight. On days on which clocks change it
// isn't the time that passed since then.
func clockOf(t time.Time) time.Duration {
	hour, minute, second := t.Clock()
	return time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second + time.Duration(t.Nanosecond())
}

// ParseWindows reads windows as those of rollouts, without keys of metadata. ErrInvalid if they can't
// be used.
func ParseWindows(all []any) (Windows, error) {
	c := &checker{}
	if len(all) > MaxWindows {
		return nil, tko.Errorf(tko.ErrInvalid, "there are %d windows: use at most %d", len(all), MaxWindows)
	}
	var out Windows
	for i, one := range all {
		w := c.window(one, element("window", i))
		if w.Key != "" || w.Required {
			c.add(element("window", i)+".zone", "has a key of metadata, and there is none here: name the zone with default")
		}
		out = append(out, w)
	}
	if len(c.findings) > 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "%s %s", c.findings[0].Path, c.findings[0].Reason)
	}
	return out, nil
}
