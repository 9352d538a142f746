package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/work"
	"github.com/tko-orchestrator/tko/krm"
)

// The reasons of the Placed condition, in addition to those of packages tko and
// topology.
const (
	ReasonUpToDate  = "UpToDate"        // the children match the placements
	ReasonWithin    = "WithinBudget"    // they will, as fast as the budget allows
	ReasonOnce      = "EvaluatedOnce"   // placements are not evaluated again
	ReasonNoEffect  = "EditHasNoEffect" // an edit of the topology doesn't change its children
	ReasonPending   = "NotEvaluatedYet" // the deployment must first replace another one, or be reviewed
	ReasonNotPlaced = "CannotEvaluate"  // a placement waits for a resource that isn't prepared
)

const (
	reviewAfter   = 24 * time.Hour  // if no change makes the work due before
	maxPause      = 5 * time.Minute // maximum time between two reviews, unless Options.ReviewPause is longer
	reviewShare   = 20              // reviews of a deployment take at most 1/reviewShare of the time
	maxRemembered = 10_000
)

// review evaluates the placements of a prepared deployment again, makes the changes
// that need no approval, and proposes the others in a condition. The work stays in
// the queue, so that a change of sites makes it due.
func (p *Preparer) review(ctx context.Context, d tko.Deployment) (work.Result, error) {
	if len(d.Replaces) > 0 { // the replacement enqueues the deployment
		return work.Result{Outcome: tko.WorkLater, Retry: spread(reviewAfter)}, nil
	}
	if pending := topology.Pending(d.Package); len(pending) > 0 {
		return p.placePending(ctx, d, pending)
	}
	updating := topology.Updating(d.Package)
	if len(updating) > 0 {
		if wait := p.reviews.wait(d, time.Now()); wait > 0 {
			return work.Result{Outcome: tko.WorkLater, Retry: wait}, nil
		}
	}
	lacking, err := p.updateEffects(ctx, d)
	if err != nil {
		return work.Result{}, err
	}
	if len(updating) == 0 {
		if lacking {
			return work.Result{Outcome: tko.WorkLater, Retry: spread(reviewAfter)}, p.setOnceCondition(ctx, d)
		}
		return work.Result{Outcome: tko.WorkDone}, p.setOnceCondition(ctx, d)
	}
	plugins, err := p.plugins.get(ctx, d.Stamp.Position)
	if err != nil {
		return work.Result{}, err
	}
	started := time.Now()
	r := review{p: p, d: d, pkg: d.Package, of: topology.Deployment{
		ID: d.ID, Revision: d.Stamp.Revision, Package: d.Package, Preparable: plugins.preparable,
	}}
	if err := r.placements(ctx, updating); err != nil {
		return work.Result{}, err
	}
	err = r.record(ctx, r.condition())
	pause := min(max(p.options.ReviewPause, reviewShare*time.Since(started)), max(maxPause, p.options.ReviewPause))
	p.reviews.remember(r.d, started, pause) // also if the deployment is busy: the review cost as much
	if err != nil {
		return work.Result{}, err
	}
	if len(r.waits) > 0 {
		retry := max(retryWaiting(d.Stamp.Conditions, tko.ConditionPlaced, ReasonWithin, time.Now()), pause)
		return work.Result{Outcome: tko.WorkLater, Retry: spread(retry)}, nil
	}
	return work.Result{Outcome: tko.WorkLater, Retry: spread(reviewAfter)}, nil
}

