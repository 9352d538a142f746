package fleettest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// A Defect breaks a rule on purpose, to show that the checks notice.
type Defect string

// The defects.
const (
	None          Defect = ""
	StaleFlight   Defect = "StaleFlight"   // an executor counts what was in flight before
	NoRevision    Defect = "NoRevision"    // a row is applied to a deployment that moved
	LostEntry     Defect = "LostEntry"     // an applied row doesn't enter the flight
	EarlyRelease  Defect = "EarlyRelease"  // a failed row gives its slot back
	NoApproval    Defect = "NoApproval"    // all waves count as approved
	AlwaysOpen    Defect = "AlwaysOpen"    // windows are ignored
	NoFreeze      Defect = "NoFreeze"      // freezes are ignored
	WrongFamily   Defect = "WrongFamily"   // an undo has limits of its own
	NoSoak        Defect = "NoSoak"        // the first report of health counts
	Unlimited     Defect = "Unlimited"     // limits.failures is ignored
	OthersUnseen  Defect = "OthersUnseen"  // apart doesn't see changes of others
	LateFailures  Defect = "LateFailures"  // what is unhealthy counts after within only
	Unstaged      Defect = "Unstaged"      // rows don't wait for their images
	UnlimitedPull Defect = "UnlimitedPull" // the limits of pulls are ignored
)

// Defects returns all defects but None.
func Defects() []Defect {
	return []Defect{StaleFlight, NoRevision, LostEntry, EarlyRelease, NoApproval, AlwaysOpen, NoFreeze, WrongFamily, NoSoak, Unlimited, OthersUnseen, LateFailures, Unstaged, UnlimitedPull}
}

// Stats says what happened in a run, so that tests can see that it covers enough.
type Stats struct {
	Commits, Applied, Undone, Failed, Stale, Superseded, Late, AsBefore, Kills, Jumps, Stopped, Recovered, Pulled, Unpulled int
	Final                                                                                                                   map[execute.State]int
}

// behavior is how a deployment becomes healthy after a change.
type behavior int

const (
	prompt behavior = iota // within seconds
	late                   // after within
	never
	sometimes // healthy and unhealthy in turns
	broken    // never, and wasn't before
)

type deployment struct {
	id       tko.DeploymentID
	site     tko.SiteID
	exists   bool
	revision int64
	content  int // 0 is the content before all rollouts
	behavior behavior
	changed  time.Duration // real time of the last change by a rollout
	edited   bool          // by a user, after the first plan
}

type site struct {
	id       tko.SiteID
	metadata map[string]string
	gone     bool
}

// A rolled is a rollout with what the model knows of it.
type rolled struct {
	state    execute.Rollout
	rows     []execute.Row
	planned  map[tko.DeploymentID]planned
	applied  map[tko.DeploymentID]int // how often
	revision map[tko.DeploymentID]int64
	healthy  map[tko.DeploymentID]time.Duration // real time of the first report of health in a row
	jumps    map[tko.DeploymentID]int           // of the clock since then
	started  int
	released bool // it was Done, which ends its slots, also of failed rows
	// beyond are the deployments that were changed since more were unhealthy than the budget
	// allows; nil: fewer are.
	beyond map[tko.DeploymentID]bool
	has    map[tko.DeploymentID]bool   // whether its site has its images
	tac    map[tko.DeploymentID]string // of its site, when the pull began
}

type planned struct {
	exists   bool
	revision int64
	before   int
	after    int
}

type world struct {
	r           *rand.Rand
	p           *rand.Rand // for pulls
	pulls       map[string]pull
	defect      Defect
	real        time.Duration // that passed
	now         time.Time     // of the clock, which jumps
	deployments map[tko.DeploymentID]*deployment
	ids         []tko.DeploymentID
	sites       map[tko.SiteID]*site
	siteIDs     []tko.SiteID
	rollouts    []*rolled
	flight      []execute.Entry // the stored set
	// values are the metadata of the sites when the deployments in flight were admitted, as
	// the model knows them: not as the stored set says.
	values  map[tko.DeploymentID]map[string]string
	old     []execute.Entry // as it was some commits ago
	others  map[tko.DeploymentID]execute.Entry
	frozen  map[tko.SiteID]time.Time
	calm    bool // nothing disturbs any more
	content int
	stats   Stats
	trace   []string
}

