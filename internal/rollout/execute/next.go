package execute

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// Interval is how often a rollout with rows in flight is evaluated, at the latest. Credit
// for soaking is counted for at most two of them at once, so that a clock that jumps
// forward frees no slot early.
const Interval = 15 * time.Second

// DefaultPage is the number of rows that one evaluation admits.
const DefaultPage = 500

// An Observation is what is known of a deployment in flight.
type Observation struct {
	// Healthy is true if the deployment is prepared, approved, and scheduled at the
	// revision of the row, or a newer one that preparation made of it, and healthy there.
	// For a target that reports no health it is true once it is scheduled; for a deletion
	// once it is gone from its site.
	Healthy bool
	// Failing is true if the deployment reports, at the revision of the row or a newer one
	// that preparation made of it, that it is unhealthy or could not be prepared or applied.
	// It is false while it is in progress, or while nothing is known of it.
	Failing bool
	// Superseded is true if another client changed or deleted the deployment after the
	// row was applied; Reason says who.
	Superseded bool
	Gone       bool   // with Superseded: the deployment doesn't exist any more
	Reason     string // why it isn't healthy; for users
	// Unmeasured is true while the metrics of the rollout don't say yet that what it changed
	// is healthy: a deployment that is soaks on. Next sets it.
	Unmeasured bool
}

// SuspendedAgain is the time after which a rollout looks again at the metadata of
// suspended sites.
const SuspendedAgain = 5 * time.Minute

// A Freeze is a set of sites at which nothing is changed.
type Freeze struct {
	Matches func(site tko.SiteID, metadata map[string]string) bool
	Until   time.Time
	Reason  string
}

// An Input is everything that Next decides from.
type Input struct {
	Rollout Rollout
	Rows    []Row // that the plan applies, in the order of ranks
	// Observed returns what is known of a deployment in flight. It isn't called for others.
	Observed func(tko.DeploymentID) Observation
	Flight   *Flight  // of everything; Next changes it as its Output says
	Keys     []string // of metadata, that limits of any active rollout name
	Freezes  []Freeze
	// Suspended reports whether the deployment of a row is suspended, by the row's index in
	// Rows; ok is false if the caller doesn't know it now: then the row waits. It is called
	// as Metadata is. nil: none is.
	Suspended func(row int) (suspended, ok bool)
	// SuspendedUntil is when the caller looks at suspended deployments again.
	SuspendedUntil time.Time
	// Stopped returns the stop that holds the deployment of a row, or its site, by the row's
	// index in Rows; ok is false if the caller doesn't know it now: then the row waits. It is
	// called for rows in flight, too: the time of a stop doesn't count for their health. nil:
	// nothing is stopped.
	Stopped func(row int) (stop *tko.Stop, ok bool)
	// Contact returns what is known of the agent of the site of a row, by the row's index in Rows;
	// ok is false if the caller doesn't know it now: then the row stays as it is. It is called for
	// rows in flight, too. nil: no site has an agent.
	Contact func(row int) (contact Contact, ok bool)
	// Held returns the active rollout that started earlier and has a row of the
	// deployment that isn't final. An undo started when the first of its family did, so
	// that it doesn't wait for rollouts that wait for the one that it undoes. nil: there is
	// none.
	Held func(tko.DeploymentID) (rollout string, held bool)
	// Metadata returns the metadata of the site of a row, by its index in Rows; ok is
	// false if the caller doesn't know it now: then the row waits. It is called only for
	// rows that may be admitted, mostly in the order of Rows. nil: Rows have it.
	Metadata func(row int) (metadata map[string]string, ok bool)
	// Others returns what other clients are changing at the sites from which a row must be
	// apart; ok is false if the caller doesn't know it now: then the row waits. It is
	// called only for rows that nothing else keeps from being admitted. nil: Flight has it.
	Others func(row Row) (others []Entry, ok bool)
	Now    time.Time
	Page   int // rows to admit at most; DefaultPage if 0
}

