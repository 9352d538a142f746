package hold

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// Each commit is checked against the stops here, for each caller, and carries the version of
// the rules that it was checked with: a stop holds from its own commit on. What a stop holds
// can't become free while it lasts, because the writes that would free it are refused, too:
// changes of the metadata of a site, and of the parents of deployments. So records that were
// read after the stop are as good as those of the transaction.

// withoutReleasing returns the stops that hold more than what is scheduled at sites.
func withoutReleasing(stops []tko.Stop) []tko.Stop {
	return slices.DeleteFunc(slices.Clone(stops), func(stop tko.Stop) bool { return stop.Releasing })
}

// checkStops returns an ErrStopped if stops hold one of the writes.
func (s *holds) checkStops(ctx context.Context, book *rights.Book, writes []record.Write) error {
	stops := rights.StopsFor(ctx, book.Stops)
	if !slices.ContainsFunc(writes, func(w record.Write) bool { return w.Rollout != nil }) {
		stops = withoutReleasing(stops)
	}
	if len(stops) == 0 {
		return nil
	}
	return newStopGate(s, stops, true).check(ctx, writes)
}

// freeOf returns those of some writes that no stop holds.
func (s *holds) freeOf(ctx context.Context, writes []record.Write) (free []record.Write, err error) {
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	g := newStopGate(s, rights.StopsFor(ctx, book.Stops), true)
	for _, w := range writes {
		err := g.check(ctx, []record.Write{w})
		if err == nil {
			free = append(free, w)
		} else if !errors.Is(err, tko.ErrStopped) {
			return nil, err
		}
	}
	return free, nil
}

// A stopGate finds out what stops hold. It reads each record once.
type stopGate struct {
	s     *holds
	stops []tko.Stop
	// needs says what must be read to decide.
	topologies, metadata bool

	sites   map[string]record.Record     // as they are; Revision 0: there is none
	parents map[string]string            // of deployments, by ID
	written map[record.Key]record.Record // by the commit that is checked
}

func newStopGate(s *holds, stops []tko.Stop, writing bool) *stopGate {
	g := &stopGate{s: s, stops: stops, sites: map[string]record.Record{}, parents: map[string]string{}}
	if writing {
		g.written = map[record.Key]record.Record{}
	}
	for _, stop := range stops {
		g.topologies = g.topologies || stop.Topology != ""
		g.metadata = g.metadata || len(stop.SiteMetadata) > 0
	}
	return g
}