// placePending creates the children of a topology that has replaced others.
func (p *Preparer) placePending(ctx context.Context, d tko.Deployment, pending []krm.Identity) (work.Result, error) {
	plugins, err := p.plugins.get(ctx, d.Stamp.Position)
	if err != nil {
		return work.Result{}, err
	}
	preparer := topology.Preparer{Client: p.client, Children: p.client}
	r := review{p: p, d: d, pkg: d.Package}
	for _, id := range pending {
		resource, err := preparer.Place(ctx, topology.Deployment{ID: d.ID, Revision: d.Stamp.Revision, Package: d.Package, Preparable: plugins.preparable}, id)
		if err != nil {
			if err := r.problem(err); err != nil {
				return work.Result{}, err
			}
			continue
		}
		r.pkg = replace(r.pkg, resource)
		r.done = append(r.done, fmt.Sprintf("%s %q was evaluated", id.Kind, id.Name))
	}
	if len(r.problems) > 0 {
		retry := retryWaiting(d.Stamp.Conditions, tko.ConditionPlaced, r.problems[0].reason, time.Now())
		return work.Result{Outcome: tko.WorkLater, Retry: spread(retry)}, r.record(ctx, r.condition())
	}
	c, _ := placedCondition(r.pkg, d)
	return work.Result{Outcome: tko.WorkLater, Retry: spread(minRetryWait)}, r.record(ctx, c)
}

// setOnceCondition updates the Placed condition, if there is one, of a deployment
// whose placements are not evaluated again.
func (p *Preparer) setOnceCondition(ctx context.Context, d tko.Deployment) error {
	old, c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionPlaced), onceCondition(d.Package)
	if old == nil || old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
		return nil
	}
	c.ObservedRevision = d.Stamp.Revision
	if err := p.client.SetConditions(ctx, tko.KindDeployment, string(d.ID), []tko.Condition{c}); err != nil {
		return fmt.Errorf("set the conditions of deployment %q: %w", d.ID, err)
	}
	return nil
}

// onceCondition returns the Placed condition of a package without placements that
// are evaluated again.
func onceCondition(pkg krm.Package) tko.Condition {
	c := tko.Condition{Type: tko.ConditionPlaced, Status: tko.ConditionUnknown, Reason: ReasonOnce, Message: "no placement has spec.update Propose or Apply"}
	edited, left := topology.OnceNotes(pkg)
	if len(edited) > 0 {
		c.Status, c.Reason = tko.ConditionFalse, ReasonNoEffect
	}
	if texts := slices.Concat(edited, left); len(texts) > 0 {
		c.Message = bounded(strings.Join(texts, "; "))
	}
	return c
}

// placedCondition returns the Placed condition of a deployment that was prepared
// just now; ok is false if it has no placements.
func placedCondition(pkg krm.Package, d tko.Deployment) (c tko.Condition, ok bool) {
	before := tko.HasCondition(d.Stamp.Conditions, tko.ConditionPlaced)
	switch {
	case len(topology.Pending(pkg)) > 0:
		return tko.Condition{
			Type: tko.ConditionPlaced, Status: tko.ConditionUnknown, Reason: ReasonPending,
			Message: "the placements are evaluated when this deployment has replaced the one before it, which it does when it is approved",
		}, true
	case len(topology.Updating(pkg)) > 0 && before:
		return tko.Condition{Type: tko.ConditionPlaced, Status: tko.ConditionUnknown, Reason: ReasonPending, Message: "the placements are evaluated next"}, true
	case len(topology.Updating(pkg)) > 0:
		return placedUpToDate(), true
	case before || topology.HasOnce(pkg):
		return onceCondition(pkg), true
	default:
		return tko.Condition{}, false
	}
}

// A review is one evaluation of the placements of one deployment.
type review struct {
	p   *Preparer
	d   tko.Deployment
	of  topology.Deployment
	pkg krm.Package // with the results so far

	problems  []problem // reasons why a placement can't be evaluated
	waits     []string
	proposals []string
	notes     []string
	done      []string
}

// placements evaluates placements, and makes the changes that need no approval.
func (r *review) placements(ctx context.Context, ids []krm.Identity) error {
	preparer := topology.Preparer{Client: r.p.client, Children: r.p.client}
	var found []topology.Review
	for _, id := range ids {
		one, err := preparer.Review(ctx, r.of, id)
		if err != nil {
			if err := r.problem(err); err != nil {
				return err
			}
			continue
		}
		found = append(found, one)
	}
	if len(found) == len(ids) { // else a placement that can't be evaluated may want the orphans
		topology.Adopt(found)
	}
	for _, one := range found {
		if err := r.placement(ctx, preparer, one); err != nil {
			return err
		}
	}
	return nil
}