// An Output is what the caller writes, in one transaction, and reports.
type Output struct {
	Rollout Rollout            // with its new state and reason
	Changed bool               // the state or reason changed
	Update  []int              // indexes of rows in Rows whose progress changed
	Rows    []Row              // all rows, with their new progress; admitted ones are still Waiting
	Release []tko.DeploymentID // they leave the set of entries in flight
	// Admit has the indexes of rows to apply now. For each, the caller checks the revision
	// (plan.Row.Check), writes the change, and the entry (EntryOf); Apply gives the row. If
	// the deployment moved, the caller writes what Moved returns, and doesn't apply further
	// rows.
	Admit []int
	// Pull has the indexes of rows whose pulls of images begin, or are to be removed: the caller makes the work of their
	// sites due, in the same transaction.
	Pull   []int
	Blocks []Block   // what keeps waiting rows from being applied
	Wake   time.Time // evaluate again then, at the latest; zero: only when something changes
	// StartUndo is true if the failures exceed the budget and onFailure is Undo: the
	// caller makes the rollout of Undo.
	StartUndo bool
}

// A Block is a reason why rows wait.
type Block struct {
	Code  string // such as Approval, Failing, Metric, Staging, Window, Stopped, Frozen, Suspended, Away, Owner, Concurrent, Per, Apart, OtherRollout, Wave, Parent, Paused
	Key   string // tells apart blocks of one code; may be ""
	Text  string // in words, without the number of rows
	Count int    // rows that wait for it
	Until time.Time
}

// String returns, for example, `12 deployments wait: the window of their sites is
// closed until 2026-11-23T01:00:00Z`.
func (b Block) String() string {
	text := fmt.Sprintf("%s: %s", count(b.Count, "deployment waits", "deployments wait"), b.Text)
	if !b.Until.IsZero() {
		text += " until " + b.Until.UTC().Format(time.RFC3339)
	}
	return text
}

// Moves reports whether the rows go on as others end, without a person, a window or
// another rollout.
func (b Block) Moves() bool {
	return slices.Contains([]string{"Concurrent", "Per", "Page", "Parent", "Wave"}, b.Code)
}

// Next decides how a rollout goes on: the progress of rows in flight, the state of the
// rollout, and the rows to admit. It changes only in.Flight. Calling it again with its
// result and the same time gives the same state.
func Next(in Input) Output {
	out := Output{Rollout: in.Rollout, Rows: slices.Clone(in.Rows)}
	e := evaluation{in: in, out: &out}
	switch in.Rollout.State {
	case Running, Paused, Cancelled:
		e.observe()
		e.failures()
	case Done, Undone:
	case Undoing:
		switch in.Rollout.UndoneBy {
		case Done:
			e.observe()
			e.become(Undone, Reason{})
		case Undone:
			if e.observe(); e.ended() {
				e.become(Done, Reason{"Redone", "the rollout was undone, and that was undone"})
			}
		case Cancelled:
			e.become(Cancelled, Reason{"UndoCancelled", "the undo was cancelled: undo the rollout again to go on"})
		default:
			e.observe()
		}
	default:
		return out
	}
	e.overdue()
	e.endPulls()
	if out.Rollout.State == Running {
		e.budget()
	}
	if out.Rollout.State == Running {
		e.admit()
	}
	if out.Rollout.State == Running && !e.leftOut && e.ended() {
		e.become(Done, e.summary())
	}
	if out.Rollout.State == Done || out.Rollout.State == Undone {
		e.releaseAll()
	}
	if out.Rollout.State == Paused {
		if n := Summarize(out.Rows).Total.By[Waiting]; n > 0 {
			out.Blocks = []Block{{Code: "Paused", Text: "the rollout is paused: " + out.Rollout.Reason.Message, Count: n}}
		}
	}
	slices.Sort(out.Update)
	out.Update = slices.Compact(out.Update)
	for i := range out.Rows {
		if p := out.Rows[i].Progress; (p == Applied || p == Soaking) && out.Rollout.State != Done {
			e.wake(in.Now.Add(Interval))
			break
		}
	}
	return out
}

type evaluation struct {
	in      Input
	out     *Output
	applied map[tko.DeploymentID]bool // whether rows were applied; see parentApplied
	leftOut bool                      // a row was left out: the next evaluation counts it
	away    awaySites                 // that rows wait for
}

func (e *evaluation) become(s State, reason Reason) {
	e.out.Rollout.State, e.out.Rollout.Reason, e.out.Changed = s, reason, true
}

func (e *evaluation) wake(t time.Time) {
	if e.out.Wake.IsZero() || t.Before(e.out.Wake) {
		e.out.Wake = t
	}
}

func (e *evaluation) release(id tko.DeploymentID) {
	// An undo may have taken over the slot.
	if entry, ok := e.in.Flight.entries[id]; ok && entry.Rollout == e.in.Rollout.ID {
		e.in.Flight.Remove(id)
		e.out.Release = append(e.out.Release, id)
	}
}

