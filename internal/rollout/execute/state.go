package execute

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// A State is the state of a rollout.
type State string

// The states.
const (
	Draft     State = "Draft"
	Planning  State = "Planning"
	Planned   State = "Planned"
	Running   State = "Running"
	Paused    State = "Paused"
	Done      State = "Done"
	Undoing   State = "Undoing"
	Undone    State = "Undone"
	Cancelled State = "Cancelled"
)

// States returns all states.
func States() []State {
	return []State{Draft, Planning, Planned, Running, Paused, Done, Undoing, Undone, Cancelled}
}

// Active reports whether rows of such a rollout may still be applied, so that a later
// rollout doesn't apply rows of the same deployments.
func (s State) Active() bool { return s == Running || s == Paused || s == Undoing }

// A Rollout is the state of a rollout, without its rows.
type Rollout struct {
	ID    string
	State State
	// Family is the ID of the rollout that this one undoes, of the first one in a chain of
	// undos, or else its own. The limits of a family are common.
	Family string
	Undoes string // ID of the rollout that this one undoes, or ""
	Spec   spec.Rollout
	Plan   plan.Digest // that start or resume named
	Reason Reason      // of the state; of Paused always set

	Approvals map[int]Approval // by wave
	// Acknowledged has the waves in which nothing became healthy, because all their
	// deployments were broken before, and from which a user went on nevertheless.
	Acknowledged map[int]bool
	// AnyTime lets the rollout change deployments outside of the windows, as a user asked
	// for explicitly (of an undo, for example).
	AnyTime bool
	// FirstFailure is when the first row failed, or was found unhealthy after its change,
	// of those that didn't recover; zero if none did. Touched is the number of sites whose
	// deployments were changed after it, Failing the number of rows that are unhealthy now
	// and don't count as failed yet.
	FirstFailure time.Time
	Touched      int
	Failing      int
	Metrics      map[string]Metric // by name; one that wasn't measured yet may be missing
	Tickets      []Ticket          // the oldest first
	Started      int64             // order of starts; 0: it wasn't started
	// UndoneBy is the state of the rollout that undoes this one; "" if there is none yet.
	UndoneBy State
}

// An Approval permits a wave of a plan to begin.
type Approval struct {
	Plan   plan.Digest
	Who    string
	When   time.Time
	Ticket string    `json:",omitempty"` // ID of the ticket that approved it; "": a user did
	Until  time.Time `json:",omitzero"`  // until when it is valid; zero: for the plan
	// Emergency is true if a user approved it in place of the ticket that it waits for.
	Emergency bool `json:",omitempty"`
}

// A Reason says why, for programs and for users.
type Reason struct {
	Code    string // CamelCase
	Message string
}

// A Progress is how far a row is.
type Progress string

// The values of Progress.
const (
	Waiting    Progress = "Waiting"    // not applied yet
	Applied    Progress = "Applied"    // the change is committed; not healthy
	Soaking    Progress = "Soaking"    // healthy, not yet for long enough
	Healthy    Progress = "Healthy"    // final
	Failed     Progress = "Failed"     // not healthy in time; it becomes Healthy if it is later
	Waived     Progress = "Waived"     // failed, and a user decided that it doesn't count
	AsBefore   Progress = "AsBefore"   // unhealthy as before the rollout: no failure, no success
	Stale      Progress = "Stale"      // not applied: the deployment isn't as it was planned
	Skipped    Progress = "Skipped"    // not applied: blocked, cancelled, or left out by a user
	Superseded Progress = "Superseded" // applied, then changed or deleted by another client
)

// InFlight reports whether the deployment is changed and not yet healthy: it counts for
// the limits.
func (p Progress) InFlight() bool { return p == Applied || p == Soaking || p == Failed }

// Ended reports whether a wave doesn't wait for the row (any more). A failed row is
// ended: the budget of failures decides about it.
func (p Progress) Ended() bool {
	return p != Waiting && p != Applied && p != Soaking && p != Stale
}

