package record

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// A RolloutState is the state of a rollout, without its record and its rows. Stores keep
// it as JSON.
type RolloutState struct {
	ID       string         `json:"id"`
	State    execute.State  `json:"state"`
	Family   string         `json:"family"`
	Undoes   string         `json:"undoes,omitempty"`
	UndoneBy string         `json:"undoneBy,omitempty"` // ID of the newest rollout that undoes it
	Started  int64          `json:"started,omitempty"`  // order of starts; of an undo that of its family
	Time     time.Time      `json:"time,omitzero"`      // when it was started
	By       tko.Author     `json:"by,omitzero"`        // who started it
	Starter  *Owner         `json:"starter,omitempty"`  // who started it, with the rights that rows need; nil: not known
	Reason   execute.Reason `json:"reason,omitzero"`

	Plan    int64          `json:"plan,omitempty"`    // number of the current plan; 0: none
	Next    int64          `json:"next,omitempty"`    // number of a plan of what is left, that isn't resumed yet
	Digest  plan.Digest    `json:"digest,omitzero"`   // of the current plan
	Left    plan.Digest    `json:"left,omitzero"`     // of the plan Next
	Spec    int64          `json:"spec,omitempty"`    // revision of the rollout that was planned
	Planner int            `json:"planner,omitempty"` // version of the rules of the plan
	Rows    int64          `json:"rows,omitempty"`    // version at which the set of rows of the current plan was replaced
	Kinds   map[string]int `json:"kinds,omitempty"`   // rows by kind

	Approvals    map[int]execute.Approval `json:"approvals,omitempty"`
	Acknowledged map[int]bool             `json:"acknowledged,omitempty"`
	AnyTime      bool                     `json:"anyTime,omitempty"`
	Force        bool                     `json:"force,omitempty"`
	Blocks       []string                 `json:"blocks,omitempty"`   // what its rows waited for, at the last evaluation
	Held         bool                     `json:"held,omitempty"`     // some of Blocks end when a person or the clock lets them: when isn't known from the progress
	Settling     bool                     `json:"settling,omitempty"` // rows of a cancelled rollout are in flight, or sites pull for them

	// Warnings are what a reviewer should know of the current plan, Unreported its rows that
	// change deployments at sites that report no health.
	Warnings   []string `json:"warnings,omitempty"`
	Unreported int      `json:"unreported,omitempty"`
	// Images are what the current plan pulls at sites, the most frequent ones; Stages is true if
	// the rollout that was started stages them.
	Images []plan.Image `json:"images,omitempty"`
	Stages bool         `json:"stages,omitempty"`
	// Rule is the version of the rule by which deployments are healthy, as of the start:
	// see ruleOfReports. Blind lets those count whose sites report no health.
	Rule  int  `json:"rule,omitempty"`
	Blind bool `json:"blind,omitempty"`

	FirstFailure time.Time `json:"firstFailure,omitzero"` // see execute.Rollout
	Touched      int       `json:"touched,omitempty"`
	Failing      int       `json:"failing,omitempty"`

	// Measures is true if the rollout that was started has metrics. Evidence is the number of
	// the newest evidence.
	Measures bool                      `json:"measures,omitempty"`
	Metrics  map[string]execute.Metric `json:"metrics,omitempty"`
	Evidence int64                     `json:"evidence,omitempty"`
	// Tickets are the requests for approvals at ticket systems.
	Tickets []execute.Ticket `json:"tickets,omitempty"`
}

// RuleOfReports is the rule that deployments are healthy only if their sites report so,
// unless the rollout accepts sites that report no health. Rollouts that were started by
// older versions have the rule 0, which accepts them.
const RuleOfReports = 1

// AcceptsNone reports whether deployments of a rollout count as healthy whose sites report no
// health.
func (s RolloutState) AcceptsNone(sp spec.Rollout) bool {
	return sp.Health.AcceptNone || s.Blind || s.Started != 0 && s.Rule < RuleOfReports
}

// Active reports whether executors have something to do, or rows may be applied.
func (s RolloutState) Active() bool {
	return s.State.Active() || s.State == execute.Planning || s.Settling
}

// A RolloutRow is a row of a plan with its progress. Its numbers, and those of
// [execute.Row], are the same.
type RolloutRow struct {
	plan.Row

	Parent, Site     string
	Progress         execute.Progress
	Since, Evaluated time.Time // zero: not yet
	Credit           time.Duration
	Counted, Broken  bool
	Reason           string
	Applied          int64 // the revision that the rollout wrote; the store sets it
	Chain            int64 // the newest revision that preparation made of it
	Target           int64 // revision that an undo or a restore writes again; 0: none
	RowDetails
}

// RowDetails are what only few rows have.
type RowDetails struct {
	Base     int64      `json:"base,omitempty"` // revision of the template, which revisions don't record
	Replaces []string   `json:"replaces,omitempty"`
	Pins     []plan.Pin `json:"pins,omitempty"`
	Force    bool       `json:"force,omitempty"`    // whatever others changed since
	Origin   string     `json:"origin,omitempty"`   // of a child that is deleted
	Approves bool       `json:"approves,omitempty"` // a restore makes it approved
	Stands   time.Time  `json:"stands,omitzero"`    // see [execute.Row]
	// Images are pulled at the site before the row is applied, and Stage is how far that is.
	Images []string        `json:"images,omitempty"`
	Stage  execute.Staging `json:"stage,omitzero"`
}

