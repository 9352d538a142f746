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

// A look is one look at one unprepared deployment. Its package grows in memory;
// what a plugin did is committed at once, so that it isn't done again after a
// crash, and so is everything that a Placement builds on before it creates
// children. The rest is committed at the end, with the conditions.
type look struct {
	p       *Preparer
	d       tko.Deployment // as it was last committed
	plugins triggerMap
	attempt int

	dirty    bool                     // the package differs from what was committed
	story    []tko.PreparationStep    // what made it differ
	round    int                      // the iteration, from 1
	steps    int                      // that changed the package
	limit    int                      // of steps
	settled  bool                     // a plugin has prepared the Deployment resource itself
	failures map[krm.Identity]problem // of this look: not tried again in it
	failed   []krm.Identity           // in their order
	waits    []problem                // of the newest round
}

// stepsPerIteration is how many resources may come up, on average, in each
// round over a package.
const stepsPerIteration = 100

// A problem is why a resource isn't prepared.
type problem struct {
	reason  string
	message string
}

// An outcome is what a step did to the package.
type outcome int

const (
	stepNothing outcome = iota // the package is as it was
	stepChanged
)

// run looks. The error is one of the data controller's.
func (l *look) run(ctx context.Context) (work.Result, error) {
	l.failures = map[krm.Identity]problem{}
	endless, err := l.converge(ctx)
	if err != nil {
		return work.Result{}, err
	}
	switch {
	case endless != nil:
		return l.unprepared(ctx, []problem{*endless}, work.Result{Outcome: tko.WorkFailed, Retry: maxRetryStall})
	case len(l.failed) > 0:
		var problems []problem
		for _, id := range l.failed {
			problems = append(problems, l.failures[id])
		}
		return l.unprepared(ctx, append(problems, l.waits...), work.Result{Outcome: tko.WorkFailed})
	case len(l.waits) > 0:
		retry := jitter(retryWaiting(l.d.Stamp.Conditions, tko.ConditionPrepared, ReasonWaiting, time.Now()))
		return l.unprepared(ctx, l.waits, work.Result{Outcome: tko.WorkLater, Retry: retry})
	}
	return l.finish(ctx)
}

// converge prepares until nothing changes any more. If it never ends, it
// answers what keeps coming.
func (l *look) converge(ctx context.Context) (endless *problem, err error) {
	// Rounds don't bound what doubles in each.
	l.limit = len(l.tasks()) + stepsPerIteration*l.p.options.MaxIterations
	for n := 0; n < l.p.options.MaxIterations && l.steps < l.limit; n++ {
		l.round = n + 1
		changed, err := l.iterate(ctx)
		if err != nil {
			return nil, err
		}
		if !changed {
			return nil, nil
		}
	}
	left := l.tasks()
	if len(left) == 0 {
		return nil, nil
	}
	return &problem{
		reason: ReasonTooManyIterations,
		message: fmt.Sprintf("%s is still not prepared after %d iterations and %d steps: its preparation keeps adding what needs preparing, or never marks it prepared; mend the plugin or the resource",
			left[0], l.p.options.MaxIterations, l.steps),
	}, nil
}

// tasks are what is left to do in this look.
func (l *look) tasks() []krm.Identity {
	return slices.DeleteFunc(l.plugins.tasks(l.d.Package), func(id krm.Identity) bool {
		_, failed := l.failures[id]
		return failed || l.settled && id.GVK == krm.DeploymentGVK
	})
}

// iterate goes once over everything that is preparable.
func (l *look) iterate(ctx context.Context) (changed bool, err error) {
	l.waits = nil
	for _, id := range l.tasks() {
		if l.steps >= l.limit {
			return true, nil
		}
		// Another step may have prepared or removed it.
		if r := l.d.Package.Find(id); r == nil || !l.plugins.preparable(r) {
			continue
		}
		did, err := l.step(ctx, id)
		var wait *waitError
		var fail *failError
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.As(err, &wait):
			l.waits = append(l.waits, problem{reason: ReasonWaiting, message: wait.message})
		case errors.As(err, &fail):
			l.failures[id] = fail.problem
			l.failed = append(l.failed, id)
		case err != nil:
			return false, err
		}
		if did == stepChanged {
			l.steps++
			changed = true
		}
	}
	return changed, nil
}

// A waitError is the outcome of a step that has to wait.
type waitError struct{ message string }

func (e *waitError) Error() string { return e.message }

// A failError is the outcome of a step that failed.
type failError struct{ problem }

func (e *failError) Error() string { return e.message }

func (l *look) step(ctx context.Context, id krm.Identity) (outcome, error) {
	if l.plugins.builtIn(id.GVK) {
		return l.stepTopology(ctx, id)
	}
	return l.stepPlugins(ctx, id)
}

