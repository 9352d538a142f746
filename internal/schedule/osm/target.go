package osm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/krm"
)

// The reasons of the conditions that this target reports.
const (
	ReasonApplied     = "Applied"          // the packages and instances of the deployment are applied
	ReasonFailed      = "Failed"           // an operation failed; it is tried again
	ReasonInvalid     = "Invalid"          // a resource can't be applied until it changes
	ReasonWaiting     = "Waiting"          // an operation is in flight, or waits for another one
	ReasonRemoving    = "Removing"         // unwanted instances or packages are being removed
	ReasonApproval    = "WaitsForApproval" // the removals exceed the budget
	ReasonNoApproval  = "NothingToApprove" // all removals are within the budget, or approved
	ReasonHealthy     = "Healthy"          // all instances are ready
	ReasonInProgress  = "InProgress"       // some instances aren't ready yet
	ReasonUnhealthy   = "Unhealthy"        // some instances are broken
	ReasonUnreachable = "Unreachable"      // OSM doesn't respond
)

// Records hold the states that the target saves for sites.
type Records interface {
	// TargetState returns the state that was saved for a site under a name.
	// ErrNotFound if there is none.
	TargetState(ctx context.Context, site tko.SiteID, name string) (tko.TargetState, error)
	// SaveTargetState writes a state with the claim of the site's work and returns
	// its new version. ErrConflict if the caller no longer holds the claim.
	SaveTargetState(ctx context.Context, s tko.TargetState, claim tko.WorkItem) (version int64, err error)
}

// Options are the settings of a Target. The zero value works.
type Options struct {
	Secrets    string         // folder of passwords and CAs; none can be used if empty
	References secret.Sources // resolves references to passwords that are not files
	Leash      *leash.Leash   // what passwords may be used for; no declarations if nil
	Interval   time.Duration  // between reconciliations of a site, give or take a tenth; 10 min if 0
	Poll       time.Duration  // between reads of an operation's state; the reconciler's default if 0
	Settle     time.Duration  // see [osm.Policy]
	Retry      time.Duration  // see [osm.Policy]
	Log        *slog.Logger   // discarded if nil
}

// A Target applies the deployments of sites to OSMs. It is safe for concurrent use.
type Target struct {
	records Records
	options Options
	reports reports
	secrets secret.Folder
}

