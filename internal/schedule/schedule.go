package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
	"github.com/tko-orchestrator/tko/internal/schedule/oci"
	"github.com/tko-orchestrator/tko/internal/schedule/osm"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/internal/work"
	"github.com/tko-orchestrator/tko/krm"
)

// Records are the records that the meta-scheduler reads and writes.
type Records interface {
	// Site returns a revision of a site; the current one for revision 0.
	// ErrNotFound if there is none.
	Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error)
	// Deployment returns a revision of a deployment; the current one for revision
	// 0. ErrNotFound if there is none.
	Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error)
	// Deployments returns the selected deployments, ordered by ID.
	Deployments(ctx context.Context, s tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error]
	// Plugins returns the selected plugins, ordered by name.
	Plugins(ctx context.Context, s tko.PluginSelect, o tko.ListOptions) iter.Seq2[tko.Plugin, error]
	// SetConditions replaces the conditions of the same types.
	SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error
}

// Client is the part of the data controller's API that the meta-scheduler uses.
type Client interface { //nolint:interfacebloat // of interfaces, one for each concern
	Records
	osm.Records
	work.Client
	// EnqueueSites makes the work of sites due at once.
	EnqueueSites(ctx context.Context, ids []tko.SiteID) error
	// Freezes returns the freezes of sites that aren't over.
	Freezes(ctx context.Context) ([]tko.Freeze, error)
	// SiteHold returns why changes of a site must not be scheduled now; "" if nothing keeps
	// the site from being changed.
	SiteHold(ctx context.Context, id tko.SiteID) (reason string, err error)
	// SiteStop returns what of a site stops hold now. A site that doesn't exist is held as
	// long as a stop may have selected it.
	SiteStop(ctx context.Context, id tko.SiteID) (tko.SiteStop, error)
	// SiteStagings returns the pulls of images that rollouts want at a site now.
	SiteStagings(ctx context.Context, id tko.SiteID) ([]tko.SiteStaging, error)
	// ReportSiteStaging reports how far a pull is.
	ReportSiteStaging(ctx context.Context, p tko.SiteStaging) error
}

// Runner runs schedule plugins.
type Runner interface {
	// Schedule runs a plugin with all deployments of a site. The error wraps a
	// [tko.PendingError] if the work continues in another system. Each of notes is called
	// with a description of the run, if there is one.
	Schedule(ctx context.Context, p tko.Plugin, target krm.Identity, site tko.Site, deployments map[tko.DeploymentID]krm.Package, notes ...func(string)) error
}

// A target is a built-in scheduling target.
type target interface {
	// Schedule applies these deployments to the place that the trigger names, and
	// removes all others from it, except held ones, which may stay unchanged. The
	// report is valid also if there is an error. ErrInvalid means that records
	// must change; any other error may be temporary.
	Schedule(ctx context.Context, of krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Report, error)
}

// A builtin is a target with the kind of places that it is for.
type builtin struct {
	place.Kind

	target target
}

func builtins(all ...builtin) map[krm.GVK]builtin {
	targets := make(map[krm.GVK]builtin, len(all))
	for _, b := range all {
		targets[b.GVK] = b
	}
	return targets
}

// Clusters are the target for Kubernetes clusters.
type Clusters interface {
	target
	cleaner
	observer
	stager
	// Namespace returns the default namespace of a trigger's resources.
	Namespace(of krm.Resource) string
	// Close ends all watches and closes the connections to clusters.
	Close()
}

