package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/forge"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/internal/work"
)

// Client is the part of the data controller's API that the controller uses.
type Client interface {
	plan.Client
	work.Client
	Records
	Definitions
	Rollouts
	// SiteStop returns what of a site users have stopped; for no site, whether that is everything.
	SiteStop(ctx context.Context, id tko.SiteID) (tko.SiteStop, error)
}

// Records are the records of sources, which the data controller stores.
type Records interface {
	// EnqueueSources enqueues sources for reconciliation: with missing, only those
	// that have no work item yet. If approve isn't empty, it approves the pending
	// removal with that digest; ErrConflict if it is another one.
	EnqueueSources(ctx context.Context, names []string, missing bool, approve string) error
	// SourceUnless returns a source, without status and state if its version
	// equals known; ErrNotFound if there is none.
	SourceUnless(ctx context.Context, name string, known int64) (tko.Source, error)
	// SaveSource writes a source; ErrConflict if the claim is lost.
	SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (version int64, err error)
	// ForgetSource removes a source; ErrConflict if the claim is lost.
	ForgetSource(ctx context.Context, name string, claim tko.WorkItem) error
	// About returns the position of the newest change.
	About(ctx context.Context) (tko.About, error)
}

// Definitions are the registered sources.
type Definitions interface {
	// SourceDefinitions returns the registered sources, or none if their version is known.
	SourceDefinitions(ctx context.Context, known int64) (tko.SourceDefinitions, error)
	// DeclareSources registers the sources that the repository of another one declares;
	// ErrConflict if the claim is lost.
	DeclareSources(ctx context.Context, d tko.DeclareSources, claim tko.WorkItem) (tko.DeclaredSources, error)
}

// A Fetcher reads the revisions of a source. One goroutine at a time uses it.
type Fetcher interface {
	// Revision returns the current revision. It is called often and must be cheap.
	Revision(ctx context.Context) (string, error)
	// Fetch returns the files of a revision. The caller closes them.
	Fetch(ctx context.Context, revision string) (*tree.Tree, error)
}

// An Inventory makes manifests from records that others keep. One goroutine at a time
// uses it.
type Inventory interface {
	// Revision returns the current revision. The error means that it isn't known
	// completely, and that nothing may change.
	Revision(ctx context.Context) (string, error)
	// Manifests returns the manifests of the revision that Revision returned last, in
	// the order of [manifest.Read], and notes for users.
	Manifests(revision string) (manifests []manifest.Manifest, notes []string, err error)
}

// A Subscriber is an Inventory whose servers may report changes.
type Subscriber interface {
	// Subscription reports whether they are to do so, and why one of them doesn't.
	Subscription() (wanted bool, err error)
	// Close ends the subscriptions.
	Close(ctx context.Context) error
}

// An Opener is a Fetcher whose files are transformed before they are read, for
// example decrypted. Each reconciliation that reads files calls Open first, so
// that it may use keys that have changed, or return an error.
type Opener interface {
	// Open returns the readable files of a revision that was fetched before.
	Open(ctx context.Context, files *tree.Tree, revision string) (fs.FS, error)
}

// Others reports whether an encrypted resource with that apiVersion isn't TKO's,
// such as a Kubernetes Secret in a repository that other tools apply, too.
func Others(apiVersion string) bool { return !strings.HasPrefix(apiVersion, manifest.Group+"/") }

// Heads fetches commits that needn't be on the branch of a source.
type Heads interface {
	// FetchHead returns the files of a commit, which a reference has if the server serves no
	// commits by their hashes. The caller closes them.
	FetchHead(ctx context.Context, commit, ref string) (*tree.Tree, error)
	// FetchPast returns the files of a commit in the history of a reference.
	FetchPast(ctx context.Context, commit, ref string) (*tree.Tree, error)
}