func (r *review) placement(ctx context.Context, preparer topology.Preparer, found topology.Review) error {
	id := found.Placement
	decision := found.Decide(isApproved(r.d.Stamp.Conditions))
	policy := topology.Policy{Settings: r.p.options.ReachPolicy}
	decision, done, err := r.decide(ctx, found, policy, decision)
	if err != nil || done {
		return err
	}
	err = preparer.CarryOut(ctx, r.d.ID, id, decision)
	if tko.NeedsRollout(err) && policy.Settings != nil {
		policy.Needed = true
		if decision, done, err = r.decide(ctx, found, policy, decision); err != nil || done {
			return err
		}
		err = preparer.CarryOut(ctx, r.d.ID, id, decision)
	}
	if err != nil {
		return r.problem(err)
	}
	name := fmt.Sprintf("%s %q", id.Kind, id.Name)
	if decision.Done() {
		r.done = append(r.done, name+" "+decision.Summary())
		r.p.log.InfoContext(ctx, "evaluated placement again", "deployment", r.d.ID, "placement", id.Name, "did", decision.Summary())
	}
	if decision.Wait != "" {
		r.waits = append(r.waits, name+": "+decision.Wait)
	}
	for _, note := range decision.Notes {
		r.notes = append(r.notes, name+": "+note)
	}
	if decision.Propose != nil {
		r.proposals = append(r.proposals, name+" "+decision.Propose.String())
	}
	r.pkg = replace(r.pkg, found.Status(r.pkg.Find(id), decision))
	return nil
}

// decide returns what a review does if a rollout makes the changes of the placement; the decision
// as it is if none does. invalid reports that the rollout can't be made.
func (r *review) decide(ctx context.Context, found topology.Review, policy topology.Policy, decision topology.Decision) (decided topology.Decision, invalid bool, err error) {
	id := found.Placement
	base, pkg, byPolicy := found.Rollout(r.d.ID, r.pkg.Find(id), policy, decision)
	if pkg == nil {
		return decision, false, nil
	}
	wait, err := r.propose(ctx, base, pkg)
	if errors.Is(err, tko.ErrInvalid) {
		r.problems = append(r.problems, problem{reason: topology.ReasonInvalid, message: fmt.Sprintf("%s: spec.rollout: %v", id, err)})
		return decision, true, nil
	}
	if err != nil {
		return decision, false, err
	}
	ofPolicy := tko.RolloutID("")
	if byPolicy {
		ofPolicy = base
	}
	return found.Planned(wait, ofPolicy), false, nil
}

// propose has a rollout make the changes of a placement, and returns what it waits for.
func (r *review) propose(ctx context.Context, base tko.RolloutID, pkg krm.Package) (wait string, err error) {
	s, err := r.p.client.ProposeRollout(ctx, base, pkg)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(string(s.ID), string(base)) {
		return fmt.Sprintf("it waits for rollout %q of the same topology, which is %s", s.ID, s.State), nil
	}
	switch s.State {
	case "Draft", "Planning":
		wait = fmt.Sprintf("rollout %q is being planned", s.ID)
		if s.Reason != "" {
			wait += ": " + s.Reason
		}
	case "Planned":
		wait = fmt.Sprintf("rollout %q is planned: review it with tko rollout plan, then start it", s.ID)
	case "Undone", "Cancelled":
		wait = fmt.Sprintf("rollout %q is %s: delete it to have the changes planned again", s.ID, s.State)
	default:
		wait = fmt.Sprintf("rollout %q makes the changes: it is %s", s.ID, s.State)
	}
	return wait, nil
}

// problem records an error that users can mend, and returns any other.
func (r *review) problem(err error) error {
	if wait, ok := errors.AsType[*topology.WaitError](err); ok {
		r.problems = append(r.problems, problem{reason: ReasonNotPlaced, message: wait.Error()})
		return nil
	}
	if tko.NeedsRollout(err) { // and no policy says how
		r.problems = append(r.problems, problem{reason: topology.ReasonNotConfirmed, message: err.Error()})
		return nil
	}
	if refusal, ok := errors.AsType[*topology.Error](err); ok {
		r.problems = append(r.problems, problem{reason: refusal.Reason, message: refusal.Error()})
		return nil
	}
	if errors.Is(err, tko.ErrStopped) {
		r.problems = append(r.problems, problem{reason: tko.ReasonStopped, message: err.Error()})
		return nil
	}
	return err
}