// Options are the settings of a Scheduler. The zero value works.
type Options struct {
	Worker      string         // name of this worker, shown to users
	Concurrency int            // sites reconciled concurrently; 64 if 0. Those that share a repository share commits
	Gather      time.Duration  // how long ready deployments wait at most for others of their site that are being prepared; not at all if 0
	Lease       time.Duration  // of the work; the loop's default if 0
	Resync      time.Duration  // interval between reconciliations of an unchanged site; none if 0
	Guard       *guard.Guard   // limits what sites may refer to; no limit if nil
	GitCache    string         // folder for clones of remote repositories; in the user's cache folder if empty
	GitSecrets  string         // folder of the credentials of repositories and registries; no credentials if empty
	References  secret.Sources // credentials of repositories and OSMs that are not files
	Leash       *leash.Leash   // what credentials may be used for; no declarations if nil
	// Kubernetes returns the target for clusters, which calls enqueue for a site
	// whose objects may have changed. If it is nil, there is none.
	Kubernetes func(enqueue func(...tko.SiteID)) Clusters
	OSM        osm.Options // of OSMs; its Log is replaced by Log
	// Interval is the time between two readings of what Flux or Argo CD reports on a site at
	// which nothing changes; 10 min if 0. After a change, the readings are closer.
	Interval time.Duration
	Log      *slog.Logger // discarded if nil

	Observer work.Observer // of the work; none if nil
	// Applied is called after each attempt to apply a site to a target, with the name
	// of the target (that of package place, or plugin) and the result (ok, invalid or
	// failed). None if nil.
	Applied func(target, result string, took time.Duration)
}

// A Scheduler is the meta-scheduler.
type Scheduler struct {
	client  Client
	runner  Runner
	options Options
	targets map[krm.GVK]builtin
	close   func()
	queue   *enqueuer

	gatherer *gatherer
}

// New makes a Scheduler.
func New(client Client, runner Runner, o Options) *Scheduler {
	o.Concurrency = cmp.Or(o.Concurrency, 64)
	o.Interval = cmp.Or(o.Interval, 10*time.Minute)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.OSM.Log, o.OSM.References, o.OSM.Leash = o.Log, o.References, o.Leash
	s := &Scheduler{client: client, runner: runner, options: o, queue: newEnqueuer(), gatherer: newGatherer(o.Gather)}
	var tools observer
	all := []builtin{{place.OSM, osm.New(client, o.OSM)}}
	s.close = func() {}
	if o.Kubernetes != nil {
		clusters := o.Kubernetes(s.queue.add)
		tools, s.close, all = clusters, clusters.Close, append(all, builtin{place.Kubernetes, clusters})
	}
	pulled := func(k place.Kind, w writer) builtin {
		return builtin{k, pulledTarget{writer: w, observer: tools, interval: o.Interval}}
	}
	s.targets = builtins(append(all,
		pulled(place.Git, git.New(git.Options{Guard: o.Guard, Cache: o.GitCache, Secrets: o.GitSecrets, References: o.References, Leash: o.Leash, Log: o.Log})),
		pulled(place.OCI, oci.New(oci.Options{Guard: o.Guard, Secrets: o.GitSecrets, References: o.References, Leash: o.Leash, Log: o.Log})),
	)...)
	return s
}

// Close closes the connections to clusters. Run does so when it ends.
func (s *Scheduler) Close() { s.close() }

// Run reconciles sites whose work is due, and compares sites on request, until the
// context ends. Then it releases unfinished work and returns.
func (s *Scheduler) Run(ctx context.Context) error {
	defer s.queue.flush(context.WithoutCancel(ctx), s.client, s.options.Log)
	defer s.Close() // enqueues the sites whose watches reported events
	loop := &work.Loop{
		Client: s.client, Queue: tko.QueueSchedule, Worker: s.options.Worker,
		Concurrency: s.options.Concurrency, Lease: s.options.Lease, Log: s.options.Log, Observer: s.options.Observer,
		Do: func(ctx context.Context, item tko.WorkItem) work.Result {
			return s.reconcile(tko.WithClaim(ctx, item), tko.SiteID(item.Key), item.Keep)
		},
	}
	var extra sync.WaitGroup
	defer extra.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	extra.Go(func() { s.queue.run(ctx, s.client, s.options.Log) })
	extra.Go(func() {
		if err := s.comparisons().Run(ctx); err != nil { // an older data controller has no such queue
			s.options.Log.WarnContext(ctx, "sites are not compared on request (tko site diff)", "err", err)
		}
	})
	return loop.Run(ctx)
}

