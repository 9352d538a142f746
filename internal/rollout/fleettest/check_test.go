package fleettest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// run lets things happen, then calms down and brings all rollouts to an end.
func (w *world) run() error {
	w.start()
	for range 150 {
		if err := w.step(); err != nil {
			return err
		}
	}
	w.calm = true
	for _, s := range w.sites {
		s.gone = false
	}
	clear(w.others)
	clear(w.frozen)
	for range 4000 {
		if w.final() {
			return w.checkEnd()
		}
		if err := w.step(); err != nil {
			return err
		}
	}
	var states strings.Builder
	for _, x := range w.rollouts {
		fmt.Fprintf(&states, " %s is %s (%s) with %s;", x.state.ID, x.state.State, x.state.Reason.Message, execute.Summarize(x.rows).Total)
		for _, b := range w.blocks(x) {
			states.WriteString(" " + b.String() + ";")
		}
	}
	return errors.New("the rollouts don't end:" + states.String())
}

// blocks returns what keeps the rows of a rollout waiting.
func (w *world) blocks(x *rolled) []execute.Block {
	in := w.input(x, w.flight)
	return execute.Next(in).Blocks
}

func final(s execute.State) bool {
	return s == execute.Done || s == execute.Undone || s == execute.Cancelled
}

func (w *world) final() bool {
	for _, x := range w.rollouts {
		if !final(x.state.State) {
			return false
		}
	}
	return true
}

func (w *world) step() error {
	passed := time.Duration(1+w.r.IntN(40)) * time.Second
	if w.calm && w.chance(20) {
		passed = time.Duration(w.r.IntN(120)) * time.Minute
	}
	w.real += passed
	w.now = w.now.Add(passed)
	if !w.calm {
		w.disturb()
	}
	if err := w.checkBeyond(); err != nil {
		return err
	}
	w.pull()
	x := pick(w, w.rollouts)
	if w.chance(25) {
		w.command(x)
		if err := w.check(); err != nil {
			return err
		}
	}
	return w.evaluate(x)
}

// checkBeyond checks that no more deployments than the limit are changed from the moment on
// at which more are unhealthy, in truth, than the budget allows, and until they recover.
func (w *world) checkBeyond() error {
	for _, x := range w.rollouts {
		switch beyond := x.exceeds(w.failing(x, 0)); {
		case !beyond:
			if x.beyond != nil {
				w.stats.Recovered++
			}
			x.beyond = nil
		case x.beyond == nil:
			w.stats.Stopped++
			x.beyond = map[tko.DeploymentID]bool{}
		case len(x.beyond) > x.state.Spec.Limits.Concurrent:
			return fmt.Errorf("%s changed %d deployments after its budget was exceeded, more than concurrent (%d)", x.state.ID, len(x.beyond), x.state.Spec.Limits.Concurrent)
		}
	}
	return nil
}

// disturb lets something happen that no rollout has asked for.
func (w *world) disturb() {
	switch w.r.IntN(30) {
	case 0:
		jump := time.Duration(w.r.IntN(7200)-3600) * time.Second
		w.now = w.now.Add(jump)
		w.stats.Jumps++
		for _, x := range w.rollouts {
			for id := range x.healthy {
				x.jumps[id]++
			}
		}
		w.say("the clock jumps by %s", jump)
	case 1, 2:
		s := w.sites[pick(w, w.siteIDs)]
		s.gone = !s.gone
	case 3:
		d := w.deployments[pick(w, w.ids)]
		if d.exists {
			d.revision++
			d.edited = true
			d.content = 1000
			w.say("a user edits %s", d.id)
		}
	case 4:
		d := w.deployments[pick(w, w.ids)]
		if _, ok := w.others[d.id]; ok {
			delete(w.others, d.id)
		} else if !slices.ContainsFunc(w.flight, func(e execute.Entry) bool { return e.Deployment == d.id }) {
			w.others[d.id] = execute.Entry{Deployment: d.id, Site: d.site, Values: w.sites[d.site].metadata}
			w.say("a placement changes %s at %s", d.id, d.site)
		}
	case 5:
		id := pick(w, w.siteIDs)
		w.frozen[id] = w.now.Add(time.Duration(w.r.IntN(3600)) * time.Second)
		w.say("%s is frozen", id)
	case 6:
		id := pick(w, w.siteIDs)
		metadata := map[string]string{"region": "n", "tac": strconv.Itoa(w.r.IntN(3)), "pair": strconv.Itoa(w.r.IntN(6))}
		w.sites[id].metadata = metadata
		w.say("%s is relabelled: %v", id, metadata)
	case 7:
		if len(w.rollouts) < 4 {
			w.start()
		}
	}
}

