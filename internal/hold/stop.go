package hold

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// The limits of stops.
const (
	maxStops        = 1000
	maxStopPatterns = 100
)

// SiteStops keep everything from beginning at sites and in topologies.
type SiteStops struct{ *holds }

// Stop stops what is selected, and returns the stop with what is in flight there. A stop with
// the same selection keeps its ID, and gets the reason and the author of the call; it stops
// undos again, too. The caller must hold the right call on each site that is selected. A stop
// that selects nothing that exists is an ErrInvalid, except for one of everything.
func (s *SiteStops) Stop(ctx context.Context, stop tko.Stop) (tko.StopStatus, error) {
	ctx, c, err := s.rights.EnterOperator(ctx)
	if err != nil {
		return tko.StopStatus{}, err
	}
	if err := checkStop(stop); err != nil {
		return tko.StopStatus{}, err
	}
	if err := s.permitStop(ctx, c, stop); err != nil {
		return tko.StopStatus{}, err
	}
	stop.By, stop.OnlyUndo, stop.Reason = rights.Author(ctx), false, strings.TrimSpace(stop.Reason)
	id, now := uuid.NewString(), time.Now().UTC().Truncate(time.Second)
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		stop.ID, stop.Created = id, now
		if i := slices.IndexFunc(book.Stops, func(old tko.Stop) bool { return sameStop(old, stop) }); i >= 0 {
			stop.ID, stop.Created = book.Stops[i].ID, book.Stops[i].Created
		} else if len(book.Stops) >= maxStops {
			return change, tko.Errorf(tko.ErrInvalid, "there are %d stops, the maximum: use --all, or release some (tko stop list)", len(book.Stops))
		}
		return change, change.Write(record.RuleStop, stop.ID, stop, describeStop("stopped", stop))
	})
	if err != nil {
		return tko.StopStatus{}, err
	}
	return s.statusAfter(ctx, stop)
}

// Resume ends a stop, or lets undos go on, and returns what waited for it. If more sites wait
// than are free, they are released in waves, unless the caller confirms their number. With
// DryRun it changes nothing. A stop that doesn't exist is an ErrNotFound.
func (s *SiteStops) Resume(ctx context.Context, request tko.Release) (tko.StopStatus, error) {
	ctx, c, err := s.rights.EnterOperator(ctx)
	if err != nil {
		return tko.StopStatus{}, err
	}
	find := func(book *rights.Book) (tko.Stop, error) {
		i := slices.IndexFunc(book.Stops, func(one tko.Stop) bool { return one.ID == request.ID })
		if i < 0 {
			return tko.Stop{}, tko.Errorf(tko.ErrNotFound, "stop %.60q: not found: tko stop list shows those that there are", request.ID)
		}
		return book.Stops[i], nil
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return tko.StopStatus{}, err
	}
	stop, err := find(book)
	if err == nil {
		err = s.permitStop(ctx, c, stop)
	}
	if err != nil {
		return tko.StopStatus{}, err
	}
	status, err := s.status(ctx, stop)
	if err != nil || request.DryRun {
		return status, err
	}
	sites, waves, err := s.judgeRelease(ctx, stop, request)
	if err != nil {
		return tko.StopStatus{}, err
	}
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		stop, err := find(book)
		if err != nil {
			return change, err
		}
		if request.OnlyUndo {
			stop.OnlyUndo, status.Stop.OnlyUndo = true, true
			return change, change.Write(record.RuleStop, stop.ID, stop, describeStop("released for undos", stop))
		}
		if waves {
			if stop.Releasing {
				return change, tko.Errorf(tko.ErrInvalid, "stop %s is being released: %s", stop.ID, stop.Text())
			}
			stop = beginRelease(stop, sites, s.releaseWaves())
			status.Stop = stop
			return change, change.Write(record.RuleStop, stop.ID, stop, describeStop("began to release", stop))
		}
		change.Erase(record.RuleStop, stop.ID)
		change.Records = []audit.Record{describeStop("resumed", stop)}
		return change, nil
	})
	if err != nil {
		return tko.StopStatus{}, err
	}
	return status, s.enqueueStopped(ctx, stop)
}