// check returns an ErrStopped if a write changes, creates or removes what is stopped.
func (g *stopGate) check(ctx context.Context, writes []record.Write) error {
	var keys []record.Key
	for _, w := range writes {
		if w.Op != tko.OpStatus {
			keys = append(keys, w.Record.Key)
			g.written[w.Record.Key] = w.Record
		}
	}
	if len(keys) == 0 {
		return nil
	}
	before, err := g.s.store.Get(ctx, record.Fields{}, keys...)
	if err != nil {
		return err
	}
	sites := map[string]bool{}
	n := 0
	for _, w := range writes {
		if w.Op == tko.OpStatus {
			continue
		}
		for _, r := range []record.Record{before[n], w.Record} {
			if r.Kind == tko.KindDeployment && r.Site != "" {
				sites[r.Site] = true
			}
		}
		n++
	}
	if err := g.readSites(ctx, sites); err != nil {
		return err
	}
	n = 0
	for _, w := range writes {
		if w.Op == tko.OpStatus {
			continue
		}
		was := before[n]
		n++
		if w.Op == tko.OpDeleted {
			if was.Revision != 0 {
				err = g.deletion(ctx, was)
			}
		} else if err = g.record(ctx, was); err == nil {
			err = g.record(ctx, w.Record)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readSites reads the sites whose metadata decides.
func (g *stopGate) readSites(ctx context.Context, ids map[string]bool) error {
	var keys []record.Key
	for id := range ids {
		if _, ok := g.sites[id]; !ok {
			keys = append(keys, record.Key{Kind: tko.KindSite, ID: id})
		}
	}
	if len(keys) == 0 || g.written != nil && !g.metadata {
		return nil
	}
	records, err := g.s.store.Get(ctx, record.Fields{}, keys...)
	if err != nil {
		return err
	}
	for _, r := range records {
		g.sites[r.ID] = r
	}
	return nil
}

// record returns an ErrStopped if a stop holds a record as it was or becomes.
func (g *stopGate) record(ctx context.Context, r record.Record) error {
	switch r.Kind {
	case tko.KindSite:
		for _, stop := range g.stops {
			if stop.SelectsSite(tko.SiteID(r.ID), r.Effective()) {
				return stoppedError(stop, r.Key)
			}
		}
	case tko.KindDeployment:
		stop, held, err := g.holding(ctx, r)
		if err != nil {
			return err
		}
		if held {
			return stoppedError(stop, r.Key)
		}
	case tko.KindTemplate, tko.KindPlugin, tko.KindRollout, tko.KindSource, tko.KindSubscription: // none of them runs at a site
	}
	return nil
}

// holding returns the stop that holds a deployment.
func (g *stopGate) holding(ctx context.Context, r record.Record) (tko.Stop, bool, error) {
	for _, stop := range g.stops {
		if stop.Releasing && (r.Site == "" || stop.IsReleased(tko.SiteID(r.Site))) {
			continue
		}
		if stop.All {
			return stop, true, nil
		}
		if r.Site != "" {
			site := g.sites[r.Site]
			if stop.SelectsSite(tko.SiteID(r.Site), site.Effective()) {
				return stop, true, nil
			}
			if coming, ok := g.written[record.Key{Kind: tko.KindSite, ID: r.Site}]; ok && stop.SelectsSite(tko.SiteID(r.Site), coming.Effective()) {
				return stop, true, nil
			}
		}
		if stop.Topology != "" {
			if below, err := g.isBelow(ctx, r, string(stop.Topology)); err != nil || below {
				return stop, below, err
			}
		}
	}
	return tko.Stop{}, false, nil
}

// isBelow reports whether a deployment is another one or descends from it.
func (g *stopGate) isBelow(ctx context.Context, r record.Record, top string) (bool, error) {
	if r.ID == top {
		return true, nil
	}
	id := r.Parent
	for range rights.MaxAncestors {
		switch id {
		case top:
			return true, nil
		case "":
			return false, nil
		}
		parent, ok := g.parents[id]
		if w, written := g.written[record.DeploymentKey(tko.DeploymentID(id))]; written && w.Parent != "" {
			parent, ok = w.Parent, true
		}
		if !ok {
			above, err := g.s.reader.One(ctx, record.Fields{}, record.DeploymentKey(tko.DeploymentID(id)))
			if err != nil {
				return false, err
			}
			parent = above.Parent
			g.parents[id] = parent
		}
		id = parent
	}
	return false, nil
}

// deletion returns an ErrStopped if a stop holds a record, or one that would be deleted or
// orphaned with it.
func (g *stopGate) deletion(ctx context.Context, r record.Record) error {
	if err := g.record(ctx, r); err != nil {
		return err
	}
	orphan := func(query record.Query) error {
		query.Scope, query.Limit = access.ScopeAll, -1
		var batch []record.Record
		flush := func() error {
			err := g.each(ctx, batch)
			batch = batch[:0]
			return err
		}
		for one, err := range g.s.store.List(ctx, query) {
			if err != nil {
				return err
			}
			batch = append(batch, one)
			if len(batch) == record.SelectedPage {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		return flush()
	}
	switch r.Kind {
	case tko.KindDeployment:
		return g.s.eachBelowInPages(ctx, r.ID, func(page []record.Record) error { return g.each(ctx, page) })
	case tko.KindTemplate:
		pattern, err := tko.ParsePattern(tko.LiteralPattern(r.ID))
		if err != nil {
			return err
		}
		if err := orphan(record.Query{Kind: tko.KindSite, Templates: []tko.Pattern{pattern}}); err != nil {
			return err
		}
		return orphan(record.Query{Kind: tko.KindDeployment, Templates: []tko.Pattern{pattern}})
	case tko.KindSite:
		pattern, err := tko.ParsePattern(tko.LiteralPattern(r.ID))
		if err != nil || !g.topologies {
			return err
		}
		return orphan(record.Query{Kind: tko.KindDeployment, Sites: []tko.Pattern{pattern}})
	case tko.KindPlugin, tko.KindRollout, tko.KindSource, tko.KindSubscription:
	}
	return nil
}

// each returns an ErrStopped if a stop holds one of some records.
func (g *stopGate) each(ctx context.Context, records []record.Record) error {
	sites := map[string]bool{}
	for _, r := range records {
		if r.Kind == tko.KindDeployment && r.Site != "" {
			sites[r.Site] = true
		}
		if r.Kind == tko.KindDeployment {
			g.parents[r.ID] = r.Parent
		}
	}
	if err := g.readSites(ctx, sites); err != nil {
		return err
	}
	for _, r := range records {
		if err := g.record(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func stoppedError(stop tko.Stop, key record.Key) error {
	return tko.Errorf(tko.ErrStopped, "%s %q can't be changed: %s", key.Kind, key.ID, stop.Text())
}

// stopAge is the maximum age of what controllers get to know of stops. Commits know it exactly.
const stopAge = 250 * time.Millisecond

// preparedKey returns the key of the record that work of preparation is on.
func preparedKey(work string) record.Key {
	if site, ok := tko.SiteOfWork(work); ok {
		return record.Key{Kind: tko.KindSite, ID: string(site)}
	}
	return record.DeploymentKey(tko.DeploymentID(work))
}

// withoutStopped returns those claimed items of preparation that no stop holds, and ends the
// claims of the others. Their conditions report why they wait.
func (s *holds) withoutStopped(ctx context.Context, queue string, items []tko.WorkItem, backoff func(int) time.Duration) ([]tko.WorkItem, error) {
	if queue != tko.QueuePrepare || len(items) == 0 {
		return items, nil
	}
	book, err := s.rights.RulesOf(ctx, stopAge) // what is stopped later is refused by the commits
	if err != nil {
		return items, err
	}
	stops := withoutReleasing(book.Stops)
	if len(stops) == 0 {
		return items, nil
	}
	undone, err := s.beingUndone(ctx, stops)
	if err != nil {
		return nil, err
	}
	records, err := s.store.Get(ctx, record.Fields{}, record.Keys(items, func(i tko.WorkItem) record.Key { return preparedKey(i.Key) })...)
	if err != nil {
		return nil, err
	}
	g := newStopGate(s, stops, false)
	sites := map[string]bool{}
	for _, r := range records {
		if r.Site != "" {
			sites[r.Site] = true
		}
	}
	if err := g.readSites(ctx, sites); err != nil {
		return nil, err
	}
	var free []tko.WorkItem
	var held []tko.FinishedWork
	for i, item := range items {
		r := records[i]
		g.stops = slices.DeleteFunc(slices.Clone(stops), func(stop tko.Stop) bool { return stop.OnlyUndo && undone[r.ID] })
		if r.Kind == tko.KindSite { // a stop refuses its commit, and its release makes the work due
			free = append(free, item)
			continue
		}
		stop, isHeld, err := g.holding(ctx, r)
		if err != nil {
			return nil, err
		}
		if !isHeld {
			free = append(free, item)
			continue
		}
		held = append(held, tko.FinishedWork{Item: item, Outcome: tko.WorkReleased, Retry: pause.Between(rights.StoppedRetry/2, rights.StoppedRetry)})
		if err := s.reportStopped(ctx, r, stop); err != nil {
			return nil, err
		}
	}
	if len(held) > 0 {
		if err := s.store.FinishWork(ctx, held, backoff); err != nil {
			return nil, err
		}
	}
	return free, nil
}

// reportStopped reports on a deployment that isn't prepared why it waits.
func (s *holds) reportStopped(ctx context.Context, r record.Record, stop tko.Stop) error {
	if r.Revision == 0 || r.Prepared {
		return nil
	}
	was := tko.FindCondition(r.Conditions, tko.ConditionPrepared)
	text := "it waits, because " + stop.Text()
	if was != nil && was.Reason == tko.ReasonStopped && was.Message == text && was.ObservedRevision == r.Revision {
		return nil
	}
	waits := tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: tko.ReasonStopped, Message: text, ObservedRevision: r.Revision}
	write := record.Write{Op: tko.OpStatus, Record: record.Record{Key: r.Key, Author: rights.Author(ctx), Conditions: condition.Merge(r.Conditions, []tko.Condition{waits}, r.Revision, time.Now())}, Expect: r.Revision, Position: r.Position}
	_, err := s.rights.Commit(ctx, write)
	if record.IsStale(err) {
		return nil // it has changed: it is reported with the next claim
	}
	return err
}
