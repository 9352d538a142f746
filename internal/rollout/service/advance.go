package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// A RolloutRunner advances rollouts.
type RolloutRunner struct {
	*rolloutStore

	plans    *RolloutPlans
	rollouts knownRollouts // for those that advance rollouts
	staged   knownRollouts // for sites that pull images, so that they don't wait for the others
}

// AdvanceRollout does the next step of a rollout: it plans it, or observes what is in
// flight and applies what limits allow, in one commit. It returns the time after which it
// must be called again: 0 at once, negative only when something changes. Several callers
// may advance a rollout at the same time: what one of them does, the others don't repeat.
func (s *RolloutRunner) AdvanceRollout(ctx context.Context, id tko.RolloutID) (time.Duration, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Advance)
	if err != nil {
		return 0, err
	}
	ctx = rights.WithAllRights(ctx, c) // who started the rollout was permitted to change its deployments
	known := s.rollouts.of(string(id))
	unlock, err := known.lock.Lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	wait, active := time.Duration(-1), false
	err = record.Retry(ctx, func() error {
		r, v, err := s.viewKnown(ctx, id, known)
		active = v.State.Active()
		if errors.Is(err, tko.ErrNotFound) {
			return nil // it was deleted
		}
		if err != nil {
			return err
		}
		wait, err = s.advance(ctx, r, v)
		return err
	})
	s.rollouts.trim(known, active)
	if errors.Is(err, tko.ErrStopped) { // by a stop that the evaluation didn't find: the release wakes the rollout
		return rights.StoppedRetry, nil
	}
	if errors.Is(err, tko.ErrConflict) { // others are faster: see what they did
		return 100 * time.Millisecond, nil
	}
	return wait, err
}

func (s *RolloutRunner) advance(ctx context.Context, r record.Record, v record.RolloutView) (time.Duration, error) {
	st := v.State
	if st.Undoes != "" {
		ctx = rights.WithUndoing(ctx)
	}
	switch {
	case plansAnew(st, r):
		st.State, st.Reason = execute.Planning, execute.Reason{}
		return 0, s.saveRollout(ctx, r, v, st, record.RolloutWrite{})
	case st.State == execute.Planning, st.State == execute.Paused && st.Next != 0 && st.Left == (plan.Digest{}):
		err := s.plans.makePlan(ctx, r, v)
		if errors.Is(err, tko.ErrDenied) {
			return heldAgain, s.plans.holdPlan(ctx, r, v, err)
		}
		if errors.Is(err, tko.ErrInvalid) || errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrGone) {
			err = s.plans.failPlan(ctx, r, v, err)
		}
		return -1, err
	case st.State == execute.Undoing && st.UndoneBy == "": // of a TKO that committed this alone
		return 0, s.undo(ctx, r, v, record.RolloutWrite{})
	case st.State.Active(), st.Settling:
		wait, err := s.evaluate(ctx, r, v)
		if err == nil && wait < 0 {
			wait = resultsWait(v)
		}
		return wait, err
	}
	return resultsWait(v), nil
}

// heldAgain is the time after which the rights of an owner are asked for again.
const heldAgain = 30 * time.Second

// resultsWait returns the time after which results are reported to ticket systems, by the caller
// of AdvanceRollout; negative if none are.
func resultsWait(v record.RolloutView) time.Duration {
	at, open := executionOf(v, spec.Rollout{}).ResultsDue()
	if !open {
		return -1
	}
	return max(at.Sub(v.Now), execute.Interval)
}

// plansAnew reports whether a rollout was changed since it was planned, or never planned.
func plansAnew(st record.RolloutState, r record.Record) bool {
	return st.Spec != r.Revision && (st.State == execute.Draft || st.State == execute.Planned && st.Undoes == "")
}

