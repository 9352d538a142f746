package prepare

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/internal/work"
	"github.com/tko-orchestrator/tko/krm"
)

// Client is the part of the data controller's API that the preparer needs.
type Client interface {
	work.Client
	topology.Client
	topology.Children
	Rollouts
	Records
	Plugins
}

// Records reads and writes deployments.
type Records interface {
	// Deployment returns a deployment as it was at a revision, or as it is
	// (revision 0). It belongs to the caller.
	Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error)
	// CommitDeployment replaces a deployment's package if it is still at the
	// revision and no client holds a modification token; tko.ErrConflict and
	// tko.ErrBusy otherwise.
	CommitDeployment(ctx context.Context, commit tko.DeploymentCommit) (revision int64, err error)
	// SetConditions sets conditions, each by its type.
	SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error
	// ResolveSite makes a site use the template that it waits for, if that exists, and
	// reports whether it still waits.
	ResolveSite(ctx context.Context, id tko.SiteID) (waits bool, err error)
}

// Rollouts plans the changes of placements whose spec has a rollout.
type Rollouts interface {
	// ProposeRollout registers a rollout, or replaces one that isn't started, and returns
	// its state. The ID gets a number if a rollout with it is done.
	ProposeRollout(ctx context.Context, id tko.RolloutID, pkg krm.Package) (tko.RolloutStatus, error)
}

// Plugins reads the registered plugins.
type Plugins interface {
	// About returns, among others, the position of the newest change.
	About(ctx context.Context) (tko.About, error)
	// Plugins returns the plugins that match, sorted by type and name.
	Plugins(ctx context.Context, sel tko.PluginSelect, options tko.ListOptions) iter.Seq2[tko.Plugin, error]
}

// A Runner runs prepare plugins.
type Runner interface {
	// Prepare runs a plugin on the target resource of a package. It doesn't change
	// pkg. If prepared, out is the package to be stored. An error names the plugin,
	// the resource and the cause. Each of notes is called with each message of the
	// plugin for users, such as a warning.
	Prepare(ctx context.Context, p tko.Plugin, target krm.Identity, id tko.DeploymentID, pkg krm.Package, notes ...func(string)) (prepared bool, out krm.Package, err error)
}

// A TOSCA compiles service templates into topologies. See package tosca.
type TOSCA interface {
	// Resources returns the topology resources for the service template at a
	// location. Errors: tko.ErrInvalid if the template must be changed,
	// tko.ErrDenied if the preparer's configuration must be.
	Resources(ctx context.Context, location string) (krm.Package, error)
}

// Options configure a preparer. The zero value works.
type Options struct {
	Worker        string         // name of the claimant of work, for operators
	Concurrency   int            // deployments at the same time; 8 if 0
	Lease         time.Duration  // of a claim; 30 s if 0
	Grace         time.Duration  // how long plugins may run on when Run stops; 5 s if 0
	MaxIterations int            // in one reconciliation; 100 if 0
	ReviewPause   time.Duration  // minimum time between two reviews of a deployment's placements; 5 s if 0
	Backoff       time.Duration  // after the first failure; 1 s if 0
	MaxBackoff    time.Duration  // maximum; 60 s if 0
	TOSCA         TOSCA          // prepares TOSCA resources; if nil, they are refused
	ReachPolicy   map[string]any // the spec of the rollouts of placements that change more than they may at once, without edits; if nil, there are none
	ManualApprove bool           // a deployment whose approval policy is Default needs an approval
	Log           *slog.Logger   // discarded if nil
	Observer      work.Observer  // of the work; none if nil
}

// A Preparer prepares deployments.
type Preparer struct {
	client  Client
	runner  Runner
	options Options
	plugins *pluginList
	reviews reviews
	log     *slog.Logger
}