// Run simulates a fleet with random rollouts. It returns an error, with the end of the
// trace, for the first rule that doesn't hold.
func Run(seed uint64, defect Defect) (stats Stats, err error) {
	w := &world{
		r: rand.New(rand.NewPCG(seed, 1)), p: rand.New(rand.NewPCG(seed, 2)), pulls: map[string]pull{},
		defect: defect, now: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC),
		deployments: map[tko.DeploymentID]*deployment{}, sites: map[tko.SiteID]*site{}, others: map[tko.DeploymentID]execute.Entry{}, values: map[tko.DeploymentID]map[string]string{}, frozen: map[tko.SiteID]time.Time{},
		stats: Stats{Final: map[execute.State]int{}},
	}
	w.fleet()
	if err = w.run(); err != nil {
		tail := w.trace[max(0, len(w.trace)-25):]
		err = fmt.Errorf("seed %d, %s: %w\n%s", seed, w.now.Format(time.RFC3339), err, joinLines(tail))
	}
	return w.stats, err
}

func joinLines(lines []string) string {
	var out strings.Builder
	for _, l := range lines {
		out.WriteString("  " + l + "\n")
	}
	return out.String()
}

func (w *world) say(format string, args ...any) {
	w.trace = append(w.trace, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (w *world) chance(percent int) bool { return w.r.IntN(100) < percent }

func pick[T any](w *world, list []T) T { return list[w.r.IntN(len(list))] }

func (w *world) fleet() {
	for i := range 3 + w.r.IntN(12) {
		s := &site{id: tko.SiteID(fmt.Sprintf("s%02d", i)), metadata: map[string]string{"region": pick(w, []string{"n", "s"}), "pair": strconv.Itoa(i / 2), "tac": strconv.Itoa(w.r.IntN(3))}}
		if w.chance(15) {
			delete(s.metadata, "pair")
		}
		w.sites[s.id] = s
		w.siteIDs = append(w.siteIDs, s.id)
	}
	kinds := []behavior{prompt, prompt, prompt, prompt, prompt, prompt, prompt, late, never, sometimes, broken}
	for i := range 5 + w.r.IntN(25) {
		d := &deployment{id: tko.DeploymentID(fmt.Sprintf("d%02d", i)), site: pick(w, w.siteIDs), exists: w.chance(95), revision: 1, behavior: pick(w, kinds)}
		w.deployments[d.id] = d
		w.ids = append(w.ids, d.id)
	}
}

// draw returns a random spec.
func (w *world) draw() spec.Rollout {
	s := spec.Rollout{
		Limits:    spec.Limits{Concurrent: 1 + w.r.IntN(6)},
		Health:    spec.Health{Within: time.Duration(1+w.r.IntN(5)) * time.Minute, Soak: time.Duration(w.r.IntN(4)) * 30 * time.Second},
		OnFailure: pick(w, []spec.OnFailure{spec.Pause, spec.Pause, spec.Undo, spec.Continue}),
	}
	if w.chance(60) {
		s.Limits.Per = []spec.Per{{Key: "tac", Max: 1 + w.r.IntN(3)}}
	}
	if w.chance(60) {
		s.Limits.Apart = []string{"pair"}
	}
	n := w.r.IntN(4)
	s.Limits.Failures.Count = &n
	if w.chance(30) {
		s.Windows = spec.Windows{{Days: [7]bool{true, true, true, true, true, true, true}, From: time.Duration(w.r.IntN(12)) * time.Hour, To: time.Duration(13+w.r.IntN(11)) * time.Hour, Zone: time.UTC}}
	}
	for i := range w.r.IntN(3) {
		wave := spec.Wave{Name: fmt.Sprintf("w%d", i), Count: 1 + w.r.IntN(4), Approval: w.chance(30)}
		if w.chance(50) {
			wave.Spread = "region"
		}
		s.Waves = append(s.Waves, wave)
	}
	s.Waves = append(s.Waves, spec.Wave{Name: "rest", Approval: w.chance(20)})
	return s
}

// start plans a rollout of random deployments and starts it.
func (w *world) start() {
	w.content++
	id := fmt.Sprintf("r%d", len(w.rollouts))
	x := &rolled{
		state:   execute.Rollout{ID: id, Family: id, State: execute.Planned, Spec: w.draw()},
		planned: map[tko.DeploymentID]planned{},
	}
	x.reset()
	var candidates []plan.Candidate
	var chosen []*deployment
	for _, id := range w.ids {
		if w.chance(70) {
			d := w.deployments[id]
			chosen = append(chosen, d)
			candidates = append(candidates, plan.Candidate{Key: string(id), Site: w.sites[d.site].metadata})
		}
	}
	places := plan.Assign(x.state.Spec.Waves, candidates)
	x.rows = make([]execute.Row, len(chosen))
	for i, d := range chosen {
		kind := plan.Change
		after := w.content
		switch {
		case !d.exists:
			kind = plan.Create
		case w.chance(10):
			kind, after = plan.Delete, -1
		}
		x.planned[d.id] = planned{exists: d.exists, revision: d.revision, before: d.content, after: after}
		x.rows[places[i].Rank] = execute.Row{Deployment: d.id, Site: d.site, Kind: kind, Wave: places[i].Wave, Rank: places[i].Rank, Progress: execute.Waiting, Broken: d.behavior == broken}
	}
	x.state.Plan = plan.Digest{byte(len(w.rollouts) + 1)}
	w.stage(x)
	started, err := execute.Start(x.state, execute.Beginning{Plan: x.state.Plan, Named: x.state.Plan.String()})
	if err != nil {
		panic(err)
	}
	x.state, x.started = started, len(w.rollouts)
	w.rollouts = append(w.rollouts, x)
	w.say("%s starts with %d rows, %+v", x.state.ID, len(x.rows), x.state.Spec.Limits)
}

func (x *rolled) reset() {
	x.applied, x.revision = map[tko.DeploymentID]int{}, map[tko.DeploymentID]int64{}
	x.healthy, x.jumps = map[tko.DeploymentID]time.Duration{}, map[tko.DeploymentID]int{}
	x.has, x.tac = map[tko.DeploymentID]bool{}, map[tko.DeploymentID]string{}
}

// startUndo makes the rollout that undoes another one, in the commit that began it.
func (w *world) startUndo(x *rolled) {
	rows, _ := execute.Undo(x.rows, len(x.state.Spec.Waves), false)
	id := fmt.Sprintf("r%d", len(w.rollouts))
	u := &rolled{
		state:   execute.Rollout{ID: id, Family: x.state.Family, Undoes: x.state.ID, State: execute.Running, Spec: execute.UndoSpec(x.state.Spec), Plan: plan.Digest{byte(len(w.rollouts) + 1)}, AnyTime: w.chance(50)},
		rows:    rows,
		planned: map[tko.DeploymentID]planned{},
		started: x.started,
	}
	if w.defect == WrongFamily {
		u.state.Family = id
	}
	u.reset()
	for _, row := range rows {
		was := x.planned[row.Deployment]
		u.planned[row.Deployment] = planned{exists: was.after >= 0, revision: x.revision[row.Deployment], before: was.after, after: was.before}
		if !was.exists {
			p := u.planned[row.Deployment]
			p.after = -1
			u.planned[row.Deployment] = p
		}
	}
	w.rollouts = append(w.rollouts, u)
	w.say("%s undoes %s: %d rows", id, x.state.ID, len(rows))
}

// healthyNow is what the site would say.
func (w *world) healthyNow(d *deployment) bool {
	since := w.real - d.changed
	switch {
	case w.sites[d.site].gone:
		return false
	case d.behavior == prompt:
		return since > 10*time.Second
	case d.behavior == late:
		return since > 8*time.Minute
	case d.behavior == sometimes:
		return int(w.real/(45*time.Second))%2 == 0
	}
	return false
}

// reportTime is the time until a site reports that a deployment is unhealthy. It is shorter
// than the time in which others become healthy, and leave their slots.
const reportTime = 5 * time.Second

// failingAfter reports whether a deployment is unhealthy, and not merely in progress, once a
// time has passed since its change.
func (w *world) failingAfter(d *deployment, passed time.Duration) bool {
	if w.sites[d.site].gone || !d.exists || w.real-d.changed <= passed {
		return false // what a site that is gone has isn't known
	}
	return d.behavior == never || d.behavior == broken || d.behavior == sometimes && !w.healthyNow(d)
}

// failing returns the rows of a rollout that failed, or are unhealthy in truth or as was
// reported.
func (w *world) failing(x *rolled, passed time.Duration) int {
	n := 0
	for _, row := range x.rows {
		d := w.deployments[row.Deployment]
		inFlight := slices.Contains([]execute.Progress{execute.Applied, execute.Soaking}, row.Progress)
		if row.Counted || inFlight && row.Kind != plan.Delete && !row.Broken && d.revision == x.revision[row.Deployment] && w.failingAfter(d, passed) {
			n++
		}
	}
	return n
}

// exceeds reports whether so many failures are more than the budget of a rollout.
func (x *rolled) exceeds(failures int) bool {
	f := x.state.Spec.Limits.Failures
	return x.state.Spec.OnFailure != spec.Continue && f.Count != nil && failures > *f.Count
}

func (w *world) observed(x *rolled) func(tko.DeploymentID) execute.Observation {
	return func(id tko.DeploymentID) execute.Observation {
		d := w.deployments[id]
		if d.revision != x.revision[id] {
			return execute.Observation{Superseded: true, Reason: "a user edited it"}
		}
		if !d.exists {
			return execute.Observation{Healthy: w.real-d.changed > 5*time.Second}
		}
		return execute.Observation{Healthy: w.healthyNow(d), Failing: w.failingAfter(d, reportTime), Reason: "pods are not ready"}
	}
}

// held returns a function that finds the row of a deployment that isn't final in an active rollout that started
// before x.
func (w *world) held(x *rolled) func(tko.DeploymentID) (string, bool) {
	return func(id tko.DeploymentID) (string, bool) {
		for _, o := range w.rollouts {
			if o.started >= x.started || o.state.Family == x.state.Family || !o.state.State.Active() {
				continue
			}
			for _, row := range o.rows {
				if row.Deployment == id && (!row.Progress.Ended() || row.Progress == execute.Failed) {
					return o.state.ID, true
				}
			}
		}
		return "", false
	}
}

func (w *world) freezes() []execute.Freeze {
	var out []execute.Freeze
	for _, id := range w.siteIDs {
		if until, ok := w.frozen[id]; ok {
			out = append(out, execute.Freeze{Until: until, Reason: "maintenance", Matches: func(s tko.SiteID, _ map[string]string) bool { return s == id }})
		}
	}
	return out
}

// entries returns the stored set, with the values that sites have now, and others'
// changes.
func (w *world) entries(stored []execute.Entry) []execute.Entry {
	out := slices.Clone(stored)
	for i := range out {
		out[i].Now = w.sites[out[i].Site].metadata
	}
	if w.defect != OthersUnseen {
		for _, id := range w.ids {
			if e, ok := w.others[id]; ok {
				if !slices.ContainsFunc(out, func(o execute.Entry) bool { return o.Deployment == id }) {
					out = append(out, e)
				}
			}
		}
	}
	return out
}

// evaluate is one transaction of an executor.
func (w *world) evaluate(x *rolled) error {
	if w.chance(5) {
		w.stats.Kills++
		w.say("an executor of %s is killed before its commit", x.state.ID)
		return nil
	}
	stored := w.flight
	if w.defect == StaleFlight && w.chance(50) {
		stored = w.old
	}
	w.old = slices.Clone(w.flight)
	in := w.input(x, stored)
	rows := in.Rows
	in.Page = 1 + w.r.IntN(5)
	w.sabotage(&in)
	out := execute.Next(in)
	w.stats.Commits++
	for _, i := range out.Update {
		if err := w.checkProgress(x, rows[i], out.Rows[i]); err != nil {
			return err
		}
	}
	if out.Changed {
		w.say("%s is %s: %s", x.state.ID, out.Rollout.State, out.Rollout.Reason.Message)
	}
	wasState := x.state
	rollout := out.Rollout
	if w.defect == NoApproval || w.defect == AlwaysOpen || w.defect == NoSoak || w.defect == Unlimited || w.defect == Unstaged || w.defect == UnlimitedPull {
		rollout.Spec, rollout.AnyTime = wasState.Spec, wasState.AnyTime
	}
	rollout.Approvals = wasState.Approvals
	x.state, x.rows = rollout, slices.Clone(out.Rows)
	for _, id := range out.Release {
		w.leave(x, id)
	}
	if err := w.checkPulls(x, out); err != nil {
		return err
	}
	x.released = x.released || x.state.State == execute.Done
	if w.defect == EarlyRelease {
		for _, row := range x.rows {
			if row.Progress == execute.Failed {
				w.leave(x, row.Deployment)
			}
		}
	}
	for _, i := range out.Admit {
		moved, err := w.admit(x, i)
		if err != nil {
			return err
		}
		if moved {
			break
		}
	}
	if err := w.checkBlocks(x, out); err != nil {
		return err
	}
	if out.StartUndo {
		w.startUndo(x)
	}
	w.mirror()
	return w.check()
}

// input returns what a rollout is evaluated from.
func (w *world) input(x *rolled, stored []execute.Entry) execute.Input {
	rows := slices.Clone(x.rows)
	for i := range rows {
		rows[i].Metadata = w.sites[rows[i].Site].metadata
	}
	return execute.Input{Rollout: x.state, Rows: rows, Observed: w.observed(x), Flight: execute.NewFlight(w.entries(stored)), Keys: []string{"pair", "tac"}, Freezes: w.freezes(), Held: w.held(x), Now: w.now}
}

func (w *world) sabotage(in *execute.Input) {
	switch w.defect {
	case NoApproval:
		in.Rollout.Spec.Waves = slices.Clone(in.Rollout.Spec.Waves)
		for i := range in.Rollout.Spec.Waves {
			in.Rollout.Spec.Waves[i].Approval = false
		}
	case AlwaysOpen:
		in.Rollout.AnyTime = true
	case NoFreeze:
		in.Freezes = nil
	case NoSoak:
		in.Rollout.Spec.Health.Soak = 0
	case Unlimited:
		in.Rollout.Spec.OnFailure = spec.Continue
	case Unstaged:
		in.Rollout.Spec.Stage = nil
	case UnlimitedPull:
		if s := in.Rollout.Spec.Stage; s != nil {
			in.Rollout.Spec.Stage = &spec.Stage{Before: s.Before, Within: s.Within, Concurrent: 1000, OnFailure: s.OnFailure}
		}
	case LateFailures:
		observed := in.Observed
		in.Observed = func(id tko.DeploymentID) execute.Observation {
			o := observed(id)
			o.Failing = false
			return o
		}
	default:
	}
}

func (w *world) leave(x *rolled, id tko.DeploymentID) {
	w.flight = slices.DeleteFunc(w.flight, func(e execute.Entry) bool { return e.Deployment == id && e.Rollout == x.state.ID })
}

// mirror tells rollouts the state of those that undo them.
func (w *world) mirror() {
	for _, u := range w.rollouts {
		for _, x := range w.rollouts {
			if u.state.Undoes == x.state.ID && u.state.Undoes != "" && x.state.State == execute.Undoing {
				x.state.UndoneBy = u.state.State
			}
		}
	}
}

// admit applies a row, if its deployment is as planned.
func (w *world) admit(x *rolled, i int) (moved bool, err error) {
	row := x.rows[i]
	row.Metadata = w.sites[row.Site].metadata
	d, p := w.deployments[row.Deployment], x.planned[row.Deployment]
	fits := plan.Row{Deployment: row.Deployment, Revision: p.revision, Kind: row.Kind}.Check(d.exists, "", d.revision)
	if fits == nil && row.Kind == plan.Create && x.state.Undoes != "" && d.revision != p.revision {
		fits = errors.New("it changed since")
	}
	if fits != nil && w.defect != NoRevision {
		x.state, x.rows[i] = execute.Moved(x.state, row, fits)
		w.stats.Stale++
		w.say("%s: %s is stale", x.state.ID, row.Deployment)
		return true, nil
	}
	if err := w.checkAdmission(x, row); err != nil {
		return false, err
	}
	if err := w.checkStaged(x, row); err != nil {
		return false, err
	}
	if x.beyond != nil {
		x.beyond[row.Deployment] = true
	}
	x.applied[row.Deployment]++
	d.revision++
	d.exists, d.changed = row.Kind != plan.Delete, w.real
	d.content = p.after
	x.revision[row.Deployment] = d.revision
	x.rows[i] = row.Apply(w.now, d.behavior == broken)
	delete(x.healthy, row.Deployment)
	entry := execute.NewFlight(w.flight).EntryOf(x.state, row, []string{"pair", "tac"})
	if !slices.ContainsFunc(w.flight, func(e execute.Entry) bool { return e.Deployment == row.Deployment }) { // no slot is taken over
		w.values[row.Deployment] = row.Metadata
	}
	w.flight = slices.DeleteFunc(w.flight, func(e execute.Entry) bool { return e.Deployment == row.Deployment })
	if w.defect != LostEntry || !w.chance(30) {
		w.flight = append(w.flight, entry)
	}
	delete(w.others, row.Deployment) // the entry replaces that of the other change
	w.stats.Applied++
	if x.state.Undoes != "" {
		w.stats.Undone++
	}
	w.say("%s applies %s at %s %v", x.state.ID, row.Deployment, row.Site, row.Metadata)
	return false, nil
}
