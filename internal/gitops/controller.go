package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/work"
)

// Client is what the controller needs of the data controller.
type Client interface {
	plan.Client
	work.Client
	Records
}

// Records are the sources, as the data controller keeps them.
type Records interface {
	// EnqueueSources calls for a look at sources, or, with missing, at those that
	// nobody has called for yet.
	EnqueueSources(ctx context.Context, names []string, missing bool, approve string) error
	// SourceUnless answers a source, without status and state if its version is
	// the one that is known; ErrNotFound if there is none.
	SourceUnless(ctx context.Context, name string, known int64) (tko.Source, error)
	// SaveSource writes a source; ErrConflict if the claim is lost.
	SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (version int64, err error)
	// ForgetSource removes a source; ErrConflict if the claim is lost.
	ForgetSource(ctx context.Context, name string, claim tko.WorkItem) error
	// About answers the position of the newest change.
	About(ctx context.Context) (tko.About, error)
}

// A Fetcher reads revisions from somewhere. It is used by one goroutine at a
// time.
type Fetcher interface {
	// Revision is the one that is there now: asked often, so it costs little.
	Revision(ctx context.Context) (string, error)
	// Fetch gets the files of a revision, which are the caller's to close.
	Fetch(ctx context.Context, revision string) (*tree.Tree, error)
}

// An Opener is a Fetcher whose files are not read as they are. It is asked at
// each look that reads any, before it does, so that keys may have changed, and
// may refuse.
type Opener interface {
	// Open answers the files of a revision that was fetched before.
	Open(ctx context.Context, files *tree.Tree, revision string) (fs.FS, error)
}

// Others says whether an encrypted file is somebody else's, by its apiVersion,
// such as a Secret of Kubernetes in a repository that is applied by others, too.
func Others(apiVersion string) bool { return !strings.HasPrefix(apiVersion, manifest.Group+"/") }

// A Spec is a source as somebody asked for it.
type Spec struct {
	Name           string
	Kind, URL, Ref string // for people who read the status
	From           Fetcher
	Path           string        // of the manifests in it
	Interval       time.Duration // between looks; 1 min if 0
	Resync         time.Duration // between looks at TKO though the revision is the same; 10 min if 0
	Suspend        bool
	Prune          bool
	Adopt          bool
	Budget         plan.Budget
	OSM            OSM
	// Forget ends the source: what it owns goes (Prune) or stays, and then the
	// source.
	Forget bool
	// DependsOn are sources that must be ready first.
	DependsOn []string
	// Generation changes whenever what was asked for does.
	Generation string
	// OSMOnly leaves TKO's manifests alone: a revision counts only if it is for an
	// OSM, and is no failure if it isn't.
	OSMOnly bool
	// Retry is how long after a failure it is tried again; with back-off if 0.
	Retry time.Duration
	// Report, if not nil, is told how the source is after each look, and
	// whenever that was saved; of one whose end was reached, only its name.
	Report func(ctx context.Context, s tko.Source)
}

// Options are the settings of a Controller. The zero value works.
type Options struct {
	Worker      string
	Sources     []Spec
	Concurrency int           // sources at the same time; 64 if 0
	Lease       time.Duration // of the work; the loop's default if 0
	Connections []string      // folders of files that say how to reach an OSM; there are none if empty
	// Changed, if not nil, is told how a source is whenever that was saved.
	Changed func(ctx context.Context, s tko.Source)
	Log     *slog.Logger // nowhere if nil
}

// A Controller is the role gitops.
type Controller struct {
	client  Client
	options Options
	log     *slog.Logger

	mu      sync.Mutex
	sources map[string]*source
	wake    chan struct{}
}

// A source is a Spec and what is remembered of it.
type source struct {
	looking sync.Mutex // a look at it: one at a time, also when a claim was lost
	spec    Spec       // guarded by the controller's mu
	looked  string     // the generation at which we looked last; guarded by the controller's mu

	record   tko.Source // as it is kept, at Version
	tree     *tree.Tree
	revision string // of tree, and the spec's generation
	position int64  // of TKO, when it was as it should be
	checked  time.Time
	due      time.Time  // when the next reconciliation is due; zero if that isn't known
	last     *following // what is under way in an OSM, as far as it is known here
}

// New makes a controller. Sources may be added while it runs.
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

// Set adds a source, or changes one, and has it looked at soon.
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

// Drop forgets that a source was asked for here. What is known of it stays
// with the data controller.
func (c *Controller) Drop(name string) {
	c.mu.Lock()
	s := c.sources[name]
	delete(c.sources, name)
	c.mu.Unlock()
	if s != nil {
		s.looking.Lock()
		defer s.looking.Unlock()
		s.forget()
	}
}

// Names are the sources that are asked for here, sorted.
func (c *Controller) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.sources))
}

// Call has sources looked at now, by whoever holds them.
func (c *Controller) Call(ctx context.Context, names ...string) error {
	return c.client.EnqueueSources(ctx, names, false, "")
}

