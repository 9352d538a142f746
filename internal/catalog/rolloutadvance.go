package catalog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// AdvanceRollout does the next step of a rollout: it plans it, or observes what is in
// flight and applies what limits allow, in one commit. It returns the time after which it
// must be called again: 0 at once, negative only when something changes. Several callers
// may advance a rollout at the same time: what one of them does, the others don't repeat.
func (s *Service) AdvanceRollout(ctx context.Context, id tko.RolloutID) (time.Duration, error) {
	ctx, c, err := s.enter(ctx, "", access.Advance)
	if err != nil {
		return 0, err
	}
	// Who started the rollout was permitted to change its deployments.
	own := *c
	own.grant, own.bound = access.All, false
	ctx = context.WithValue(ctx, callerKey{}, &own)
	known := s.rollouts.of(string(id))
	unlock, err := known.lock.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	wait, active := time.Duration(-1), false
	err = retry(ctx, func() error {
		r, v, err := s.viewKnown(ctx, id, known)
		if active = v.State.Active(); errors.Is(err, tko.ErrNotFound) {
			return nil // it was deleted
		}
		if err != nil {
			return err
		}
		wait, err = s.advance(ctx, r, v)
		return err
	})
	s.rollouts.trim(known, active)
	if errors.Is(err, tko.ErrConflict) { // others are faster: see what they did
		return 100 * time.Millisecond, nil
	}
	return wait, err
}

func (s *Service) advance(ctx context.Context, r Record, v RolloutView) (time.Duration, error) {
	st := v.State
	changed := st.Spec != r.Revision
	switch {
	case st.State == execute.Draft && changed, st.State == execute.Planned && changed && st.Undoes == "":
		st.State, st.Reason = execute.Planning, execute.Reason{}
		return 0, s.saveRollout(ctx, r, v, st, RolloutWrite{})
	case st.State == execute.Planning, st.State == execute.Paused && st.Next != 0 && st.Left == (plan.Digest{}):
		err := s.makePlan(ctx, r, v)
		if errors.Is(err, tko.ErrInvalid) || errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrGone) {
			err = s.failPlan(ctx, r, v, err)
		}
		return -1, err
	case st.State == execute.Undoing && st.UndoneBy == "": // of a TKO that committed this alone
		return 0, s.undo(ctx, r, v, RolloutWrite{})
	case st.State.Active(), st.Settling:
		return s.evaluate(ctx, r, v)
	}
	return -1, nil
}

// evaluate observes, decides, and applies.
func (s *Service) evaluate(ctx context.Context, r Record, v RolloutView) (time.Duration, error) {
	sp, err := s.specOf(ctx, r, v.State)
	if err != nil {
		return 0, err
	}
	_, rules, err := s.activeFreezes(ctx) // before they are read: a later freeze makes the commit fail
	if err != nil {
		return 0, err
	}
	in, index, err := s.input(ctx, v, sp)
	if err != nil {
		return 0, err
	}
	observed, err := s.observe(ctx, v)
	if err != nil {
		return 0, err
	}
	in.Observed = func(id tko.DeploymentID) execute.Observation { return observed[id].Observation }
	out := execute.Next(in.Input)
	if in.err != nil {
		return 0, in.err
	}

	change := RolloutWrite{Rollout: v.State.ID, Number: v.State.Plan}
	st := v.State.with(out.Rollout)
	rows := map[int]RolloutRow{}
	for _, i := range out.Update {
		rows[index[i]] = v.Rows[index[i]].with(out.Rows[i])
	}
	for _, o := range observed {
		if o.chain > v.Rows[o.row].Chain {
			to, ok := rows[o.row]
			if !ok {
				to = v.Rows[o.row]
			}
			to.Chain = o.chain
			rows[o.row] = to
		}
	}
	for _, id := range out.Release {
		change.Land = append(change.Land, string(id))
	}
	writes, st, err := s.apply(ctx, v, sp, st, in.Flight, out, index, rows, &change)
	if err != nil {
		return 0, err
	}
	for i := range writes {
		writes[i].Access = &rules
	}
	st.Blocks = nil
	for _, b := range out.Blocks {
		st.Blocks = append(st.Blocks, b.String())
	}
	st.Settling = st.State == execute.Cancelled && slices.ContainsFunc(out.Rows, func(r execute.Row) bool { return r.Progress.InFlight() })
	for _, i := range slices.Sorted(maps.Keys(rows)) {
		change.Rows = append(change.Rows, rows[i])
	}
	wait := time.Duration(-1)
	if !out.Wake.IsZero() {
		wait = max(out.Wake.Sub(v.Now), time.Millisecond)
	}
	if len(writes) > 0 || st.State != v.State.State {
		wait = 0
	} else if st.State == execute.Running && len(st.Blocks)+len(out.Admit) > 0 { // what blocks may end without a change here
		if wait < 0 || wait > execute.Interval {
			wait = execute.Interval
		}
	}
	if len(writes)+len(change.Rows)+len(change.Land) == 0 && st.State == v.State.State && st.Reason == v.State.Reason && slices.Equal(st.Blocks, v.State.Blocks) && st.Settling == v.State.Settling {
		return wait, nil
	}
	if out.StartUndo { // nothing is admitted: the decision and the undo are one commit
		st.UndoneBy, v.State, v.known, v.Rows = "", st, nil, slices.Clone(v.Rows)
		for i, row := range rows {
			v.Rows[i] = row
		}
		return 0, s.undo(ctx, r, v, change)
	}
	return wait, s.saveRollout(ctx, r, v, st, change, writes...)
}

