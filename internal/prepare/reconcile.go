package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/internal/work"
	"github.com/tko-orchestrator/tko/krm"
)

// A reconciliation prepares one deployment as far as possible now. It changes the
// package in memory. It commits the output of each plugin at once, so that the
// plugin isn't run again after a crash, and all changes before a Placement creates
// children from them. It commits the rest at the end, with the conditions.
type reconciliation struct {
	p       *Preparer
	d       tko.Deployment // as last committed, with the package as it is now
	plugins triggerMap
	item    tko.WorkItem // the claim that it works for

	dirty     bool                     // the package differs from the committed one
	steps     []tko.PreparationStep    // the steps since the last commit
	iteration int                      // the iteration, from 1
	stepCount int                      // number of steps that changed the package
	limit     int                      // of stepCount
	settled   bool                     // a plugin has prepared the Deployment resource
	failures  map[krm.Identity]problem // not tried again in this reconciliation
	failed    []krm.Identity           // in the order of the failures
	waits     []problem                // of the current iteration
	retry     time.Duration            // of work that continues in other systems; 0 if there is none
	// running are the triggers for which work continues in other systems, by plugin ID.
	running map[string][]krm.Identity
}

// stepsPerIteration is the number of steps that are allowed in each iteration, on
// average.
const stepsPerIteration = 100

// A problem is a reason why a resource isn't prepared.
type problem struct {
	reason  string
	message string
}

// An outcome reports whether a step changed the package.
type outcome int

const (
	stepNothing outcome = iota
	stepChanged
)

// run reconciles. It returns the errors of the data controller, and of the withdrawal of
// work in other systems.
func (rc *reconciliation) run(ctx context.Context) (work.Result, error) {
	rc.failures = map[krm.Identity]problem{}
	endless, err := rc.converge(ctx)
	if err != nil {
		return work.Result{}, err
	}
	if err := rc.withdraw(ctx); err != nil { // before the condition no longer reports that it runs
		return work.Result{}, err
	}
	switch {
	case endless != nil:
		return rc.unprepared(ctx, []problem{*endless}, work.Result{Outcome: tko.WorkFailed, Retry: maxRetryStall})
	case len(rc.failed) > 0:
		var problems []problem
		for _, id := range rc.failed {
			problems = append(problems, rc.failures[id])
		}
		return rc.unprepared(ctx, append(problems, rc.waits...), work.Result{Outcome: tko.WorkFailed})
	case len(rc.waits) > 0:
		slices.SortStableFunc(rc.waits, func(a, b problem) int { // users read the reason that they can do something about
			return compareBool(b.reason == topology.ReasonWaitsForApproval, a.reason == topology.ReasonWaitsForApproval)
		})
		retry := retryWaiting(rc.d.Stamp.Conditions, tko.ConditionPrepared, ReasonWaiting, time.Now())
		if consentOnly(rc.waits) {
			retry = maxRetryStall
		}
		if rc.retry > 0 {
			retry = min(rc.retry, maxRetryWait)
		}
		retry = spread(retry)
		return rc.unprepared(ctx, rc.waits, work.Result{Outcome: tko.WorkLater, Retry: retry})
	}
	return rc.finish(ctx)
}

// converge iterates until nothing changes. If the limits are reached first, it
// returns a problem with the first resource that is left.
func (rc *reconciliation) converge(ctx context.Context) (endless *problem, err error) {
	// The number of iterations doesn't bound resources that double in each.
	rc.limit = len(rc.tasks()) + stepsPerIteration*rc.p.options.MaxIterations
	for n := 0; n < rc.p.options.MaxIterations && rc.stepCount < rc.limit; n++ {
		rc.iteration = n + 1
		changed, err := rc.iterate(ctx)
		if err != nil {
			return nil, err
		}
		if !changed {
			return nil, nil
		}
	}
	left := rc.tasks()
	if len(left) == 0 {
		return nil, nil
	}
	return &problem{
		reason: ReasonTooManyIterations,
		message: fmt.Sprintf("%s is still not prepared after %d iterations and %d steps: its preparation keeps adding what needs preparing, or never marks it prepared; change the plugin or the resource",
			left[0], rc.p.options.MaxIterations, rc.stepCount),
	}, nil
}

