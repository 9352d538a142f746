package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// memoryState is the name of the state that the meta-scheduler itself saves for a site. A
// resource of a package can't have it.
const memoryState = "meta-scheduler/delivered"

// memories reads the memory of a site when it is first needed: at most sites deployments have
// nothing in common, and no plugin runs.
type memories struct {
	read   func() (memory, error)
	known  bool
	memory memory
}

func (m *memories) get() (memory, error) {
	if m.known {
		return m.memory, nil
	}
	found, err := m.read()
	m.memory, m.known = found, err == nil
	return found, err
}

// A memory is what the meta-scheduler has to know of former reconciliations of a site: by
// step, as its String has it.
type memory struct {
	// Delivered are the revisions that a plugin got when it succeeded last.
	Delivered map[string]map[tko.DeploymentID]int64 `json:"delivered,omitempty"`
	// Shared are the objects that deployments had in common, with the same content, when a
	// target succeeded last.
	Shared map[string]map[string]sharing `json:"shared,omitempty"`
}

// recall reads the memory of a site; it is empty if there is none.
func (s *Scheduler) recall(ctx context.Context, site tko.SiteID) (memory, error) {
	var m memory
	saved, err := s.client.TargetState(ctx, site, memoryState)
	if errors.Is(err, tko.ErrNotFound) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("reading what was delivered to site %q: %w", site, err)
	}
	if err := json.Unmarshal(saved.State, &m); err != nil {
		return m, fmt.Errorf("reading what was delivered to site %q: %w", site, err)
	}
	return m, nil
}

// remember saves what this reconciliation has delivered, if it differs from the memory, and
// if that was needed. It needs the claim of the site's work.
func (s *Scheduler) remember(ctx context.Context, site tko.SiteID, of *memories, p plan, results []result) error {
	claim, ok := tko.ClaimOf(ctx)
	if !ok || !of.known {
		return nil
	}
	was := of.memory
	now := memory{Delivered: map[string]map[tko.DeploymentID]int64{}, Shared: map[string]map[string]sharing{}}
	for i, step := range p.steps {
		name := step.String()
		switch r := results[i]; {
		case step.target == nil && r.delivered != nil:
			now.Delivered[name] = r.delivered
		case step.target == nil:
			now.Delivered[name] = was.Delivered[name]
		case step.place.Shares:
			now.Shared[name] = r.sharedAfter(was.Shared[name])
		}
	}
	maps.DeleteFunc(now.Delivered, func(_ string, of map[tko.DeploymentID]int64) bool { return of == nil })
	maps.DeleteFunc(now.Shared, func(_ string, of map[string]sharing) bool { return len(of) == 0 })
	if sameMemory(now, was) {
		return nil
	}
	state, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if _, err := s.client.SaveTargetState(ctx, tko.TargetState{Site: site, Name: memoryState, State: state}, claim); err != nil {
		return fmt.Errorf("saving what was delivered to site %q: %w", site, err)
	}
	return nil
}

func sameMemory(a, b memory) bool {
	return len(a.Delivered) == len(b.Delivered) && len(a.Shared) == len(b.Shared) &&
		(len(a.Delivered) == 0 || reflect.DeepEqual(a.Delivered, b.Delivered)) && (len(a.Shared) == 0 || reflect.DeepEqual(a.Shared, b.Shared))
}

// sharedAfter returns the objects that deployments share after a step: those whose content
// at the target is now that of all of them, and former ones whose sharers differ or that
// were not applied.
func (r result) sharedAfter(former map[string]sharing) map[string]sharing {
	after := map[string]sharing{}
	for name, now := range r.contest.shared {
		delivered := r.err == nil && !slices.ContainsFunc(now.Sharers, func(id tko.DeploymentID) bool { return !r.report.Receipts[id].Delivered })
		if was, ok := former[name]; delivered {
			after[name] = now
		} else if ok {
			after[name] = was
		}
	}
	for name := range r.contest.open {
		if was, ok := former[name]; ok {
			after[name] = was
		}
	}
	return after
}