// New makes a preparer.
func New(data Client, runner Runner, options Options) *Preparer {
	if options.MaxIterations <= 0 {
		options.MaxIterations = 100
	}
	if options.Backoff <= 0 {
		options.Backoff = time.Second
	}
	if options.MaxBackoff <= 0 {
		options.MaxBackoff = max(options.Backoff, time.Minute)
	}
	if options.ReviewPause <= 0 {
		options.ReviewPause = 5 * time.Second
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	data = batched(data)
	seen := func(...tko.Plugin) {}
	if w, ok := runner.(withdrawer); ok {
		seen = w.Remember
	}
	return &Preparer{
		client:  data,
		runner:  runner,
		options: options,
		plugins: newPluginList(data, seen),
		log:     options.Log,
	}
}

// Run prepares deployments until the context ends, and returns nil then: it has
// finished or released its claims.
func (p *Preparer) Run(ctx context.Context) error {
	loop := work.Loop{
		Client:      p.client,
		Queue:       tko.QueuePrepare,
		Worker:      p.options.Worker,
		Concurrency: p.options.Concurrency,
		Lease:       p.options.Lease,
		Grace:       p.options.Grace,
		Log:         p.log,
		Observer:    p.options.Observer,
		Do:          p.Prepare,
	}
	return loop.Run(ctx)
}

const (
	retryMoved    = 200 * time.Millisecond // another writer changes the deployment
	minRetryWait  = time.Second            // a plugin, or another resource, isn't ready
	maxRetryWait  = 30 * time.Second
	minRetryStall = 5 * time.Second // only a change helps, and makes the work due
	maxRetryStall = 10 * time.Minute
	maxRetryHeld  = time.Minute // an owner may get its rights back
)

// Prepare prepares the deployment that an item names as far as possible now. It is
// idempotent. A site that an item names gets its template, if that exists.
func (p *Preparer) Prepare(ctx context.Context, item tko.WorkItem) work.Result {
	ctx = tko.WithAuthor(ctx, tko.Author{Who: topology.Author})
	if site, ok := tko.SiteOfWork(item.Key); ok {
		return p.resolve(ctx, site)
	}
	ctx = tko.WithActing(ctx, tko.Acting{Kind: tko.KindDeployment, ID: item.Key, Claim: item.Claim})
	id := tko.DeploymentID(item.Key)
	result, err := p.prepare(ctx, id, item)
	if err == nil {
		return result
	}
	result = resultOf(err)
	if result.Outcome == tko.WorkFailed && ctx.Err() == nil {
		// Users can't mend it, so it isn't reported on the deployment.
		p.log.WarnContext(ctx, "can't prepare deployment", "deployment", id, "attempt", item.Attempt+1, "err", err)
	}
	return result
}

// prepare reconciles. It returns the errors of the data controller only.
func (p *Preparer) prepare(ctx context.Context, id tko.DeploymentID, item tko.WorkItem) (work.Result, error) {
	d, err := p.client.Deployment(ctx, id, 0)
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return p.abandon(ctx, id, item)
	case err != nil:
		return work.Result{}, err
	case d.AwaitedTemplate != "" || d.AwaitedSite != "":
		return p.await(ctx, d)
	case d.Prepared:
		if tko.HasCondition(d.Stamp.Conditions, tko.ConditionPrepared, ReasonRunning) { // a user prepared it
			if result, err := p.abandon(ctx, id, item); err != nil || result.Outcome != tko.WorkDone {
				return result, err
			}
		}
		result, err := p.review(ctx, d)
		if errors.Is(err, tko.ErrDenied) {
			return p.hold(ctx, d, tko.ConditionPlaced, err)
		}
		return result, err
	}
	plugins, err := p.plugins.get(ctx, d.Stamp.Position)
	if err != nil {
		return work.Result{}, err
	}
	if message, ok := stalled(d, plugins); ok {
		return work.Result{Outcome: tko.WorkFailed, Err: errors.New(message), Retry: maxRetryStall}, nil
	}
	if tko.HasCondition(d.Stamp.Conditions, tko.ConditionPrepared, ReasonHeld) { // no plugin runs before the owner has the rights again
		_, err := p.client.CommitDeployment(ctx, tko.DeploymentCommit{ID: id, Revision: d.Stamp.Revision, Package: d.Package})
		if errors.Is(err, tko.ErrDenied) {
			return p.hold(ctx, d, tko.ConditionPrepared, err)
		}
		if err != nil {
			return work.Result{}, err
		}
	}
	rc := &reconciliation{p: p, d: d, plugins: plugins, item: item}
	result, err := rc.run(ctx)
	if errors.Is(err, tko.ErrDenied) {
		return p.hold(ctx, rc.d, tko.ConditionPrepared, err)
	}
	return result, err
}

