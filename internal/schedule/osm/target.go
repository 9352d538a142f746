package osm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// The reasons of conditions that this target gives.
const (
	ReasonApplied    = "Applied"          // OSM has what the deployment says
	ReasonFailed     = "Failed"           // something didn't work; it is tried again
	ReasonInvalid    = "Invalid"          // something can't be: a change of the package helps
	ReasonWaiting    = "Waiting"          // for an operation, or for something else
	ReasonRemoving   = "Removing"         // what is no longer wanted is on its way out
	ReasonApproval   = "WaitsForApproval" // more would be removed than the budget allows
	ReasonHealthy    = "Healthy"          // all instances are as they should
	ReasonInProgress = "InProgress"       // some aren't yet
	ReasonUnhealthy  = "Unhealthy"        // some are broken
	ReasonAway       = "Unreachable"      // OSM doesn't answer
)

// Records keep what was made.
type Records interface {
	// Source answers a source with its state, ErrNotFound if there is none.
	Source(ctx context.Context, name string) (tko.Source, error)
	// SaveSource writes a source by whoever holds the claim of its work;
	// ErrConflict if that is somebody else.
	SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (version int64, err error)
}

// Options are the settings of a Target. The zero value works.
type Options struct {
	Secrets  string        // folder that passwords and CAs are in; there are none if empty
	Interval time.Duration // look at a site again after that long, give or take a tenth; 10 min if 0
	Poll     time.Duration // how often operations are looked at; the reconciler's default if 0
	Settle   time.Duration // see [osm.Policy]
	Retry    time.Duration // see [osm.Policy]
	Log      *slog.Logger  // nowhere if nil
}

// A Target makes OSMs hold what sites should run. It is safe for concurrent use.
type Target struct {
	records Records
	options Options
}