// An input is what a rollout is decided from. What it needs of sites is read when it is
// asked for.
type input struct {
	execute.Input

	err error // of a read
}

// input returns what a rollout is decided from, except for observations, and the index
// in v.Rows of each of its rows.
func (s *Service) input(ctx context.Context, v RolloutView, sp spec.Rollout) (*input, []int, error) {
	keys := sp.Limits.Keys()
	for _, e := range v.Flight {
		keys = append(keys, e.Apart...)
	}
	freezes, err := s.freezes(ctx)
	if err != nil {
		return nil, nil, err
	}
	sites := make([]string, len(v.Flight))
	for i, e := range v.Flight {
		sites[i] = string(e.Site)
	}
	metadata, err := s.siteMetadata(ctx, sites)
	if err != nil {
		return nil, nil, err
	}
	entries := slices.Clone(v.Flight)
	for i := range entries {
		entries[i].Now = metadata[string(entries[i].Site)]
	}
	rows, index := v.rows()
	in := &input{Input: execute.Input{
		Rollout: v.execution(sp), Rows: rows, Flight: execute.NewFlight(entries), Keys: keys, Freezes: freezes,
		Held: func(id tko.DeploymentID) (string, bool) { other, ok := v.Held[id]; return other, ok }, Now: v.Now,
	}}
	if len(keys) > 0 || len(sp.Windows) > 0 || len(freezes) > 0 {
		in.Metadata = s.metadataAhead(ctx, in, metadata)
	}
	if len(sp.Limits.Apart) > 0 {
		in.Others = s.changing(ctx, in, v, sp)
	}
	return in, index, nil
}

// metadataAhead returns a function that returns the metadata of the site of a row, and
// reads that of the next waiting ones with it.
func (s *Service) metadataAhead(ctx context.Context, in *input, known map[string]map[string]string) func(int) (map[string]string, bool) {
	ahead := 16
	return func(row int) (map[string]string, bool) {
		site := string(in.Rows[row].Site)
		if _, ok := known[site]; !ok && site != "" {
			sites := make([]string, 0, ahead)
			for i := row; i < len(in.Rows) && len(sites) < ahead; i++ {
				id := string(in.Rows[i].Site)
				if _, ok := known[id]; !ok && in.Rows[i].Progress == execute.Waiting {
					sites = append(sites, id)
				}
			}
			next, err := s.siteMetadata(ctx, sites)
			if err != nil {
				in.err = errors.Join(in.err, err)
				return nil, false
			}
			for _, id := range sites {
				known[id] = next[id] // nil: the site was deleted
			}
			ahead = min(2*ahead, rowsPage) // few if few can be admitted
		}
		return known[site], in.err == nil
	}
}

// maxApartValues limits the values of limits.apart that one evaluation examines.
const maxApartValues = 200

