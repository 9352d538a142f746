package catalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Limits of the runs of plugins.
const (
	runsOfPlugin = 20
	maxRunners   = 200     // plugins; the one that ran longest ago makes room
	maxRuns      = 200     // in one response
	maxRunsBytes = 2 << 20 // of what they logged, in one response
)

// PluginRuns holds the newest runs of each plugin in this process. It is safe for concurrent
// use.
type PluginRuns struct {
	mutex    sync.Mutex
	byPlugin map[string][]tko.PluginRun // oldest first
}

// Add adds a run.
func (p *PluginRuns) Add(r tko.PluginRun) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.byPlugin == nil {
		p.byPlugin = map[string][]tko.PluginRun{}
	}
	if _, ok := p.byPlugin[r.Plugin]; !ok && len(p.byPlugin) == maxRunners {
		oldest := ""
		for name, runs := range p.byPlugin {
			if oldest == "" || runs[len(runs)-1].Began.Before(p.byPlugin[oldest][len(p.byPlugin[oldest])-1].Began) {
				oldest = name
			}
		}
		delete(p.byPlugin, oldest)
	}
	runs := p.byPlugin[r.Plugin]
	if len(runs) == runsOfPlugin {
		runs = slices.Delete(runs, 0, 1)
	}
	p.byPlugin[r.Plugin] = append(runs, r)
}

// of returns the runs that are selected, newest first.
func (p *PluginRuns) of(selected func(tko.PluginRun) bool) (all []tko.PluginRun) {
	if p == nil {
		return nil
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, runs := range p.byPlugin {
		for _, r := range runs {
			if selected(r) {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(a, b tko.PluginRun) int { return b.Began.Compare(a.Began) })
	return all
}

// PluginRuns returns the newest runs of plugins for a deployment or site, or of a plugin, whose
// ID is TYPE|NAME, in this process. Callers see runs for entities that they may read, and what
// plugins log, which is up to their authors, only with the right to the server's log.
func (s *Explainer) PluginRuns(ctx context.Context, kind tko.Kind, id string) (found tko.PluginRuns, err error) {
	selected := func(run tko.PluginRun) bool { return run.Kind == kind && run.ID == id }
	switch kind {
	case tko.KindDeployment:
		_, err = s.entities.Deployment(ctx, tko.DeploymentID(id), 0)
	case tko.KindSite:
		_, err = s.entities.Site(ctx, tko.SiteID(id), 0)
	case tko.KindPlugin:
		typ, name, _ := strings.Cut(id, "|")
		_, err = s.entities.Plugin(ctx, typ, name)
		selected = func(run tko.PluginRun) bool { return run.Plugin == id }
	default:
		err = tko.Errorf(tko.ErrInvalid, "kind=%.40q is unknown: use deployment, site or plugin", string(kind))
	}
	if err != nil {
		return found, err
	}
	ctx, c, err := s.rights.Enter(ctx, "", access.Open)
	if err != nil {
		return found, err
	}
	found.Lines = c.Grant.Somewhere(access.Logs, "")
	size := 0
	for _, run := range s.runs.of(selected) {
		if run.ID != "" && kind == tko.KindPlugin {
			r, err := s.reader.One(ctx, record.Fields{}, record.Key{Kind: run.Kind, ID: run.ID})
			if errors.Is(err, tko.ErrNotFound) || err == nil && !c.Sees(r) {
				continue
			}
			if err != nil {
				return found, err
			}
		}
		if !found.Lines {
			run.Lines, run.More = nil, 0
		}
		for _, line := range run.Lines {
			size += len(line)
		}
		if len(found.Runs) == maxRuns || size > maxRunsBytes {
			found.More++
			continue
		}
		run.Lines = slices.Clone(run.Lines)
		found.Runs = append(found.Runs, run)
	}
	return found, nil
}