// New makes a Target.
func New(records Records, o Options) *Target {
	if o.Secrets != "" {
		if absolute, err := filepath.Abs(o.Secrets); err == nil {
			o.Secrets = absolute
		}
	}
	if o.Interval == 0 {
		o.Interval = 10 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Target{records: records, options: o}
}

// kept is what is kept for a site between looks.
type kept struct {
	State osm.State `json:"state"`
	// Owners are the deployments that what was made is for: by "instance/NAME",
	// "vnf/ID" and "ns/ID".
	Owners map[string][]tko.DeploymentID `json:"owners,omitempty"`
}

// look is one look at a site.
type look struct {
	*Target
	spec    spec
	source  tko.Source
	claim   tko.WorkItem
	kept    kept
	desired osm.Desired
	owners  map[string][]tko.DeploymentID
	invalid map[tko.DeploymentID]error
}

// Schedule makes the OSM that a resource of the site's package names hold what
// these deployments say, and nothing more of what was made for the site, except
// for what deployments that are held have there. It doesn't wait for
// operations: the report says when to look again. The context must carry the
// claim of the site's work ([tko.WithClaim]). ErrInvalid says that a record has
// to change; any other error may go away without that. Doing it again changes
// nothing.
func (t *Target) Schedule(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Report, error) {
	s, err := readSpec(trigger)
	if err != nil {
		return report.Report{}, err
	}
	claim, ok := tko.ClaimOf(ctx)
	if !ok {
		return report.Report{}, fmt.Errorf("%s: nobody holds the claim of the work of site %q", trigger.Identity(), site.ID)
	}
	l := &look{Target: t, spec: s, claim: claim, owners: map[string][]tko.DeploymentID{}, invalid: map[tko.DeploymentID]error{}}
	if err := l.load(ctx, tko.SiteSource(site.ID, trigger.Name())); err != nil {
		return report.Report{}, err
	}
	l.read(deployments, held)
	endpoint, err := t.endpoint(s)
	if err != nil {
		return report.Report{}, err
	}
	client, err := osm.NewClient(endpoint, osm.Options{Log: t.options.Log})
	if err != nil {
		return report.Report{}, err
	}
	policy := s.policy()
	policy.Poll, policy.Settle, policy.Retry = t.options.Poll, t.options.Settle, t.options.Retry
	r := &osm.Reconciler{Client: client, Log: t.options.Log, Keep: func(ctx context.Context, state osm.State, _ []string) error {
		return l.save(ctx, state, deployments)
	}}
	got, err := r.Apply(ctx, l.desired, l.kept.State, policy)
	if ctx.Err() != nil {
		return report.Report{}, context.Cause(ctx)
	}
	return l.report(ctx, got, deployments, held, err)
}

// load reads what was kept.
func (l *look) load(ctx context.Context, name string) error {
	var err error
	l.source, err = l.records.Source(ctx, name)
	if errors.Is(err, tko.ErrNotFound) {
		l.source = tko.Source{Name: name}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading what is known of OSM: %w", err)
	}
	if err := json.Unmarshal(l.source.State, &l.kept); err != nil {
		return fmt.Errorf("reading what is known of OSM: %w", err)
	}
	return nil
}

// save keeps what was done, and for whom.
func (l *look) save(ctx context.Context, state osm.State, _ []tko.Deployment) error {
	k := kept{State: state, Owners: map[string][]tko.DeploymentID{}}
	note := func(key string) {
		if now := l.owners[key]; len(now) > 0 {
			k.Owners[key] = now
		} else if was := l.kept.Owners[key]; len(was) > 0 {
			k.Owners[key] = was
		}
	}
	for name := range state.Instances {
		note("instance/" + name)
	}
	for key := range state.Packages {
		note(key)
	}
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	next := l.source
	next.State = data
	if next.Version, err = l.records.SaveSource(ctx, next, l.claim); err == nil {
		l.source = next
	}
	return err
}

// read makes of deployments what is desired.
func (l *look) read(deployments []tko.Deployment, held []tko.DeploymentID) {
	packages := map[string]krm.Resource{}
	twice := conflicts(deployments)
	for _, d := range deployments {
		if err := twice[d.ID]; err != nil {
			l.invalid[d.ID] = err
			held = append(slices.Clone(held), d.ID) // what it had stays
			continue
		}
		one, err := l.readDeployment(d, packages)
		if err != nil {
			l.invalid[d.ID] = err
			held = append(slices.Clone(held), d.ID) // what it had stays
			continue
		}
		for _, i := range one.Instances {
			l.own("instance/"+i.Name, d.ID)
		}
		l.desired.Instances = append(l.desired.Instances, one.Instances...)
		l.desired.Packages = append(l.desired.Packages, one.Packages...)
	}
	for key, owners := range l.kept.Owners {
		if slices.ContainsFunc(owners, func(id tko.DeploymentID) bool { return slices.Contains(held, id) }) {
			l.desired.Keep = append(l.desired.Keep, key)
		}
	}
}

func (l *look) own(key string, id tko.DeploymentID) {
	if !slices.Contains(l.owners[key], id) {
		l.owners[key] = append(l.owners[key], id)
	}
}

// readDeployment reads what a deployment says. Deployments may share packages, if they are the same.
func (l *look) readDeployment(d tko.Deployment, packages map[string]krm.Resource) (osm.Desired, error) {
	var one osm.Desired
	var keys []string
	for _, r := range d.Package {
		gvk := r.GVK()
		if gvk.Group != group {
			continue
		}
		switch gvk.Kind {
		case kindInstance:
			i, err := readInstance(r, d.ID, l.spec)
			if err != nil {
				return osm.Desired{}, err
			}
			one.Instances = append(one.Instances, i)
		case kindVNF, kindNS:
			p, err := readPackage(r)
			if err != nil {
				return osm.Desired{}, err
			}
			key := string(p.Kind) + "/" + p.ID
			if other, there := packages[key]; there {
				if !reflect.DeepEqual(other["spec"], r["spec"]) {
					return osm.Desired{}, tko.Errorf(tko.ErrInvalid, "%s: another deployment at the site has the package %q with something else in it", r.Identity(), p.ID)
				}
			} else {
				packages[key] = r
				one.Packages = append(one.Packages, p)
			}
			keys = append(keys, key)
		default:
		}
	}
	for _, key := range keys {
		l.own(key, d.ID)
	}
	return one, nil
}

// report says how the deployments are.
func (l *look) report(ctx context.Context, got osm.Report, deployments []tko.Deployment, held []tko.DeploymentID, applyErr error) (report.Report, error) {
	r := report.Report{Kept: held, Deployments: map[tko.DeploymentID]report.State{}, Requeue: got.Again}
	if interval := jittered(l.options.Interval); r.Requeue == 0 || interval < r.Requeue {
		r.Requeue = interval
	}
	for _, w := range got.Warnings {
		l.options.Log.DebugContext(ctx, "osm warns", "name", w.Name, "err", w.Err) // users see it in the condition
	}
	away := errors.Is(applyErr, tko.ErrUnavailable)
	var sick, failed []string
	worst := tko.ConditionTrue
	invalid := true
	for _, d := range deployments {
		state, bad := l.deployment(d.ID, got, away, applyErr)
		r.Deployments[d.ID] = state
		if h := state.Healthy; h.Status != tko.ConditionTrue {
			worst = tko.ConditionFalse
			sick = append(sick, fmt.Sprintf("deployment %q: %s", d.ID, h.Message))
		}
		if bad {
			failed = append(failed, fmt.Sprintf("deployment %q: %s", d.ID, state.Scheduled.Message))
			invalid = invalid && state.Scheduled.Reason == ReasonInvalid
		}
	}
	l.removed(&r, got, deployments)
	r.Site.Healthy = report.Outcome{Status: worst, Reason: ReasonHealthy, Message: fmt.Sprintf("all %d deployments are healthy", len(deployments))}
	if worst != tko.ConditionTrue {
		r.Site.Healthy.Reason, r.Site.Healthy.Message = ReasonUnhealthy, few(sick)
	}
	if away {
		r.Site.Healthy = report.Outcome{Status: tko.ConditionUnknown, Reason: ReasonAway, Message: applyErr.Error()}
	}
	switch {
	case applyErr != nil:
		return r, applyErr
	case got.Approval != nil:
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonApproval, Message: fmt.Sprintf(
			"%d instances would be removed or made anew, which is more than the budget allows: %s. To agree, set spec.prune.approve: %q in the OSM resource",
			len(got.Approval.Instances), few(got.Approval.Instances), got.Approval.Key)}
	case len(failed) > 0:
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonFailed, Message: few(failed)}
		if invalid {
			r.Site.Scheduled.Reason = ReasonInvalid
		}
	case !got.Settled():
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonWaiting, Message: few(pending(got))}
	}
	return r, nil
}