// An evaluation is what one evaluation of a rollout knows, and what it changes.
type evaluation struct {
	r      record.Record
	v      record.RolloutView // as it was read
	spec   spec.Rollout
	flight *execute.Flight
	out    execute.Output
	index  []int // of each row of out in the rows of v

	st     record.RolloutState       // as it becomes
	rows   map[int]record.RolloutRow // those that change, by their index in the rows of v
	change record.RolloutWrite
}

// evaluate observes, decides, and applies.
func (s *RolloutRunner) evaluate(ctx context.Context, r record.Record, v record.RolloutView) (time.Duration, error) {
	sp, err := s.specOf(ctx, r, v.State)
	if err != nil {
		return 0, err
	}
	_, rules, err := s.catalog.Freezes(ctx) // before they are read: a later freeze makes the commit fail
	if err != nil {
		return 0, err
	}
	e, err := s.decide(ctx, r, v, sp)
	if err != nil {
		return 0, err
	}
	writes, err := s.apply(ctx, e)
	if err != nil {
		return 0, err
	}
	for i := range writes {
		writes[i].Access = &rules
	}
	e.settle()
	wait := e.wait(len(writes))
	if len(writes) == 0 && e.isSame() {
		return wait, nil
	}
	if e.out.StartUndo { // nothing is admitted: the decision and the undo are one commit
		e.st.UndoneBy, v.State, v.Execution, v.Of, v.Rows = "", e.st, nil, nil, slices.Clone(v.Rows)
		for i, row := range e.rows {
			v.Rows[i] = row
		}
		return 0, s.undo(ctx, r, v, e.change)
	}
	return wait, s.saveRollout(ctx, r, v, e.st, e.change, writes...)
}

// decide returns what is to be done with a rollout, from what is observed of it.
func (s *RolloutRunner) decide(ctx context.Context, r record.Record, v record.RolloutView, sp spec.Rollout) (*evaluation, error) {
	in, index, err := s.input(ctx, v, sp)
	if err != nil {
		return nil, err
	}
	observed, err := s.observe(ctx, v, v.State.AcceptsNone(sp), sp.Restore != nil)
	if err != nil {
		return nil, err
	}
	in.Observed = func(id tko.DeploymentID) execute.Observation { return observed[id].Observation }
	out := execute.Next(in.Input)
	if in.err != nil {
		return nil, in.err
	}
	e := &evaluation{
		r: r, v: v, spec: sp, flight: in.Flight, out: out, index: index,
		st: stateWith(v.State, out.Rollout), rows: map[int]record.RolloutRow{},
		change: record.RolloutWrite{Rollout: v.State.ID, Number: v.State.Plan},
	}
	for _, i := range out.Update {
		e.rows[index[i]] = rowWith(v.Rows[index[i]], out.Rows[i])
	}
	for _, o := range observed {
		if o.chain > v.Rows[o.row].Chain {
			to, ok := e.rows[o.row]
			if !ok {
				to = v.Rows[o.row]
			}
			to.Chain = o.chain
			e.rows[o.row] = to
		}
	}
	for _, i := range out.Pull {
		e.change.Sites = append(e.change.Sites, string(out.Rows[i].Site))
	}
	for _, id := range out.Release {
		e.change.Land = append(e.change.Land, string(id))
	}
	return e, nil
}

// settle writes down what holds the rollout, and which rows change.
func (e *evaluation) settle() {
	e.st.Blocks, e.st.Held = nil, false
	for _, b := range e.out.Blocks {
		e.st.Blocks = append(e.st.Blocks, b.String())
		e.st.Held = e.st.Held || !b.Moves()
	}
	e.st.Settling = e.st.State == execute.Cancelled && slices.ContainsFunc(e.out.Rows, func(r execute.Row) bool { return r.Progress.InFlight() || r.Ends() })
	for _, i := range slices.Sorted(maps.Keys(e.rows)) {
		e.change.Rows = append(e.change.Rows, e.rows[i])
	}
}