// A Row is a deployment of a rollout.
type Row struct {
	Deployment tko.DeploymentID
	Parent     tko.DeploymentID  // "" if it has none
	Site       tko.SiteID        // "" if it has none
	Metadata   map[string]string // of the site, as it is now
	Kind       plan.Kind
	Wave, Rank int

	Progress  Progress
	Since     time.Time     // when it was applied
	Evaluated time.Time     // when Credit was last counted
	Credit    time.Duration // time for which it was healthy without interruption
	// Stands is since when the clock of the row stands, because a user has stopped its site;
	// zero: it runs.
	Stands time.Time
	// Counted is true if the row failed. It stays true if the row becomes healthy late.
	Counted bool
	// Failing is true if the row is unhealthy, or could not be applied, at the last
	// observation, and hasn't failed yet. It counts against the budget until it recovers.
	Failing bool
	// Broken is true if the deployment was unhealthy when it was planned or applied.
	Broken bool
	// Images are pulled at the site before the row is applied; none: nothing is.
	Images []string
	Stage  Staging
	Reason string // of Failed, Stale, Skipped, Superseded; for users
}

// Apply returns a row as it is after its change is committed.
func (r Row) Apply(now time.Time, broken bool) Row {
	r.Progress, r.Since, r.Evaluated, r.Credit = Applied, now, now, 0
	r.Broken = r.Broken || broken
	return r
}

// Moved returns a row that can't be applied because its deployment isn't as planned, and
// the rollout, which pauses. It is for the result of plan.Row.Check, in the transaction
// that would have applied the row.
func Moved(r Rollout, row Row, reason error) (Rollout, Row) {
	if row.Progress != Waiting {
		return r, row
	}
	row.Progress, row.Reason = Stale, reason.Error()
	if r.State == Running {
		r.State, r.Reason = Paused, Reason{"PlanOutdated", reason.Error() + ": plan what is left, or skip the row, then resume"}
	}
	return r, row
}

// A Command is what a user does with a rollout.
type Command string

// The commands.
const (
	CommandPlan    Command = "plan"
	CommandStart   Command = "start"
	CommandApprove Command = "approve"
	CommandPause   Command = "pause"
	CommandResume  Command = "resume"
	CommandCancel  Command = "cancel"
	CommandUndo    Command = "undo"
	CommandDelete  Command = "delete"
)

// Commands returns all commands.
func Commands() []Command {
	return []Command{CommandPlan, CommandStart, CommandApprove, CommandPause, CommandResume, CommandCancel, CommandUndo, CommandDelete}
}

// commands has the states in which a command is valid, and the state that follows. A
// command in its own result is valid and changes nothing.
var commands = map[Command]map[State]State{
	CommandPlan:    {Draft: Planning, Planning: Planning, Planned: Planning, Cancelled: Planning, Paused: Paused},
	CommandStart:   {Planned: Running, Running: Running},
	CommandApprove: {Planned: Planned, Running: Running, Paused: Paused},
	CommandPause:   {Running: Paused, Paused: Paused},
	CommandResume:  {Paused: Running, Running: Running},
	CommandCancel:  {Draft: Cancelled, Planning: Cancelled, Planned: Cancelled, Running: Cancelled, Paused: Cancelled, Cancelled: Cancelled},
	CommandUndo:    {Running: Undoing, Paused: Undoing, Done: Undoing, Cancelled: Undoing, Undoing: Undoing, Undone: Undone},
	CommandDelete:  {Draft: Draft, Planning: Planning, Planned: Planned, Done: Done, Undone: Undone, Cancelled: Cancelled},
}

var remedies = map[State]string{
	Draft: "plan it first", Planning: "wait until it is planned", Planned: "start it, or plan again", Running: "pause or cancel it first",
	Paused: "resume, undo or cancel it", Done: "undo it, or create another rollout", Undoing: "wait until it is undone",
	Undone: "create another rollout", Cancelled: "plan it again, or undo it",
}