// New makes a Target.
func New(records Records, o Options) *Target {
	if o.Interval == 0 {
		o.Interval = 10 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Target{records: records, options: o, secrets: secret.Folder{Kind: leash.KindOSM, Path: o.Secrets, Owner: "meta-scheduler", Flag: "--osm-secrets"}}
}

// savedState is the content of a target state.
type savedState struct {
	State osm.State `json:"state"`
	// Owners are the deployments that have an instance or a package, by
	// "instance/NAME", "vnf/ID" and "ns/ID".
	Owners map[string][]tko.DeploymentID `json:"owners,omitempty"`
}

// A reconciliation is one reconciliation of a site.
type reconciliation struct {
	*Target
	spec     spec
	revision int64 // of the site
	record   tko.TargetState
	claim    tko.WorkItem
	saved    savedState // content of record at the beginning
	desired  osm.Desired
	owners   map[string][]tko.DeploymentID // of desired; keys as in savedState
	invalid  map[tko.DeploymentID]error    // deployments that can't be applied
}

// Schedule applies these deployments to the OSM that a resource of the site's
// package names, and removes from it all other objects that were made for the
// site, except the instances and packages of held deployments. It doesn't wait for
// operations: the report has the time of the next reconciliation. The context must
// carry the claim of the site's work ([tko.WithClaim]). It is idempotent. ErrInvalid means
// that a record must change; any other error may be temporary.
func (t *Target) Schedule(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Report, error) {
	s, err := readSpec(trigger)
	if err != nil {
		return report.Report{}, err
	}
	claim, ok := tko.ClaimOf(ctx)
	if !ok {
		return report.Report{}, fmt.Errorf("%s: the context has no claim of the work of site %q", trigger.Identity(), site.ID)
	}
	l := &reconciliation{Target: t, spec: s, revision: site.Stamp.Revision, claim: claim, owners: map[string][]tko.DeploymentID{}, invalid: map[tko.DeploymentID]error{}}
	if err := l.load(ctx, site.ID, trigger.Name()); err != nil {
		return report.Report{}, err
	}
	l.read(deployments, held)
	endpoint, err := t.endpoint(s, site.ID)
	if err != nil {
		return report.Report{}, err
	}
	client, err := nbi.NewClient(endpoint, nbi.Options{Log: t.options.Log, Begin: fence.Check})
	if err != nil {
		return report.Report{}, err
	}
	policy := s.policy()
	policy.Poll, policy.Settle, policy.Retry = t.options.Poll, t.options.Settle, t.options.Retry
	r := &osm.Reconciler{Client: client, Log: t.options.Log, Keep: func(ctx context.Context, state osm.State, _ []string) error {
		return l.save(ctx, state)
	}}
	policy.List = t.options.Interval / 2 // before the next reconciliation lists them
	last := t.reports.take(l.record)
	got, err := r.Update(ctx, l.desired, l.saved.State, policy, last)
	if ctx.Err() != nil {
		return report.Report{}, context.Cause(ctx)
	}
	if err == nil {
		t.reports.put(l.record, got)
	}
	if fence.Is(err) {
		return report.Report{}, err
	}
	return l.report(ctx, got, deployments, held, err)
}

// load reads the saved state, if there is one.
func (l *reconciliation) load(ctx context.Context, site tko.SiteID, name string) error {
	var err error
	l.record, err = l.records.TargetState(ctx, site, name)
	if errors.Is(err, tko.ErrNotFound) {
		l.record = tko.TargetState{Site: site, Name: name}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the saved state of OSM: %w", err)
	}
	if err := json.Unmarshal(l.record.State, &l.saved); err != nil {
		return fmt.Errorf("reading the saved state of OSM: %w", err)
	}
	return nil
}

// save saves the state, with the owners of its objects.
func (l *reconciliation) save(ctx context.Context, state osm.State) error {
	s := savedState{State: state, Owners: map[string][]tko.DeploymentID{}}
	for _, key := range state.Keys() {
		if now := l.owners[key]; len(now) > 0 {
			s.Owners[key] = now
		} else if was := l.saved.Owners[key]; len(was) > 0 {
			s.Owners[key] = was
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	next := l.record
	next.State = data
	if next.Version, err = l.records.SaveTargetState(ctx, next, l.claim); err == nil {
		l.record = next
	}
	return err
}

// read makes the desired packages and instances of deployments. Those that can't be
// applied are in l.invalid, and keep their packages and instances, as held ones do.
func (l *reconciliation) read(deployments []tko.Deployment, held []tko.DeploymentID) {
	packages := map[string]krm.Resource{}
	inConflict := conflicts(deployments)
	for _, d := range deployments {
		if err := inConflict[d.ID]; err != nil {
			l.invalid[d.ID] = err
			held = append(slices.Clone(held), d.ID) // its objects in OSM stay unchanged
			continue
		}
		one, err := l.readDeployment(d, packages)
		if err != nil {
			l.invalid[d.ID] = err
			held = append(slices.Clone(held), d.ID) // its objects in OSM stay unchanged
			continue
		}
		for _, i := range one.Instances {
			l.own(osm.InstanceKey(i.Name), d.ID)
		}
		l.desired.Instances = append(l.desired.Instances, one.Instances...)
		l.desired.Packages = append(l.desired.Packages, one.Packages...)
	}
	others := slices.Contains(held, tko.OtherDeployments)
	isOther := func(id tko.DeploymentID) bool {
		return others && !slices.ContainsFunc(deployments, func(d tko.Deployment) bool { return d.ID == id })
	}
	for key, owners := range l.saved.Owners {
		if slices.ContainsFunc(owners, func(id tko.DeploymentID) bool { return slices.Contains(held, id) || isOther(id) }) {
			l.desired.Keep = append(l.desired.Keep, key)
		}
	}
}

func (l *reconciliation) own(key string, id tko.DeploymentID) {
	if !slices.Contains(l.owners[key], id) {
		l.owners[key] = append(l.owners[key], id)
	}
}

// readDeployment reads the packages and instances of a deployment. packages are the
// resources of those read so far: deployments may share a package if its spec is
// the same.
func (l *reconciliation) readDeployment(d tko.Deployment, packages map[string]krm.Resource) (osm.Desired, error) {
	var one osm.Desired
	var keys []string
	for _, r := range d.Package {
		gvk := r.GVK()
		if gvk.Group != group {
			continue
		}
		switch gvk.Kind {
		case osm.InstanceKind:
			i, err := readInstance(r, d.ID, l.spec)
			if err != nil {
				return osm.Desired{}, err
			}
			one.Instances = append(one.Instances, i)
		case osm.VNFPackageKind, osm.NSPackageKind:
			p, err := readPackage(r)
			if err != nil {
				return osm.Desired{}, err
			}
			key := p.Key()
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

// report makes the report of a reconciliation. applyErr is the error of Apply, which
// it returns as well.
func (l *reconciliation) report(ctx context.Context, got osm.Report, deployments []tko.Deployment, held []tko.DeploymentID, applyErr error) (r report.Report, err error) {
	r = report.Report{Kept: held, Deployments: map[tko.DeploymentID]report.State{}, Requeue: got.Again}
	if interval := pause.About(l.options.Interval, 0.1); r.Requeue == 0 || interval < r.Requeue {
		r.Requeue = interval
	}
	for _, w := range got.Warnings {
		l.options.Log.DebugContext(ctx, "osm warns", "name", w.Name, "err", w.Err) // the condition reports it to users
	}
	unreachable := errors.Is(applyErr, tko.ErrUnavailable)
	var sick, failed []string
	worst := tko.ConditionTrue
	invalid := true
	for _, d := range deployments {
		state, bad := l.deployment(d.ID, got, unreachable, applyErr)
		r.Deployments[d.ID] = state
		r.Attest(d.ID, d.Stamp.Revision)
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
	if unreachable {
		r.Site.Healthy = report.Outcome{Status: tko.ConditionUnknown, Reason: ReasonUnreachable, Message: applyErr.Error()}
	}
	r.Removals = report.Outcome{Status: tko.ConditionTrue, Reason: ReasonNoApproval, Message: "no removals wait for an approval"}
	if got.Approval != nil {
		r.Removals = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonApproval, Message: fmt.Sprintf(
			"%d instances would be removed or recreated, which is more than the budget allows: %s. To approve, set spec.prune.approve: %q in the OSM resource",
			len(got.Approval.Instances), few(got.Approval.Instances), got.Approval.Key)}
	}
	defer func() {
		if err == nil {
			r.AttestSite(l.revision)
		}
	}()
	switch {
	case applyErr != nil:
		if got.Approval == nil {
			r.Removals = report.Outcome{} // not known
		}
		return r, applyErr
	case got.Approval != nil:
		r.Site.Scheduled = r.Removals
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

// deployment returns the state of a deployment. bad is true if it is invalid, or
// something of it has failed.
func (l *reconciliation) deployment(id tko.DeploymentID, got osm.Report, unreachable bool, applyErr error) (state report.State, bad bool) {
	if err := l.invalid[id]; err != nil {
		return report.State{Scheduled: report.Outcome{Status: tko.ConditionFalse, Reason: ReasonInvalid, Message: err.Error()}}, true
	}
	var waits, failed, sick []string
	n, stalled := 0, true
	for key, owners := range l.owners {
		if !slices.Contains(owners, id) {
			continue
		}
		s, known := got.Status(key)
		_, isInstance := osm.InstanceOf(key)
		if isInstance {
			n++
		}
		line := fmt.Sprintf("%s: %s", key, s.Message)
		switch {
		case !known:
			waits = append(waits, key+" was not reconciled")
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
	case unreachable:
		state.Healthy = report.Outcome{Status: tko.ConditionUnknown, Reason: ReasonUnreachable, Message: applyErr.Error()}
	case len(sick) == 0:
		state.Healthy = report.Outcome{Status: tko.ConditionTrue, Reason: ReasonHealthy, Message: fmt.Sprintf("%d instances are healthy", n)}
	case len(failed) > 0:
		state.Healthy = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonUnhealthy, Message: few(sick)}
	default:
		state.Healthy = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonInProgress, Message: few(sick)}
	}
	return state, len(failed) > 0
}

// warned returns the warnings for a deployment as one text; nil if there are none.
func (l *reconciliation) warned(id tko.DeploymentID, got osm.Report) (lines []string) {
	for _, w := range got.Warnings {
		if slices.Contains(l.owners[w.What+"/"+w.Name], id) {
			lines = append(lines, w.Err.Error())
		}
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if len(lines) > 0 {
		return []string{few(lines)}
	}
	return nil
}

// removed adds to the report the deployments that had packages or instances and have
// none any more.
func (l *reconciliation) removed(r *report.Report, got osm.Report, deployments []tko.Deployment) {
	remaining, gone := map[tko.DeploymentID]bool{}, map[tko.DeploymentID]bool{}
	for _, d := range deployments {
		remaining[d.ID] = true
	}
	for key, owners := range l.saved.Owners {
		for _, id := range owners {
			if got.State.Has(key) && len(l.owners[key]) == 0 {
				remaining[id] = true
			} else {
				gone[id] = true
			}
		}
	}
	for id := range gone {
		if !remaining[id] {
			r.Removed = append(r.Removed, id)
		}
	}
	slices.Sort(r.Removed)
}

func pending(got osm.Report) []string {
	var lines []string
	for _, i := range got.Items(osm.Unfinished...) {
		lines = append(lines, fmt.Sprintf("%s: %s", i, i.Message))
	}
	return lines
}

// few returns the first two lines in order, and the number of the others, as one
// text.
func few(lines []string) string {
	const most = 2
	slices.Sort(lines)
	if len(lines) <= most {
		return strings.Join(lines, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(lines[:most], "; "), len(lines)-most)
}
