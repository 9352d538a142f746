package osm

import (
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm"
)

// reports are the last reports of the targets that this process has reconciled, by site and name.
// A report counts only as long as no other process has saved the state.
type reports struct {
	mu  sync.Mutex
	all map[reportKey]savedReport
}

type reportKey struct {
	site tko.SiteID
	name string
}

type savedReport struct {
	version int64 // of the saved state
	report  osm.Report
}

// take returns and removes the report for a saved state; the zero value if there is none.
func (r *reports) take(of tko.TargetState) osm.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := reportKey{of.Site, of.Name}
	saved, ok := r.all[key]
	delete(r.all, key)
	if !ok || saved.version != of.Version {
		return osm.Report{}
	}
	return saved.report
}

// put remembers a report, without what happened, for the state as it was saved.
func (r *reports) put(of tko.TargetState, report osm.Report) {
	report = report.Summary()
	if len(report.Instances) == 0 { // nothing to save requests for
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[reportKey]savedReport{}
	}
	r.all[reportKey{of.Site, of.Name}] = savedReport{version: of.Version, report: report}
}