// Allow returns the state that follows a command, or an [tko.ErrConflict] if the command
// isn't valid in the state of the rollout. changes is false if the command has no effect
// on the state.
func Allow(r Rollout, command Command) (next State, changes bool, err error) {
	next, ok := commands[command][r.State]
	if !ok {
		return r.State, false, tko.Errorf(tko.ErrConflict, "rollout %q: can't %s it while it is %s: %s", r.ID, command, r.State, remedies[r.State])
	}
	return next, next != r.State, nil
}

// Blocked are the rows of a plan in conflict or invalid.
type Blocked struct {
	Rows  int
	First []string // the first ones with their reasons, for users
}

// A Beginning is what the start of a rollout is decided from.
type Beginning struct {
	Plan        plan.Digest                 // the current one
	Named       string                      // the plan's digest, as the user named it
	Blocked     Blocked                     // rows that can't be carried out
	SkipBlocked bool                        // the user leaves them out
	Held        map[tko.DeploymentID]string // the deployments that other active rollouts have, with the IDs of these
}

// Start returns the rollout after start. A rollout that runs with the same plan stays as it is.
func Start(r Rollout, with Beginning) (Rollout, error) {
	current, named, blocked, held := with.Plan, with.Named, with.Blocked, with.Held
	next, changes, err := Allow(r, CommandStart)
	if err != nil {
		return r, err
	}
	if !current.Matches(named) {
		return r, tko.Errorf(tko.ErrConflict, "rollout %q: the plan is %.12s and not %.12s: review it, then start with its digest", r.ID, current, named)
	}
	if !changes {
		return r, nil
	}
	if blocked.Rows > 0 && !with.SkipBlocked {
		such := ""
		if len(blocked.First) > 0 {
			such = " (" + strings.Join(blocked.First, "; ")
			if more := blocked.Rows - len(blocked.First); more > 0 {
				such += fmt.Sprintf("; and %d more: tko rollout plan %s", more, r.ID)
			}
			such += ")"
		}
		return r, tko.Errorf(tko.ErrConflict, "rollout %q: %s in conflict or invalid%s: mend what the reasons name (the edits, the packages, or their sites), "+
			"choose KeepTheirs or TakeEdit for conflicts, or leave them out with --skip-blocked", r.ID, count(blocked.Rows, "deployment is", "deployments are"), such)
	}
	if id, other, ok := first(held); ok {
		return r, tko.Errorf(tko.ErrConflict, "rollout %q: rollout %q has not finished with deployment %q (%s in all): wait until it is done, or cancel it", r.ID, other, id, count(len(held), "deployment", "deployments"))
	}
	r.State, r.Plan, r.Reason = next, current, Reason{}
	return r, nil
}

// Resume returns the rollout after resume. named is the digest of a plan of what is left,
// or "" if none was made. It is refused while rows are stale, and while more rows failed
// than the budget allows.
func Resume(r Rollout, s Summary, current plan.Digest, named string) (Rollout, error) {
	next, changes, err := Allow(r, CommandResume)
	if err != nil || !changes {
		return r, err
	}
	if current != r.Plan && (named == "" || !current.Matches(named)) {
		return r, tko.Errorf(tko.ErrConflict, "rollout %q: what is left was planned again, as %.12s: review the plan, then resume with its digest", r.ID, current)
	}
	if n := s.Total.By[Stale]; n > 0 {
		return r, tko.Errorf(tko.ErrConflict, "rollout %q: %s no longer as planned: plan what is left, or skip the rows", r.ID, count(n, "deployment is", "deployments are"))
	}
	if r.Spec.OnFailure != spec.Continue && r.Spec.Limits.Failures.Exceeded(s.Failures, s.Total.Rows) {
		return r, tko.Errorf(tko.ErrConflict, "rollout %q: %s, more than its budget: undo it, waive rows, or raise limits.failures", r.ID, count(s.Failures, "deployment failed", "deployments failed"))
	}
	acknowledged := map[int]bool{}
	for wave := range s.Waves {
		if r.Acknowledged[wave] || s.Waves[wave].nothingHealthy() {
			acknowledged[wave] = true
		}
	}
	r.State, r.Reason, r.Plan, r.Acknowledged, r.Metrics = next, Reason{}, current, acknowledged, r.resumeMetrics()
	return r, nil
}