// Reconcile reconciles one site. The work is done if all steps succeeded, and also
// if the failed ones can succeed only after a change of records, which the
// conditions then report. Otherwise it has failed and should be tried again.
func (s *Scheduler) Reconcile(ctx context.Context, id tko.SiteID) work.Result {
	return s.reconcile(ctx, id, false)
}

// reconcile is Reconcile. If keep is true, nothing is removed from the site that the
// store doesn't have.
func (s *Scheduler) reconcile(ctx context.Context, id tko.SiteID, keep bool) work.Result {
	waits, err := s.stillGathers(ctx, id)
	if err != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
	if waits > 0 {
		return later(waits)
	}
	asked := time.Now()
	stop, err := s.client.SiteStop(ctx, id) // before the site is read: what is stopped later closes the fence
	if err != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: fmt.Errorf("asking whether site %q is stopped: %w", id, err)}
	}
	var seen snapshot // before targets ask
	ctx = fence.With(ctx, fence.New(id, stop, asked, func(ctx context.Context) (tko.SiteStop, error) { return s.halted(ctx, id, seen.site.Metadata) }).Check)
	seen, err = s.observe(ctx, id)
	if errors.Is(err, tko.ErrNotFound) || err == nil && isDeleting(seen.site) {
		if keep {
			return work.Result{Outcome: tko.WorkDone}
		}
		if stop.Any() {
			return work.Result{Outcome: tko.WorkLater, Retry: maxFrozen}
		}
		if err := s.abandon(ctx, id); err != nil {
			return work.Result{Outcome: tko.WorkFailed, Err: err}
		}
		return work.Result{Outcome: tko.WorkDone}
	}
	if err != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
	seen.stop = stop
	p := decide(seen, s.targets)
	quiet, heardUntil := silence(seen, p, time.Now())
	if err := s.write(ctx, quiet); err != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
	frozen, err := s.freeze(ctx, seen, p)
	for _, holds := range []func(context.Context, snapshot, plan) (time.Duration, error){s.awaits, s.apart} {
		if err == nil && frozen == 0 {
			frozen, err = holds(ctx, seen, p)
		}
	}
	if err != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
	if heardUntil > 0 && frozen > heardUntil {
		frozen = heardUntil
	}
	if frozen > 0 {
		s.gatherer.end(id)
		return work.Result{Outcome: tko.WorkLater, Retry: frozen}
	}
	if waits := s.gather(seen, p); waits > 0 {
		return later(waits)
	}
	ctx = s.gathered(ctx, id)
	if keep {
		p.keep = true
		p.held = append(p.held, tko.OtherDeployments)
	}
	known := &memories{read: func() (memory, error) { return s.recall(ctx, id) }}
	results := s.act(ctx, seen, p, known)
	var cleanedUp time.Duration
	var cleanUpErr error
	if closed := closedFence(results); closed != nil {
		cleanUpErr = closed
	} else if !keep && !stop.Any() {
		cleanedUp, cleanUpErr = s.cleanUp(ctx, seen.site) // before the conditions report this revision as observed
	}
	if ctx.Err() != nil {
		// steps failed because the context ended, which is no state of the site
		return work.Result{Outcome: tko.WorkFailed, Err: context.Cause(ctx)}
	}
	if fence.Is(cleanUpErr) && errors.Is(cleanUpErr, tko.ErrStopped) {
		return work.Result{Outcome: tko.WorkReleased} // the next reconciliation reports the stop
	}
	if cleanUpErr != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: cleanUpErr}
	}
	if err := s.remember(ctx, id, known, p, results); err != nil { // before the conditions report it
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
	if err := s.withdraw(ctx, seen, p, results); err != nil { // before the conditions no longer report that it runs
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
	if err := s.write(ctx, conclude(seen, p, results)); err != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
	if err := s.release(ctx, id, results); err != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
	if cleanedUp == 0 || heardUntil > 0 && heardUntil < cleanedUp {
		cleanedUp = heardUntil
	}
	staged, err := s.stage(ctx, seen, p)
	if err != nil {
		return work.Result{Outcome: tko.WorkFailed, Err: err}
	}
	if staged > 0 && (cleanedUp == 0 || staged < cleanedUp) {
		cleanedUp = staged
	}
	return s.next(p, results, cleanedUp)
}

// isDeleting reports whether a site is being deleted, which takes several
// transactions. What runs at such a site stays: deployments that no longer refer
// to it must not be removed from it.
func isDeleting(site tko.Site) bool {
	c := tko.FindCondition(site.Stamp.Conditions, tko.ConditionDeleting)
	return c != nil && c.Status == tko.ConditionTrue
}

// next returns the result of a reconciliation, with the earliest of the times at
// which the steps, the resync, and the cleanup and the pulls (after again, if not 0) must continue.
func (s *Scheduler) next(p plan, results []result, again time.Duration) work.Result {
	if r := s.options.Resync; len(p.steps) > 0 && r > 0 && (again == 0 || r < again) {
		again = r
	}
	for _, r := range results {
		if r.err != nil && !errors.Is(r.err, tko.ErrInvalid) {
			return work.Result{Outcome: tko.WorkFailed, Err: r.err, Retry: r.report.Requeue}
		}
		if later := r.report.Requeue; later > 0 && (again == 0 || later < again) {
			again = later
		}
	}
	if again > 0 {
		return work.Result{Outcome: tko.WorkLater, Retry: again}
	}
	return work.Result{Outcome: tko.WorkDone}
}

// observe reads a site, its deployments and the schedule plugins.
func (s *Scheduler) observe(ctx context.Context, id tko.SiteID) (snapshot, error) {
	seen := snapshot{}
	var err error
	if seen.site, err = s.client.Site(ctx, id, 0); err != nil {
		return snapshot{}, fmt.Errorf("reading site %q: %w", id, err)
	}
	if seen.plugins, err = s.plugins(ctx); err != nil {
		return snapshot{}, err
	}
	at := tko.DeploymentSelect{Sites: []string{string(id)}} // IDs have no characters that are special in patterns
	for d, err := range s.client.Deployments(ctx, at, tko.ListOptions{Packages: true}) {
		if err != nil {
			return snapshot{}, fmt.Errorf("reading the deployments at site %q: %w", id, err)
		}
		seen.deployments = append(seen.deployments, d)
	}
	return seen, nil
}

// act runs all steps, also after one has failed, and returns their results in the
// same order.
func (s *Scheduler) act(ctx context.Context, seen snapshot, p plan, of *memories) []result {
	results := make([]result, len(p.steps))
	for i, step := range p.steps {
		began := time.Now()
		r := &results[i]
		r.err = fence.Check(ctx)
		if r.err != nil {
			break
		}
		stepCtx, span := trail.Start(ctx, "target.apply")
		if span.IsRecording() {
			span.SetAttributes(trail.Site.String(string(seen.site.ID)), trail.Target.String(step.trigger.Identity().String()), trail.Count.Int(len(p.deployments)))
		}
		asked := true
		if step.target != nil {
			s.apply(stepCtx, seen, p, step, of, r)
		} else {
			asked = s.runPlugin(stepCtx, seen, p, step, of, r)
		}
		trail.End(span, r.err)
		s.options.Log.DebugContext(ctx, "scheduled", "site", string(seen.site.ID), "by", step.String(),
			"deployments", len(p.deployments), "withheld", len(r.withheld), "took", time.Since(began), "err", r.err)
		if s.options.Applied != nil && asked {
			s.options.Applied(step.kind(), resultOf(r.err), time.Since(began))
		}
	}
	return results
}

// apply lets a target apply the deployments of a site, except those that have objects in
// common that differ.
func (s *Scheduler) apply(ctx context.Context, seen snapshot, p plan, step step, of *memories, r *result) {
	all := slices.Concat(p.deployments, p.suspended)
	r.contest = step.contestOf(all, nil)
	if len(r.contest.conflict)+len(r.contest.shared) > 0 {
		former, err := of.get()
		if err != nil {
			r.err = err
			return
		}
		r.contest = step.contestOf(all, former.Shared[step.String()])
	}
	apply, held := r.contest.withhold(p.deployments)
	if step.place.Files && len(p.held) > 0 {
		former, err := of.get()
		if err != nil {
			r.err = err
			return
		}
		held = append(held, r.contest.providers(former.Shared[step.String()], apply, p.held)...)
	}
	r.report, r.err = step.target.Schedule(ctx, step.trigger, seen.site, apply, slices.Concat(p.held, held))
	r.reportContest(r.contest, p.deployments)
}

// runPlugin runs a plugin with all deployments of a site: those that are held as they were
// when it succeeded last, because it removes what it isn't given. Its success is the receipt
// of all that it was given. asked is false if it isn't run.
func (s *Scheduler) runPlugin(ctx context.Context, seen snapshot, p plan, step step, of *memories, r *result) (asked bool) {
	if p.keep { // a plugin may remove what it isn't given
		r.err = tko.Errorf(tko.ErrInvalid, "the store was restored from a backup: a plugin is run again when the site is released with --remove (tko hold release)")
		return true
	}
	packages, why, err := s.given(ctx, seen, p, step, of, r)
	if err != nil || why != "" {
		r.err, r.delivered = err, nil
		if why != "" {
			r.report.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: tko.ReasonSuspended, Message: fmt.Sprintf("%s is not run, because it would remove what it isn't given: %s", step, why)}
		}
		return false
	}
	delivered := r.delivered
	r.delivered = nil
	r.err = s.runner.Schedule(ctx, step.plugin, step.trigger.Identity(), seen.site, packages, func(note string) { r.note = note })
	if pending, ok := errors.AsType[*tko.PendingError](r.err); ok {
		r.report.Site.Scheduled = running(r.err.Error())
		r.report.Requeue, r.err = pending.Retry, nil
		return true
	}
	if r.err == nil {
		r.delivered = delivered
		r.report.Kept = p.held
		r.report.Deployments = map[tko.DeploymentID]report.State{}
		for _, d := range p.deployments {
			r.report.Deployments[d.ID] = report.State{Scheduled: report.Outcome{Status: tko.ConditionTrue, Reason: ReasonScheduled, Message: "by " + step.String()}}
			r.report.Attest(d.ID, d.Stamp.Revision)
		}
		r.report.AttestSite(seen.site.Stamp.Revision)
	}
	return true
}