// wait returns the time after which the rollout is evaluated again: at once after writes,
// negative if nothing but a change of what it observes can move it.
func (e *evaluation) wait(writes int) time.Duration {
	if writes > 0 || e.st.State != e.v.State.State {
		return 0
	}
	wait := time.Duration(-1)
	if !e.out.Wake.IsZero() {
		wait = max(e.out.Wake.Sub(e.v.Now), time.Millisecond)
	}
	blocked := e.st.State == execute.Running && len(e.st.Blocks)+len(e.out.Admit) > 0 // what blocks may end without a change here
	if blocked && (wait < 0 || wait > execute.Interval) {
		return execute.Interval
	}
	return wait
}

// isSame reports whether the rollout, its rows and its flights stay as they were read.
func (e *evaluation) isSame() bool {
	was, is := e.v.State, e.st
	return len(e.change.Rows)+len(e.change.Land) == 0 &&
		is.State == was.State && is.Reason == was.Reason && slices.Equal(is.Blocks, was.Blocks) && is.Settling == was.Settling &&
		is.FirstFailure.Equal(was.FirstFailure) && is.Touched == was.Touched && is.Failing == was.Failing && slices.Equal(is.Tickets, was.Tickets)
}

// An input is what a rollout is decided from. What it needs of sites is read when it is
// asked for.
type input struct {
	execute.Input

	err error // of a read
}

// input returns what a rollout is decided from, except for observations, and the index
// in v.Rows of each of its rows.
func (s *RolloutRunner) input(ctx context.Context, v record.RolloutView, sp spec.Rollout) (*input, []int, error) {
	keys := sp.Limits.Keys()
	for _, e := range v.Flight {
		keys = append(keys, e.Apart...)
	}
	freezes, _, err := s.catalog.Freezes(ctx)
	if err != nil {
		return nil, nil, err
	}
	sites := make([]string, len(v.Flight))
	for i, e := range v.Flight {
		sites[i] = string(e.Site)
	}
	facts, err := s.factsOf(ctx, sites, v.Now)
	if err != nil {
		return nil, nil, err
	}
	entries := slices.Clone(v.Flight)
	for i := range entries {
		entries[i].Now = facts[string(entries[i].Site)].metadata
	}
	rows, index := executionRows(v)
	in := &input{Input: execute.Input{
		Rollout: executionOf(v, sp), Rows: rows, Flight: execute.NewFlight(entries), Keys: keys, Freezes: freezes,
		Held: func(id tko.DeploymentID) (string, bool) { other, ok := v.Held[id]; return other, ok }, Now: v.Now,
	}}
	site := ahead(in, func(r execute.Row) string { return string(r.Site) }, facts, func(ids []string) (map[string]siteFact, error) { return s.factsOf(ctx, ids, v.Now) })
	stopped, err := s.stoppedRows(ctx, in, v)
	if err != nil {
		return nil, nil, err
	}
	in.Stopped = stopped
	if len(keys) > 0 || len(sp.Windows) > 0 || sp.Stage != nil && len(sp.Stage.Per) > 0 || len(freezes) > 0 || stopped != nil {
		in.Metadata = func(row int) (map[string]string, bool) {
			fact, ok := site(row)
			return fact.metadata, ok
		}
	}
	in.Contact = func(row int) (execute.Contact, bool) {
		fact, ok := site(row)
		return fact.contact, ok
	}
	deployment := ahead(in, func(r execute.Row) string { return string(r.Deployment) }, map[string]map[string]string{}, func(ids []string) (map[string]map[string]string, error) {
		return s.reader.MetadataOf(ctx, tko.KindDeployment, ids)
	})
	in.Suspended = func(row int) (suspended, ok bool) {
		metadata, ok := deployment(row)
		return tko.Suspended(metadata), ok
	}
	in.SuspendedUntil = v.Now.Add(execute.SuspendedAgain)
	if len(sp.Limits.Apart) > 0 {
		in.Others = s.changing(ctx, in, v, sp)
	}
	return in, index, nil
}