// An Approving is what a user approves.
type Approving struct {
	Plan string // digest of the plan that was reviewed, or its first characters; "": any
	Wave string // name of the wave; "": the next one
	Who  string
	When time.Time
	// Emergency approves a wave in place of the ticket that it waits for.
	Emergency bool
}

// Approve returns the rollout with the approval of the next wave that needs one, and its number. An
// approval counts for the plan that it names only. While a wave that was approved before
// is in progress, the next one must be named: a command that is sent twice approves one
// wave.
func Approve(r Rollout, s Summary, by Approving) (to Rollout, number int, err error) {
	if _, _, err := Allow(r, CommandApprove); err != nil {
		return r, 0, err
	}
	if by.Plan != "" && !r.Plan.Matches(by.Plan) {
		return r, 0, tko.Errorf(tko.ErrConflict, "rollout %q: its plan is %.12s and not %.12s: review it first", r.ID, r.Plan, by.Plan)
	}
	earlier := ""
	for i, wave := range r.Spec.Waves {
		if !wave.Approval || i >= len(s.Waves) {
			continue
		}
		open := s.Waves[i].By
		switch {
		case r.approved(i, by.When):
			if open[Waiting]+open[Applied]+open[Soaking] > 0 {
				earlier = wave.Name
			}
			continue
		case open[Waiting] == 0:
			continue
		case by.Wave != "" && by.Wave != wave.Name:
			return r, 0, tko.Errorf(tko.ErrConflict, "rollout %q: the next wave to approve is %q, not %q: see tko rollout status %s", r.ID, wave.Name, by.Wave, r.ID)
		case wave.External != "" && !by.Emergency:
			return r, 0, r.refuseApproval(i)
		case wave.External == "" && by.Emergency:
			return r, 0, tko.Errorf(tko.ErrConflict, "rollout %q: the wave %q waits for no ticket: approve it without --emergency", r.ID, wave.Name)
		case by.Emergency && r.denied(i):
			return r, 0, tko.Errorf(tko.ErrConflict, "rollout %q: the wave %q was denied by %s, and an emergency doesn't change that: resume the rollout to ask for another ticket, or cancel it", r.ID, wave.Name, r.Tickets[r.newest(i)].Name())
		case by.Wave == "" && earlier != "":
			return r, 0, tko.Errorf(tko.ErrConflict, "rollout %q: the wave %q is approved already, and in progress: to approve the next one in advance, name it (tko rollout approve %s --wave %s)",
				r.ID, earlier, r.ID, wave.Name)
		}
		approvals := map[int]Approval{}
		maps.Copy(approvals, r.Approvals)
		approvals[i] = Approval{Plan: r.Plan, Who: by.Who, When: by.When, Emergency: by.Emergency}
		r.Approvals = approvals
		if by.Emergency {
			r = r.overridden(i, by)
		}
		return r, i, nil
	}
	return r, 0, tko.Errorf(tko.ErrConflict, "rollout %q: no wave waits for an approval: see tko rollout status", r.ID)
}

// approved reports whether a wave is approved by whom its spec says.
func (r Rollout) approved(wave int, now time.Time) bool {
	a, ok := r.Approvals[wave]
	return ok && a.Plan == r.Plan && (r.Spec.Waves[wave].External == "" || a.Ticket != "" || a.Emergency) && (a.Until.IsZero() || now.Before(a.Until))
}

// refuseApproval returns why a user can't approve a wave that a ticket system approves.
func (r Rollout) refuseApproval(wave int) error {
	w, at := r.Spec.Waves[wave], "a ticket"
	if i := r.newest(wave); i >= 0 {
		at = r.Tickets[i].Name()
	}
	return tko.Errorf(tko.ErrConflict, "rollout %q: the wave %q is approved by %s at the ticket system %q, and not by tko rollout approve: decide there; "+
		"if that system is lost, a holder of the right emergency adds --emergency and --reason", r.ID, w.Name, strings.TrimSuffix(at, fmt.Sprintf(" at %q", w.External)), w.External)
}

// ReasonCancelled is the reason of rows that were waiting when a rollout was cancelled.
const ReasonCancelled = "the rollout was cancelled"