// changing returns a function that returns the deployments that others are changing at
// the sites from which a row must be apart.
func (s *Service) changing(ctx context.Context, in *input, v RolloutView, sp spec.Rollout) func(execute.Row) ([]execute.Entry, bool) {
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
			query := Query{Kind: tko.KindDeployment, Scope: access.ScopeAll, SiteMetadata: map[string]tko.Pattern{key: pattern}, Limit: -1}
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
func isChanging(r Record, since time.Time) bool {
	if r.Site == "" || r.Updated.Before(since) {
		return false
	}
	healthy, _ := healthOf(r)
	return !healthy
}

// healthOf reports whether a deployment is prepared, approved, scheduled at its revision,
// and healthy there, as far as its site reports; and if not, why.
func healthOf(r Record) (healthy bool, reason string) {
	find := func(typ string) *tko.Condition {
		for i := range r.Conditions {
			if r.Conditions[i].Type == typ {
				return &r.Conditions[i]
			}
		}
		return nil
	}
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
	case health == nil: // the target reports no health
		return true, ""
	case health.ObservedRevision != r.Revision:
		return false, "its site has not reported its health"
	case health.Status != tko.ConditionTrue:
		return false, why("not healthy", health)
	}
	return true, ""
}

// isUnhealthy reports whether a deployment's site says that it isn't healthy.
func isUnhealthy(r Record) bool {
	return slices.ContainsFunc(r.Conditions, func(c tko.Condition) bool {
		return c.Type == tko.ConditionHealthy && c.Status == tko.ConditionFalse
	})
}

// An observation is what is known of a deployment in flight, with the newest revision
// that preparation made of the rollout's.
type observation struct {
	execute.Observation

	chain int64
	row   int // in the view
}

// observe returns what is known of the deployments in flight.
func (s *Service) observe(ctx context.Context, v RolloutView) (map[tko.DeploymentID]observation, error) {
	var flying []int
	rows, index := v.rows()
	for n := range rows {
		if rows[n].Progress.InFlight() {
			flying = append(flying, index[n])
		}
	}
	out := make(map[tko.DeploymentID]observation, len(flying))
	for batch := range slices.Chunk(flying, rowsPage) {
		keys := make([]Key, len(batch))
		for i, n := range batch {
			keys[i] = deploymentKey(v.Rows[n].Deployment)
		}
		records, err := s.store.Get(ctx, Fields{}, keys...)
		if err != nil {
			return nil, err
		}
		for i, n := range batch {
			row := v.Rows[n]
			o, err := s.observeOne(ctx, row, records[i], v.Unscheduled[row.Site])
			if err != nil {
				return nil, err
			}
			o.row = n
			out[row.Deployment] = o
		}
	}
	return out, nil
}