// command does something as a user: what helps, once it is calm.
func (w *world) command(x *rolled) {
	switch x.state.State {
	case execute.Running:
		switch n := w.r.IntN(20); {
		case n < 10 || w.calm:
			if r, _, err := execute.Approve(x.state, execute.Summarize(x.rows), execute.Approving{Plan: x.state.Plan.String(), Who: "u", When: w.now}); err == nil {
				x.state = r
			}
		case n == 10:
			x.state.State, x.state.Reason = execute.Paused, execute.Reason{Code: "User", Message: "a user paused it"}
		case n == 11 && len(w.rollouts) < 6:
			w.undo(x)
		case n == 12 && w.chance(30):
			w.cancel(x)
		}
	case execute.Paused:
		for i, row := range x.rows {
			if row.Progress == execute.Stale {
				x.rows[i], _ = execute.Skip(row, "a user left it out")
			}
			if (row.Progress == execute.Failed || row.Counted) && w.chance(50) {
				if waived, err := execute.Waive(row); err == nil {
					if row.Progress == execute.Failed {
						w.leave(x, row.Deployment)
					}
					x.rows[i] = waived
				}
			}
		}
		if r, err := execute.Resume(x.state, execute.Summarize(x.rows), x.state.Plan, ""); err == nil {
			x.state = r
			w.say("%s is resumed", r.ID)
		}
	case execute.Done, execute.Cancelled:
		if !w.calm && w.chance(10) && len(w.rollouts) < 6 {
			w.undo(x)
		}
	default:
	}
	// A rollout that continues with failed rows stalls at its limits until they are waived.
	if w.calm && x.state.State == execute.Running {
		for i, row := range x.rows {
			if row.Progress == execute.Failed {
				if waived, err := execute.Waive(row); err == nil {
					x.rows[i] = waived
					w.leave(x, row.Deployment)
				}
			}
		}
	}
	if w.calm && (x.state.State == execute.Cancelled || x.state.State == execute.Undoing && w.chance(10)) {
		for i, row := range x.rows {
			if row.Progress == execute.Failed {
				if waived, err := execute.Waive(row); err == nil {
					x.rows[i] = waived
					w.leave(x, row.Deployment)
				}
			}
		}
	}
	w.mirror()
}

func (w *world) undo(x *rolled) {
	r, changed, err := execute.BeginUndo(x.state, x.rows)
	if err != nil || r.State != execute.Undoing || x.state.State == execute.Undoing {
		return
	}
	x.state = r
	x.replace(changed)
	w.say("%s is to be undone", r.ID)
	w.startUndo(x)
}

func (w *world) cancel(x *rolled) {
	r, changed, err := execute.Cancel(x.state, x.rows)
	if err != nil {
		return
	}
	x.state = r
	x.replace(changed)
	w.say("%s is cancelled", r.ID)
}

func (x *rolled) replace(rows []execute.Row) {
	for _, row := range rows {
		i := slices.IndexFunc(x.rows, func(o execute.Row) bool { return o.Deployment == row.Deployment })
		x.rows[i] = row
	}
}