// Stops returns the stops, the oldest first, each with what it holds now.
func (s *SiteStops) Stops(ctx context.Context) ([]tko.StopStatus, error) {
	ctx, c, err := s.rights.Enter(ctx, tko.KindSite, access.Read)
	if err != nil {
		return nil, err
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	stops := slices.Clone(book.Stops)
	slices.SortFunc(stops, func(a, b tko.Stop) int {
		if d := a.Created.Compare(b.Created); d != 0 {
			return d
		}
		return strings.Compare(a.ID, b.ID)
	})
	var seen []tko.StopStatus
	for _, stop := range stops {
		status, err := s.status(ctx, stop)
		if err != nil {
			return nil, err
		}
		if stop.All || c.View().IsAll() || status.SiteCount+status.DeploymentCount > 0 {
			seen = append(seen, status)
		}
	}
	return seen, nil
}

// SiteStop returns what of a site stops hold now, for controllers. For no site, it returns
// whether everything is stopped.
func (s *SiteStops) SiteStop(ctx context.Context, id tko.SiteID) (tko.SiteStop, error) {
	if _, _, err := s.rights.Enter(ctx, "", access.Schedule, access.Source); err != nil {
		return tko.SiteStop{}, err
	}
	book, err := s.rights.RulesOf(ctx, stopAge)
	if err != nil || len(book.Stops) == 0 {
		return tko.SiteStop{}, err
	}
	if id == "" {
		for _, stop := range book.Stops {
			if stop.All && !stop.Releasing {
				return tko.SiteStop{Whole: true, Reason: stop.Text()}, nil
			}
		}
		return tko.SiteStop{}, nil
	}
	g := newStopGate(s.holds, book.Stops, false)
	if err := g.readSites(ctx, map[string]bool{string(id): true}); err != nil {
		return tko.SiteStop{}, err
	}
	site := g.sites[string(id)]
	if site.Revision == 0 {
		// The site was deleted: its metadata isn't known, so that any stop by metadata holds
		// the removal of what is left there.
		for _, stop := range book.Stops {
			if stop.SelectsSite(id, nil) || len(stop.SiteMetadata) > 0 {
				return tko.SiteStop{Whole: true, Reason: stop.Text()}, nil
			}
		}
		return tko.SiteStop{}, nil
	}
	var partial []tko.Stop
	for _, stop := range book.Stops {
		switch {
		case stop.IsReleased(id):
		case stop.SelectsSite(id, site.Effective()) && !stop.OnlyUndo:
			return tko.SiteStop{Whole: true, Reason: stop.Text()}, nil
		case stop.SelectsSite(id, site.Effective()), stop.Topology != "":
			partial = append(partial, stop)
		}
	}
	if len(partial) == 0 {
		return tko.SiteStop{}, nil
	}
	return s.heldAt(ctx, id, partial)
}

// heldAt returns the deployments of a site that stops of topologies, and those that let only
// undos go on, hold.
func (s *SiteStops) heldAt(ctx context.Context, id tko.SiteID, stops []tko.Stop) (held tko.SiteStop, err error) {
	undone, err := s.beingUndone(ctx, stops)
	if err != nil {
		return held, err
	}
	query, err := criteria.Deployments(tko.DeploymentSelect{Sites: []string{string(id)}}, tko.ListOptions{}) // IDs have no characters that are special in patterns
	if err != nil {
		return held, err
	}
	query.Scope = access.ScopeAll
	g := newStopGate(s.holds, stops, false)
	for r, err := range s.store.List(ctx, query) {
		if err != nil {
			return held, err
		}
		for _, stop := range stops {
			if stop.OnlyUndo && undone[r.ID] {
				continue
			}
			holds := stop.Topology == "" // it selects the site
			if !holds {
				if holds, err = g.isBelow(ctx, r, string(stop.Topology)); err != nil {
					return held, err
				}
			}
			if holds {
				held.Held = append(held.Held, tko.DeploymentID(r.ID))
				held.Reason = stop.Text()
				break
			}
		}
	}
	if held.Reason == "" {
		for _, stop := range stops { // nothing of the site is held but what the store doesn't have
			if stop.OnlyUndo && stop.Topology == "" {
				return tko.SiteStop{Held: []tko.DeploymentID{tko.OtherDeployments}, Reason: stop.Text()}, nil
			}
		}
	}
	return held, nil
}

// beingUndone returns the deployments that undos have in flight, if one of the stops lets
// undos go on.
func (s *holds) beingUndone(ctx context.Context, stops []tko.Stop) (map[string]bool, error) {
	if !slices.ContainsFunc(stops, func(stop tko.Stop) bool { return stop.OnlyUndo }) {
		return nil, nil
	}
	undone := map[string]bool{}
	active, err := s.activeRollouts(ctx)
	if err != nil {
		return nil, err
	}
	for _, st := range active {
		if st.Undoes == "" {
			continue
		}
		v, err := s.store.RolloutView(ctx, st.ID, record.RowsAt{})
		if err != nil {
			return nil, err
		}
		for _, row := range v.Rows {
			if row.Progress.InFlight() {
				undone[string(row.Deployment)] = true
			}
		}
	}
	return undone, nil
}

// activeRollouts returns the states of the rollouts that are in progress.
func (s *holds) activeRollouts(ctx context.Context) ([]record.RolloutState, error) {
	active, _, _, err := s.store.RolloutStates(ctx)
	return slices.DeleteFunc(active, func(st record.RolloutState) bool { return !st.State.Active() }), err
}

func checkStop(stop tko.Stop) error {
	selections := 0
	for _, is := range []bool{stop.All, stop.Topology != "", len(stop.Sites)+len(stop.SiteMetadata) > 0} {
		if is {
			selections++
		}
	}
	switch {
	case selections == 0:
		return tko.Errorf(tko.ErrInvalid, "the stop selects nothing: name sites (--site, --site-metadata), a topology (--topology), or everything (--all)")
	case selections > 1:
		return tko.Errorf(tko.ErrInvalid, "the stop selects in several ways: use one of sites (--site, --site-metadata), a topology (--topology), and everything (--all)")
	case len(stop.Sites)+len(stop.SiteMetadata) > maxStopPatterns:
		return tko.Errorf(tko.ErrInvalid, "the stop has %d patterns: use at most %d", len(stop.Sites)+len(stop.SiteMetadata), maxStopPatterns)
	case strings.TrimSpace(stop.Reason) == "":
		return tko.Errorf(tko.ErrInvalid, "the stop has no reason: state one for those who find that nothing happens")
	case len(stop.Reason) > maxFreezeReason || !record.Storable(stop.Reason):
		return tko.Errorf(tko.ErrInvalid, "the reason of the stop has %d bytes: use plain text of at most %d", len(stop.Reason), maxFreezeReason)
	case stop.Topology != "" && !record.IsDeploymentID(stop.Topology):
		return tko.NotFound(tko.KindDeployment, stop.Topology)
	}
	for _, text := range stop.Sites {
		if _, err := tko.ParsePattern(text); err != nil {
			return err
		}
	}
	for key, text := range stop.SiteMetadata {
		if err := content.CheckMetadata(key, text); err != nil {
			return err
		}
		if _, err := tko.ParsePattern(text); err != nil {
			return err
		}
	}
	return nil
}

// sameStop reports whether two stops select the same.
func sameStop(a, b tko.Stop) bool {
	return a.All == b.All && a.Topology == b.Topology && maps.Equal(a.SiteMetadata, b.SiteMetadata) &&
		slices.Equal(slices.Sorted(slices.Values(a.Sites)), slices.Sorted(slices.Values(b.Sites)))
}

func describeStop(verb string, stop tko.Stop) audit.Record {
	return audit.Record{Kind: record.RuleStop, ID: stop.ID, Op: verb, Detail: stop.Selection(), Why: stop.Reason}
}

// permitStop checks that the caller may stop everything that a stop selects, and that there is
// something. What the caller may not see isn't named.
func (s *SiteStops) permitStop(ctx context.Context, c *rights.Caller, stop tko.Stop) error {
	all := c.MayAnywhere(access.Call, tko.KindSite)
	refuse := func() error {
		if err := s.rights.Refuse(ctx, c, tko.KindSite, "", access.Call); err == nil {
			return nil
		}
		return tko.Errorf(tko.ErrDenied, "%s may not stop all of %s: narrow the selection, or ask an administrator", c.Identity.Subject, stop.Selection())
	}
	if stop.All {
		if all {
			return nil
		}
		return refuse()
	}
	if stop.Topology != "" {
		r, err := s.rights.GetVisible(ctx, c, record.Fields{}, record.DeploymentKey(stop.Topology))
		if err != nil || all {
			return err
		}
		return s.permitTopologyStop(ctx, c, r, refuse)
	}
	found, refused := 0, false
	err := s.eachSiteOf(ctx, stop, func(r record.Record) error {
		found++
		refused = refused || !all && !c.Grant.May(access.Call, record.AttributesOf(r))
		return nil
	})
	switch {
	case err != nil:
		return err
	case refused:
		return refuse()
	case found == 0:
		return tko.Errorf(tko.ErrInvalid, "no site is selected by %s: correct the selection, as tko site list shows", stop.Selection())
	}
	return nil
}

// permitTopologyStop checks the sites of a topology.
func (s *SiteStops) permitTopologyStop(ctx context.Context, c *rights.Caller, top record.Record, refuse func() error) error {
	sites := map[string]bool{}
	note := func(r record.Record) {
		if r.Site != "" {
			sites[r.Site] = true
		}
	}
	note(top)
	if err := s.eachBelow(ctx, top.ID, func(r record.Record) error { note(r); return nil }); err != nil {
		return err
	}
	for batch := range slices.Chunk(slices.Sorted(maps.Keys(sites)), record.SelectedPage) {
		records, err := s.store.Get(ctx, record.Fields{}, record.Keys(batch, func(id string) record.Key { return record.Key{Kind: tko.KindSite, ID: id} })...)
		if err != nil {
			return err
		}
		for _, r := range records {
			if r.Revision != 0 && !c.Grant.May(access.Call, record.AttributesOf(r)) {
				return refuse()
			}
		}
	}
	return nil
}

// eachSiteOf calls visit with the sites that a stop selects.
func (s *holds) eachSiteOf(ctx context.Context, stop tko.Stop, visit func(record.Record) error) error {
	if stop.Topology != "" {
		return nil
	}
	query, err := criteria.Sites(tko.SiteSelect{Metadata: stop.SiteMetadata}, tko.ListOptions{})
	if err != nil {
		return err
	}
	if len(stop.Sites) == 1 { // several are alternatives, and those of a query are not
		if query, err = criteria.Sites(tko.SiteSelect{IDs: stop.Sites, Metadata: stop.SiteMetadata}, tko.ListOptions{}); err != nil {
			return err
		}
	}
	query.Scope = access.ScopeAll
	for r, err := range s.store.List(ctx, query) {
		if err != nil {
			return err
		}
		if stop.SelectsSite(tko.SiteID(r.ID), r.Effective()) {
			if err := visit(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachBelow calls visit with the descendants of a deployment.
func (s *holds) eachBelow(ctx context.Context, id string, visit func(record.Record) error) error {
	return s.eachBelowInPages(ctx, id, func(page []record.Record) error {
		for _, r := range page {
			if err := visit(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachBelowInPages calls visit with pages of the descendants of a deployment.
func (s *holds) eachBelowInPages(ctx context.Context, id string, visit func([]record.Record) error) error {
	below := map[string]bool{}
	if err := s.store.Descendants(ctx, []string{id}, func(id string) { below[id] = true }); err != nil {
		return err
	}
	for batch := range slices.Chunk(slices.Sorted(maps.Keys(below)), record.SelectedPage) {
		records, err := s.store.Get(ctx, record.Fields{}, record.Keys(batch, func(id string) record.Key { return record.DeploymentKey(tko.DeploymentID(id)) })...)
		if err != nil {
			return err
		}
		if err := visit(slices.DeleteFunc(records, func(r record.Record) bool { return r.Revision == 0 })); err != nil {
			return err
		}
	}
	return nil
}

// A heldSet is what a stop holds.
type heldSet struct {
	everything         bool
	sites, deployments map[string]bool
	// waitingSites are those that the end of the stop releases, and unprepared deployments are to be prepared.
	waitingSites map[tko.SiteID]bool
	unprepared   int
}

func (h *heldSet) add(stop tko.Stop, r record.Record) {
	h.deployments[r.ID] = true
	if !r.Prepared {
		h.unprepared++
	}
	// As in releasable: a site that doesn't exist any more is not released.
	if id := tko.SiteID(r.Site); id != "" && (stop.Topology != "" || h.sites[r.Site]) && releaseOf(r).waits && !stop.IsReleased(id) {
		h.waitingSites[id] = true
	}
}

// heldBy returns what a stop holds now, of what a caller may see.
func (s *SiteStops) heldBy(ctx context.Context, stop tko.Stop, view access.View) (h heldSet, err error) {
	h = heldSet{everything: stop.All && view.IsAll(), sites: map[string]bool{}, deployments: map[string]bool{}, waitingSites: map[tko.SiteID]bool{}}
	sees := (&rights.Caller{Grant: access.All}).Sees
	if c, ok := rights.CallerOf(ctx); ok && !view.IsAll() {
		sees = c.Sees
	}
	if stop.Topology != "" {
		note := func(r record.Record) error {
			if !sees(r) {
				return nil
			}
			if h.add(stop, r); r.Site != "" {
				h.sites[r.Site] = true
			}
			return nil
		}
		top, err := s.reader.One(ctx, record.Fields{}, record.DeploymentKey(stop.Topology))
		if err == nil && top.Revision != 0 {
			err = note(top)
		}
		if err == nil {
			err = s.eachBelow(ctx, string(stop.Topology), note)
		}
		return h, err
	}
	err = s.eachSiteOf(ctx, stop, func(r record.Record) error {
		if sees(r) {
			h.sites[r.ID] = true
		}
		return nil
	})
	if err != nil {
		return h, err
	}
	for r, err := range s.store.List(ctx, record.Query{Kind: tko.KindDeployment, Scope: view, Limit: -1}) {
		if err != nil {
			return h, err
		}
		if stop.All || h.sites[r.Site] {
			h.add(stop, r)
		}
	}
	return h, nil
}

// status returns a stop with what it holds, as far as the caller may see it.
func (s *SiteStops) status(ctx context.Context, stop tko.Stop) (tko.StopStatus, error) {
	view := access.ScopeAll
	if c, ok := rights.CallerOf(ctx); ok {
		view = c.View()
	}
	h, err := s.heldBy(ctx, stop, view)
	if err != nil {
		return tko.StopStatus{}, err
	}
	status := tko.StopStatus{Stop: stop, SiteCount: len(h.sites), DeploymentCount: len(h.deployments), WaitingSites: len(h.waitingSites), WaitingDeployments: h.unprepared}
	for _, queue := range []string{tko.QueuePrepare, tko.QueueSchedule} {
		of := h.deployments
		if queue == tko.QueueSchedule {
			of = h.sites
		}
		items, err := s.store.WorkOf(ctx, queue)
		if err != nil {
			return tko.StopStatus{}, err
		}
		for _, item := range items {
			if !item.Claimed.IsZero() && (h.everything || of[item.Key]) {
				status.InFlight = append(status.InFlight, tko.InFlight{Queue: queue, Key: item.Key, Since: item.Claimed, Until: item.LeaseUntil})
			}
		}
	}
	status.InFlightCount = len(status.InFlight)
	status.InFlight = status.InFlight[:min(len(status.InFlight), tko.MaxInFlight)]
	if !view.IsAll() {
		status.Stop.Sites = slices.DeleteFunc(slices.Clone(stop.Sites), func(text string) bool { return !selectsAny(text, h.sites) })
		return status, nil
	}
	active, err := s.activeRollouts(ctx)
	if err != nil {
		return tko.StopStatus{}, err
	}
	for _, st := range active {
		if st.State == execute.Running && len(status.Rollouts) < tko.MaxInFlight {
			status.Rollouts = append(status.Rollouts, tko.RolloutID(st.ID))
		}
	}
	return status, nil
}

// selectsAny reports whether a pattern selects one of the sites.
func selectsAny(text string, sites map[string]bool) bool {
	pattern, err := tko.ParsePattern(text)
	if err != nil {
		return false
	}
	for site := range sites {
		if pattern.Match(site) {
			return true
		}
	}
	return false
}

// statusAfter returns the status of a stop that was just written, and lets controllers look at
// what it holds, so that conditions report it.
func (s *SiteStops) statusAfter(ctx context.Context, stop tko.Stop) (tko.StopStatus, error) {
	status, err := s.status(ctx, stop)
	if err == nil {
		var h heldSet
		if h, err = s.heldBy(ctx, stop, access.ScopeAll); err == nil {
			err = s.enqueueHeld(ctx, h, nil)
		}
	}
	if err != nil {
		return tko.StopStatus{Stop: stop}, fmt.Errorf("%s is stopped (stop %s), but what is in flight can't be read: %w", stop.Selection(), stop.ID, err)
	}
	return status, nil
}

// enqueueStopped makes due what waits for a stop.
func (s *SiteStops) enqueueStopped(ctx context.Context, stop tko.Stop) error {
	h, err := s.heldBy(ctx, stop, access.ScopeAll)
	if err != nil {
		return err
	}
	// Topologies elsewhere may wait with children that belong there.
	var waiting []string
	items, err := s.store.WorkOf(ctx, tko.QueuePrepare)
	if err != nil {
		return err
	}
	for _, item := range items {
		waiting = append(waiting, item.Key)
	}
	if err := s.enqueueHeld(ctx, h, waiting); err != nil {
		return err
	}
	sources, err := s.store.Sources(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, source := range sources {
		names = append(names, source.Name)
	}
	if len(names) == 0 {
		return nil
	}
	return s.store.EnqueueWork(ctx, tko.QueueGitOps, names, false)
}

func (s *SiteStops) enqueueHeld(ctx context.Context, h heldSet, prepare []string) error {
	sites := slices.Sorted(maps.Keys(h.sites))
	if h.everything {
		items, err := s.store.WorkOf(ctx, tko.QueueSchedule) // deleted sites, too
		if err != nil {
			return err
		}
		for _, item := range items {
			if !h.sites[item.Key] {
				sites = append(sites, item.Key)
			}
		}
	}
	active, err := s.activeRollouts(ctx)
	if err != nil {
		return err
	}
	var rollouts []string
	for _, st := range active {
		rollouts = append(rollouts, st.ID)
	}
	for queue, keys := range map[string][]string{tko.QueueSchedule: sites, tko.QueuePrepare: prepare, tko.QueueRollout: rollouts} {
		for batch := range slices.Chunk(keys, enqueueBatch) {
			if err := s.store.EnqueueWork(ctx, queue, batch, false); err != nil {
				return err
			}
		}
	}
	return nil
}