// tasks returns the resources that this reconciliation can still prepare.
func (rc *reconciliation) tasks() []krm.Identity {
	return slices.DeleteFunc(rc.plugins.tasks(rc.d.Package), func(id krm.Identity) bool {
		_, failed := rc.failures[id]
		return failed || rc.settled && id.GVK == krm.DeploymentGVK
	})
}

// iterate prepares each preparable resource once.
func (rc *reconciliation) iterate(ctx context.Context) (changed bool, err error) {
	rc.waits, rc.retry, rc.running = nil, 0, map[string][]krm.Identity{}
	tasks := rc.tasks()
	// Work in other systems comes last, and one after the other: each change of the package
	// makes it begin anew.
	slices.SortStableFunc(tasks, func(a, b krm.Identity) int {
		return compareBool(rc.plugins.isElsewhere(a.GVK), rc.plugins.isElsewhere(b.GVK))
	})
	for _, id := range tasks {
		if rc.stepCount >= rc.limit {
			return true, nil
		}
		if rc.plugins.isElsewhere(id.GVK) && (changed || len(rc.running) > 0) {
			return changed, nil
		}
		// Another step may have prepared or removed it.
		if r := rc.d.Package.Find(id); r == nil || !rc.plugins.preparable(r) {
			continue
		}
		did, err := rc.step(ctx, id)
		var wait *waitError
		var fail *failError
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.As(err, &wait):
			if wait.consent {
				rc.waits = append(rc.waits, problem{reason: topology.ReasonWaitsForApproval, message: wait.message})
				break
			}
			if wait.retry > 0 {
				rc.retry = wait.retry
				rc.waits = slices.Insert(rc.waits, 0, problem{reason: ReasonRunning, message: wait.message})
				break
			}
			rc.waits = append(rc.waits, problem{reason: ReasonWaiting, message: wait.message})
		case errors.As(err, &fail):
			rc.failures[id] = fail.problem
			rc.failed = append(rc.failed, id)
		case err != nil:
			return false, err
		}
		if did == stepChanged {
			rc.stepCount++
			changed = true
		}
	}
	return changed, nil
}