// checkAdmission checks a row that is about to be applied.
func (w *world) checkAdmission(x *rolled, row execute.Row) error {
	s, d, p := x.state.Spec, w.deployments[row.Deployment], x.planned[row.Deployment]
	for _, o := range w.rollouts { // the last wave is undone first
		for _, r := range o.rows {
			if o.state.ID == x.state.Undoes && r.Deployment == row.Deployment && r.Wave+row.Wave != len(o.state.Spec.Waves)-1 {
				return fmt.Errorf("%s undoes %s of wave %d in wave %d of %d", x.state.ID, row.Deployment, r.Wave, row.Wave, len(s.Waves))
			}
		}
	}
	// The family that changed a deployment last, and whose change isn't settled, may undo it:
	// it takes over the slot.
	own := slices.ContainsFunc(w.flight, func(e execute.Entry) bool {
		return e.Deployment == row.Deployment && w.root(e.Rollout) == w.root(x.state.ID)
	})
	failed := 0
	for _, o := range x.rows {
		if !own && o.Wave < row.Wave && !slices.Contains([]execute.Progress{execute.Healthy, execute.Failed, execute.Waived, execute.AsBefore, execute.Skipped, execute.Superseded}, o.Progress) {
			return fmt.Errorf("%s applies %s of wave %d before the end of wave %d: %s is %s", x.state.ID, row.Deployment, row.Wave, o.Wave, o.Deployment, o.Progress)
		}
		if o.Counted {
			failed++
		}
	}
	exceeded := s.Limits.Failures.Count != nil && failed > *s.Limits.Failures.Count
	_, isFrozen := w.frozen[row.Site]
	unhealthy := w.failing(x, reportTime)
	switch {
	case x.applied[row.Deployment] > 0:
		return fmt.Errorf("%s applies %s twice", x.state.ID, row.Deployment)
	case x.state.State != execute.Running:
		return fmt.Errorf("%s applies %s while it is %s", x.state.ID, row.Deployment, x.state.State)
	case row.Kind != plan.Create && (!d.exists || d.revision != p.revision || d.content != p.before), row.Kind == plan.Create && d.exists:
		return fmt.Errorf("%s applies %s, which isn't as planned", x.state.ID, row.Deployment)
	case s.Waves[row.Wave].Approval && x.state.Approvals[row.Wave].Plan != x.state.Plan:
		return fmt.Errorf("%s applies %s of wave %d without approval", x.state.ID, row.Deployment, row.Wave)
	case exceeded && s.OnFailure != spec.Continue:
		return fmt.Errorf("%s applies %s after %d failures, more than its budget", x.state.ID, row.Deployment, failed)
	case x.exceeds(unhealthy):
		return fmt.Errorf("%s applies %s while %d failed or are reported unhealthy, more than its budget", x.state.ID, row.Deployment, unhealthy)
	case isFrozen && w.now.Before(w.frozen[row.Site]):
		return fmt.Errorf("%s applies %s at %s, which is frozen", x.state.ID, row.Deployment, row.Site)
	}
	if len(s.Windows) > 0 && !x.state.AnyTime {
		clock := time.Duration(w.now.Hour())*time.Hour + time.Duration(w.now.Minute())*time.Minute
		if clock < s.Windows[0].From || clock >= s.Windows[0].To {
			return fmt.Errorf("%s applies %s at %s, outside of its window", x.state.ID, row.Deployment, w.now)
		}
	}
	if slices.Contains(s.Limits.Apart, "pair") && !own {
		for _, id := range w.ids {
			o, ok := w.others[id]
			value, has := row.Metadata["pair"]
			inFlight := slices.ContainsFunc(w.flight, func(e execute.Entry) bool { return e.Deployment == id })
			if ok && has && !inFlight && o.Site != row.Site && o.Values["pair"] == value && o.Values["pair"] != "" {
				return fmt.Errorf("%s applies %s at %s while a placement changes %s at %s, of the same pair", x.state.ID, row.Deployment, row.Site, id, o.Site)
			}
		}
	}
	for _, o := range w.rollouts {
		if !own && o.started < x.started && o.state.Family != x.state.Family && o.state.State.Active() {
			for _, r := range o.rows {
				if r.Deployment == row.Deployment && slices.Contains([]execute.Progress{execute.Waiting, execute.Applied, execute.Soaking, execute.Failed}, r.Progress) {
					return fmt.Errorf("%s applies %s, which %s holds", x.state.ID, row.Deployment, o.state.ID)
				}
			}
		}
	}
	return nil
}

