package hold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// The end of a stop or a freeze would let everything that waited begin at once. What is
// released is reach, like other changes: if more sites wait than are free, the stop stays, and
// lets sites go wave by wave, as the policy of rollouts says. It is the same gate, so that
// nothing which it holds goes round it.

// releaseEvery is the time between two looks at releases.
const releaseEvery = 2 * time.Second

// A releaseWave is a wave of the policy of rollouts: count sites or, if that is 0, percent of
// those that waited.
type releaseWave struct{ count, percent int }

// releaseWaves returns the waves of releases; what they leave is a last one.
func (s *holds) releaseWaves() []releaseWave {
	var waves []releaseWave
	list, _ := s.gate.Limits().Policy["waves"].([]any)
	for _, one := range list {
		fields, _ := one.(map[string]any)
		w := releaseWave{count: wholeNumber(fields["count"]), percent: wholeNumber(fields["percent"])}
		if w.count > 0 || w.percent > 0 && w.percent < 100 {
			waves = append(waves, w)
		}
	}
	return waves
}

func wholeNumber(value any) int {
	switch n := value.(type) {
	case int:
		return n
	case int64:
		return int(n)
	case float64:
		return int(n)
	}
	return 0
}

// size returns the number of sites of a wave.
func (w releaseWave) size(waited int) int {
	if w.count > 0 {
		return w.count
	}
	return max(1, waited*w.percent/100)
}

// beginRelease returns a stop as it is with the first wave of its release.
func beginRelease(stop tko.Stop, sites []tko.SiteID, waves []releaseWave) tko.Stop {
	stop.Releasing, stop.Wave, stop.Released, stop.Waiting = true, 0, 0, len(sites)
	stop, _ = nextWave(stop, sites, waves)
	return stop
}

// nextWave returns a stop as it is with the next wave of sites that wait; all reports that the
// wave is the last one, so that the stop ends.
func nextWave(stop tko.Stop, sites []tko.SiteID, waves []releaseWave) (next tko.Stop, all bool) {
	var keys []int64
	for _, id := range sites {
		if !stop.IsReleased(id) {
			keys = append(keys, stop.ReleaseKey(id))
		}
	}
	slices.Sort(keys)
	if stop.Wave >= len(waves) {
		return stop, true
	}
	n := waves[stop.Wave].size(stop.Waiting)
	if n >= len(keys) {
		return stop, true
	}
	stop.Wave, stop.Released = stop.Wave+1, keys[n]
	return stop, false
}

// judgeRelease returns the sites that wait for the end of a stop, and whether they are released
// in waves. It is an ErrInvalid if the caller confirmed another number of them.
func (s *holds) judgeRelease(ctx context.Context, stop tko.Stop, request tko.Release) (sites []tko.SiteID, waves bool, err error) {
	if request.OnlyUndo {
		return nil, false, nil
	}
	states, err := s.releasable(ctx, stop)
	if err != nil {
		return nil, false, err
	}
	for id, state := range states {
		if state.waits && !stop.IsReleased(id) {
			sites = append(sites, id)
		}
	}
	if confirmed, ok := tko.ConfirmationOf(ctx); ok {
		if n := max(len(sites), stop.Waiting); !tko.Consents(confirmed, len(sites)) && !tko.Consents(confirmed, n) {
			return nil, false, tko.Errorf(tko.ErrInvalid, "this would release changes at %d sites, but %d were confirmed: nothing was released; confirm %d to release all at once (--confirm=%d)", len(sites), confirmed, len(sites), len(sites))
		}
		return sites, false, nil
	}
	most := s.gate.Limits().Sites
	return sites, stop.Releasing || most >= 0 && len(sites) > most, nil
}

// A releaseState is what a site that a stop selects has.
type releaseState struct{ waits, unhealthy bool }

// releasable returns the sites of what a stop selects, released ones included, with their
// states.
func (s *holds) releasable(ctx context.Context, stop tko.Stop) (map[tko.SiteID]releaseState, error) {
	stop.Releasing = false // what it selects
	states := map[tko.SiteID]releaseState{}
	below, selected := map[string]bool{}, map[tko.SiteID]bool{}
	if stop.Topology != "" {
		below[string(stop.Topology)] = true
		if err := s.store.Descendants(ctx, []string{string(stop.Topology)}, func(id string) { below[id] = true }); err != nil {
			return nil, err
		}
	} else if err := s.eachSiteOf(ctx, stop, func(r record.Record) error { selected[tko.SiteID(r.ID)] = true; return nil }); err != nil {
		return nil, err
	}
	for r, err := range s.store.List(ctx, record.Query{Kind: tko.KindDeployment, Scope: access.ScopeAll, Limit: -1}) {
		if err != nil {
			return nil, err
		}
		id := tko.SiteID(r.Site)
		if id == "" || !selected[id] && !below[r.ID] {
			continue
		}
		state, of := states[id], releaseOf(r)
		states[id] = releaseState{waits: state.waits || of.waits, unhealthy: state.unhealthy || of.unhealthy}
	}
	return states, nil
}