func (s *Service) observeOne(ctx context.Context, row RolloutRow, r Record, unscheduled bool) (observation, error) {
	o := observation{chain: row.Chain}
	switch {
	case row.Kind == plan.Delete && r.Revision == 0:
		if o.Healthy = !unscheduled; unscheduled {
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
	chain, by, err := s.follow(ctx, r, row.Chain)
	if err != nil {
		return o, err
	}
	if o.chain = chain; chain != r.Revision {
		o.Superseded, o.Reason = true, fmt.Sprintf("it was changed by %q (revision %d)", by.Who, chain+1)
		return o, nil
	}
	o.Healthy, o.Reason = healthOf(r)
	return o, nil
}

// maxFollowed limits the revisions that are examined at once.
const maxFollowed = 100

// follow returns the newest revision of a deployment, from one on, that only preparation
// and approvals made of it; and the author of the next one, if there is one.
func (s *Service) follow(ctx context.Context, r Record, from int64) (chain int64, next tko.Author, err error) {
	if r.Revision <= from {
		return r.Revision, tko.Author{}, nil
	}
	before, err := s.store.Revision(ctx, r.Key, from)
	for n := from + 1; n <= r.Revision && err == nil; n++ {
		if n-from > maxFollowed {
			return n - 1, r.Author, nil
		}
		var after Record
		if after, err = s.store.Revision(ctx, r.Key, n); err != nil {
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
func (s *Service) apply(ctx context.Context, v RolloutView, sp spec.Rollout, st RolloutState, flight *execute.Flight, out execute.Output, index []int, rows map[int]RolloutRow, change *RolloutWrite) ([]Write, RolloutState, error) {
	if len(out.Admit) == 0 {
		return nil, st, nil
	}
	keys := make([]Key, len(out.Admit))
	for n, i := range out.Admit {
		keys[n] = deploymentKey(out.Rows[i].Deployment)
	}
	records, err := s.store.Get(ctx, Fields{Package: true}, keys...)
	if err != nil {
		return nil, st, err
	}
	below, err := s.undeleted(ctx, v, out, index)
	if err != nil {
		return nil, st, err
	}
	flights := map[tko.DeploymentID]execute.Entry{}
	for _, e := range flight.Entries() {
		flights[e.Deployment] = e
	}
	var writes []Write
	for n, i := range out.Admit {
		row := v.Rows[index[i]]
		if row.Kind == plan.Delete && below[row.Deployment].wait {
			continue // its children are deleted first
		}
		w, err := s.applied(ctx, v.State, sp, row, records[n])
		if errors.Is(err, errFollows) {
			continue
		}
		if err == nil && below[row.Deployment].stranger != "" {
			err = tko.Errorf(tko.ErrConflict, "deployment %q: it has the child %q, which the plan doesn't know: plan again", row.Deployment, below[row.Deployment].stranger)
		}
		if err != nil {
			if !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrInvalid) && !errors.Is(err, tko.ErrNotFound) && !errors.Is(err, tko.ErrGone) {
				return nil, st, err
			}
			to, moved := execute.Moved(out.Rollout, out.Rows[i], err)
			st = st.with(to)
			rows[index[i]] = row.with(moved)
			break
		}
		writes = append(writes, w)
		healthy, _ := healthOf(records[n])
		broken := row.Kind != plan.Create && records[n].Site != "" && !healthy && isUnhealthy(records[n])
		to := row.with(out.Rows[i].Apply(v.Now, broken))
		if row.Kind != plan.Create {
			to.Base, to.Replaces = records[n].Base, records[n].Replaces
		}
		rows[index[i]] = to
		change.Flight = append(change.Flight, flights[row.Deployment])
	}
	return writes, st, nil
}

// descendants of a deployment that is to be deleted.
type descendants struct {
	wait     bool   // some are deleted first
	stranger string // one that the plan doesn't delete
}

// undeleted returns, for each deployment that is admitted to be deleted, whether it still
// has descendants after the rows that are admitted before it.
func (s *Service) undeleted(ctx context.Context, v RolloutView, out execute.Output, index []int) (map[tko.DeploymentID]descendants, error) {
	found := map[tko.DeploymentID]descendants{}
	known, admitted := map[string]RolloutRow{}, map[string]bool{}
	if !slices.ContainsFunc(out.Admit, func(i int) bool { return out.Rows[i].Kind == plan.Delete }) {
		return found, nil
	}
	for _, row := range v.Rows {
		if row.Kind == plan.Delete {
			known[string(row.Deployment)] = row
		}
	}
	for _, i := range out.Admit {
		row := v.Rows[index[i]]
		if row.Kind != plan.Delete {
			continue
		}
		d := descendants{}
		err := s.store.Descendants(ctx, []string{string(row.Deployment)}, func(id string) {
			child, ok := known[id]
			switch {
			case admitted[id]:
			case ok && child.Progress == execute.Waiting:
				d.wait = true
			default:
				d.stranger = id
			}
		})
		if err != nil {
			return nil, err
		}
		found[row.Deployment] = d
		if !d.wait && d.stranger == "" {
			admitted[string(row.Deployment)] = true
		}
	}
	return found, nil
}

// applied returns the write that applies a row to a deployment as it is now. An
// ErrConflict says why the row isn't as planned any more.
func (s *Service) applied(ctx context.Context, st RolloutState, sp spec.Rollout, row RolloutRow, now Record) (Write, error) {
	exists := now.Revision != 0
	if row.Force {
		row.Revision, row.UID = now.Revision, now.UID
		if row.Kind == plan.Change && !exists {
			row.Kind = plan.Create
		}
		if row.Kind == plan.Create && exists {
			row.Kind = plan.Change
		}
	} else if err := row.Check(exists, now.UID, now.Revision); err != nil {
		return Write{}, err
	}
	by := tko.Author{Who: st.By.Who, Why: fmt.Sprintf(rolloutReason+"%q", st.ID)}
	if st.By.Why != "" {
		by.Why += ": " + st.By.Why
	}
	if row.Kind == plan.Delete {
		if !exists {
			return Write{}, tko.Errorf(tko.ErrConflict, "deployment %q: it is deleted already", row.Deployment)
		}
		return Write{Op: tko.OpDeleted, Record: Record{Key: now.Key, Author: by}, Expect: now.Revision, SingleStep: true}, nil
	}
	var r Record
	var err error
	if row.Target != 0 {
		r, err = s.restoredRecord(ctx, row)
	} else {
		r, err = s.plannedRecord(ctx, st, sp, row, now)
	}
	if err != nil {
		return Write{}, err
	}
	if row.Target != 0 && st.Undoes == "" {
		if err := s.permitApproval(ctx, now, &r); err != nil {
			return Write{}, err
		}
	}
	if row.Target != 0 && !exists {
		if err := s.checkOrigin(ctx, r); err != nil {
			return Write{}, err
		}
	}
	r.Author = by
	w := Write{Op: tko.OpWritten, Record: r, Expect: Absent}
	switch {
	case exists:
		w.Expect = now.Revision
		w.Record.UID, w.Record.Created, w.Record.Origin = now.UID, now.Created, now.Origin
		w.Record.Conditions = mergeConditions(now.Conditions, change{record: r}.flags(now.Conditions), now.Revision+1, time.Now())
	default:
		w.Record.UID = newUID()
		w.Record.Conditions = mergeConditions(r.Conditions, flagConditions(r.Conditions, r.Prepared, r.Approved), 1, time.Now())
		if r.Parent != "" {
			w.Requires = append(w.Requires, deploymentKey(tko.DeploymentID(r.Parent)))
		}
	}
	if row.Target == 0 && r.Template != now.Template { // the whole commit would fail
		template := references(r.Template, "")
		if err := s.requireAll(ctx, template); err != nil {
			return Write{}, fmt.Errorf("deployment %q: %w", row.Deployment, err)
		}
		w.Requires = append(w.Requires, template...)
	}
	return w, nil
}

// restoredRecord returns a deployment as it was at the revision that an undo restores,
// with its state, whatever has become of its template.
func (s *Service) restoredRecord(ctx context.Context, row RolloutRow) (Record, error) {
	r, err := s.store.Revision(ctx, deploymentKey(row.Deployment), row.Target)
	if err != nil {
		return Record{}, fmt.Errorf("deployment %q: its revision %d, which is to be restored, can't be read: %w", row.Deployment, row.Target, err)
	}
	r.Base, r.Replaces, r.Conditions, r.Steps = row.Base, row.Replaces, nil, nil
	if r.Site != "" {
		site, err := s.get(ctx, Fields{}, Key{Kind: tko.KindSite, ID: r.Site})
		if err != nil {
			return Record{}, err
		}
		if site.Revision == 0 {
			return Record{}, tko.Errorf(tko.ErrConflict, "deployment %q: its site %q was deleted since: register it again, or skip the row", row.Deployment, r.Site)
		}
	}
	if digest := r.planDigest(); row.After != (plan.Digest{}) && digest != row.After {
		return Record{}, tko.Errorf(tko.ErrConflict, "deployment %q: its revision %d isn't what the rollout found", row.Deployment, row.Target)
	}
	return r, nil
}

// planDigest returns the digest of a deployment as plans have it.
func (r Record) planDigest() plan.Digest { return plan.StateDigest(r.Digest, sharedDeployment(r)) }

// plannedRecord makes what a row plans again, and checks that it is the same.
func (s *Service) plannedRecord(ctx context.Context, st RolloutState, sp spec.Rollout, row RolloutRow, now Record) (Record, error) {
	if s.planner == nil {
		return Record{}, errors.New("this server has no planner")
	}
	state, err := s.planner.After(ctx, plan.Request{Rollout: st.ID, Spec: sp}, row.Row, row.Pins)
	if err != nil {
		return Record{}, err
	}
	d := state.Deployment
	c, err := contentOf(d.Package.WithoutDeploymentState())
	if err != nil {
		return Record{}, err
	}
	r := now
	if row.Kind == plan.Create {
		r = Record{Key: deploymentKey(row.Deployment), Parent: string(d.Parent)}
		if d.Origin != "" {
			r.Origin = originOf(string(d.Parent), d.Origin)
		}
		for _, id := range d.Replaces {
			r.Replaces = append(r.Replaces, string(id))
		}
	}
	inherited := now.inherited()
	if d.Template != tko.TemplateID(now.Template) || d.TemplateRevision != now.Base {
		t, err := s.templateAt(ctx, string(d.Template), d.TemplateRevision)
		if err != nil {
			return Record{}, err
		}
		inherited = t.effective()
	}
	r.Template, r.Site, r.Prepared, r.Approved, r.Base = string(d.Template), string(d.Site), d.Prepared, d.Approved, d.TemplateRevision
	r.Digest, r.Package = c.digest, c.encoded
	switch {
	case state.Derived != nil:
		r.Derivation, r.Derived = sha256.Sum256(state.Derived), state.Derived
	case r.Template != now.Template:
		r.Derivation = Digest{} // it isn't known what the package is made from
	}
	if r.Metadata, err = metadataAfter(now.effective(), d.Package, inherited, now.passed()); err != nil {
		return Record{}, err
	}
	r.remove(now.removed())
	r.retainAttached(now)
	if r.planDigest() != row.After {
		return Record{}, tko.Errorf(tko.ErrConflict, "deployment %q: what was planned can't be made again, because what it is made from has changed: plan again", row.Deployment)
	}
	return r, nil
}

// templateAt returns a template as of a revision, 0: as it is.
func (s *Service) templateAt(ctx context.Context, id string, revision int64) (Record, error) {
	key := Key{Kind: tko.KindTemplate, ID: id}
	if id == "" {
		return Record{}, nil
	}
	if revision != 0 {
		return s.store.Revision(ctx, key, revision)
	}
	return s.get(ctx, Fields{Package: true}, key)
}

// beginUndo commits that a rollout is undone from now on, and makes the rollout that
// undoes it.
func (s *Service) beginUndo(ctx context.Context, r Record, v RolloutView, st RolloutState, skipped []execute.Row) error {
	by := author(ctx)
	st.Reason = execute.Reason{Code: "Undone", Message: "it is undone by " + by.Who}
	if by.Who == "" {
		st.Reason.Message = "it is undone"
	}
	v.State = st
	return s.undo(ctx, r, v, RolloutWrite{Rows: v.changedRows(skipped)})
}

// undo makes the rollout that undoes another one, and commits it together with a change of
// that one. v has the state and rows after the change.
func (s *Service) undo(ctx context.Context, r Record, v RolloutView, change RolloutWrite) error {
	sp, err := s.specOf(ctx, r, v.State)
	if err != nil {
		return err
	}
	all, _ := v.rows()
	todo, left := execute.Undo(all, len(sp.Waves), v.State.Force)
	of := make(map[tko.DeploymentID]RolloutRow, len(v.Rows))
	for _, row := range v.Rows {
		of[row.Deployment] = row
	}
	var rows []RolloutRow
	conflict := func(e execute.Row, reason string) {
		was := of[e.Deployment]
		rows = append(rows, RolloutRow{
			Row:    plan.Row{Deployment: e.Deployment, UID: was.UID, Revision: was.Chain, Kind: plan.Conflict, Wave: plan.NoWave, Findings: []string{reason}},
			Parent: was.Parent, Site: was.Site, Progress: execute.Skipped, Reason: reason,
		})
	}
	for _, e := range left {
		conflict(e, e.Reason)
	}
	for batch := range slices.Chunk(todo, rowsPage) {
		keys := make([]Key, len(batch))
		for i, e := range batch {
			keys[i] = deploymentKey(e.Deployment)
		}
		records, err := s.store.Get(ctx, Fields{}, keys...)
		if err != nil {
			return err
		}
		for i, e := range batch {
			row, reason, err := s.undoRow(ctx, of[e.Deployment], e, records[i], v.State.Force)
			if err != nil {
				return err
			}
			if reason != "" {
				conflict(e, reason)
				continue
			}
			rows = append(rows, row)
		}
	}
	pkg, err := packageOf(r)
	if err != nil {
		return err
	}
	id, err := s.undoID(ctx, v.State)
	if err != nil {
		return err
	}
	if pkg, err = undoPackage(id, pkg, v.State.ID); err != nil {
		return err
	}
	record, err := s.unparsedRollout(ctx, tko.Rollout{ID: tko.RolloutID(id), Package: pkg})
	if err != nil {
		return err
	}
	record.UID, record.Author = newUID(), author(ctx)
	if record.Author.Why == "" {
		record.Author.Why = fmt.Sprintf("undoes rollout %q", v.State.ID)
	}
	p, kinds := plan.Plan{Rollout: plan.Digest(record.Digest)}, map[string]int{}
	for _, row := range rows {
		p.Rows = append(p.Rows, row.Row)
		kinds[row.Kind.String()]++
	}
	p.Sort()
	if err := s.store.WriteRolloutPlan(ctx, id, 1, rows, []byte("[]")); err != nil {
		return err
	}
	st := v.State
	st.UndoneBy = id
	undoing := RolloutState{
		ID: id, State: execute.Running, Family: st.Family, Undoes: st.ID, Started: st.Started, Time: v.Now, By: author(ctx), Plan: 1, Digest: p.Digest(),
		Spec: 1, Kinds: kinds, AnyTime: st.AnyTime, Rows: v.Version + 1,
	}
	if undoing.By.Who == "" {
		undoing.By.Who = st.By.Who
	}
	record.Conditions = mergeConditions(nil, undoing.conditions(), 1, v.Now)
	change.States, change.Wake = append(change.States, undoing), append(change.Wake, id, st.ID)
	return s.saveRollout(ctx, r, v, st, change,
		Write{Op: tko.OpWritten, Record: record, Expect: Absent})
}

// undoID returns an ID for the rollout that undoes another one.
func (s *Service) undoID(ctx context.Context, st RolloutState) (string, error) {
	base := st.ID
	if len(base) > tko.MaxIDLength-20 {
		base = base[:tko.MaxIDLength-20]
	}
	for n := 1; ; n++ {
		id := base + "-undo"
		if n > 1 {
			id = fmt.Sprintf("%s-undo-%d", base, n)
		}
		id = strings.TrimSuffix(id, "/")
		r, err := s.get(ctx, Fields{}, Key{Kind: tko.KindRollout, ID: id})
		if err != nil || r.Revision == 0 {
			return id, err
		}
	}
}

// undoRow returns the row that undoes another one; or why that must be left as it is.
func (s *Service) undoRow(ctx context.Context, was RolloutRow, e execute.Row, now Record, force bool) (row RolloutRow, reason string, err error) {
	row = RolloutRow{
		Row:    plan.Row{Deployment: was.Deployment, UID: was.UID, Kind: e.Kind, Wave: e.Wave, Rank: e.Rank, Before: was.After, After: was.Before},
		Parent: was.Parent, Site: was.Site, Progress: execute.Waiting, Broken: e.Broken,
		RowDetails: RowDetails{Base: was.Base, Replaces: was.Replaces, Force: force},
	}
	if was.Kind != plan.Create {
		row.Target = was.Revision
	}
	switch {
	case was.Kind == plan.Delete:
		if now.Revision != 0 && !force {
			return row, "it was created again since", nil
		}
		row.UID = ""
		return row, "", nil
	case now.Revision == 0 && was.Kind == plan.Create:
		return row, "it was deleted since", nil
	case now.Revision == 0 && !force:
		return row, "it was deleted since", nil
	case now.Revision == 0:
		return row, "", nil
	}
	chain, by, err := s.follow(ctx, now, was.Chain)
	if err != nil {
		return row, "", err
	}
	if row.Revision = chain; chain != now.Revision && !force {
		return row, fmt.Sprintf("it was changed by %q since (revision %d)", by.Who, chain+1), nil
	}
	return row, "", nil
}