// A Spec is the desired configuration of a source.
type Spec struct {
	Name           string
	Registered     bool   // it is that of a definition in the store, whose author may not use everything
	TakeOver       bool   // it takes over the record of a source of this name that wasn't registered
	Kind, URL, Ref string // shown in the status
	From           Fetcher
	// Inventory, if not nil, takes the place of From: it makes the manifests itself. Its
	// removals are subject to the rules of [plan.Policy.Careful].
	Inventory Inventory
	AddOnly   bool          // existing entities are never changed
	Editable  []tko.Pattern // parts of sites that users may set: see [plan.Policy]
	Path      string        // folder of the manifests in the revision
	Interval  time.Duration // between reconciliations; 1 min if 0
	Resync    time.Duration // between comparisons with TKO while the revision stays; 10 min if 0
	Suspend   bool
	Prune     bool
	Adopt     bool
	Budget    prune.Budget
	// Rollout, if not nil, has a rollout change deployments: the fields of its spec, other
	// than edits.
	Rollout map[string]any
	// Forge, if not nil, gets the statuses of commits, and the plans of pull requests, whose
	// files Heads fetches. Heads is nil if the source isn't in git.
	Forge   *forge.Forge
	Heads   Heads
	Invalid error // of the Spec: nothing is reconciled, and the status reports it
	OSM     OSM
	// Forget removes the source: its entities are deleted (Prune) or savedState, then its
	// record is deleted.
	Forget bool
	// AllowSources lets the repository declare other sources; PruneSources deletes those
	// that it declares no longer, and keeps their entities.
	AllowSources, PruneSources bool
	// DependsOn names sources that must be ready first.
	DependsOn []string
	// Generation changes with every change of the Spec.
	Generation string
	// OSMOnly ignores TKO's manifests. A revision that holds nothing for an OSM is
	// valid.
	OSMOnly bool
	// Retry is the time between a failure and the next try; with back-off if 0.
	Retry time.Duration
	// Report, if not nil, is called with the source after each reconciliation and
	// each save; after the removal of the source, with its name only.
	Report func(ctx context.Context, s tko.Source)
}

// Options are the settings of a Controller. The zero value works.
type Options struct {
	Worker      string
	Sources     []Spec
	Concurrency int           // sources that are reconciled concurrently; 64 if 0
	Lease       time.Duration // of work items; the loop's default if 0
	Connections []string      // folders in which connection files of OSMs may be read; none if empty
	Leash       *leash.Leash  // what connection files may be used for; no declarations if nil
	// Registered, if not nil, returns the Spec of a registered source. The error is for
	// users. If nil, the controller has none of them.
	Registered func(tko.SourceDefinition) (Spec, error)
	// Changed, if not nil, is called with a source after each save.
	Changed  func(ctx context.Context, s tko.Source)
	Log      *slog.Logger  // nowhere if nil
	Observer work.Observer // of the work; none if nil
}

// A Controller reconciles sources: the role gitops. It is safe for concurrent use.
type Controller struct {
	client  Client
	options Options
	log     *slog.Logger

	mu      sync.Mutex
	sources map[string]*source
	wake    chan struct{}

	reading  sync.Mutex // held while the registered sources are read
	defined  map[string]tko.SourceDefinition
	version  int64 // of defined
	dropping sync.WaitGroup

	left map[string]leaving // work on sources that this controller doesn't know; guarded by mu
}

// leaving is work that a controller released because it doesn't know the source.
type leaving struct {
	count int           // since it was last away for leaveMemory
	delay time.Duration // of the last release
	last  time.Time
}

// Work on a source that a controller doesn't know is for another one, which claims it as
// soon as it is due again. If none does, it ends.
const (
	leaveFirst  = 50 * time.Millisecond
	leaveMost   = time.Second // the largest delay; each release doubles it
	leaveLimit  = 60          // releases before the work ends
	leaveRun    = 3 * time.Second
	leaveMemory = time.Minute
)

// leave returns the result of work on a source that the controller doesn't know.
func (c *Controller) leave(name string, now time.Time) work.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == nil {
		c.left = map[string]leaving{}
	}
	maps.DeleteFunc(c.left, func(_ string, l leaving) bool { return now.Sub(l.last) >= leaveMemory })
	l := c.left[name]
	l.delay = min(2*l.delay, leaveMost)
	if now.Sub(l.last) >= leaveRun {
		l.delay = leaveFirst // another controller has done it since
	}
	l.count, l.last = l.count+1, now
	c.left[name] = l
	if l.count > leaveLimit { // the controllers that know it, if there are any, enqueue it again
		delete(c.left, name)
		return work.Result{Outcome: tko.WorkDone}
	}
	return work.Result{Outcome: tko.WorkReleased, Retry: l.delay}
}