func (e *evaluation) observe() {
	for i, row := range e.out.Rows {
		if !row.Progress.InFlight() {
			continue
		}
		if e.in.Rollout.State == Undoing {
			if entry, ok := e.in.Flight.entries[row.Deployment]; ok && entry.Rollout != e.in.Rollout.ID {
				row.Progress, row.Reason = Superseded, fmt.Sprintf("rollout %q undoes it", entry.Rollout)
				e.out.Rows[i] = row
				e.out.Update = append(e.out.Update, i)
				continue
			}
		}
		was := row
		contact, known := e.contact(i)
		row = e.clock(i, row)
		if !row.Stands.IsZero() {
			if !row.Stands.Equal(was.Stands) {
				e.out.Rows[i] = row
				e.out.Update = append(e.out.Update, i)
			}
			e.out.Rows[i].Failing = Observe(row, contact.observed(e.in.Observed(row.Deployment)), e.in.Rollout.Spec.Health, row.Stands).Failing // a stop mends nothing
			continue
		}
		if !known {
			continue
		}
		o := contact.observed(e.in.Observed(row.Deployment))
		o.Unmeasured = e.in.Rollout.unmeasured(row)
		next := e.lost(contact, row, Observe(row, o, e.in.Rollout.Spec.Health, e.in.Now))
		e.out.Rows[i].Failing = next.Failing // not kept: it is observed each time
		if next.Progress == was.Progress && next.Credit == was.Credit && next.Evaluated.Equal(was.Evaluated) && next.Since.Equal(was.Since) && next.Counted == was.Counted && next.Reason == was.Reason {
			continue
		}
		e.out.Rows[i] = next
		e.out.Update = append(e.out.Update, i)
		if !next.Progress.InFlight() {
			e.release(next.Deployment)
		}
	}
}