// stoppedRows returns a function that returns the stop that holds a row; nil if there are no
// stops. It reads the metadata of sites as the rest of the evaluation does.
func (s *RolloutRunner) stoppedRows(ctx context.Context, in *input, v record.RolloutView) (func(int) (*tko.Stop, bool), error) {
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	stops := rights.StopsFor(ctx, book.Stops)
	if len(stops) == 0 {
		return nil, nil
	}
	below := make([]map[string]bool, len(stops)) // of topologies
	for i, stop := range stops {
		if stop.Topology != "" {
			below[i] = map[string]bool{string(stop.Topology): true}
			if err := s.store.Descendants(ctx, []string{string(stop.Topology)}, func(id string) { below[i][id] = true }); err != nil {
				return nil, err
			}
		}
	}
	created := map[tko.DeploymentID]tko.DeploymentID{} // the parents of deployments that the rollout creates
	for _, row := range v.Rows {
		if row.Kind == plan.Create {
			created[row.Deployment] = tko.DeploymentID(row.Parent)
		}
	}
	return func(i int) (*tko.Stop, bool) {
		row := in.Rows[i]
		for n := range stops {
			stop := &stops[n]
			if stop.Releasing && (row.Site == "" || stop.IsReleased(row.Site)) {
				continue
			}
			if stop.Topology != "" {
				for id, steps := row.Deployment, 0; id != "" && steps < rights.MaxAncestors; id, steps = created[id], steps+1 {
					if below[n][string(id)] {
						return stop, true
					}
				}
				continue
			}
			var metadata map[string]string
			if len(stop.SiteMetadata) > 0 && row.Site != "" {
				var ok bool
				metadata, ok = in.Metadata(i)
				if !ok {
					return nil, false
				}
			}
			if stop.All || row.Site != "" && stop.SelectsSite(row.Site, metadata) {
				return stop, true
			}
		}
		return nil, true
	}, nil
}

// A siteFact is what a rollout needs to know of a site.
type siteFact struct {
	metadata map[string]string
	contact  execute.Contact
}

// factsOf returns facts of sites by ID, at the time of the database.
func (s *RolloutRunner) factsOf(ctx context.Context, ids []string, now time.Time) (map[string]siteFact, error) {
	out := make(map[string]siteFact, len(ids))
	err := s.reader.EachOf(ctx, tko.KindSite, ids, func(r record.Record) {
		var c execute.Contact
		c.Away, _ = tko.AgentAway(tko.SiteID(r.ID), r.Conditions, now)
		if c.Away != "" {
			c.AwaySince = tko.AwaySince(r.Conditions)
		}
		c.Held, c.Since, _ = tko.HeldByOwner(r.Conditions)
		out[r.ID] = siteFact{r.Effective(), c}
	})
	return out, err
}

// ahead returns a function that returns a fact of the site or deployment of a row, as id selects
// it, and reads those of the next waiting ones with it.
func ahead[T any](in *input, id func(execute.Row) string, known map[string]T, read func(ids []string) (map[string]T, error)) func(int) (T, bool) {
	ahead := 16
	return func(row int) (fact T, ok bool) {
		wanted := id(in.Rows[row])
		if _, ok := known[wanted]; !ok && wanted != "" {
			ids := make([]string, 0, ahead)
			ids = append(ids, wanted)
			for i := row + 1; i < len(in.Rows) && len(ids) < ahead; i++ {
				one := id(in.Rows[i])
				if _, ok := known[one]; !ok && one != "" && in.Rows[i].Progress == execute.Waiting {
					ids = append(ids, one)
				}
			}
			next, err := read(ids)
			if err != nil {
				in.err = errors.Join(in.err, err)
				return fact, false
			}
			for _, one := range ids {
				known[one] = next[one] // zero: it was deleted
			}
			ahead = min(2*ahead, record.RowsPage) // few if few can be admitted
		}
		return known[wanted], in.err == nil
	}
}