// Approve approves the removal that a source asks about, by its digest, and has
// it looked at now. An ErrConflict says that it asks about something else by now.
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

// announceAgain is how often the sources are called for, in case that their
// work was given up by a controller that doesn't know them.
const announceAgain = time.Minute

// Run works until the context ends. An error says that the data controller
// refuses the work.
func (c *Controller) Run(ctx context.Context) error {
	defer c.close()
	var wait sync.WaitGroup
	announcing, stop := context.WithCancel(ctx)
	wait.Go(func() { c.announce(announcing) })
	defer wait.Wait()
	defer stop()
	loop := &work.Loop{
		Client: c.client, Queue: tko.QueueGitOps, Worker: c.options.Worker, Concurrency: c.options.Concurrency, Lease: c.options.Lease,
		Log: c.log, Do: c.do,
	}
	return loop.Run(ctx)
}

func (c *Controller) close() {
	for _, name := range c.Names() {
		c.Drop(name)
	}
}

// confirmAfter is when it is found out whether somebody has looked who knows
// what was called for.
const confirmAfter = 5 * time.Second

// A call is one for a look at a source at a generation.
type call struct {
	generation string
	confirm    time.Time // zero if somebody has looked who knows that generation
}

// announce has every source be looked at by somebody. Who looks may not have
// heard yet of what is new: then it is called for again.
func (c *Controller) announce(ctx context.Context) {
	calls := map[string]call{}
	for {
		var fresh []string
		names := c.Names()
		for _, name := range names {
			_, spec := c.find(name)
			last, called := calls[name]
			if called && last.generation == spec.Generation {
				if last.confirm.IsZero() || time.Now().Before(last.confirm) {
					continue
				}
				heard, due := c.heard(ctx, name, spec.Generation)
				if heard {
					calls[name] = call{generation: spec.Generation}
					continue
				}
				if due {
					calls[name] = call{spec.Generation, time.Now().Add(confirmAfter)}
					continue
				}
			}
			calls[name] = call{spec.Generation, time.Now().Add(confirmAfter)}
			fresh = append(fresh, name)
		}
		maps.DeleteFunc(calls, func(name string, _ call) bool { return !slices.Contains(names, name) })
		err := c.client.EnqueueSources(ctx, names, true, "")
		if err == nil && len(fresh) > 0 {
			err = c.client.EnqueueSources(ctx, fresh, false, "")
		}
		wait := announceAgain
		if err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "sources could not be called for", "err", err)
			clear(calls)
			wait = confirmAfter
		}
		for _, last := range calls {
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

// heard says whether we have looked at a source at a generation, or somebody
// else has applied it; if not, due says whether a look is still to come, or to
// end.
func (c *Controller) heard(ctx context.Context, name, generation string) (heard, due bool) {
	c.mu.Lock()
	s := c.sources[name]
	heard = s == nil || s.looked == generation
	c.mu.Unlock()
	if heard {
		return true, false
	}
	now, err := c.client.SourceUnless(ctx, name, 0)
	if err != nil {
		return false, false
	}
	var state kept
	return json.Unmarshal(now.State, &state) == nil && state.Generation == generation, now.Enqueued
}

// do looks at a source.
func (c *Controller) do(ctx context.Context, item tko.WorkItem) work.Result {
	s, spec := c.find(item.Key)
	if s == nil {
		// Whoever knows it calls for it again.
		return work.Result{Outcome: tko.WorkDone}
	}
	s.looking.Lock()
	defer s.looking.Unlock()
	l := &look{controller: c, source: s, spec: spec, claim: item, log: c.log.With("source", spec.Name)}
	l.called = s.due.IsZero() || time.Now().Before(s.due)
	result := l.do(tko.WithClaim(ctx, item))
	s.due = time.Time{}
	if result.Err == nil && result.Outcome == tko.WorkLater && result.Retry > 0 {
		s.due = time.Now().Add(result.Retry)
	}
	if !errors.Is(result.Err, errClaim) && ctx.Err() == nil {
		c.mu.Lock()
		s.looked = spec.Generation
		c.mu.Unlock()
	}
	if l.freed() {
		c.callDependents(ctx, spec.Name)
	}
	if spec.Report != nil && s.record.Version != 0 {
		spec.Report(ctx, s.record)
	}
	return result
}

// callDependents has those looked at that wait for a source.
func (c *Controller) callDependents(ctx context.Context, name string) {
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
	if err := c.Call(ctx, waiting...); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "those that wait for a source could not be called for: they look by themselves", "source", name, "err", err)
	}
}

// around spreads looks, so that they don't come together.
func around(d time.Duration) time.Duration {
	return d - d/20 + rand.N(d/10+1) //nolint:gosec // spreads load, hides nothing
}

// forget closes the files that are kept.
func (s *source) forget() {
	s.last = nil
	if s.tree != nil {
		_ = s.tree.Close()
		s.tree, s.revision = nil, ""
	}
}
