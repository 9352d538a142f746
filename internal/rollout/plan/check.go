package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/internal/spelling"
)

// A Site is what a check of a plan needs to know of a site.
type Site struct {
	Metadata map[string]string
	// Unreported is true if no target of the site reports health.
	Unreported bool
	// Away is true if the agent of the site isn't heard.
	Away bool
}

// A Checker examines what a plan does, and what its spec expects of sites that they don't
// have: keys of metadata, time zones, reports of health. It gets each site of a row before
// the row. Make it with NewChecker.
type Checker struct {
	spec spec.Rollout
	keys []checkedKey

	sites      map[tko.SiteID]checkedSite
	names      map[string]bool // of metadata, at any site
	unreported int             // rows
	away       int             // rows
	awaySites  []tko.SiteID    // the first ones
	awayCount  int             // sites
	going      map[string]int  // rows by the key of metadata that they lose
	zones      map[int]map[string]map[string]string
}

type checkedKey struct {
	spec.Key

	having  int
	lacking []tko.SiteID // the first ones
	without int
}

type checkedSite struct {
	unreported bool
	away       bool
	zones      map[string]string // metadata under the keys of windows
}

// NewChecker returns a Checker of the plan of a spec.
func NewChecker(s spec.Rollout) *Checker {
	c := &Checker{spec: s, sites: map[tko.SiteID]checkedSite{}, names: map[string]bool{}, going: map[string]int{}, zones: map[int]map[string]map[string]string{}}
	for _, key := range s.Keys() {
		c.keys = append(c.keys, checkedKey{Key: key})
	}
	return c
}

// Knows reports whether the checker has got a site.
func (c *Checker) Knows(id tko.SiteID) bool {
	_, ok := c.sites[id]
	return ok
}

const (
	maxNamed    = 3    // examples of a warning
	maxWarnings = 20   // of a plan
	maxNames    = 1000 // keys of metadata that are considered for suggestions
)

// Site adds a site. It returns why rows there are invalid; "" if they aren't.
func (c *Checker) Site(id tko.SiteID, s Site) (finding string) {
	one := checkedSite{unreported: s.Unreported, away: s.Away}
	if s.Away {
		c.awayCount++
		if len(c.awaySites) < maxNamed {
			c.awaySites = append(c.awaySites, id)
		}
	}
	for name := range s.Metadata {
		if len(c.names) < maxNames {
			c.names[name] = true
		}
	}
	for i := range c.keys {
		key := &c.keys[i]
		if _, ok := s.Metadata[key.Name]; ok {
			key.having++
			continue
		}
		key.without++
		if len(key.lacking) < maxNamed {
			key.lacking = append(key.lacking, id)
		}
		if key.Required && finding == "" {
			finding = fmt.Sprintf("site %q has no metadata %q, which %s requires: set it (tko site set, or where the site comes from), and plan again", id, key.Name, key.Path)
		}
	}
	for _, w := range c.spec.Windows {
		if value, ok := s.Metadata[w.Key]; ok && w.Key != "" {
			if one.zones == nil {
				one.zones = map[string]string{}
			}
			one.zones[w.Key] = value
		}
	}
	c.sites[id] = one
	if finding != "" {
		return finding
	}
	if key, value, unknown := c.spec.Windows.UnknownZone(s.Metadata); unknown {
		return fmt.Sprintf("the metadata %q of site %q is %.100q, which is no time zone, so the window of the rollout isn't known there: set it to one such as UTC or Europe/Berlin, or remove it, "+
			"and plan again", key, id, value)
	}
	return ""
}

// Row adds a row that applies.
func (c *Checker) Row(d Draft) {
	if d.Kind != Delete && d.Site != "" && c.sites[d.Site].unreported {
		c.unreported++
	}
	if d.Site != "" && c.sites[d.Site].away {
		c.away++
	}
	if d.BeforeState == nil || d.AfterState == nil {
		return
	}
	after := d.AfterState.Deployment.Metadata
	for key := range d.BeforeState.Deployment.Metadata {
		if _, ok := after[key]; !ok && (len(c.going) < maxNames || c.going[key] > 0) {
			c.going[key]++
		}
	}
}

// Placed adds the wave of a row at a site.
func (c *Checker) Placed(site tko.SiteID, wave int) {
	if len(c.spec.Windows) == 0 || wave < 0 || site == "" {
		return
	}
	zones := c.sites[site].zones
	parts := make([]string, 0, len(zones))
	for _, key := range slices.Sorted(maps.Keys(zones)) {
		parts = append(parts, fmt.Sprintf("%q=%q", key, zones[key]))
	}
	if c.zones[wave] == nil {
		c.zones[wave] = map[string]map[string]string{}
	}
	c.zones[wave][strings.Join(parts, ",")] = zones
}

