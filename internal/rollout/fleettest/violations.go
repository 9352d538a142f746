package fleettest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// Violations recomputes all limits from scratch and returns what exceeds one, in words:
// nothing, unless there is a defect. It shares no code with [execute.Flight.Check]. limits are those of
// families. Only the values at admission count, because sites may be relabelled later.
func Violations(entries []execute.Entry, limits map[string]spec.Limits) []string {
	var out []string
	seen := map[tko.DeploymentID]bool{}
	for _, e := range entries {
		if seen[e.Deployment] {
			out = append(out, fmt.Sprintf("deployment %q is in flight twice", e.Deployment))
		}
		seen[e.Deployment] = true
	}
	for _, family := range slices.Sorted(maps.Keys(limits)) {
		l := limits[family]
		total := 0
		per := make([]map[string]int, len(l.Per))
		for _, e := range entries {
			if e.Family != family {
				continue
			}
			total++
			for i, p := range l.Per {
				if value, ok := e.Values[p.Key]; ok {
					if per[i] == nil {
						per[i] = map[string]int{}
					}
					per[i][value]++
				}
			}
		}
		if total > l.Concurrent {
			out = append(out, fmt.Sprintf("rollout %q has %d deployments in flight, more than %d", family, total, l.Concurrent))
		}
		for i, p := range l.Per {
			for _, value := range slices.Sorted(maps.Keys(per[i])) {
				if per[i][value] > p.Max {
					out = append(out, fmt.Sprintf("rollout %q has %d deployments with %s %q in flight, more than %d", family, per[i][value], p.Key, value, p.Max))
				}
			}
		}
		for _, key := range l.Apart {
			sites := map[string]tko.SiteID{}
			for _, e := range entries { // pairs of which the family has one
				if value, ok := e.Values[key]; ok && e.Family == family && e.Site != "" {
					sites[value] = e.Site
				}
			}
			for _, e := range entries {
				value, ok := e.Values[key]
				if site, has := sites[value]; ok && has && e.Family != "" && e.Site != "" && e.Site != site {
					out = append(out, fmt.Sprintf("sites %q and %q with %s %q are in flight", site, e.Site, key, value))
				}
			}
		}
	}
	return out
}