// checkProgress checks a step of a row in flight, and keeps the truth about its health.
func (w *world) checkProgress(x *rolled, was, is execute.Row) error {
	id := was.Deployment
	if !was.Progress.InFlight() {
		if is.Progress == execute.Waiting && was.Progress == execute.Waiting && is.Stage.State != was.Stage.State {
			return nil // its images are pulled
		}
		if is.Progress == was.Progress && was.Ends() && is.Stage.State != was.Stage.State {
			return nil // its site no longer pulls
		}
		if is.Progress == execute.Skipped && (was.Progress == execute.Waiting || was.Progress == execute.Stale) {
			return nil
		}
		return fmt.Errorf("%s: %s goes from %s to %s", x.state.ID, id, was.Progress, is.Progress)
	}
	o := w.observed(x)(id)
	switch {
	case !o.Healthy:
		delete(x.healthy, id)
	default:
		if _, ok := x.healthy[id]; !ok {
			x.healthy[id], x.jumps[id] = w.real, 0
		}
	}
	switch is.Progress {
	case execute.Healthy:
		if was.Counted && !is.Counted {
			return fmt.Errorf("%s: the failure of %s is forgotten", x.state.ID, id)
		}
		if was.Progress == execute.Failed {
			w.stats.Late++
		}
		soaked := w.real - x.healthy[id] + time.Duration(x.jumps[id])*2*execute.Interval
		if !o.Healthy || was.Kind != plan.Delete && soaked < x.state.Spec.Health.Soak {
			return fmt.Errorf("%s: %s counts as healthy after %s of %s (healthy: %t)", x.state.ID, id, soaked, x.state.Spec.Health.Soak, o.Healthy)
		}
	case execute.Failed:
		if was.Progress != execute.Failed {
			w.stats.Failed++
			if o.Healthy || is.Reason == "" || !is.Counted || was.Broken {
				return fmt.Errorf("%s: %s failed: %+v", x.state.ID, id, is)
			}
		}
	case execute.AsBefore:
		w.stats.AsBefore++
		if !was.Broken || is.Counted && !was.Counted {
			return fmt.Errorf("%s: %s was not broken before", x.state.ID, id)
		}
	case execute.Superseded:
		w.stats.Superseded++
	default:
	}
	return nil
}

// checkBlocks checks that what waits is explained.
func (w *world) checkBlocks(x *rolled, out execute.Output) error {
	waiting := 0
	for _, row := range out.Rows {
		if row.Progress == execute.Waiting {
			waiting++
		}
	}
	explained := len(out.Admit)
	for _, b := range out.Blocks {
		explained += b.Count
		if b.Text == "" || b.Count == 0 {
			return fmt.Errorf("%s: the block %+v explains nothing", x.state.ID, b)
		}
	}
	if s := out.Rollout.State; waiting != explained && (s == execute.Running || s == execute.Paused && len(out.Admit) == 0 && !out.Changed) {
		return fmt.Errorf("%s is %s: %d rows wait, %d are explained: %v", x.state.ID, s, waiting, explained, out.Blocks)
	}
	return nil
}