func (l *look) stepTopology(ctx context.Context, id krm.Identity) (outcome, error) {
	if id.GVK == topology.TOSCAGVK && l.p.options.TOSCA != nil {
		return l.stepTOSCA(ctx, id)
	}
	if id.GVK == topology.PlacementGVK && l.dirty {
		// What the children follow from must not be decided anew after a crash.
		if err := l.commit(ctx, l.d.Package, nil); err != nil {
			return stepNothing, l.refused(id, err)
		}
	}
	started := time.Now()
	preparer := topology.Preparer{Client: l.p.client, Children: l.p.client}
	resource, err := preparer.Prepare(ctx, topology.Deployment{
		ID: l.d.ID, Revision: l.d.Stamp.Revision, Package: l.d.Package, Preparable: l.plugins.preparable, Waits: len(l.d.Replaces) > 0,
	}, id)
	var wait *topology.WaitError
	var refusal *topology.Error
	switch {
	case errors.As(err, &wait):
		return stepNothing, &waitError{message: wait.Error()}
	case errors.As(err, &refusal):
		return stepNothing, &failError{problem{reason: refusal.Reason, message: refusal.Error()}}
	case err != nil:
		return stepNothing, err
	}
	l.d.Package = replace(l.d.Package, resource)
	l.dirty = true
	l.story = append(l.story, tko.PreparationStep{Resource: id.String(), Iteration: l.round, Took: time.Since(started)})
	return stepChanged, nil
}

// stepTOSCA merges the resources that a service template stands for into the
// package.
func (l *look) stepTOSCA(ctx context.Context, id krm.Identity) (outcome, error) {
	started := time.Now()
	for _, r := range l.d.Package {
		if r.GVK() == topology.TOSCAGVK && r.Identity() != id && r.Annotation(krm.AnnotationPrepare) != krm.Never {
			return stepNothing, &failError{problem{reason: topology.ReasonInvalid, message: fmt.Sprintf(
				"%s: the package has another TOSCA resource, and both would make a Placement of the same name: deploy them apart", id)}}
		}
	}
	resource := l.d.Package.Find(id).Clone()
	made, err := l.p.options.TOSCA.Resources(ctx, resource.Text("spec", "url"))
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
	merged, err := krm.Merge(replace(l.d.Package, resource), made)
	if err != nil {
		return stepNothing, &failError{problem{reason: topology.ReasonInvalid, message: fmt.Sprintf("%s: can't merge what it stands for: %v", id, err)}}
	}
	l.d.Package, l.dirty = merged, true
	l.story = append(l.story, tko.PreparationStep{Resource: id.String(), Iteration: l.round, Took: time.Since(started)})
	return stepChanged, nil
}

// refused turns the refusal of a package into a failure of the resource that
// was to be prepared next.
func (l *look) refused(id krm.Identity, err error) error {
	if !errors.Is(err, tko.ErrInvalid) {
		return err
	}
	return &failError{problem{reason: ReasonInvalid, message: fmt.Sprintf("%s: the package can't be stored: %v", id, err)}}
}

// stepPlugins runs the plugins that a resource triggers, in the order of their
// names, until it is marked prepared.
func (l *look) stepPlugins(ctx context.Context, id krm.Identity) (outcome, error) {
	total := stepNothing
	var waits error
	for _, plugin := range l.plugins[id.GVK] {
		did, err := l.stepPlugin(ctx, plugin, id)
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
		if r := l.d.Package.Find(id); r == nil || r.IsPrepared() || l.settled && id.GVK == krm.DeploymentGVK {
			return total, nil
		}
	}
	return total, waits
}