// given returns the packages that a plugin gets, and sets r.delivered to their revisions. If
// it isn't known what a held deployment has at the site, why says so.
func (s *Scheduler) given(ctx context.Context, seen snapshot, p plan, step step, of *memories, r *result) (packages map[tko.DeploymentID]krm.Package, why string, err error) {
	packages, r.delivered = p.packages(), map[tko.DeploymentID]int64{}
	for _, d := range p.deployments {
		r.delivered[d.ID] = d.Stamp.Revision
	}
	m, err := of.get()
	if err != nil {
		return nil, "", err
	}
	former, ran := m.Delivered[step.String()]
	others := slices.Contains(p.held, tko.OtherDeployments)
	here := map[tko.DeploymentID]bool{}
	for _, d := range seen.deployments {
		here[d.ID] = true
		if _, given := packages[d.ID]; given || !others && !slices.Contains(p.held, d.ID) {
			continue
		}
		revision := former[d.ID]
		if c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled); revision == 0 && !ran && c != nil {
			revision = c.ObservedRevision
			if c.Status != tko.ConditionTrue {
				return nil, seen.heldText(d) + "which revision of it the site has is not known", nil
			}
		}
		if revision == 0 {
			continue // the site never had it
		}
		was := d
		if revision != d.Stamp.Revision {
			was, err = s.client.Deployment(ctx, d.ID, revision)
			if errors.Is(err, tko.ErrNotFound) {
				return nil, seen.heldText(d) + fmt.Sprintf("its revision %d, which the site has, is no longer retained", revision), nil
			}
			if err != nil {
				return nil, "", fmt.Errorf("reading revision %d of deployment %q, which site %q has: %w", revision, d.ID, seen.site.ID, err)
			}
		}
		packages[d.ID], r.delivered[d.ID] = deployable(was.Package), revision
	}
	if !others {
		return packages, "", nil
	}
	for _, id := range slices.Sorted(maps.Keys(former)) { // deleted, or moved
		if here[id] {
			continue
		}
		was, err := s.client.Deployment(ctx, id, former[id])
		if errors.Is(err, tko.ErrNotFound) {
			return nil, fmt.Sprintf("deployment %q, which was deleted, must stay at the site for now, and its revision %d is no longer retained", id, former[id]), nil
		}
		if err != nil {
			return nil, "", fmt.Errorf("reading revision %d of deployment %q, which site %q has: %w", former[id], id, seen.site.ID, err)
		}
		packages[id], r.delivered[id] = deployable(was.Package), former[id]
	}
	return packages, "", nil
}