// check checks what holds after each commit.
func (w *world) check() error {
	limits := map[string]spec.Limits{}
	for _, x := range w.rollouts {
		if x.state.Undoes == "" {
			limits[x.state.ID] = x.state.Spec.Limits
		}
	}
	// Recompute the entries from the rows: an entry for each row in flight, at most one for
	// a deployment. An undo has the slot of what it undoes.
	stored := map[tko.DeploymentID]string{}
	entries := slices.Clone(w.flight)
	for i, e := range entries {
		if other, ok := stored[e.Deployment]; ok {
			return fmt.Errorf("%s is in flight for %s and %s", e.Deployment, other, e.Rollout)
		}
		stored[e.Deployment] = e.Rollout
		entries[i].Family, entries[i].Values = w.root(e.Rollout), w.values[e.Deployment]
	}
	if found := Violations(entries, limits); len(found) > 0 {
		return errors.New(found[0])
	}
	expected := map[tko.DeploymentID]string{}
	for _, x := range w.rollouts {
		if x.released || x.state.State == execute.Undone {
			continue
		}
		for _, row := range x.rows {
			if slices.Contains([]execute.Progress{execute.Applied, execute.Soaking, execute.Failed}, row.Progress) {
				if other, ok := expected[row.Deployment]; ok && w.root(other) != w.root(x.state.ID) {
					return fmt.Errorf("%s is in flight for %s and %s", row.Deployment, other, x.state.ID)
				}
				expected[row.Deployment] = x.state.ID
			}
		}
	}
	for id, rollout := range expected {
		if got, ok := stored[id]; !ok || w.root(got) != w.root(rollout) {
			if !w.undone(rollout, id) {
				return fmt.Errorf("%s is in flight for %s and has no entry", id, rollout)
			}
		}
	}
	for id, rollout := range stored {
		if w.root(expected[id]) != w.root(rollout) {
			return fmt.Errorf("%s has an entry of %s and isn't in flight", id, rollout)
		}
	}
	for _, x := range w.rollouts {
		s, sum := execute.Summarize(x.rows), 0
		for _, n := range s.Total.By {
			sum += n
		}
		for _, c := range s.Waves {
			sum -= c.Rows
		}
		if sum != 0 || s.Total.Rows != len(x.rows) {
			return fmt.Errorf("%s: the counts are wrong: %+v", x.state.ID, s)
		}
		if x.state.State == execute.Paused && x.state.Reason.Message == "" {
			return fmt.Errorf("%s is paused without a reason", x.state.ID)
		}
	}
	return nil
}

// undone reports whether a row of a rollout was handed over to its undo.
func (w *world) undone(rollout string, id tko.DeploymentID) bool {
	for _, u := range w.rollouts {
		if u.state.Undoes == rollout && u.applied[id] > 0 {
			return true
		}
	}
	return false
}

func (w *world) root(rollout string) string {
	for _, x := range w.rollouts {
		if x.state.ID == rollout && x.state.Undoes != "" {
			return w.root(x.state.Undoes)
		}
	}
	return rollout
}

// checkEnd checks that all final states are explained, and that what was undone is as
// before.
func (w *world) checkEnd() error {
	for _, x := range w.rollouts {
		w.stats.Final[x.state.State]++
		for _, row := range x.rows {
			switch {
			case x.state.State == execute.Done && !row.Progress.Ended():
				return fmt.Errorf("%s is Done, and %s is %s", x.state.ID, row.Deployment, row.Progress)
			case slices.Contains([]execute.Progress{execute.Skipped, execute.Superseded, execute.AsBefore, execute.Failed, execute.Stale}, row.Progress) && row.Reason == "":
				return fmt.Errorf("%s: %s is %s without a reason", x.state.ID, row.Deployment, row.Progress)
			case row.Progress == execute.Healthy && x.applied[row.Deployment] != 1:
				return fmt.Errorf("%s: %s was applied %d times", x.state.ID, row.Deployment, x.applied[row.Deployment])
			}
			if u := w.undoOf(x); x.state.State == execute.Undone && x.applied[row.Deployment] == 1 && u.applied[row.Deployment] == 1 && u.revision[row.Deployment] == w.deployments[row.Deployment].revision {
				d, p := w.deployments[row.Deployment], x.planned[row.Deployment]
				if d.exists != p.exists || d.exists && d.content != p.before {
					return fmt.Errorf("%s is undone, and %s isn't as before", x.state.ID, row.Deployment)
				}
			}
		}
	}
	return nil
}

func (w *world) undoOf(x *rolled) *rolled {
	for _, u := range slices.Backward(w.rollouts) {
		if u.state.Undoes == x.state.ID {
			return u
		}
	}
	return x
}