// clock returns a row in flight whose clock stands while it is stopped, or while the owner of its
// site holds back changes. When that ends, its times are moved by the duration.
func (e *evaluation) clock(i int, row Row) Row {
	var stop *tko.Stop
	ok := true
	if e.in.Stopped != nil {
		stop, ok = e.in.Stopped(i)
	}
	if ok && stop == nil && e.in.Rollout.Undoes == "" { // an undo goes on: see lost
		var c Contact
		c, ok = e.contact(i)
		if c.Held != "" && c.Away == "" {
			stop = &tko.Stop{Created: c.Since}
		}
	}
	latest := func(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
	switch {
	case !ok: // as it was
	case stop != nil && row.Stands.IsZero():
		row.Stands = latest(stop.Created, row.Since, row.Evaluated)
		if row.Stands.After(e.in.Now) {
			row.Stands = e.in.Now
		}
	case stop == nil && !row.Stands.IsZero():
		stood := max(e.in.Now.Sub(row.Stands), 0)
		row.Since, row.Evaluated, row.Stands = row.Since.Add(stood), row.Evaluated.Add(stood), time.Time{}
	}
	return row
}

// Observe returns a row in flight after an observation.
func Observe(row Row, o Observation, health spec.Health, now time.Time) Row {
	late := now.Sub(row.Since) > health.Within
	row.Failing = false
	switch {
	case !row.Progress.InFlight():
		return row
	case o.Superseded:
		row.Progress, row.Reason = Superseded, o.Reason
	case o.Healthy && row.Kind == plan.Delete:
		row.Progress, row.Reason = Healthy, ""
	case o.Healthy && o.Unmeasured && row.Credit > health.Soak:
		return row // as it was: each evaluation would write it
	case o.Healthy:
		passed := time.Duration(0)
		if row.Progress == Soaking || row.Progress == Failed && row.Credit > 0 {
			passed = min(max(now.Sub(row.Evaluated), 0), 2*Interval)
			if passed < Interval && now.After(row.Evaluated) && row.Credit+passed <= health.Soak {
				return row // it is credited with a later evaluation: not each one writes the row
			}
		}
		// The first evaluation that finds it healthy gives no credit; 1 ns marks it.
		row.Credit = max(row.Credit+passed, 1)
		row.Evaluated = now
		if row.Progress == Applied {
			row.Progress = Soaking
		}
		if row.Credit > health.Soak && !o.Unmeasured {
			row.Progress, row.Reason = Healthy, ""
		}
	case row.Progress == Failed:
		row.Credit = 0
	case late && row.Broken:
		row.Progress, row.Credit, row.Reason = AsBefore, 0, "it was unhealthy before, too: "+o.Reason
	case late:
		row.Progress, row.Credit, row.Counted = Failed, 0, true
		row.Reason = fmt.Sprintf("not healthy within %s: %s", health.Within, cmp.Or(o.Reason, "its site has not reported that it is"))
	default:
		row.Progress, row.Credit, row.Reason = Applied, 0, o.Reason
	}
	row.Failing = o.Failing && row.Progress == Applied && !row.Counted && !row.Broken
	return row
}

// failures notes when the first deployment failed, or is unhealthy after its change, and how
// many sites were changed since. If all recover before they count as failed, there was no
// failure.
func (e *evaluation) failures() {
	r := &e.out.Rollout
	s := Summarize(e.out.Rows)
	switch failed := s.Failures + s.Failing; {
	case failed == 0:
		r.FirstFailure, r.Failing, r.Touched = time.Time{}, 0, 0
		return
	case r.FirstFailure.IsZero():
		r.FirstFailure = e.in.Now
	}
	r.Failing = s.Failing
	touched := map[string]bool{}
	for i := range e.out.Rows {
		if row := &e.out.Rows[i]; row.Since.After(r.FirstFailure) {
			touched[cmp.Or(string(row.Site), "deployment "+string(row.Deployment))] = true
		}
	}
	r.Touched = len(touched)
}

// budget pauses or undoes the rollout if more rows failed than it tolerates.
func (e *evaluation) budget() {
	r, s := e.out.Rollout, Summarize(e.out.Rows)
	if r.Spec.OnFailure == spec.Continue || !r.Spec.Limits.Failures.Exceeded(s.Failures, s.Total.Rows) {
		return
	}
	e.fail(Reason{"TooManyFailures", fmt.Sprintf("%s of %d failed, more than limits.failures allows", count(s.Failures, "deployment", "deployments"), s.Total.Rows)},
		": undo the rollout, waive rows, or raise the limit")
}

// fail pauses or undoes the rollout, as onFailure says. remedy is what a user can do while it is
// paused.
func (e *evaluation) fail(reason Reason, remedy string) {
	r := e.out.Rollout
	if r.Spec.OnFailure == spec.Undo && r.Undoes == "" {
		e.out.StartUndo = true
		e.become(Undoing, reason)
		for i := range e.out.Rows {
			if rows := skipped(e.out.Rows[i:i+1], "the rollout is undone"); len(rows) > 0 {
				e.out.Rows[i] = rows[0]
				e.out.Update = append(e.out.Update, i)
			}
		}
		return
	}
	reason.Message += remedy
	e.become(Paused, reason)
}

// admit chooses the rows to apply now, wave by wave. It chooses none while more rows failed
// or are unhealthy than the budget allows: those that are unhealthy may recover.
func (e *evaluation) admit() {
	s := Summarize(e.out.Rows)
	switch b := e.metrics(); {
	case e.out.Rollout.State != Running:
		return
	case b != nil:
		e.block(*b, s.Total.By[Waiting])
		return
	}
	if r := e.out.Rollout; s.Failing > 0 && r.Spec.OnFailure != spec.Continue && r.Spec.Limits.Failures.Exceeded(s.Failures+s.Failing, s.Total.Rows) {
		e.block(Block{Code: "Failing", Text: fmt.Sprintf("%s unhealthy or not applied after the change, more than limits.failures allows; it goes on if they recover within %s",
			count(s.Failing, "deployment is", "deployments are"), r.Spec.Health.Within)}, s.Total.By[Waiting])
		return
	}
	for n, wave := range s.Waves[:min(len(s.Waves), len(e.out.Rollout.Spec.Waves))] {
		if wave.Rows == 0 {
			continue // an empty wave needs no approval, and ends at once
		}
		name := waveName(e.out.Rollout.Spec.Waves, n)
		if wave.By[Waiting] > 0 && e.out.Rollout.Spec.Waves[n].Approval && !e.out.Rollout.approved(n, e.in.Now) {
			e.block(e.approval(n, name), wave.By[Waiting])
		} else if wave.By[Waiting] > 0 {
			e.stage(n)
			e.wave(n)
		}
		if wave.ended() && wave.nothingHealthy() && !e.out.Rollout.Acknowledged[n] {
			e.become(Paused, Reason{"NothingHealthy", fmt.Sprintf("in wave %q no deployment became healthy, and all were unhealthy before: resume to go on nevertheless", name)})
		}
		if !wave.ended() || e.out.Rollout.State != Running {
			later := 0
			for _, w := range s.Waves[n+1:] {
				later += w.By[Waiting]
			}
			if e.out.Rollout.State == Running {
				later -= e.ahead(n)
			}
			e.block(Block{Code: "Wave", Key: name, Text: fmt.Sprintf("wave %q has not ended", name)}, later)
			return
		}
	}
}

// approval returns what a wave that isn't approved waits for.
func (e *evaluation) approval(n int, name string) Block {
	if e.out.Rollout.Spec.Waves[n].External != "" {
		return e.external(n, name)
	}
	return Block{Code: "Approval", Key: name, Text: fmt.Sprintf("wave %q must be approved", name)}
}

// ahead admits rows after wave n whose slots an undo takes over, if nothing else goes on:
// failed deployments of later waves may hold the slots that wave n waits for. It returns
// the number of rows.
func (e *evaluation) ahead(n int) int {
	if e.out.Rollout.Undoes == "" || len(e.out.Admit) > 0 {
		return 0
	}
	for i := range e.out.Rows {
		if p := e.out.Rows[i].Progress; p == Applied || p == Soaking || p == Stale {
			return 0
		}
	}
	for i, row := range e.out.Rows {
		if row.Wave > n && row.Progress == Waiting && e.in.Flight.Of(e.out.Rollout.Family, row.Deployment) && e.blocked(i) == nil {
			e.take(i)
			return 1
		}
	}
	return 0
}

// wave admits rows of a wave. Blocks of equal codes and keys are counted together.
func (e *evaluation) wave(n int) {
	page := e.in.Page
	if page <= 0 {
		page = DefaultPage
	}
	for i := range e.out.Rows {
		if row := &e.out.Rows[i]; row.Wave != n || row.Progress != Waiting {
			continue
		}
		if len(e.out.Admit) == page {
			e.block(Block{Code: "Page", Text: "they are examined next"}, 1)
			e.wake(e.in.Now)
			continue
		}
		b := e.blocked(i)
		if b != nil && b.Code == blockAway && e.leaveOut(i) {
			continue
		}
		if b != nil && b.Code == blockAway {
			e.waitAway(i)
			continue
		}
		if b != nil {
			e.block(*b, 1)
			continue
		}
		e.take(i)
	}
}

// take admits a row.
func (e *evaluation) take(i int) {
	e.out.Admit = append(e.out.Admit, i)
	e.in.Flight.Add(e.in.Flight.EntryOf(e.out.Rollout, e.out.Rows[i], e.in.Keys))
}

// parentApplied reports whether the parent of a row is in the rollout, and was applied.
func (e *evaluation) parentApplied(row Row) (inRollout, applied bool) {
	if e.applied == nil {
		e.applied = make(map[tko.DeploymentID]bool, len(e.out.Rows))
		for i := range e.out.Rows {
			r := &e.out.Rows[i]
			e.applied[r.Deployment] = r.Progress != Waiting && r.Progress != Stale
		}
	}
	applied, inRollout = e.applied[row.Parent]
	return inRollout, applied
}

// blocked returns what keeps a row from being applied, or nil. What costs most is examined
// last.
func (e *evaluation) blocked(i int) *Block {
	r, row := e.out.Rollout, e.out.Rows[i]
	if b, _ := e.in.Flight.full(r, row); b != nil {
		return b
	}
	if e.in.Metadata != nil {
		metadata, ok := e.in.Metadata(i)
		if !ok {
			return &Block{Code: "Page", Text: "they are examined next"}
		}
		row.Metadata, e.out.Rows[i].Metadata = metadata, metadata
	}
	if b := e.in.Flight.Check(r, row); b != nil {
		return b
	}
	// A deployment that the family changed last is undone even if an earlier rollout
	// still has it: that one can't change it while it is in flight, and would wait for ever.
	if e.in.Held != nil && !e.in.Flight.Of(r.Family, row.Deployment) {
		if other, held := e.in.Held(row.Deployment); held {
			return &Block{Code: "OtherRollout", Key: other, Text: fmt.Sprintf("rollout %q, which started earlier, has not finished with the deployment", other)}
		}
	}
	if row.Kind == plan.Create {
		if inRollout, applied := e.parentApplied(row); inRollout && !applied {
			return &Block{Code: "Parent", Text: "their parent must be created first"}
		}
	}
	if b := e.held(i, row); b != nil {
		return b
	}
	if b := e.closed(row, 0); b != nil {
		return b
	}
	if b := e.unreachable(i); b != nil { // after the window: a row is left out when it would be changed
		return b
	}
	if b := e.unstaged(row); b != nil {
		return b
	}
	if e.in.Others == nil || len(r.Spec.Limits.Apart) == 0 || e.in.Flight.Of(r.Family, row.Deployment) {
		return nil
	}
	others, ok := e.in.Others(row)
	if !ok {
		return &Block{Code: "Page", Text: "they are examined next"}
	}
	if e.in.Flight.addOthers(others) {
		return e.in.Flight.Check(r, row)
	}
	return nil
}

// held returns what holds a site or a deployment, whatever is done there: a stop, a freeze, or
// that it is suspended; nil if nothing does.
func (e *evaluation) held(i int, row Row) *Block {
	if e.in.Stopped != nil {
		stop, ok := e.in.Stopped(i)
		if !ok {
			return &Block{Code: "Page", Text: "they are examined next"}
		}
		if stop != nil {
			return &Block{Code: "Stopped", Key: stop.ID, Text: stop.Text()}
		}
	}
	for _, f := range e.in.Freezes {
		if e.in.Now.Before(f.Until) && f.Matches(row.Site, row.Metadata) {
			return &Block{Code: "Frozen", Key: f.Reason, Text: "their sites are frozen (" + f.Reason + ")", Until: f.Until}
		}
	}
	if e.in.Suspended != nil {
		suspended, ok := e.in.Suspended(i)
		if !ok {
			return &Block{Code: "Page", Text: "they are examined next"}
		}
		if suspended {
			return &Block{Code: "Suspended", Text: "they are suspended, and looked at again", Until: e.in.SuspendedUntil}
		}
	}
	return nil
}

// blockWindow is the code of a Block by a closed window.
const blockWindow = "Window"

// closed returns that the windows of a site are closed, or nil if one is open, or opens within a
// time.
func (e *evaluation) closed(row Row, early time.Duration) *Block {
	r, now := e.out.Rollout, e.in.Now
	if r.AnyTime {
		return nil
	}
	if key, value, unknown := r.Spec.Windows.UnknownZone(row.Metadata); unknown { // it was changed after the plan was made
		return &Block{Code: "Zone", Key: value, Text: fmt.Sprintf("the metadata %q of their sites is %.100q, which is no time zone: correct it", key, value), Until: now.Add(zoneAgain)}
	}
	if r.Spec.Windows.Open(now, row.Metadata) {
		return nil
	}
	next := r.Spec.Windows.NextOpening(now, row.Metadata)
	if early > 0 && !next.IsZero() && !next.After(now.Add(early)) {
		return nil
	}
	return &Block{Code: blockWindow, Key: next.UTC().Format(time.RFC3339), Text: "the window of their sites is closed", Until: next}
}

func (e *evaluation) block(b Block, rows int) {
	if rows == 0 {
		return
	}
	if !b.Until.IsZero() {
		e.wake(b.Until)
	}
	for i := range e.out.Blocks {
		if o := &e.out.Blocks[i]; o.Code == b.Code && o.Key == b.Key {
			o.Count += rows
			return
		}
	}
	if len(e.out.Blocks) >= maxBlocks { // the last one counts the rest
		last := &e.out.Blocks[maxBlocks-1]
		last.Code, last.Key, last.Text, last.Until = "Other", "", "for several reasons", time.Time{}
		last.Count += rows
		return
	}
	b.Count = rows
	e.out.Blocks = append(e.out.Blocks, b)
}

// zoneAgain is the time after which the metadata of sites with an unknown time zone is
// read again.
const zoneAgain = 5 * time.Minute

// maxBlocks limits the blocks that Next returns.
const maxBlocks = 50

// ended reports whether all rows are final, or failed within the budget.
func (e *evaluation) ended() bool {
	for _, row := range e.out.Rows {
		if !row.Progress.Ended() {
			return false
		}
	}
	return true
}

func (e *evaluation) releaseAll() {
	for _, row := range e.out.Rows {
		if row.Progress.InFlight() {
			e.release(row.Deployment)
		}
	}
}

func (e *evaluation) summary() Reason {
	return Reason{"Completed", Summarize(e.out.Rows).Total.String()}
}

func waveName(waves []spec.Wave, n int) string {
	if n < len(waves) {
		return waves[n].Name
	}
	return strconv.Itoa(n + 1)
}