// maxApartValues limits the values of limits.apart that one evaluation examines.
const maxApartValues = 200

// changing returns a function that returns the deployments that others are changing at
// the sites from which a row must be apart.
func (s *RolloutRunner) changing(ctx context.Context, in *input, v record.RolloutView, sp spec.Rollout) func(execute.Row) ([]execute.Entry, bool) {
	inFlight := map[tko.DeploymentID]bool{}
	for _, e := range v.Flight {
		inFlight[e.Deployment] = true
	}
	type pair struct{ key, value string }
	seen := map[pair]bool{}
	return func(row execute.Row) ([]execute.Entry, bool) {
		var out []execute.Entry
		for _, key := range sp.Limits.Apart {
			value, ok := row.Metadata[key]
			if !ok || seen[pair{key, value}] {
				continue
			}
			if len(seen) == maxApartValues || in.err != nil {
				return out, false
			}
			seen[pair{key, value}] = true
			pattern, err := tko.ParseValuePattern(tko.LiteralPattern(value))
			if err != nil {
				in.err = err
				return nil, false
			}
			query := record.Query{Kind: tko.KindDeployment, Scope: access.ScopeAll, SiteMetadata: map[string]tko.Pattern{key: pattern}, Limit: -1}
			for r, err := range s.store.List(ctx, query) {
				if err != nil {
					in.err = err
					return nil, false
				}
				if id := tko.DeploymentID(r.ID); !inFlight[id] && isChanging(r, v.Now.Add(-sp.Health.Within)) {
					out = append(out, execute.Entry{Deployment: id, Site: tko.SiteID(r.Site), Values: map[string]string{key: value}})
				}
			}
		}
		return out, true
	}
}

// isChanging reports whether the newest revision of a deployment isn't settled at its
// site. One that isn't after a long time is broken and doesn't count.
func isChanging(r record.Record, since time.Time) bool {
	if r.Site == "" || r.Updated.Before(since) {
		return false
	}
	healthy, _ := healthOf(r, true) // nothing more will be known of it
	return !healthy
}

// healthOf reports whether a deployment is prepared, approved, scheduled at its revision,
// and healthy there; and if not, why. acceptsNone lets it count as healthy once it is
// scheduled at a site that reports no health.
func healthOf(r record.Record, acceptsNone bool) (healthy bool, reason string) {
	find := func(typ string) *tko.Condition { return tko.FindCondition(r.Conditions, typ) }
	why := func(text string, c *tko.Condition) string {
		if c != nil && c.Message != "" {
			return text + ": " + c.Message
		}
		return text
	}
	switch {
	case !r.Prepared:
		return false, why("not prepared", find(tko.ConditionPrepared))
	case !r.Approved:
		return false, why("not approved", find(tko.ConditionApproved))
	case r.Site == "":
		return true, ""
	}
	scheduled, health := find(tko.ConditionScheduled), find(tko.ConditionHealthy)
	switch {
	case scheduled == nil || scheduled.ObservedRevision != r.Revision:
		return false, "not yet scheduled"
	case scheduled.Status != tko.ConditionTrue:
		return false, why("not scheduled", scheduled)
	case scheduled.Reason == tko.ReasonNothingToSchedule && (health == nil || health.Reason == tko.ReasonHealthNotReported): // there is nothing that could fail
		return true, ""
	case health == nil || health.Reason == tko.ReasonHealthNotReported:
		if !acceptsNone {
			return false, "its site reports no health, so whether it works is not known: set spec.health.none to Accept to take it for healthy"
		}
		return true, ""
	case health.ObservedRevision != r.Revision:
		return false, "its site has not reported its health"
	case health.Status != tko.ConditionTrue:
		return false, why("not healthy", health)
	}
	return true, ""
}