// A source is a Spec with the state that is cached between reconciliations.
type source struct {
	running    sync.Mutex // held during a reconciliation: one at a time, also when a claim was lost
	spec       Spec       // guarded by the controller's mu
	reconciled string     // generation that this controller reconciled last; guarded by the controller's mu
	taken      bool       // another source has the name; guarded by the controller's mu

	record   tko.Source // the stored record, at Version
	tree     *tree.Tree
	revision string      // of tree, and the spec's generation
	position int64       // of TKO's log when the revision was found applied; -1 if unknown
	checked  time.Time   // when the revision was found applied last
	declared int64       // version of the definitions after those of the revision were declared
	waits    waiting     // for a rollout that a user starts or resumes
	absent   string      // absences that were confirmed last: see confirm
	due      time.Time   // when the next reconciliation is due; zero if unknown
	polled   time.Time   // when the pull requests were listed last
	last     *inProgress // operations that are in progress in an OSM; nil if unknown
	listed   osm.Report  // the last one of an OSM, after which only this controller has saved the record
}

// New returns a controller. Sources may be added while it runs.
func New(client Client, o Options) *Controller {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 64
	}
	c := &Controller{client: client, options: o, log: o.Log, sources: map[string]*source{}, wake: make(chan struct{}, 1)}
	for _, s := range o.Sources {
		c.Set(s)
	}
	return c
}

// Set adds a source, or replaces its Spec, and enqueues it.
func (c *Controller) Set(s Spec) {
	if s.Interval <= 0 {
		s.Interval = time.Minute
	}
	if s.Resync <= 0 {
		s.Resync = 10 * time.Minute
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.sources[s.Name]; old != nil {
		old.spec = s
	} else {
		c.sources[s.Name] = &source{spec: s}
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Drop removes a source from this controller. Its record stays.
func (c *Controller) Drop(name string) {
	if s := c.take(name); s != nil {
		s.release()
	}
}

// take removes a source from the controller and returns it; nil if there is none.
func (c *Controller) take(name string) *source {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sources[name]
	delete(c.sources, name)
	return s
}

// Names returns the names of the controller's sources, sorted.
func (c *Controller) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.sources))
}

// Enqueue enqueues sources for reconciliation now, by any controller.
func (c *Controller) Enqueue(ctx context.Context, names ...string) error {
	return c.client.EnqueueSources(ctx, names, false, "")
}

// Approve approves the pending removal of a source, by its digest, and enqueues
// the source. The error is an ErrConflict if another removal is pending.
func (c *Controller) Approve(ctx context.Context, name, digest string) error {
	return c.client.EnqueueSources(ctx, []string{name}, false, digest)
}

func (c *Controller) find(name string) (*source, Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sources[name]
	if s == nil {
		return nil, Spec{}
	}
	return s, s.spec
}

// announceInterval is how often work items are added for sources that have none: work that
// no controller knew for a time has ended.
const announceInterval = time.Minute

// Run reconciles sources until the context ends. It returns an error if the data
// controller refuses its claims.
func (c *Controller) Run(ctx context.Context) error {
	defer c.dropping.Wait()
	defer c.close(ctx)
	var wait sync.WaitGroup
	announcing, stop := context.WithCancel(ctx)
	wait.Go(func() { c.announce(announcing) })
	defer wait.Wait()
	defer stop()
	if !c.first(ctx) {
		return nil
	}
	loop := &work.Loop{
		Client: c.client, Queue: tko.QueueGitOps, Worker: c.options.Worker, Concurrency: c.options.Concurrency, Lease: c.options.Lease,
		Log: c.log, Observer: c.options.Observer, Do: c.do,
	}
	return loop.Run(ctx)
}

// definedInterval is how often a controller without sources checks whether some are
// registered.
const definedInterval = 2 * time.Second

// first waits until the controller has a source: until then it claims no work, which
// may be that of others. It returns false if the context ended.
func (c *Controller) first(ctx context.Context) bool {
	for len(c.Names()) == 0 {
		if pause.For(ctx, definedInterval) != nil {
			return false
		}
		if err := c.refresh(ctx); err != nil && ctx.Err() == nil {
			c.log.DebugContext(ctx, "the registered sources could not be read", "err", err)
		}
	}
	return true
}