// heldText begins a text about a deployment that is held.
func (s snapshot) heldText(d tko.Deployment) string {
	if s.holds(d) {
		_, text := s.why(d)
		return text + "; "
	}
	return fmt.Sprintf("deployment %q is being prepared, or waits for an approval; ", d.ID)
}

// closedFence returns the error of a fence that ended a step; nil if none did.
func closedFence(results []result) error {
	for _, r := range results {
		if fence.Is(r.err) {
			return r.err
		}
	}
	return nil
}

// resultOf returns the result of applying a site to a target, for metrics.
func resultOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, tko.ErrInvalid):
		return "invalid"
	default:
		return "failed"
	}
}

// write writes conditions; those of one record must be adjacent. It ignores
// records that no longer exist.
func (s *Scheduler) write(ctx context.Context, all []conditionOf) error {
	for len(all) > 0 {
		first := all[0]
		var conditions []tko.Condition
		for len(all) > 0 && all[0].kind == first.kind && all[0].id == first.id {
			conditions, all = append(conditions, all[0].condition), all[1:]
		}
		err := s.client.SetConditions(ctx, first.kind, first.id, conditions)
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return fmt.Errorf("writing the conditions of %s %q: %w", first.kind, first.id, err)
		}
	}
	return nil
}

// release sets the conditions of deployments that were removed from the site and
// are at no other site. The reconciliation of the other site sets those of the
// rest.
func (s *Scheduler) release(ctx context.Context, site tko.SiteID, results []result) error {
	for _, r := range results {
		for _, id := range r.report.Removed {
			d, err := s.client.Deployment(ctx, id, 0)
			if errors.Is(err, tko.ErrNotFound) || err == nil && d.Site != "" {
				continue
			}
			if err != nil {
				return fmt.Errorf("reading deployment %q, which was removed from site %q: %w", id, site, err)
			}
			if err := s.write(ctx, unscheduled(d, fmt.Sprintf("was taken from site %q", site))); err != nil {
				return err
			}
		}
	}
	return nil
}

// plugins returns the schedule plugins.
func (s *Scheduler) plugins(ctx context.Context) (all []tko.Plugin, err error) {
	schedule := tko.PluginSchedule
	for p, err := range s.client.Plugins(ctx, tko.PluginSelect{Type: &schedule}, tko.ListOptions{}) {
		if err != nil {
			return nil, fmt.Errorf("reading the schedule plugins: %w", err)
		}
		all = append(all, p)
	}
	if w, ok := s.runner.(withdrawer); ok {
		w.Remember(all...)
	}
	return all, nil
}