// hasNoTarget reports whether a deployment is prepared and approved at a site whose package
// triggers no scheduler, as of its newest revision.
func hasNoTarget(r record.Record) bool {
	c := tko.FindCondition(r.Conditions, tko.ConditionScheduled)
	return r.Revision != 0 && record.Placed(r) != "" && c != nil && c.Reason == tko.ReasonNoScheduler && c.ObservedRevision == r.Revision
}

// isBroken reports whether a deployment is unhealthy at its site, or fails, before a rollout
// changes it.
func isBroken(r record.Record) bool {
	healthy, _ := healthOf(r, true)
	return r.Site != "" && !healthy && tko.Unhealthy(r.Conditions)
}

// An observation is what is known of a deployment in flight, with the newest revision
// that preparation made of the rollout's.
type observation struct {
	execute.Observation

	chain int64
	row   int // in the view
}

// observe returns what is known of the deployments in flight. Those that a restore returns to a
// site without a target are as they were: there is nothing to wait for.
func (s *RolloutRunner) observe(ctx context.Context, v record.RolloutView, acceptsNone, restores bool) (map[tko.DeploymentID]observation, error) {
	var flying []int
	rows, index := executionRows(v)
	for n := range rows {
		if rows[n].Progress.InFlight() {
			flying = append(flying, index[n])
		}
	}
	out := make(map[tko.DeploymentID]observation, len(flying))
	for batch := range slices.Chunk(flying, record.RowsPage) {
		keys := record.Keys(batch, func(n int) record.Key { return record.DeploymentKey(v.Rows[n].Deployment) })
		records, err := s.store.Get(ctx, record.Fields{}, keys...)
		if err != nil {
			return nil, err
		}
		moves := make([]move, len(batch))
		for i, n := range batch {
			moves[i] = move{records[i], v.Rows[n].Chain}
		}
		known, err := s.moved(ctx, moves)
		if err != nil {
			return nil, err
		}
		for i, n := range batch {
			row := v.Rows[n]
			o, err := s.observeOne(ctx, row, records[i], v.Unscheduled[row.Site], known)
			if err != nil {
				return nil, err
			}
			if !o.Superseded && records[i].Revision != 0 && row.Kind != plan.Delete {
				o.Healthy, o.Reason = healthOf(records[i], acceptsNone)
				o.Failing = !o.Healthy && tko.Failing(records[i].Conditions, records[i].Revision)
			}
			if restores && !o.Superseded && o.chain == records[i].Revision && hasNoTarget(records[i]) {
				o.Healthy, o.Reason = true, ""
			}
			o.row = n
			out[row.Deployment] = o
		}
	}
	return out, nil
}

// observeOne returns what is known of a row apart from its health.
func (s *RolloutRunner) observeOne(ctx context.Context, row record.RolloutRow, r record.Record, unscheduled bool, known record.Revisions) (observation, error) {
	o := observation{chain: row.Chain}
	switch {
	case row.Kind == plan.Delete && r.Revision == 0:
		o.Healthy = !unscheduled
		if unscheduled {
			o.Reason = fmt.Sprintf("site %q has not removed it yet", row.Site)
		}
		return o, nil
	case row.Kind == plan.Delete:
		o.Superseded, o.Reason = true, "it was created again"
		return o, nil
	case r.Revision == 0:
		o.Superseded, o.Gone, o.Reason = true, true, "it was deleted"
		return o, nil
	}
	chain, by, err := s.follow(ctx, r, row.Chain, known)
	if err != nil {
		return o, err
	}
	o.chain = chain
	if chain != r.Revision {
		o.Superseded, o.Reason = true, fmt.Sprintf("it was changed by %q (revision %d)", by.Who, chain+1)
		if by.Why != "" { // such as: rollout "r-undo"
			o.Reason += fmt.Sprintf(": %.200s", by.Why)
		}
		return o, nil
	}
	return o, nil
}

// maxFollowed limits the revisions that are examined at once.
const maxFollowed = 100