func (l *look) stepPlugin(ctx context.Context, plugin tko.Plugin, id krm.Identity) (outcome, error) {
	started := time.Now()
	var notes []string
	prepared, out, err := l.p.runner.Prepare(ctx, plugin, id, l.d.ID, l.d.Package, func(note string) { notes = append(notes, note) })
	if ctx.Err() != nil {
		return stepNothing, ctx.Err()
	}
	if err != nil {
		return stepNothing, &failError{problem{reason: ReasonPluginFailed, message: err.Error()}}
	}
	if !prepared {
		return stepNothing, &waitError{message: fmt.Sprintf("%s waits: plugin %q says that it is not prepared yet", id, plugin.Name)}
	}
	if err := out.Check(); err != nil {
		return stepNothing, pluginFailed(plugin, id, err)
	}
	out, marked, err := unfinished(l.d.Package, out)
	if err != nil {
		return stepNothing, pluginFailed(plugin, id, err)
	}
	settles := marked && id.GVK == krm.DeploymentGVK
	l.settled = l.settled || settles
	same, err := equal(l.d.Package, out)
	if err != nil {
		return stepNothing, pluginFailed(plugin, id, err)
	}
	if same {
		if settles {
			return stepNothing, nil
		}
		return stepNothing, &waitError{message: fmt.Sprintf("%s waits: plugin %q says that it is prepared, but doesn't annotate it with %s: \"true\"", id, plugin.Name, krm.AnnotationPrepared)}
	}
	did := tko.PreparationStep{Resource: id.String(), Plugin: plugin.Name, Iteration: l.round, Took: time.Since(started), Notes: notes}
	l.story = append(l.story, did)
	err = l.commit(ctx, out, nil)
	if err != nil {
		l.story = l.story[:len(l.story)-1]
	}
	if errors.Is(err, tko.ErrInvalid) {
		return stepNothing, pluginFailed(plugin, id, err)
	}
	if err != nil {
		return stepNothing, err
	}
	l.p.log.DebugContext(ctx, "plugin prepared resource", "deployment", l.d.ID, "plugin", plugin.Name, "resource", id.String(), "took", time.Since(started))
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

// commit stores a package, and conditions that shall come with it. Its reason
// is what was prepared since the last one.
func (l *look) commit(ctx context.Context, pkg krm.Package, conditions []tko.Condition) error {
	ctx = tko.WithAuthor(ctx, tko.Author{Who: topology.Author, Why: reasonOf(l.story)})
	revision, err := l.p.client.CommitDeployment(ctx, tko.DeploymentCommit{
		ID: l.d.ID, Revision: l.d.Stamp.Revision, Package: pkg, Conditions: conditions, Steps: tko.BoundSteps(l.story),
	})
	if errors.Is(err, tko.ErrInvalid) {
		return err // users read it on the deployment, and know which that is
	}
	if err != nil {
		return fmt.Errorf("commit deployment %q: %w", l.d.ID, err)
	}
	l.d.Package, l.d.Stamp.Revision, l.dirty, l.story = pkg, revision, false, nil
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
func (l *look) finish(ctx context.Context) (work.Result, error) {
	lacking := false // a part of the package has no effect
	pkg, approved, err := finished(l.d, l.d.Package, l.p.options.ManualApprove)
	if err == nil {
		conditions := conditionsOfFinished(l.d.Stamp.Conditions, l.d.Stamp.Revision+1, approved)
		if c, ok := placedCondition(pkg, l.d); ok { // with it, the next look reviews them
			conditions = append(conditions, c)
		}
		effects, effectsErr := l.p.effects(ctx, l.d.Stamp.Conditions, pkg, placementsOf(pkg))
		if effectsErr != nil {
			return work.Result{}, effectsErr
		}
		for _, c := range effects {
			c.ObservedRevision = l.d.Stamp.Revision + 1
			lacking = lacking || c.Status == tko.ConditionFalse
			conditions = append(conditions, c)
		}
		err = l.commit(ctx, pkg, conditions)
	}
	if errors.Is(err, tko.ErrInvalid) {
		problems := []problem{{reason: ReasonInvalid, message: err.Error()}}
		return l.unprepared(ctx, problems, work.Result{Outcome: tko.WorkFailed, Retry: retryStalled(l.attempt)})
	}
	if err != nil {
		return work.Result{}, err
	}
	l.p.log.DebugContext(ctx, "prepared deployment", "deployment", l.d.ID, "approved", approved, "steps", l.steps)
	if len(topology.Living(pkg)) > 0 || lacking {
		return work.Result{Outcome: tko.WorkLater, Retry: jitter(minRetryWait)}, nil
	}
	return work.Result{Outcome: tko.WorkDone}, nil
}

// unprepared says on the deployment why it isn't prepared, and keeps what has
// been prepared so far.
func (l *look) unprepared(ctx context.Context, problems []problem, result work.Result) (work.Result, error) {
	var next time.Time
	if result.Outcome == tko.WorkFailed {
		result.Err = errors.New(unprepared(0, problems, l.attempt, next).Text())
		if result.Retry == 0 {
			result.Retry = l.p.backoff(l.attempt)
		}
		next = time.Now().Add(result.Retry)
	}
	if l.dirty {
		condition := unprepared(l.d.Stamp.Revision+1, problems, l.attempt, next)
		err := l.commit(ctx, l.d.Package, []tko.Condition{condition})
		if !errors.Is(err, tko.ErrInvalid) {
			return result, err
		}
		problems = append(problems, problem{reason: ReasonInvalid, message: err.Error()})
	}
	condition := unprepared(l.d.Stamp.Revision, problems, l.attempt, next)
	if !news(l.d.Stamp.Conditions, condition) {
		return result, nil
	}
	l.p.log.DebugContext(ctx, "deployment is not prepared", "deployment", l.d.ID, "reason", condition.Reason, "message", condition.Message)
	err := l.p.client.SetConditions(ctx, tko.KindDeployment, string(l.d.ID), []tko.Condition{condition})
	if err != nil {
		return result, fmt.Errorf("set the conditions of deployment %q: %w", l.d.ID, err)
	}
	return result, nil
}