func isApproved(conditions []tko.Condition) bool {
	return tko.HasCondition(conditions, tko.ConditionPlaced, tko.ReasonChangeApproved)
}

func placedUpToDate() tko.Condition {
	return tko.Condition{
		Type: tko.ConditionPlaced, Status: tko.ConditionTrue, Reason: ReasonUpToDate,
		Message: "the children match the placements",
	}
}

// condition returns the Placed condition. A proposal takes precedence over changes
// that wait for the budget; the reason ChangeApproved stays until the approved
// changes are made.
func (r *review) condition() tko.Condition {
	c := placedUpToDate()
	var texts []string
	for _, p := range r.problems {
		c.Status, c.Reason = tko.ConditionFalse, p.reason
		texts = append(texts, p.message)
	}
	if len(r.waits) > 0 {
		c.Status, c.Reason = tko.ConditionFalse, ReasonWithin
		if isApproved(r.d.Stamp.Conditions) {
			c.Reason = tko.ReasonChangeApproved
		}
	}
	if len(r.proposals) > 0 {
		c.Status, c.Reason = tko.ConditionFalse, tko.ReasonChangeProposed
		texts = append(texts, strings.Join(r.proposals, "; ")+"; approve it, or change the topology")
	}
	if c.Status == tko.ConditionTrue && len(r.notes) > 0 {
		c.Status, c.Reason = tko.ConditionFalse, ReasonNoEffect
	}
	texts = append(append(texts, r.waits...), r.notes...)
	if len(texts) > 0 {
		c.Message = bounded(strings.Join(texts, "; "))
	}
	return c
}

// record writes the result of the review to the deployment.
func (r *review) record(ctx context.Context, condition tko.Condition) error {
	same, err := equal(r.d.Package, r.pkg)
	if err != nil {
		return err
	}
	if same {
		condition.ObservedRevision = r.d.Stamp.Revision
		if !differs(r.d.Stamp.Conditions, condition) {
			return nil
		}
		if err := r.p.client.SetConditions(ctx, tko.KindDeployment, string(r.d.ID), []tko.Condition{condition}); err != nil {
			return fmt.Errorf("set the conditions of deployment %q: %w", r.d.ID, err)
		}
		return nil
	}
	condition.ObservedRevision = r.d.Stamp.Revision + 1
	why := printable.Short(strings.Join(append(r.done, r.proposals...), "; "), maxReason)
	revision, err := r.p.client.CommitDeployment(tko.WithAuthor(ctx, tko.Author{Who: topology.Author, Why: why}), tko.DeploymentCommit{
		ID: r.d.ID, Revision: r.d.Stamp.Revision, Package: r.pkg, Conditions: []tko.Condition{condition},
	})
	if err != nil {
		return fmt.Errorf("commit deployment %q: %w", r.d.ID, err)
	}
	r.d.Stamp.Revision = revision
	return nil
}

// reviews records when deployments were reviewed, so that thousands of sites that
// are registered one after the other don't cause thousands of reviews.
type reviews struct {
	mu  sync.Mutex
	all map[tko.DeploymentID]reviewed
}

type reviewed struct {
	revision int64
	next     time.Time // not before
}

// wait returns the time until a deployment may be reviewed again: 0 if it has
// changed since the last review.
func (r *reviews) wait(d tko.Deployment, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.all[d.ID]; ok && last.revision == d.Stamp.Revision {
		return last.next.Sub(now)
	}
	return 0
}

func (r *reviews) remember(d tko.Deployment, started time.Time, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil || len(r.all) >= maxRemembered {
		r.all = map[tko.DeploymentID]reviewed{} // some are reviewed once too often
	}
	r.all[d.ID] = reviewed{revision: d.Stamp.Revision, next: started.Add(pause)}
}
