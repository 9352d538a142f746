package webapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// Limits of the runs that are held.
const (
	runsOfPlugin = 20
	maxRunners   = 200 // plugins; the one that ran longest ago makes room
)

// A PluginRun is a run of a plugin that has ended.
type PluginRun struct {
	Plugin string // TYPE|NAME
	Kind   tko.Kind
	ID     string // the deployment or site that it was for; "" if none
	Began  time.Time
	Took   time.Duration
	Result string // ok, refused, killed, canceled or failed
	Error  string
	Lines  []string // the last ones that it logged
	More   int      // lines before them
}

// PluginRuns holds the newest runs of each plugin. It is safe for concurrent use.
type PluginRuns struct {
	mutex    sync.Mutex
	byPlugin map[string][]PluginRun // oldest first
}

// Add adds a run.
func (p *PluginRuns) Add(r PluginRun) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.byPlugin == nil {
		p.byPlugin = map[string][]PluginRun{}
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
func (p *PluginRuns) of(selected func(PluginRun) bool) (all []PluginRun) {
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
	slices.SortFunc(all, func(a, b PluginRun) int { return b.Began.Compare(a.Began) })
	return all
}

type runBody struct {
	Plugin string   `json:"plugin"`
	Kind   tko.Kind `json:"kind,omitempty"`
	ID     string   `json:"id,omitempty"`
	Began  int64    `json:"began"` // Unix milliseconds
	Took   int64    `json:"took"`  // milliseconds
	Result string   `json:"result"`
	Error  string   `json:"error,omitempty"`
	Lines  []string `json:"lines,omitempty"`
	More   int      `json:"more,omitempty"`
}

type runsBody struct {
	Runs  []runBody `json:"runs"`
	Lines bool      `json:"lines"` // the caller may see what plugins log
}

// runs responds with the newest runs of a plugin, or for a deployment or site, of this
// process: ?kind=&id=. Callers see runs for entities that they may read, and what plugins
// log, which is up to their authors, only with the right to the server's log.
func (l *live) runs(r *http.Request) (*runsBody, error) {
	body := runsBody{Runs: []runBody{}}
	q, ctx := queryOf(r), r.Context()
	q.only("kind", "id")
	if q.err != nil {
		return nil, q.err
	}
	kind, id := tko.Kind(q.Get("kind")), q.Get("id")
	var err error
	selected := func(run PluginRun) bool { return run.Kind == kind && run.ID == id }
	switch kind {
	case tko.KindDeployment:
		_, err = l.catalog.Deployment(ctx, tko.DeploymentID(id), 0)
	case tko.KindSite:
		_, err = l.catalog.Site(ctx, tko.SiteID(id), 0)
	case tko.KindPlugin:
		typ, name, _ := strings.Cut(id, "|")
		_, err = l.catalog.Plugin(ctx, typ, name)
		selected = func(run PluginRun) bool { return run.Plugin == id }
	default:
		err = tko.Errorf(tko.ErrInvalid, "kind=%.40q is unknown: use deployment, site or plugin", string(kind))
	}
	if err != nil {
		return nil, err
	}
	if body.Lines, err = l.catalog.CanI(ctx, access.Logs, "", ""); err != nil {
		return nil, err
	}
	for _, run := range l.options.Runs.of(selected) {
		if run.ID != "" && kind == tko.KindPlugin {
			readable, err := l.catalog.CanI(ctx, access.Read, run.Kind, run.ID)
			if errors.Is(err, tko.ErrNotFound) || err == nil && !readable {
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		one := runBody{Plugin: run.Plugin, Kind: run.Kind, ID: run.ID, Began: run.Began.UnixMilli(), Took: run.Took.Milliseconds(), Result: run.Result, Error: run.Error}
		if body.Lines {
			one.Lines, one.More = run.Lines, run.More
		}
		body.Runs = append(body.Runs, one)
	}
	return &body, nil
}