// deployment says how a deployment is, and whether that is bad.
func (l *look) deployment(id tko.DeploymentID, got osm.Report, away bool, applyErr error) (state report.State, bad bool) {
	if err := l.invalid[id]; err != nil {
		return report.State{Scheduled: report.Outcome{Status: tko.ConditionFalse, Reason: ReasonInvalid, Message: err.Error()}}, true
	}
	var waits, failed, sick []string
	n, stalled := 0, true
	for key, owners := range l.owners {
		if !slices.Contains(owners, id) {
			continue
		}
		s, known := got.Packages[key]
		name, isInstance := strings.CutPrefix(key, "instance/")
		if isInstance {
			s, known = got.Instances[name]
			n++
		}
		line := fmt.Sprintf("%s: %s", key, s.Message)
		switch {
		case !known:
			waits = append(waits, key+" was not looked at")
		case s.Phase == osm.PhaseStalled || s.Phase == osm.PhaseFailed:
			failed = append(failed, line)
			stalled = stalled && s.Phase == osm.PhaseStalled && !s.Broken
		case s.Phase != osm.PhaseReady:
			waits = append(waits, line)
		}
		if isInstance && (s.ID == "" || s.Broken || s.Phase == osm.PhaseProgressing) {
			sick = append(sick, line)
		}
	}
	switch {
	case len(failed) > 0:
		state.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonFailed, Message: few(failed)}
		if stalled {
			state.Scheduled.Reason = ReasonInvalid
		}
	case applyErr != nil:
		state.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonFailed, Message: applyErr.Error()}
	case len(waits) > 0:
		state.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonWaiting, Message: few(waits)}
	default:
		state.Scheduled = report.Outcome{Status: tko.ConditionTrue, Reason: ReasonApplied, Message: strings.Join(append([]string{fmt.Sprintf("%d instances are as they should be", n)}, l.warned(id, got)...), "; ")}
	}
	switch {
	case away:
		state.Healthy = report.Outcome{Status: tko.ConditionUnknown, Reason: ReasonAway, Message: applyErr.Error()}
	case len(sick) == 0:
		state.Healthy = report.Outcome{Status: tko.ConditionTrue, Reason: ReasonHealthy, Message: fmt.Sprintf("%d instances are healthy", n)}
	case len(failed) > 0:
		state.Healthy = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonUnhealthy, Message: few(sick)}
	default:
		state.Healthy = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonInProgress, Message: few(sick)}
	}
	return state, len(failed) > 0
}

// warned is what a deployment is warned of: one text, or none.
func (l *look) warned(id tko.DeploymentID, got osm.Report) (lines []string) {
	for _, w := range got.Warnings {
		if slices.Contains(l.owners[w.What+"/"+w.Name], id) {
			lines = append(lines, w.Err.Error())
		}
	}
	slices.Sort(lines)
	if lines = slices.Compact(lines); len(lines) > 0 {
		return []string{few(lines)}
	}
	return nil
}

// removed says which deployments had something, and have nothing left.
func (l *look) removed(r *report.Report, got osm.Report, deployments []tko.Deployment) {
	left, gone := map[tko.DeploymentID]bool{}, map[tko.DeploymentID]bool{}
	for _, d := range deployments {
		left[d.ID] = true
	}
	for key, owners := range l.kept.Owners {
		name, isInstance := strings.CutPrefix(key, "instance/")
		_, there := got.State.Packages[key]
		if isInstance {
			_, there = got.State.Instances[name]
		}
		for _, id := range owners {
			if there && len(l.owners[key]) == 0 {
				left[id] = true
			} else {
				gone[id] = true
			}
		}
	}
	for id := range gone {
		if !left[id] {
			r.Removed = append(r.Removed, id)
		}
	}
	slices.Sort(r.Removed)
}

func pending(got osm.Report) []string {
	var lines []string
	for _, all := range []map[string]osm.Status{got.Packages, got.Instances} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if s := all[name]; s.Phase != osm.PhaseReady && s.Phase != osm.PhaseKept {
				lines = append(lines, fmt.Sprintf("%s: %s", name, s.Message))
			}
		}
	}
	return lines
}

// few is the first lines, and how many more there are.
func few(lines []string) string {
	const most = 2
	slices.Sort(lines)
	if len(lines) <= most {
		return strings.Join(lines, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(lines[:most], "; "), len(lines)-most)
}

// jittered spreads looks, so that sites that began together don't stay so.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1)) //nolint:gosec // jitter is no secret
}