// unsubscribeTimeout limits the end of subscriptions when the controller stops.
const unsubscribeTimeout = 10 * time.Second

// close drops all sources, and ends their subscriptions: the next controller may have
// other sources. Controllers that still run make theirs again at their next reconciliation.
func (c *Controller) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unsubscribeTimeout)
	defer cancel()
	var wait sync.WaitGroup
	defer wait.Wait()
	for _, name := range c.Names() {
		_, spec := c.find(name)
		c.Drop(name)
		s, ok := spec.Inventory.(Subscriber)
		if !ok {
			continue
		}
		wait.Go(func() {
			if err := s.Close(ctx); err != nil {
				c.log.WarnContext(ctx, "a subscription could not be ended: delete it at its server", "source", name, "err", err)
			}
		})
	}
}

// refresh reads the registered sources, if they have changed. Those whose names are those
// of other sources of this controller aren't used.
func (c *Controller) refresh(ctx context.Context) error {
	if c.options.Registered == nil {
		return nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	now, err := c.client.SourceDefinitions(ctx, c.version)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil // an older data controller
	}
	if err != nil || now.Version == c.version {
		return err
	}
	defined := map[string]tko.SourceDefinition{}
	for _, d := range now.All {
		if _, spec := c.find(d.Name); spec.Name != "" && !spec.Registered {
			c.log.WarnContext(ctx, "a registered source is not used here, because the settings have one of its name: rename one of them", "source", d.Name)
			continue
		}
		defined[d.Name] = d
		if before, known := c.defined[d.Name]; !known || !before.Same(d) {
			c.Set(c.specOf(d))
		}
	}
	for name := range c.defined {
		if _, still := defined[name]; still {
			continue
		}
		if s := c.take(name); s != nil {
			c.dropping.Go(s.release) // it may be in progress
		}
	}
	c.defined, c.version = defined, now.Version
	return nil
}

// specOf returns the Spec of a registered source. One that is invalid, as without a folder
// of secrets, owns what it owned.
func (c *Controller) specOf(d tko.SourceDefinition) Spec {
	spec, err := c.options.Registered(d)
	if err != nil {
		spec = Spec{Kind: d.Kind, Invalid: err, AddOnly: d.Kind == tko.SourceKindCatalog}
		spec.Generation, _ = generation(err.Error()) // of a text
	}
	spec.Name, spec.Registered, spec.TakeOver = d.Name, true, d.TakeOver
	if d.Ending != nil {
		spec = spec.ending(*d.Ending)
		spec.Generation += " ending"
	}
	return spec
}

// confirmAfter is how long after enqueuing a source to check whether a controller
// that knows its current generation has reconciled it.
const confirmAfter = 5 * time.Second

// An announcement is a request to reconcile a source at a generation.
type announcement struct {
	generation string
	confirm    time.Time // when to check it; zero once it is confirmed
}

// announce enqueues every source until a controller has reconciled its current
// generation: the controller that claims the work may know only an older one.
func (c *Controller) announce(ctx context.Context) {
	announced := map[string]announcement{}
	for {
		if err := c.refresh(ctx); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "the registered sources could not be read: they are read again", "err", err)
		}
		var fresh []string
		names := c.Names()
		for _, name := range names {
			_, spec := c.find(name)
			last, called := announced[name]
			if called && last.generation == spec.Generation {
				if last.confirm.IsZero() && !c.isTaken(name) || time.Now().Before(last.confirm) {
					continue
				}
				done, due := c.confirmed(ctx, name, spec.Generation)
				if done {
					announced[name] = announcement{generation: spec.Generation}
					continue
				}
				if due {
					announced[name] = announcement{spec.Generation, time.Now().Add(confirmAfter)}
					continue
				}
			}
			announced[name] = announcement{spec.Generation, time.Now().Add(confirmAfter)}
			fresh = append(fresh, name)
		}
		maps.DeleteFunc(announced, func(name string, _ announcement) bool { return !slices.Contains(names, name) })
		err := c.client.EnqueueSources(ctx, names, true, "")
		if err == nil && len(fresh) > 0 {
			err = c.client.EnqueueSources(ctx, fresh, false, "")
		}
		wait := announceInterval
		if err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "sources could not be enqueued", "err", err)
			clear(announced)
			wait = confirmAfter
		}
		for _, last := range announced {
			if !last.confirm.IsZero() {
				wait = min(wait, max(time.Until(last.confirm), 0))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-time.After(wait):
		}
	}
}