// resolve lets the data controller use the template that a site waits for, if it exists now.
// Otherwise the work stays in the queue, and is due again when a template is registered.
func (p *Preparer) resolve(ctx context.Context, id tko.SiteID) work.Result {
	waits, err := p.client.ResolveSite(ctx, id)
	switch {
	case errors.Is(err, tko.ErrNotFound), err == nil && !waits:
		return work.Result{Outcome: tko.WorkDone}
	case err != nil:
		return resultOf(err)
	}
	return work.Result{Outcome: tko.WorkLater, Retry: spread(maxRetryHeld)}
}

// await lets the data controller use the template and site that a deployment waits for, if
// they exist now. The work of preparing it follows from that change. Otherwise the work stays in
// the queue, and is due again when a template or site is registered.
func (p *Preparer) await(ctx context.Context, d tko.Deployment) (work.Result, error) {
	revision, err := p.client.CommitDeployment(ctx, tko.DeploymentCommit{
		ID: d.ID, Revision: d.Stamp.Revision, Package: d.Package, Why: "what it waited for exists now",
	})
	later := work.Result{Outcome: tko.WorkLater, Retry: spread(maxRetryHeld)}
	switch {
	case errors.Is(err, tko.ErrDenied):
		return p.hold(ctx, d, tko.ConditionResolvedRefs, err)
	case errors.Is(err, tko.ErrInvalid):
		c := tko.Condition{Type: tko.ConditionResolvedRefs, Status: tko.ConditionFalse, Reason: ReasonInvalid, Message: bounded(err.Error()), ObservedRevision: d.Stamp.Revision}
		conditions := []tko.Condition{c}
		if !d.Prepared {
			c.Type = tko.ConditionPrepared
			conditions = append(conditions, c)
		}
		if !differs(d.Stamp.Conditions, c) {
			return later, nil
		}
		return later, p.client.SetConditions(ctx, tko.KindDeployment, string(d.ID), conditions)
	case err != nil:
		return work.Result{}, err
	case revision == d.Stamp.Revision:
		return later, nil
	}
	return work.Result{Outcome: tko.WorkDone}, nil
}

// hold reports on a deployment that its owner doesn't have the rights that its preparation
// needs. Nothing is changed or deleted. The work stays in the queue, so that it goes on when
// the owner has them.
func (p *Preparer) hold(ctx context.Context, d tko.Deployment, typ string, cause error) (work.Result, error) {
	c := tko.Condition{Type: typ, Status: tko.ConditionFalse, Reason: ReasonHeld, Message: bounded(cause.Error()), ObservedRevision: d.Stamp.Revision}
	retry := minRetryWait
	if was := tko.FindCondition(d.Stamp.Conditions, typ); was != nil && was.Reason == ReasonHeld {
		retry = min(max(time.Since(was.LastTransition)/4, minRetryWait), maxRetryHeld)
	}
	result := work.Result{Outcome: tko.WorkLater, Retry: spread(retry)}
	if !differs(d.Stamp.Conditions, c) {
		return result, nil
	}
	if err := p.client.SetConditions(ctx, tko.KindDeployment, string(d.ID), []tko.Condition{c}); err != nil {
		return result, fmt.Errorf("set the conditions of deployment %q: %w", d.ID, err)
	}
	return result, nil
}

// resultOf returns the result of work that ended with an error of the data
// controller.
func resultOf(err error) work.Result {
	switch {
	case errors.Is(err, tko.ErrStopped): // the release makes the work due at once
		return work.Result{Outcome: tko.WorkLater, Retry: spread(maxRetryWait)}
	case errors.Is(err, tko.ErrConflict), errors.Is(err, tko.ErrBusy), errors.Is(err, tko.ErrNotFound):
		// The deployment was changed or deleted: the next reconciliation reads it again.
		return work.Result{Outcome: tko.WorkLater, Retry: spread(retryMoved)}
	case errors.Is(err, tko.ErrUnavailable):
		return work.Result{Outcome: tko.WorkLater, Retry: spread(minRetryWait)} // nothing is wrong with the deployment
	default:
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
}

// spread adds up to a quarter to d, so that retries don't coincide.
func spread(d time.Duration) time.Duration { return pause.Between(d, d+d/4) }