// Unreported returns the number of rows that change deployments at sites that report no
// health.
func (c *Checker) Unreported() int { return c.unreported }

// Check returns an ErrInvalid that names the keys of metadata that no site has.
func (c *Checker) Check() error {
	if len(c.sites) == 0 {
		return nil // nothing is selected
	}
	names := slices.Sorted(maps.Keys(c.names))
	var wrong []string
	for _, key := range c.keys {
		if key.having > 0 {
			continue
		}
		text := fmt.Sprintf("%s: none of the %s of the plan has the metadata %q", key.Path, count(len(c.sites), "site", "sites"), printable.Short(key.Name, 100))
		if near := spelling.Nearest(key.Name, names); near != "" {
			text += fmt.Sprintf(": did you mean %q?", near)
		} else {
			text += fmt.Sprintf(", so %s: correct the key, or remove it", key.Effect)
		}
		wrong = append(wrong, text)
	}
	if len(wrong) == 0 {
		return nil
	}
	return tko.Errorf(tko.ErrInvalid, "%s", strings.Join(wrong, "; "))
}

// Warnings returns what a reviewer should know of the plan. vanished are the deployments that
// the former plan changes and this one doesn't select.
func (c *Checker) Warnings(now time.Time, vanished []tko.DeploymentID) []string {
	var out []string
	for _, key := range c.keys {
		if key.without > 0 && !key.Required {
			out = append(out, fmt.Sprintf("%s the metadata %q, which %s names: %s (such as %s)", count(key.without, "site lacks", "sites lack"), key.Name, key.Path, key.Effect, firstOf(key.lacking)))
		}
	}
	if c.unreported > 0 && !c.spec.Health.AcceptNone {
		out = append(out, count(c.unreported, "deployment is", "deployments are")+" at sites that report no health: start the rollout with --blind, or set spec.health.none to Accept, to take them for healthy once they are scheduled")
	}
	if c.away > 0 {
		out = append(out, fmt.Sprintf("%s away: the agents of %s (such as %s) are not heard now: with spec.unreachable %s, %s", count(c.away, "deployment is", "deployments are"),
			count(c.awayCount, "site", "sites"), firstOf(c.awaySites), cmp.Or(c.spec.Unreachable, spec.UnreachableWait), awayEffect[cmp.Or(c.spec.Unreachable, spec.UnreachableWait)]))
	}
	out = append(out, c.overlaps(now)...)
	if len(vanished) > 0 {
		out = append(out, fmt.Sprintf("%s of the former plan, such as %s", count(len(vanished), "deployment is no longer selected", "deployments are no longer selected"), firstOf(vanished)))
	}
	for _, key := range slices.Sorted(maps.Keys(c.going)) {
		out = append(out, fmt.Sprintf("%s the metadata %q", count(c.going[key], "deployment loses", "deployments lose"), key))
	}
	if len(out) > maxWarnings {
		more := len(out) - maxWarnings + 1
		out = append(out[:maxWarnings-1], fmt.Sprintf("and %d more", more))
	}
	return out
}

// awayEffect says what happens to deployments at sites that are still away when they would be
// changed.
var awayEffect = map[spec.Unreachable]string{
	spec.UnreachableWait: "those that are away when they would be changed wait, and so do the waves after them",
	spec.UnreachableSkip: "those that are away when they would be changed are left out",
	spec.UnreachableFail: "those that are away when they would be changed are left out, and count as failed",
}

// overlaps returns the waves whose sites can't be changed at a time when those of the next
// one can.
func (c *Checker) overlaps(now time.Time) (out []string) {
	waves := slices.Sorted(maps.Keys(c.zones))
	for i := 1; i < len(waves); i++ {
		one, next := slices.Collect(maps.Values(c.zones[waves[i-1]])), slices.Collect(maps.Values(c.zones[waves[i]]))
		if !c.spec.Windows.Overlap(now, one, next) {
			out = append(out, fmt.Sprintf("the windows of wave %q and wave %q are never open at the same time: what is found in the one is not seen while the other one is changed", c.wave(waves[i-1]), c.wave(waves[i])))
		}
	}
	return out
}

func (c *Checker) wave(n int) string {
	if n < len(c.spec.Waves) {
		return c.spec.Waves[n].Name
	}
	return strconv.Itoa(n + 1)
}

func firstOf[T ~string](ids []T) string {
	parts := make([]string, 0, maxNamed)
	for _, id := range ids[:min(len(ids), maxNamed)] {
		parts = append(parts, fmt.Sprintf("%q", id))
	}
	return strings.Join(parts, ", ")
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