// A move is a deployment as it is now, and the revision from which it is followed.
type move struct {
	now  record.Record
	from int64
}

// maxAhead limits the revisions of each deployment that are read together with others.
const maxAhead = 4

// moved reads the revisions that deployments moved through, all in one statement.
func (s *RolloutRunner) moved(ctx context.Context, moves []move) (record.Revisions, error) {
	var wanted []record.AtRevision
	for _, m := range moves {
		if m.now.Revision <= m.from {
			continue
		}
		for n := m.from; n <= min(m.now.Revision, m.from+maxAhead); n++ {
			wanted = append(wanted, record.AtRevision{Key: m.now.Key, Revision: n})
		}
	}
	return s.reader.RevisionsOf(ctx, record.Fields{}, wanted)
}

// follow returns the newest revision of a deployment, from one on, that only preparation
// and approvals made of it; and the author of the next one, if there is one.
func (s *RolloutRunner) follow(ctx context.Context, r record.Record, from int64, known record.Revisions) (chain int64, next tko.Author, err error) {
	if r.Revision <= from {
		return r.Revision, tko.Author{}, nil
	}
	before, err := s.reader.RevisionIn(ctx, known, r.Key, from)
	for n := from + 1; n <= r.Revision && err == nil; n++ {
		if n-from > maxFollowed {
			return n - 1, r.Author, nil
		}
		var after record.Record
		if after, err = s.reader.RevisionIn(ctx, known, r.Key, n); err != nil {
			break
		}
		same := after.UID == before.UID && after.Template == before.Template && after.Site == before.Site
		if !same || len(after.Steps) == 0 && after.Digest != before.Digest {
			return n - 1, after.Author, nil
		}
		before = after
	}
	if errors.Is(err, tko.ErrNotFound) { // no longer retained: nothing is assumed
		return from, r.Author, nil
	}
	return r.Revision, tko.Author{}, err
}

// apply returns the writes of the rows that are admitted, and adds their rows and flights
// to the change. A row that isn't as planned any more pauses the rollout.
func (s *RolloutRunner) apply(ctx context.Context, e *evaluation) ([]record.Write, error) {
	admitted := e.out.Admit
	if len(admitted) == 0 {
		return nil, nil
	}
	keys := record.Keys(admitted, func(i int) record.Key { return record.DeploymentKey(e.out.Rows[i].Deployment) })
	records, err := s.store.Get(ctx, record.Fields{Package: true}, keys...)
	if err != nil {
		return nil, err
	}
	below, err := s.undeleted(ctx, e.v, e.out)
	if err != nil {
		return nil, err
	}
	todo := make([]record.RolloutRow, len(admitted))
	for n, i := range admitted {
		todo[n] = e.v.Rows[e.index[i]]
	}
	a, err := s.newApplier(ctx, e.v.State, e.spec, todo)
	if err != nil {
		return nil, err
	}
	defer a.close()
	if a.owner, err = s.rights.OwnerOfRecord(ctx, e.r); err != nil {
		return nil, err
	}
	allowed, err := s.rowRights(ctx, e.r, e.v.State)
	if err != nil {
		return nil, err
	}
	flights := map[tko.DeploymentID]execute.Entry{}
	for _, entry := range e.flight.Entries() {
		flights[entry.Deployment] = entry
	}
	var writes []record.Write
	for n, i := range admitted {
		row := todo[n]
		if row.Kind == plan.Delete && below[row.Deployment].wait {
			continue // its children are deleted first
		}
		w, err := a.applied(ctx, row, records[n])
		if errors.Is(err, errFollows) {
			continue
		}
		if err == nil && below[row.Deployment].stranger != "" {
			err = tko.Errorf(tko.ErrConflict, "deployment %q: it has the child %q, which the plan doesn't know: plan again", row.Deployment, below[row.Deployment].stranger)
		}
		if err == nil {
			err = allowed.permit(s.rolloutStore, records[n], w) //nolint:contextcheck // it has the contexts of the owner and of the starter
		}
		if err != nil {
			if !isRefused(err) {
				return nil, err
			}
			to, moved := execute.Moved(e.out.Rollout, e.out.Rows[i], err)
			e.st = stateWith(e.st, to)
			e.rows[e.index[i]] = rowWith(row, moved)
			break
		}
		writes = append(writes, w)
		to := rowWith(row, e.out.Rows[i].Apply(e.v.Now, row.Kind != plan.Create && isBroken(records[n])))
		if row.Kind != plan.Create {
			to.Base, to.Replaces = records[n].Base, records[n].Replaces
		}
		e.rows[e.index[i]] = to
		e.change.Flight = append(e.change.Flight, flights[row.Deployment])
	}
	return writes, nil
}