// Cancel returns the rollout and the rows that change: those that wait are skipped.
// Applied ones stay, and count for limits until they settle.
func Cancel(r Rollout, rows []Row) (Rollout, []Row, error) {
	next, changes, err := Allow(r, CommandCancel)
	if err != nil || !changes {
		return r, nil, err
	}
	r.State, r.Reason = next, Reason{}
	return r, skipped(rows, ReasonCancelled), nil
}

func skipped(rows []Row, reason string) []Row {
	var out []Row
	for _, row := range rows {
		if row.Progress == Waiting || row.Progress == Stale {
			row.Progress, row.Reason = Skipped, reason
			out = append(out, row)
		}
	}
	return out
}

// Waive returns a row that failed and doesn't count any more, for budget and limits.
func Waive(row Row) (Row, error) {
	if row.Progress == Waived {
		return row, nil
	}
	if !row.Counted {
		return row, tko.Errorf(tko.ErrConflict, "deployment %q: it is %s: only failed ones can be waived", row.Deployment, row.Progress)
	}
	row.Counted = false
	if row.Progress == Failed {
		row.Progress = Waived
	}
	return row, nil
}

// Skip returns a row that isn't applied, because a user leaves it out.
func Skip(row Row, reason string) (Row, error) {
	switch row.Progress {
	case Skipped:
		return row, nil
	case Waiting, Stale:
		row.Progress, row.Reason = Skipped, reason
		return row, nil
	default:
	}
	return row, tko.Errorf(tko.ErrConflict, "deployment %q: it is %s, so it can't be skipped: undo it", row.Deployment, row.Progress)
}

// BeginUndo returns a rollout that is undone from now on, and its rows that change: those
// that wait are skipped. Undo gives the rows of the rollout that undoes it.
func BeginUndo(r Rollout, rows []Row) (Rollout, []Row, error) {
	next, changes, err := Allow(r, CommandUndo)
	if err != nil || !changes {
		return r, nil, err
	}
	r.State, r.Reason, r.UndoneBy = next, Reason{}, ""
	return r, skipped(rows, "the rollout is undone"), nil
}

// Undo returns the rows of the rollout that undoes another one, in their order: those
// that were applied, the last wave first. In a wave failed rows come first, since they
// hold slots, then the others in the reverse order of ranks; deployments that the
// rollout created are deleted last, so that workloads that moved overlap. Superseded
// rows are in conflict: they are returned apart, to be listed, and are undone only if
// force is true. The new rows are Waiting, with the inverse kind.
func Undo(rows []Row, waves int, force bool) (undo, left []Row) {
	for _, row := range rows {
		switch {
		case row.Since.IsZero(): // never applied
			continue
		case row.Progress == Superseded && !force:
			left = append(left, row)
			continue
		}
		undo = append(undo, row)
	}
	sortUndo(undo)
	for i, row := range undo {
		kind := row.Kind
		switch row.Kind {
		case plan.Create:
			kind = plan.Delete
		case plan.Delete:
			kind = plan.Create
		default:
		}
		undo[i] = Row{Deployment: row.Deployment, Parent: row.Parent, Site: row.Site, Metadata: row.Metadata, Kind: kind, Wave: waves - 1 - row.Wave, Rank: i, Progress: Waiting, Broken: row.Broken}
	}
	return undo, left
}

// UndoSpec returns the spec of the rollout that undoes another one: its waves in reverse
// order without approvals, its limits, health without metrics, and windows; nothing is staged. A
// failure pauses it.
func UndoSpec(s spec.Rollout) spec.Rollout {
	waves := make([]spec.Wave, len(s.Waves))
	for i, w := range s.Waves {
		w.Approval, w.External = false, ""
		waves[len(waves)-1-i] = w
	}
	s.Edits, s.Waves, s.Stage = nil, waves, nil // the sites had what it returns to
	s.Health.Metrics = nil                      // they are bad, or there would be no undo
	if s.OnFailure == spec.Undo {
		s.OnFailure = spec.Pause
	}
	return s
}