// confirmed reports whether this controller has reconciled a source at a generation,
// or another one has applied it. If not, due reports whether a reconciliation is
// enqueued or in progress.
func (c *Controller) confirmed(ctx context.Context, name, generation string) (done, due bool) {
	c.mu.Lock()
	s := c.sources[name]
	taken := s != nil && s.taken
	registered := s != nil && s.spec.Registered
	done = s == nil || s.reconciled == generation && !taken
	c.mu.Unlock()
	if done {
		return true, false
	}
	now, err := c.client.SourceUnless(ctx, name, 0)
	if err != nil {
		return false, false
	}
	if taken && now.Status.Registered != registered { // until the other source is gone
		return false, true
	}
	var state savedState
	return json.Unmarshal(now.State, &state) == nil && state.Generation == generation, now.Enqueued
}

// isTaken reports whether another source has the name of one of this controller.
func (c *Controller) isTaken(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sources[name]
	return s != nil && s.taken
}

// do reconciles the source of a work item.
func (c *Controller) do(ctx context.Context, item tko.WorkItem) work.Result {
	ctx = tko.WithActing(ctx, tko.Acting{Kind: tko.KindSource, ID: item.Key, Claim: item.Claim})
	s, spec := c.find(item.Key)
	if s == nil || spec.Registered {
		if err := c.refresh(ctx); err != nil {
			return work.Result{Err: fmt.Errorf("read the registered sources: %w", err)}
		}
		s, spec = c.find(item.Key)
	}
	if s == nil {
		return c.leave(item.Key, time.Now())
	}
	s.running.Lock()
	defer s.running.Unlock()
	l := &reconciliation{controller: c, source: s, spec: spec, claim: item, log: c.log.With("source", spec.Name)}
	l.requested = !s.due.IsZero() && time.Now().Before(s.due)
	l.enqueued = l.requested || s.due.IsZero()
	result := l.run(tko.WithClaim(ctx, item))
	if l.loaded && !errors.Is(result.Err, errClaim) && ctx.Err() == nil {
		l.report(tko.WithClaim(ctx, item))
	}
	s.due = time.Time{}
	if result.Err == nil && result.Outcome == tko.WorkLater && result.Retry > 0 {
		s.due = time.Now().Add(result.Retry)
	}
	if !errors.Is(result.Err, errClaim) && ctx.Err() == nil {
		c.mu.Lock()
		s.reconciled, s.taken = spec.Generation, l.taken()
		c.mu.Unlock()
	}
	if l.unblocksDependents() {
		c.enqueueDependents(ctx, spec.Name)
	}
	if spec.Report != nil && s.record.Version != 0 {
		spec.Report(ctx, s.record)
	}
	return result
}

// enqueueDependents enqueues the sources that depend on one.
func (c *Controller) enqueueDependents(ctx context.Context, name string) {
	c.mu.Lock()
	var waiting []string
	for _, s := range c.sources {
		if slices.Contains(s.spec.DependsOn, name) && s.spec.Name != name {
			waiting = append(waiting, s.spec.Name)
		}
	}
	c.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	if err := c.Enqueue(ctx, waiting...); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "dependent sources could not be enqueued: they are reconciled when they are due", "source", name, "err", err)
	}
}

// spread returns an interval give or take 5 %, so that sources aren't reconciled all at
// once.
func spread(interval time.Duration) time.Duration { return pause.About(interval, 0.05) }

// release drops the cached files when no reconciliation is in progress.
func (s *source) release() {
	s.running.Lock()
	defer s.running.Unlock()
	s.dropFiles()
	s.forgetOSM()
}

// forgetOSM drops what is known of an OSM: another controller may have changed it, or something
// failed there.
func (s *source) forgetOSM() { s.last, s.listed = nil, osm.Report{} }

// dropFiles drops the cached files.
func (s *source) dropFiles() {
	s.last = nil
	if s.tree != nil {
		_ = s.tree.Close()
		s.tree, s.revision = nil, ""
	}
}