// isRefused reports whether an error says that a row can't be changed as it was planned, and
// not that something failed for the moment.
func isRefused(err error) bool {
	return errors.Is(err, tko.ErrDenied) || errors.Is(err, tko.ErrConflict) || errors.Is(err, tko.ErrInvalid) || errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrGone)
}

// descendants of a deployment that is to be deleted.
type descendants struct {
	wait     bool   // some are deleted first
	stranger string // one that the plan doesn't delete
}

// undeleted returns, for each deployment that is admitted to be deleted, whether it still
// has descendants after the rows that are admitted before it.
func (s *RolloutRunner) undeleted(ctx context.Context, v record.RolloutView, out execute.Output) (map[tko.DeploymentID]descendants, error) {
	found := map[tko.DeploymentID]descendants{}
	var deleted []string
	for _, i := range out.Admit {
		if out.Rows[i].Kind == plan.Delete {
			deleted = append(deleted, string(out.Rows[i].Deployment))
		}
	}
	if len(deleted) == 0 {
		return found, nil
	}
	below, err := s.descendantsOf(ctx, deleted)
	if err != nil || len(below) == 0 {
		return found, err
	}
	known, admitted := map[string]record.RolloutRow{}, map[string]bool{}
	for _, row := range v.Rows {
		if row.Kind == plan.Delete {
			known[string(row.Deployment)] = row
		}
	}
	for _, id := range deleted {
		d := descendants{}
		for _, one := range below[id] {
			child, ok := known[one]
			switch {
			case admitted[one]:
			case ok && child.Progress == execute.Waiting:
				d.wait = true
			default:
				d.stranger = one
			}
		}
		found[tko.DeploymentID(id)] = d
		admitted[id] = !d.wait && d.stranger == ""
	}
	return found, nil
}

// descendantsOf returns the descendants of each of some deployments, with few reads
// however many deployments there are.
func (s *RolloutRunner) descendantsOf(ctx context.Context, ids []string) (map[string][]string, error) {
	all := map[string]bool{}
	if err := s.store.Descendants(ctx, ids, func(id string) { all[id] = true }); err != nil {
		return nil, err
	}
	for _, id := range ids { // one of them may be a descendant of another, which isn't reported
		all[id] = true
	}
	parents := make(map[string]string, len(all))
	for batch := range slices.Chunk(slices.Sorted(maps.Keys(all)), record.RowsPage) {
		keys := record.Keys(batch, func(id string) record.Key { return record.DeploymentKey(tko.DeploymentID(id)) })
		records, err := s.store.Get(ctx, record.Fields{}, keys...)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if r.Revision != 0 {
				parents[r.ID] = r.Parent
			}
		}
	}
	wanted, below := map[string]bool{}, map[string][]string{}
	for _, id := range ids {
		wanted[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(parents)) {
		for at, n := parents[id], 0; at != "" && n < rights.MaxAncestors; at, n = parents[at], n+1 {
			if wanted[at] {
				below[at] = append(below[at], id)
			}
		}
	}
	return below, nil
}