// A RolloutView is what a rollout is evaluated from, all of one snapshot.
type RolloutView struct {
	Version int64 // of the states, rows and flights
	Now     time.Time
	Found   bool
	State   RolloutState
	// Rows are those of the current plan, in the order of ranks, those that aren't applied
	// last. If Changes is true, they are only those that have changed since the rows that
	// the caller knows, in no order.
	Rows    []RolloutRow
	Changes bool
	Flight  []execute.Entry
	// Unscheduled are the sites, of deployments that the rollout deletes and that are in
	// flight, whose work of scheduling isn't done.
	Unscheduled map[string]bool
	Active      []RolloutState // all that are active, or undo this one, this one included
	// Held has the deployments of Rows that an active rollout of another family, which
	// started earlier, has in a row that isn't final, with that rollout.
	Held map[tko.DeploymentID]string

	Counts []RolloutCount // of the rows of the current plan, in a view for a command

	// Execution are the rows that the rollout applies, as package execute has them, without
	// metadata of sites, and Of the index in Rows of each; nil if they are to be made of Rows. A
	// caller that knows the rows sets them.
	Execution []execute.Row
	Of        []int
	AtSite    map[tko.SiteID][]int // the indexes in Execution of the rows at each site; nil: not known
}

// A RowFilter selects rows of a plan. A row is selected if one of the fields selects it.
type RowFilter struct {
	Deployment tko.DeploymentID
	Stale      bool
	Counted    bool // rows that failed
	Blocked    bool // rows in conflict or invalid
	Held       bool // no rows, but Held of the view
}

// RowsAt are the rows of a rollout that a caller knows: those of a set
// ([RolloutState.Rows]), at a version of a [RolloutView]. The zero value is none.
type RowsAt struct{ Set, Version int64 }

// RolloutViews read what rollouts are decided from.
type RolloutViews interface {
	// RolloutView returns what a rollout is evaluated from. Of its rows it may return only
	// the changes to those that the caller knows.
	RolloutView(ctx context.Context, id string, known RowsAt) (RolloutView, error)
	// RolloutCommandView returns what a command of a rollout is decided from: the counts of
	// its rows, of the rows those that the filter selects, no flights, and Held only if the
	// filter says so. What it reads doesn't grow with the other rows, except for counting.
	RolloutCommandView(ctx context.Context, id string, filter RowFilter) (RolloutView, error)
	// ApartFlights returns the deployments in flight of rollouts that keep sites apart.
	ApartFlights(ctx context.Context) ([]execute.Entry, error)
}

// Rollouts store the states of rollouts, their plans and progress, and what is in
// flight. They change in commits only, by [Write.Rollout], except for plans that no state
// refers to yet.
type Rollouts interface {
	// RolloutStates returns the states of rollouts; without IDs, of all active ones. One
	// that doesn't exist is left out.
	RolloutStates(ctx context.Context, ids ...string) (states []RolloutState, version int64, now time.Time, err error)
	// RolloutRows returns rows of a plan after a deployment, in the order of IDs.
	RolloutRows(ctx context.Context, id string, number int64, after string, limit int) ([]RolloutRow, error)
	// RolloutPlan returns the groups of a plan, as they were written.
	RolloutPlan(ctx context.Context, id string, number int64) ([]byte, error)
	// ReservedOrigins returns the origins of the children of a deployment that rollouts
	// deleted and can create again, with the rollouts.
	ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error)
	RolloutViews
	// WriteRolloutPlan replaces a plan that no state refers to yet.
	WriteRolloutPlan(ctx context.Context, id string, number int64, rows []RolloutRow, groups []byte) error
}

// A RolloutSummary is how far a rollout is, without its rows.
type RolloutSummary struct {
	Now    time.Time
	Found  bool
	State  RolloutState
	Counts []RolloutCount // of the current plan
	// Examples are rows that users should look at: failed, stale, superseded, or blocked.
	// Those that are applied and not healthy follow.
	Examples []RolloutRow
}

// A RolloutCount is the number of rows that are equal in its fields.
type RolloutCount struct {
	Wave     int
	Kind     plan.Kind
	Progress execute.Progress
	Counted  bool
	Rows     int
	// First and Last are when the first and the last of the rows came to its progress; zero if
	// that isn't known, of some rows or of all.
	First, Last time.Time
}

// RolloutSummaries count the rows of rollouts, and read what they were decided by.
type RolloutSummaries interface {
	// RolloutSummary returns how far a rollout is, with so many examples at most.
	RolloutSummary(ctx context.Context, id string, examples int) (RolloutSummary, error)
	// RolloutEvidence returns evidence of a rollout after a number, the oldest first.
	RolloutEvidence(ctx context.Context, id string, after int64, limit int) ([]tko.RolloutEvidence, error)
}

// A RolloutWrite changes states and rows of rollouts in the transaction of its write.
type RolloutWrite struct {
	// Expect is the version of the view that the change was decided from. If any state,
	// row, or flight has changed since, the commit fails with a *StaleError: so limits
	// hold whatever runs at the same time.
	Expect int64
	States []RolloutState
	Forget []string // IDs of rollouts whose states, plans and flights are removed
	// Rows replace rows with the same deployment in the plan Number of Rollout. Applied is
	// set to the revision that the deployment has in the transaction, if Progress is
	// Applied and Applied is 0.
	Rollout string
	Number  int64
	Rows    []RolloutRow
	// Skip, if not "", is the reason for which the rows of the plan Number that wait or are
	// stale become Skipped.
	Skip string
	// Replan, if not 0, is the number of a plan whose rows replace those rows of the plan
	// Number that wait or are stale.
	Replan int64
	Flight []execute.Entry // put
	Land   []string        // deployments that are no longer in flight
	Wake   []string        // IDs of rollouts to evaluate
	Sites  []string        // IDs of sites whose work becomes due
	// Evidence is added to that of Rollout, of which only the newest MaxEvidence are kept.
	Evidence []tko.RolloutEvidence
}

// MaxEvidence limits the evidence that is kept of a rollout.
const MaxEvidence = 10_000