// consentOnly reports whether only a user's consent helps, which makes the work due.
func consentOnly(waits []problem) bool {
	return !slices.ContainsFunc(waits, func(p problem) bool { return p.reason != topology.ReasonWaitsForApproval })
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// A waitError reports that a step has to wait.
type waitError struct {
	message string
	retry   time.Duration // if work continues in another system: until the next reconciliation
	consent bool          // a user must consent, which makes the work due
}

func (e *waitError) Error() string { return e.message }

// A failError reports that a step failed.
type failError struct{ problem }

func (e *failError) Error() string { return e.message }

func (rc *reconciliation) step(ctx context.Context, id krm.Identity) (outcome, error) {
	if rc.plugins.builtIn(id.GVK) {
		return rc.stepTopology(ctx, id)
	}
	if len(rc.plugins[id.GVK]) == 0 {
		return rc.stepPipeline(ctx, id)
	}
	return rc.stepPlugins(ctx, id)
}

func (rc *reconciliation) stepTopology(ctx context.Context, id krm.Identity) (outcome, error) {
	if id.GVK == topology.TOSCAGVK && rc.p.options.TOSCA != nil {
		return rc.stepTOSCA(ctx, id)
	}
	if id.GVK == topology.PlacementGVK && rc.dirty {
		// After a crash, the children must not be derived from other decisions.
		if err := rc.commit(ctx, rc.d.Package, nil); err != nil {
			return stepNothing, rc.refused(id, err)
		}
	}
	started := time.Now()
	preparer := topology.Preparer{Client: rc.p.client, Children: rc.p.client}
	resource, err := preparer.Prepare(ctx, topology.Deployment{
		ID: rc.d.ID, Revision: rc.d.Stamp.Revision, Package: rc.d.Package, Preparable: rc.plugins.preparable, Waits: len(rc.d.Replaces) > 0,
	}, id)
	var wait *topology.WaitError
	var refusal *topology.Error
	switch {
	case errors.As(err, &wait):
		return stepNothing, &waitError{message: wait.Error()}
	case errors.As(err, &refusal) && refusal.Reason == topology.ReasonWaitsForApproval:
		return stepNothing, &waitError{message: refusal.Error(), consent: true}
	case errors.As(err, &refusal):
		return stepNothing, &failError{problem{reason: refusal.Reason, message: refusal.Error()}}
	case errors.Is(err, tko.ErrStopped): // the release makes the work due at once
		return stepNothing, &waitError{message: err.Error()}
	case err != nil:
		return stepNothing, err
	}
	rc.d.Package = replace(rc.d.Package, resource)
	rc.dirty = true
	rc.steps = append(rc.steps, tko.PreparationStep{Resource: id.String(), Iteration: rc.iteration, Took: time.Since(started)})
	return stepChanged, nil
}

// stepTOSCA compiles a service template and merges the resulting resources into the
// package.
func (rc *reconciliation) stepTOSCA(ctx context.Context, id krm.Identity) (outcome, error) {
	started := time.Now()
	for _, r := range rc.d.Package {
		if r.GVK() == topology.TOSCAGVK && r.Identity() != id && r.Annotation(krm.AnnotationPrepare) != krm.Never {
			return stepNothing, &failError{problem{reason: topology.ReasonInvalid, message: fmt.Sprintf(
				"%s: the package has another TOSCA resource, and both would make a Placement of the same name: put them in separate deployments", id)}}
		}
	}
	resource := rc.d.Package.Find(id).Clone()
	made, err := rc.p.options.TOSCA.Resources(ctx, resource.Text("spec", "url"))
	if ctx.Err() != nil {
		return stepNothing, ctx.Err()
	}
	if err != nil {
		reason := ReasonTOSCAFailed
		if errors.Is(err, tko.ErrInvalid) {
			reason = topology.ReasonInvalid
		}
		return stepNothing, &failError{problem{reason: reason, message: fmt.Sprintf("%s: %v", id, err)}}
	}
	resource.SetPrepared()
	merged, err := krm.Merge(replace(rc.d.Package, resource), made)
	if err != nil {
		return stepNothing, &failError{problem{reason: topology.ReasonInvalid, message: fmt.Sprintf("%s: can't merge its resources into the package: %v", id, err)}}
	}
	rc.steps = append(rc.steps, tko.PreparationStep{Resource: id.String(), Iteration: rc.iteration, Took: time.Since(started)})
	// It changes other resources, too, so its revision has no plugin's changes.
	if err := rc.commit(ctx, merged, nil); err != nil {
		rc.steps = rc.steps[:len(rc.steps)-1]
		return stepNothing, rc.refused(id, err)
	}
	return stepChanged, nil
}

// refused makes the refusal of a package the failure of the resource that was to be
// prepared next.
func (rc *reconciliation) refused(id krm.Identity, err error) error {
	if !errors.Is(err, tko.ErrInvalid) {
		return err
	}
	return &failError{problem{reason: ReasonInvalid, message: fmt.Sprintf("%s: the package can't be stored: %v", id, err)}}
}

// stepPlugins runs the plugins that a resource triggers, in the order of their
// names, until it is marked prepared.
func (rc *reconciliation) stepPlugins(ctx context.Context, id krm.Identity) (outcome, error) {
	total := stepNothing
	var waits error
	for _, plugin := range rc.plugins[id.GVK] {
		did, err := rc.stepPlugin(ctx, plugin, id)
		if did == stepChanged {
			total = stepChanged
		}
		if _, ok := errors.AsType[*waitError](err); ok {
			if waits == nil {
				waits = err
			}
			continue
		}
		if err != nil {
			return total, err
		}
		if r := rc.d.Package.Find(id); r == nil || r.IsPrepared() || rc.settled && id.GVK == krm.DeploymentGVK {
			return total, nil
		}
	}
	return total, waits
}

func (rc *reconciliation) stepPlugin(ctx context.Context, plugin tko.Plugin, id krm.Identity) (outcome, error) {
	if rc.dirty && len(tko.BoundSteps(append(slices.Clip(rc.steps), tko.PreparationStep{}))) <= len(rc.steps) {
		if err := rc.commit(ctx, rc.d.Package, nil); err != nil { // or the revision wouldn't record the plugin
			return stepNothing, rc.refused(id, err)
		}
	}
	started := time.Now()
	var notes []string
	prepared, out, err := rc.p.runner.Prepare(tko.WithClaim(ctx, rc.item), plugin, id, rc.d.ID, rc.d.Package, func(note string) { notes = append(notes, note) })
	if ctx.Err() != nil {
		return stepNothing, ctx.Err()
	}
	if pending, ok := errors.AsType[*tko.PendingError](err); ok {
		rc.running[plugin.ID()] = append(rc.running[plugin.ID()], id)
		return stepNothing, &waitError{message: err.Error(), retry: pending.Retry}
	}
	if err != nil {
		return stepNothing, &failError{problem{reason: ReasonPluginFailed, message: err.Error()}}
	}
	if !prepared {
		return stepNothing, &waitError{message: fmt.Sprintf("%s waits: plugin %q reports that it is not prepared yet", id, plugin.Name)}
	}
	if err := out.Check(); err != nil {
		return stepNothing, pluginFailed(plugin, id, err)
	}
	out, marked, err := unfinished(rc.d.Package, out)
	if err != nil {
		return stepNothing, pluginFailed(plugin, id, err)
	}
	settles := marked && id.GVK == krm.DeploymentGVK
	rc.settled = rc.settled || settles
	same, err := equal(rc.d.Package, out)
	if err != nil {
		return stepNothing, pluginFailed(plugin, id, err)
	}
	if same {
		if settles {
			return stepNothing, nil
		}
		return stepNothing, &waitError{message: fmt.Sprintf("%s waits: plugin %q reports that it is prepared, but doesn't annotate it with %s: \"true\"", id, plugin.Name, krm.AnnotationPrepared)}
	}
	did := tko.PreparationStep{Resource: id.String(), Plugin: plugin.Name, Iteration: rc.iteration, Took: time.Since(started), Notes: notes}
	rc.steps = append(rc.steps, did)
	err = rc.commit(ctx, out, nil)
	if err != nil {
		rc.steps = rc.steps[:len(rc.steps)-1]
	}
	if errors.Is(err, tko.ErrInvalid) {
		return stepNothing, pluginFailed(plugin, id, err)
	}
	if err != nil {
		return stepNothing, err
	}
	rc.p.log.DebugContext(ctx, "plugin prepared resource", "deployment", rc.d.ID, "plugin", plugin.Name, "resource", id.String(), "took", time.Since(started))
	return stepChanged, nil
}

func pluginFailed(plugin tko.Plugin, id krm.Identity, err error) error {
	return &failError{problem{reason: ReasonPluginFailed, message: fmt.Sprintf("%s: plugin %q: %v", id, plugin.Name, err)}}
}

// equal compares packages by their canonical encoding.
func equal(a, b krm.Package) (bool, error) {
	digestA, _, err := krm.DigestOf(a)
	if err != nil {
		return false, err
	}
	digestB, _, err := krm.DigestOf(b)
	return digestA == digestB, err
}

// commit stores a package with the steps since the last commit, and conditions in
// the same transaction.
func (rc *reconciliation) commit(ctx context.Context, pkg krm.Package, conditions []tko.Condition) error {
	ctx = tko.WithAuthor(ctx, tko.Author{Who: topology.Author, Why: reasonOf(rc.steps)})
	revision, err := rc.p.client.CommitDeployment(ctx, tko.DeploymentCommit{
		ID: rc.d.ID, Revision: rc.d.Stamp.Revision, Package: pkg, Conditions: conditions, Steps: tko.BoundSteps(rc.steps),
	})
	if errors.Is(err, tko.ErrInvalid) {
		return err // users read it on the deployment, so it needn't be named
	}
	if err != nil {
		return fmt.Errorf("commit deployment %q: %w", rc.d.ID, err)
	}
	rc.d.Package, rc.d.Stamp.Revision, rc.dirty, rc.steps = pkg, revision, false, nil
	return nil
}

// reasonOf returns the reason of the revision that steps lead to; "" if there are
// none.
func reasonOf(steps []tko.PreparationStep) string {
	reason := ""
	switch n := len(steps); n {
	case 0:
	case 1:
		reason = "prepared 1 resource"
	default:
		reason = fmt.Sprintf("prepared %d resources", n)
	}
	if recorded := len(tko.BoundSteps(steps)); recorded < len(steps) {
		reason += fmt.Sprintf(", of which the first %d are recorded", recorded)
	}
	return reason
}

// finish marks the deployment prepared.
func (rc *reconciliation) finish(ctx context.Context) (work.Result, error) {
	lacking := false // a part of the package has no effect: see effects
	pkg, approved, err := finished(rc.d, rc.d.Package, rc.p.options.ManualApprove)
	if err == nil {
		conditions := conditionsOfFinished(rc.d.Stamp.Conditions, rc.d.Stamp.Revision+1, approved)
		if c, ok := placedCondition(pkg, rc.d); ok { // with it, the next reconciliation reviews the placements
			conditions = append(conditions, c)
		}
		effects, effectsErr := rc.p.effects(ctx, rc.d.Stamp.Conditions, pkg, placementsOf(pkg))
		if effectsErr != nil {
			return work.Result{}, effectsErr
		}
		for _, c := range effects {
			c.ObservedRevision = rc.d.Stamp.Revision + 1
			lacking = lacking || c.Status == tko.ConditionFalse
			conditions = append(conditions, c)
		}
		err = rc.commit(ctx, pkg, conditions)
	}
	if errors.Is(err, tko.ErrInvalid) {
		problems := []problem{{reason: ReasonInvalid, message: err.Error()}}
		return rc.unprepared(ctx, problems, work.Result{Outcome: tko.WorkFailed, Retry: retryStalled(rc.item.Attempt)})
	}
	if err != nil {
		return work.Result{}, err
	}
	rc.p.log.DebugContext(ctx, "prepared deployment", "deployment", rc.d.ID, "approved", approved, "steps", rc.stepCount)
	if len(topology.Updating(pkg)) > 0 || lacking {
		return work.Result{Outcome: tko.WorkLater, Retry: spread(minRetryWait)}, nil
	}
	return work.Result{Outcome: tko.WorkDone}, nil
}

// unprepared reports on the deployment why it isn't prepared, and commits the
// changes so far.
func (rc *reconciliation) unprepared(ctx context.Context, problems []problem, result work.Result) (work.Result, error) {
	var next time.Time
	if result.Outcome == tko.WorkFailed {
		result.Err = errors.New(unprepared(0, problems, rc.item.Attempt, next).Text())
		if result.Retry == 0 {
			result.Retry = rc.p.backoff(rc.item.Attempt)
		}
		next = time.Now().Add(result.Retry)
	}
	if rc.dirty {
		condition := unprepared(rc.d.Stamp.Revision+1, problems, rc.item.Attempt, next)
		err := rc.commit(ctx, rc.d.Package, []tko.Condition{condition})
		if !errors.Is(err, tko.ErrInvalid) {
			return result, err
		}
		problems = append(problems, problem{reason: ReasonInvalid, message: err.Error()})
	}
	condition := unprepared(rc.d.Stamp.Revision, problems, rc.item.Attempt, next)
	if !differs(rc.d.Stamp.Conditions, condition) {
		return result, nil
	}
	rc.p.log.DebugContext(ctx, "deployment is not prepared", "deployment", rc.d.ID, "reason", condition.Reason, "message", condition.Message)
	err := rc.p.client.SetConditions(ctx, tko.KindDeployment, string(rc.d.ID), []tko.Condition{condition})
	if err != nil {
		return result, fmt.Errorf("set the conditions of deployment %q: %w", rc.d.ID, err)
	}
	return result, nil
}