// releaseOf returns what a site has by one of its deployments.
func releaseOf(r record.Record) (state releaseState) {
	switch {
	case tko.Suspended(r.Effective()):
	case isUnderWay(r):
		state.waits = true
	case tko.ConditionIs(r.Conditions, tko.ConditionHealthy) == tko.ConditionFalse:
		state.unhealthy = true
	}
	return state
}

// isUnderWay reports whether a deployment will change at its site, once nothing holds it. One
// that its preparer could not prepare won't, and neither will one at a site that nothing is
// scheduled to.
func isUnderWay(r record.Record) bool {
	if !r.Prepared {
		was := tko.FindCondition(r.Conditions, tko.ConditionPrepared)
		return was == nil || was.ObservedRevision != r.Revision || was.Status != tko.ConditionFalse || was.Reason == "NotPrepared"
	}
	was := tko.FindCondition(r.Conditions, tko.ConditionScheduled)
	if was != nil && was.Reason == tko.ReasonNoScheduler {
		return false
	}
	return r.Approved && (was == nil || was.Status != tko.ConditionTrue || was.ObservedRevision != r.Revision)
}

// endFreeze ends a freeze. If more sites wait for that than are free, it becomes a stop that
// releases them in waves, in the same change of the rules.
func (s *holds) endFreeze(ctx context.Context, c *rights.Caller, f tko.Freeze) error {
	stop := tko.Stop{
		ID: uuid.NewString(), SiteMetadata: f.SiteMetadata, By: f.By, Created: time.Now().UTC().Truncate(time.Second),
		Reason: fmt.Sprintf("the end of the freeze of %s: %.800s", selectionText(f), f.Reason),
	}
	sites, waves, err := s.judgeRelease(ctx, stop, tko.Release{})
	if err != nil {
		return err
	}
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		if !slices.ContainsFunc(book.Freezes, func(one tko.Freeze) bool { return one.ID == f.ID && one.Until.Equal(f.Until) }) {
			return change, nil // another caller ended or extended it
		}
		change.Erase(record.RuleFreeze, f.ID)
		change.Records = append(change.Records, describeFreeze("unfroze", f))
		if !waves {
			return change, nil
		}
		stop = beginRelease(stop, sites, s.releaseWaves())
		return change, change.Write(record.RuleStop, stop.ID, stop, describeStop("began to release", stop))
	})
	return err
}

// ReleaseStops begins the waves of releases, until the context ends.
func (s *SiteStops) ReleaseStops(ctx context.Context) error {
	for {
		if pause.For(ctx, pause.Between(releaseEvery/2, releaseEvery)) != nil {
			return nil //nolint:nilerr // ending the context is the way to stop
		}
		if err := s.AdvanceReleases(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "can't release what was stopped, will try again", "err", err)
		}
	}
}

// AdvanceReleases begins the next wave of each release whose sites have what they waited for,
// and none of which is unhealthy.
func (s *SiteStops) AdvanceReleases(ctx context.Context) error {
	ctx, c, err := s.rights.Enter(ctx, tko.KindSite, access.Call)
	if err != nil {
		return err
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return err
	}
	var failed []error
	for _, stop := range book.Stops {
		if stop.Releasing {
			failed = append(failed, s.advanceRelease(ctx, c, stop))
		}
	}
	return errors.Join(failed...)
}

func (s *SiteStops) advanceRelease(ctx context.Context, c *rights.Caller, stop tko.Stop) error {
	states, err := s.releasable(ctx, stop)
	if err != nil {
		return err
	}
	for id, state := range states {
		if stop.IsReleased(id) && (state.waits || state.unhealthy) {
			return nil
		}
	}
	var waiting []tko.SiteID
	for _, id := range slices.Sorted(maps.Keys(states)) {
		if states[id].waits {
			waiting = append(waiting, id)
		}
	}
	next, all := nextWave(stop, waiting, s.releaseWaves())
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		if !slices.ContainsFunc(book.Stops, func(one tko.Stop) bool { return one.ID == stop.ID && one.Releasing && one.Wave == stop.Wave }) {
			return change, nil // another server did
		}
		if all {
			change.Erase(record.RuleStop, stop.ID)
			change.Records = append(change.Records, describeStop("released", stop))
			return change, nil
		}
		return change, change.Write(record.RuleStop, stop.ID, next, describeStop(fmt.Sprintf("began wave %d to release", next.Wave), next))
	})
	if err != nil {
		return err
	}
	return s.enqueueStopped(ctx, stop)
}
