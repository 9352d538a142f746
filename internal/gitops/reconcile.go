package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/osm/osmops"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/work"
)

// savedState is the controller's own state, which is stored in a source's State.
type savedState struct {
	Generation string    `json:"generation,omitempty"` // of the spec that was applied last
	OSM        *osmState `json:"osm,omitempty"`
	// Removals are those that the budget of an inventory allowed, the oldest first.
	Removals []removals `json:"removals,omitempty"`
	// Removed are the values of users at sites that an inventory removed, the oldest first.
	Removed []savedSite `json:"removed,omitempty"`
	// Declares means that the source declared others, and that they may still be its own.
	Declares bool `json:"declares,omitempty"`
	// Rollout is the newest rollout that the source made; nil if there is none.
	Rollout *savedRollout `json:"rollout,omitempty"`
	// Reports are what was reported to the server of the repository; nil if nothing was.
	Reports *savedReports `json:"reports,omitempty"`
}

// removals are a number of removals at a time.
type removals struct {
	Time  time.Time `json:"time"`
	Count int       `json:"count"`
}

// budgetWindow is the time for which removals are charged to the budget of an inventory:
// one that loses a few sites again and again would lose all.
const budgetWindow = time.Hour

// charge records removals before they are made, and drops those that are over.
func (s *savedState) charge(n int, now time.Time) {
	s.Removals = slices.DeleteFunc(slices.Clone(s.Removals), func(r removals) bool { return now.Sub(r.Time) >= budgetWindow })
	if n > 0 {
		s.Removals = append(s.Removals, removals{now.UTC().Truncate(time.Second), n})
	}
}

// charged returns the number of removals that the budget allowed lately.
func (s *savedState) charged(now time.Time) (n int) {
	for _, r := range s.Removals {
		if now.Sub(r.Time) < budgetWindow {
			n += r.Count
		}
	}
	return n
}

// A reconciliation is one reconciliation of one source, under a claim of its work item.
type reconciliation struct {
	controller *Controller
	source     *source
	spec       Spec
	claim      tko.WorkItem
	enqueued   bool // it was requested, or may have been, and is not just due
	requested  bool // it was requested
	log        *slog.Logger

	before tko.SourceStatus
	status tko.SourceStatus
	state  savedState
	files  fs.FS // of the revision, decrypted

	loaded  bool       // record, status and state are those of the source, and it isn't being removed
	past    *tree.Tree // files of the revision before, while its network services are restored
	decided bool       // the status is about the revision that it was tried to apply

	reach    tko.SourceReach // what the source may change without consent
	byPolicy bool            // spec.Rollout is that of the operator's policy
}

// run reconciles the source and saves its status. The result states when to
// reconcile it again.
func (l *reconciliation) run(ctx context.Context) work.Result {
	err := l.load(ctx)
	if err != nil {
		return work.Result{Err: err}
	}
	if l.taken() {
		l.log.WarnContext(ctx, "another source has the name: rename one of them", "registered", l.spec.Registered)
		return work.Result{Outcome: tko.WorkLater, Retry: spread(l.spec.Interval)}
	}
	if l.spec.Forget {
		return l.removeSource(ctx)
	}
	l.loaded = true
	again, err := l.reconcile(ctx)
	switch {
	case errors.Is(err, errClaim) || ctx.Err() != nil:
		l.source.record = tko.Source{} // another controller may have written it since
		if err == nil {
			err = context.Cause(ctx)
		}
		return work.Result{Err: err}
	case err == nil:
		return work.Result{Outcome: tko.WorkLater, Retry: again}
	}
	known := (*conditionError)(nil)
	if !errors.As(err, &known) {
		known = &conditionError{reason: tko.SourceReasonFailed, err: err}
	}
	if again := (*AgainError)(nil); errors.As(err, &again) && again.Quiet {
		return work.Result{Outcome: tko.WorkLater, Retry: again.After}
	} else if again != nil && again.First && l.status.Applied == "" {
		l.setProgressing(again.Error())
		return work.Result{Outcome: tko.WorkLater, Retry: again.After, Err: l.save(ctx)}
	}
	if known.wait == 0 {
		known.wait = l.spec.Retry
	}
	l.setFailed(known)
	if saveErr := l.save(ctx); saveErr != nil {
		return work.Result{Err: errors.Join(err, saveErr)}
	}
	if known.wait > 0 {
		return work.Result{Outcome: tko.WorkLater, Retry: known.wait}
	}
	return work.Result{Err: err}
}

// taken reports whether the record is that of another source of the name: one in settings,
// if this one is registered, or the other way around. It keeps its entities.
func (l *reconciliation) taken() bool {
	r := l.source.record
	return r.Version != 0 && r.Status.Registered != l.spec.Registered && !l.spec.TakeOver
}

// A conditionError is a failure and how conditions report it.
type conditionError struct {
	reason  string
	err     error
	stalled bool          // only a change of the source or the spec helps
	wait    time.Duration // until the next try; with back-off if 0
}

func (e *conditionError) Error() string { return e.err.Error() }
func (e *conditionError) Unwrap() error { return e.err }

// errClaim is the error if another controller may be working on the source.
var errClaim = errors.New("the claim of the source was lost")

// load reads the source's record, unless the cached one is current.
func (l *reconciliation) load(ctx context.Context) error {
	s := l.source
	now, err := l.controller.client.SourceUnless(ctx, l.spec.Name, s.record.Version)
	switch {
	case errors.Is(err, tko.ErrNotFound):
		s.record = tko.Source{Name: l.spec.Name}
		s.forgetOSM()
	case err != nil:
		return err
	}
	l.reach = now.Reach
	switch {
	case err != nil:
	case s.record.Version != 0 && now.Version == s.record.Version:
		s.record.Approved = now.Approved
	default:
		s.record = now
		s.forgetOSM()
	}
	l.before, l.status = s.record.Status, s.record.Status
	l.status.Items = slices.Clone(l.status.Items)
	l.status.Conditions = slices.Clone(l.status.Conditions)
	l.status.Kind, l.status.URL, l.status.Ref, l.status.Path = l.spec.Kind, l.spec.URL, l.spec.Ref, l.spec.Path
	l.status.Registered = l.spec.Registered
	l.state = savedState{}
	if len(s.record.State) > 0 {
		if err := json.Unmarshal(s.record.State, &l.state); err != nil {
			return fmt.Errorf("read the state of source %q: %w", l.spec.Name, err)
		}
	}
	return nil
}

// save writes the source's record if it has changed. If the claim is lost, the
// error is errClaim.
func (l *reconciliation) save(ctx context.Context) error {
	s := l.source
	l.status.Holder = l.controller.options.Worker
	state, err := json.Marshal(l.state)
	if err != nil {
		return err
	}
	next := tko.Source{Name: l.spec.Name, Status: l.status, State: state, Approved: s.record.Approved}
	if same(s.record, next) {
		return nil
	}
	version, err := l.controller.client.SaveSource(ctx, next, l.claim)
	if errors.Is(err, tko.ErrConflict) {
		return fmt.Errorf("%w: %w", errClaim, err)
	}
	if err != nil {
		return fmt.Errorf("save source %q: %w", l.spec.Name, err)
	}
	next.Version, next.Updated = version, time.Now().UTC()
	s.record = next
	s.record.Status.Items = slices.Clone(next.Status.Items)
	s.record.Status.Operations = slices.Clone(next.Status.Operations)
	s.record.Status.Conditions = slices.Clone(next.Status.Conditions)
	if l.controller.options.Changed != nil {
		l.controller.options.Changed(ctx, next)
	}
	if l.spec.Report != nil {
		l.spec.Report(ctx, next)
	}
	return nil
}

// same reports whether b has the status and state of a. The holder is not
// compared, and a record that was never saved equals none.
func same(a, b tko.Source) bool {
	if a.Version == 0 {
		return false
	}
	a.Status.Holder = b.Status.Holder
	x, errX := json.Marshal(a.Status)
	y, errY := json.Marshal(b.Status)
	return errX == nil && errY == nil && string(x) == string(y) && string(a.State) == string(b.State)
}

// reconcile applies the source's revision and returns after what time to
// reconcile again.
func (l *reconciliation) reconcile(ctx context.Context) (again time.Duration, err error) {
	if l.spec.Suspend { // what was applied stays ready, also for those that depend on it
		l.status.Conditions = tko.WithoutCondition(l.status.Conditions, tko.ConditionReconciling)
		if c := tko.FindCondition(l.status.Conditions, tko.ConditionReady); c == nil || c.Status == tko.ConditionUnknown {
			l.setReady(tko.ConditionUnknown, tko.SourceReasonSuspended, "the source is suspended")
		}
		l.setCondition(tko.ConditionSuspended, tko.ConditionTrue, tko.SourceReasonSuspended, "the source is suspended: it stays as it is")
		return spread(l.spec.Interval), l.save(ctx)
	}
	l.status.Conditions = tko.WithoutCondition(l.status.Conditions, tko.ConditionSuspended)
	if l.spec.Invalid != nil {
		return 0, l.invalid(l.spec.Invalid)
	}
	if again, err := l.stillWaits(ctx); again > 0 || err != nil {
		return again, err
	}
	revision, err := l.revision(ctx)
	if err != nil {
		return 0, l.fetchFailed(ctx, err)
	}
	if err := l.dependencies(ctx, revision); err != nil {
		return 0, err
	}
	if l.settled(ctx, revision) {
		l.decided = true
		l.succeed(revision) // clears the condition of an earlier failure to fetch
		return spread(l.spec.Interval), l.save(ctx)
	}
	r, err := l.read(ctx, revision)
	if err != nil {
		return 0, l.fetchFailed(ctx, err)
	}
	if revision, r, err = l.confirmAbsence(ctx, revision, r); err != nil {
		return 0, l.fetchFailed(ctx, err)
	}
	l.status.Attempted, l.decided = revision, true
	if last := l.source.last; last != nil && !l.enqueued && r.wrong == nil && last.suffices(revision, l.spec) {
		return l.conclude(ctx, revision, r.osm, last.messages, "")
	}
	l.source.last = nil
	return l.apply(ctx, revision, r)
}

// fetchFailed returns the error for a failure to read the source. If the context
// has ended, it returns err.
func (l *reconciliation) fetchFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	e := &conditionError{reason: tko.SourceReasonFetchFailed, err: err, stalled: errors.Is(err, tko.ErrInvalid)}
	if e.stalled {
		e.wait = spread(l.spec.Interval)
	}
	if errors.Is(err, tko.ErrDenied) {
		e.reason, e.stalled, e.wait = tko.SourceReasonDenied, true, spread(l.spec.Interval)
	}
	if again := (*AgainError)(nil); errors.As(err, &again) {
		e.wait = again.After
	}
	return e
}

// An AgainError is the error of a Fetcher that knows when to try again.
type AgainError struct {
	After time.Duration
	Err   error
	Quiet bool // it is no failure: the source's status stays
	First bool // it is no failure of a source that has never been applied: the first revision isn't there yet
}

func (e *AgainError) Error() string { return e.Err.Error() }
func (e *AgainError) Unwrap() error { return e.Err }

// dependencies returns an error if a source on which this one depends isn't
// ready, or has the same origin and another revision.
func (l *reconciliation) dependencies(ctx context.Context, revision string) error {
	for _, name := range l.spec.DependsOn {
		s, err := l.controller.client.SourceUnless(ctx, name, 0)
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return err
		}
		var problem string
		switch {
		case name == l.spec.Name:
			problem = "it depends on itself"
		case err != nil:
			problem = fmt.Sprintf("source %q: not found", name)
		case !ready(s.Status):
			problem = fmt.Sprintf("source %q isn't ready", name)
		case s.Status.Kind == l.spec.Kind && s.Status.URL == l.spec.URL && s.Status.Ref == l.spec.Ref && s.Status.Applied != revision:
			problem = fmt.Sprintf("source %q isn't at revision %s yet", name, revision)
		default:
			continue
		}
		return &conditionError{reason: tko.SourceReasonDependency, err: errors.New(problem), wait: dependencyWait}
	}
	return nil
}

// unblocksDependents reports whether this reconciliation lets dependent sources proceed.
func (l *reconciliation) unblocksDependents() bool {
	now := l.source.record.Status
	return ready(now) && (!ready(l.before) || l.before.Applied != now.Applied)
}

func ready(s tko.SourceStatus) bool {
	return tko.ConditionIs(s.Conditions, tko.ConditionReady) == tko.ConditionTrue
}

// dependencyWait is how long to wait before dependencies are checked again.
const dependencyWait = 30 * time.Second

// settled reports whether the revision is known to be applied, at the cost of one
// request at most. If the reconciliation was requested, the last check doesn't
// count: TKO must not have changed since, and an OSM is always compared.
func (l *reconciliation) settled(ctx context.Context, revision string) bool {
	s := l.source
	if l.status.Applied != revision || l.state.Generation != l.spec.Generation || l.status.PendingRemoval != "" || l.state.OSM.busy() || s.checked.IsZero() {
		return false
	}
	switch c := tko.FindCondition(l.status.Conditions, tko.ConditionReady); {
	case c == nil:
		return false
	case c.Status == tko.ConditionTrue:
	case c.Reason == tko.SourceReasonFetchFailed || c.Reason == tko.SourceReasonDependency: // the revision itself didn't fail
	default:
		return false
	}
	if !l.enqueued && time.Since(s.checked) < l.spec.Resync {
		return true
	}
	if l.state.OSM != nil || l.spec.AllowSources && !l.controller.sameDefinitions(ctx, s.declared) {
		return false
	}
	about, err := l.controller.client.About(ctx)
	if err != nil || about.Position != s.position {
		return false
	}
	s.checked = time.Now()
	return true
}

// revision returns the current revision.
func (l *reconciliation) revision(ctx context.Context) (string, error) {
	if l.spec.Inventory == nil {
		return l.spec.From.Revision(ctx)
	}
	revision, err := l.spec.Inventory.Revision(ctx)
	if s, ok := l.spec.Inventory.(Subscriber); ok && ctx.Err() == nil {
		l.setSubscribed(s)
	}
	return revision, err
}

// at fetches the files of a revision, unless the source has them.
func (l *reconciliation) at(ctx context.Context, revision string) error {
	s := l.source
	// Another spec may read other files of the same revision.
	key := revision + " " + l.spec.Generation
	if s.tree != nil && s.revision == key {
		return nil
	}
	t, err := l.spec.From.Fetch(ctx, revision)
	if err != nil {
		return err
	}
	s.dropFiles()
	s.tree, s.revision = t, key
	return nil
}

// A reading is the content of a revision.
type reading struct {
	manifests []manifest.Manifest
	sources   []manifest.Source
	notes     []string // for users
	osm       *osmWanted
	wrong     error // the problems of invalid files, joined
}

// read reads a revision. The error is a failure to fetch it. If files disappear
// meanwhile, as when a system cleans its temporary files, the revision is fetched
// and read again: their entities would seem to have been removed from the source.
func (l *reconciliation) read(ctx context.Context, revision string) (r reading, err error) {
	if l.spec.Inventory != nil {
		r.manifests, r.notes, err = l.spec.Inventory.Manifests(revision)
		return r, err
	}
	for range 2 {
		if err := l.at(ctx, revision); err != nil {
			return r, err
		}
		l.files = l.source.tree
		if o, ok := l.spec.From.(Opener); ok {
			if l.files, err = o.Open(ctx, l.source.tree, revision); err != nil {
				return r, err
			}
		}
		r = reading{}
		if !l.spec.OSMOnly {
			r.manifests, r.sources, r.wrong = l.readManifests()
		}
		osm, osmErr := l.readOSM()
		r.osm, r.wrong = osm, errors.Join(r.wrong, osmErr, l.spec.forbidden(r.manifests, l.files))
		if l.source.tree.Whole() {
			return r, nil
		}
		l.source.dropFiles()
	}
	return r, errors.New("files of the revision disappear while they are read: set --gitops-dir to a folder that is not cleaned up")
}

func (l *reconciliation) readManifests() ([]manifest.Manifest, []manifest.Source, error) {
	if l.spec.AllowSources {
		return manifest.ReadAll(l.files, l.spec.Path)
	}
	manifests, err := manifest.Read(l.files, l.spec.Path)
	return manifests, nil, err
}

// forbidden returns an ErrInvalid if a registered source has what its author may not use:
// plugins run programs, and connections to an OSM are the operator's.
func (s Spec) forbidden(manifests []manifest.Manifest, files fs.FS) error {
	if !s.Registered {
		return nil
	}
	var wrong []error
	for _, m := range manifests {
		if m.Put.Kind == tko.KindPlugin {
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "%s: a registered source can't have plugins, because they run programs: an administrator registers them, or a source in the file of --gitops-sources does", m))
		}
	}
	if osmops.Holds(files) {
		wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "%s: a registered source can't be for Open Source MANO: use the file of --gitops-sources", osmops.ConfigFile))
	}
	return errors.Join(wrong...)
}

// rounds is how often a plan is made and applied until no actions remain. One of them may
// only find out that a rollout is needed.
const rounds = 4

// apply applies a revision that was read: to TKO, then to an OSM.
func (l *reconciliation) apply(ctx context.Context, revision string, r reading) (again time.Duration, err error) {
	manifests, osm := r.manifests, r.osm
	if r.wrong != nil {
		return 0, l.invalid(r.wrong)
	}
	if l.spec.OSMOnly && osm == nil && len(l.status.Items) == 0 && l.state.OSM == nil {
		l.succeed(revision)
		l.markApplied(revision)
		return spread(l.spec.Interval), l.save(ctx)
	}
	if held, again, err := l.held(ctx, revision, manifests); held || err != nil {
		return again, err
	}
	if err := l.checkDeclared(ctx, revision, r); err != nil {
		return 0, err
	}
	about, err := l.controller.client.About(ctx) // before planning, so that settled notices later changes
	if err != nil {
		return 0, err
	}
	if !l.reach.Known { // the source is new
		l.reach = about.Reach
	}
	var p *plan.Plan
	var deployments []plan.Action
	waiting := 0
	var governed []string
	for range rounds {
		if p, err = plan.Make(ctx, l.controller.client, manifests, l.status.Items, l.policy()); err != nil {
			if errors.Is(err, tko.ErrInvalid) {
				return 0, l.invalid(err)
			}
			return 0, err
		}
		if again, err := l.govern(p); err != nil {
			return 0, l.invalid(err)
		} else if again {
			governed = []string{"the revision " + reachText(p, rolloutBase(l.spec.Name, revision))}
			continue
		}
		l.status.Messages = nil
		l.setItems(p.Items, p.Origins)
		deployments = nil
		if l.spec.Rollout != nil {
			deployments, waiting = p.Deployments()
		}
		if len(p.Actions) == 0 {
			break
		}
		if err := l.applyPlan(ctx, p, revision); err != nil {
			return 0, err
		}
	}
	l.source.position = about.Position
	if p != nil && len(p.Actions) > 0 {
		l.source.position = -1
	}
	kept, err := l.declare(ctx, revision, r)
	if err != nil {
		return 0, err
	}
	messages := slices.Concat(governed, p.Messages, p.Invalid, r.notes, kept)
	switch {
	case l.spec.AddOnly:
		l.setConsistent(tko.SourceReasonLeftOut, messages)
	case len(kept) > 0:
		l.setConsistent(tko.SourceReasonSources, kept)
	default:
		l.setConsistent(tko.SourceReasonConflicts, r.notes)
	}
	if len(deployments) > 0 {
		if waiting > 0 {
			messages = append(messages, fmt.Sprintf("%d removals of other entities follow the rollout", waiting))
		}
		return l.applyByRollout(ctx, revision, p, deployments, r, messages)
	}
	return l.conclude(ctx, revision, osm, messages, p.Asks)
}

// conclude applies the revision to an OSM, after it was applied to TKO, and saves
// the status. The messages and the digest of a pending removal are TKO's.
func (l *reconciliation) conclude(ctx context.Context, revision string, osm *osmWanted, messages []string, asks string) (again time.Duration, err error) {
	l.status.Messages, l.status.PendingRemoval = slices.Clone(messages), asks
	again, pending, err := l.applyOSM(ctx, osm, revision)
	if err != nil {
		l.source.forgetOSM()
		return 0, err
	}
	if l.source.last != nil {
		l.source.last.messages = messages
	}
	if asks != "" {
		l.source.last = nil
		l.setReady(tko.ConditionFalse, tko.SourceReasonApproval, strings.Join(messages, "; "))
		l.source.checked = time.Now()
		return spread(l.spec.Interval), l.save(ctx)
	}
	if pending != "" {
		return again, l.save(ctx)
	}
	l.markApplied(revision)
	l.succeed(revision)
	return again, l.save(ctx)
}

// succeed sets Ready: the whole revision is applied.
func (l *reconciliation) succeed(revision string) {
	l.status.Attempted = revision
	if l.spec.OSMOnly && len(l.status.Items) == 0 && l.state.OSM == nil {
		l.setReady(tko.ConditionTrue, tko.SourceReasonNothing, "the revision holds nothing for TKO")
		return
	}
	l.setReady(tko.ConditionTrue, tko.SourceReasonSucceeded, "applied revision "+revision)
}

func (l *reconciliation) policy() plan.Policy {
	return plan.Policy{
		Source: l.spec.Name, Prune: l.spec.Prune, Adopt: l.spec.Adopt, Budget: l.spec.Budget, Approve: l.source.record.Approved, Ends: l.spec.Forget, Careful: l.spec.Inventory != nil && !l.spec.AddOnly, AddOnly: l.spec.AddOnly,
		Editable: l.spec.Editable, Origins: l.status.Origins, Spent: l.state.charged(time.Now()),
		Saved: l.state.savedValues(graceOf(l.spec.Inventory), time.Now()),
		Reach: l.reach, Rollout: l.spec.Rollout != nil,
	}
}

// invalid returns the error for a revision that has to change. It is tried again
// after the interval, because an entity it refers to may be created meanwhile.
func (l *reconciliation) invalid(err error) error {
	return &conditionError{reason: tko.SourceReasonInvalid, err: err, stalled: true, wait: spread(l.spec.Interval)}
}

// applyPlan applies a plan, and saves the inventory and the operations.
func (l *reconciliation) applyPlan(ctx context.Context, p *plan.Plan, revision string) error {
	l.setProgressing(fmt.Sprintf("applying revision %s: %d changes", revision, len(p.Actions)))
	l.log.InfoContext(ctx, "applying", "revision", revision, "changes", len(p.Actions))
	if removed := p.Removed(); (p.Charged > 0 || len(removed) > 0) && l.spec.Inventory != nil { // before: a process that is killed meanwhile has spent it
		l.state.charge(p.Charged, time.Now())
		l.state.saveValues(removed, graceOf(l.spec.Inventory), time.Now())
		if err := l.save(ctx); err != nil {
			return err
		}
	}
	operations, err := p.Apply(ctx, l.controller.client, revision, func(ctx context.Context, items []tko.SourceItem) error {
		l.setItems(items, p.Origins)
		return l.save(ctx)
	})
	l.addOperations(operations...)
	if err == nil {
		return nil
	}
	if errors.Is(err, errClaim) {
		return err
	}
	if errors.Is(err, tko.ErrStopped) { // the release makes the work due at once
		return &conditionError{reason: tko.SourceReasonHeld, wait: spread(l.spec.Interval), err: err}
	}
	if errors.Is(err, tko.ErrInvalid) {
		return l.invalid(err)
	}
	return err
}

// setItems replaces the entities in the inventory, and their origins. Items of an OSM
// stay.
func (l *reconciliation) setItems(items []tko.SourceItem, origins []tko.SourceOrigins) {
	items, l.status.Origins = compact(items, origins)
	rest := slices.DeleteFunc(slices.Clone(l.status.Items), func(i tko.SourceItem) bool { return slices.Contains(manifest.Order, tko.Kind(i.Kind)) })
	l.status.Items = slices.Concat(items, rest)
}

// compact returns the items with the origins that they use, and no others.
func compact(items []tko.SourceItem, origins []tko.SourceOrigins) (renumbered []tko.SourceItem, used []tko.SourceOrigins) {
	renumbered = slices.Clone(items)
	numbers := map[int]int{}
	for i, item := range renumbered {
		parts := tko.SourceStatus{Origins: origins}.OriginsOf(item)
		if parts == nil {
			renumbered[i].Origins = 0
			continue
		}
		if numbers[item.Origins] == 0 {
			used = append(used, parts)
			numbers[item.Origins] = len(used)
		}
		renumbered[i].Origins = numbers[item.Origins]
	}
	return renumbered, used
}

// maxOperations is how many operations the status of a source holds.
const maxOperations = 20

// addOperations adds operations, the oldest first, to the status.
func (l *reconciliation) addOperations(operations ...tko.SourceOperation) {
	operations = slices.Clone(operations)
	slices.Reverse(operations)
	l.status.Operations = append(operations, l.status.Operations...)
	l.status.Operations = l.status.Operations[:min(maxOperations, len(l.status.Operations))]
}

// markApplied records that the whole revision is applied.
func (l *reconciliation) markApplied(revision string) {
	l.status.Attempted, l.status.Applied, l.status.PendingRemoval = revision, revision, ""
	l.state.Generation = l.spec.Generation
	l.source.checked = time.Now()
}

// removeSource removes a source whose spec has Forget set: first what it owns, then its
// record.
func (l *reconciliation) removeSource(ctx context.Context) work.Result {
	if l.source.record.Version == 0 { // it was removed already, or never saved: don't save it again
		if l.spec.Registered { // its definition may be there still
			if err := l.controller.client.ForgetSource(ctx, l.spec.Name, l.claim); err != nil {
				return work.Result{Err: err}
			}
		}
		l.controller.dropRemoved(ctx, l.source, l.spec.Name, l.spec.Report)
		return work.Result{Outcome: tko.WorkDone}
	}
	l.source.last = nil
	if l.state.Rollout != nil {
		wait, again, err := l.endRollouts(ctx)
		if wait || err != nil {
			return work.Result{Outcome: tko.WorkLater, Retry: again, Err: err}
		}
	}
	p, err := plan.Make(ctx, l.controller.client, nil, l.status.Items, l.policy())
	if err == nil && p.Asks != "" {
		l.status.PendingRemoval, l.status.Messages = p.Asks, p.Messages
		l.setReady(tko.ConditionFalse, tko.SourceReasonApproval, strings.Join(p.Messages, "; "))
		return work.Result{Outcome: tko.WorkLater, Retry: spread(l.spec.Interval), Err: l.save(ctx)}
	}
	if err == nil {
		err = l.applyPlan(ctx, p, "the end of the source")
	}
	if err == nil {
		var again time.Duration
		again, _, err = l.applyOSM(ctx, nil, "the end of the source")
		if err == nil && l.state.OSM.owns() && l.spec.Prune {
			return work.Result{Outcome: tko.WorkLater, Retry: again, Err: l.save(ctx)}
		}
	}
	if err == nil {
		err = l.withdraw(ctx)
	}
	if err == nil {
		err = l.controller.client.ForgetSource(ctx, l.spec.Name, l.claim)
	}
	if err != nil {
		l.setFailed(&conditionError{reason: tko.SourceReasonFailed, err: err})
		return work.Result{Err: errors.Join(err, l.save(ctx))}
	}
	l.controller.dropRemoved(ctx, l.source, l.spec.Name, l.spec.Report)
	return work.Result{Outcome: tko.WorkDone}
}

// dropRemoved drops a source that was removed, and reports the removal.
func (c *Controller) dropRemoved(ctx context.Context, s *source, name string, report func(context.Context, tko.Source)) {
	s.dropFiles()
	s.record = tko.Source{}
	c.mu.Lock()
	if c.sources[name] == s {
		delete(c.sources, name)
	}
	c.mu.Unlock()
	if c.options.Changed != nil {
		c.options.Changed(ctx, tko.Source{Name: name})
	}
	if report != nil {
		report(ctx, tko.Source{Name: name})
	}
}

// maxMessage is the most bytes of a condition's message.
const maxMessage = 4000

// setReady sets Ready, and removes Reconciling and Stalled.
func (l *reconciliation) setReady(status, reason, message string) {
	l.setCondition(tko.ConditionReady, status, reason, message)
	l.status.Conditions = tko.WithoutCondition(l.status.Conditions, tko.ConditionReconciling)
	l.status.Conditions = tko.WithoutCondition(l.status.Conditions, tko.ConditionStalled)
}

// setProgressing sets Reconciling, and Ready to Unknown.
func (l *reconciliation) setProgressing(message string) {
	l.setCondition(tko.ConditionReconciling, tko.ConditionTrue, tko.SourceReasonProgressing, message)
	l.setCondition(tko.ConditionReady, tko.ConditionUnknown, tko.SourceReasonProgressing, message)
	l.status.Conditions = tko.WithoutCondition(l.status.Conditions, tko.ConditionStalled)
}

// setFailed sets Ready to False, and Stalled or Reconciling if one applies.
func (l *reconciliation) setFailed(e *conditionError) {
	l.setReady(tko.ConditionFalse, e.reason, e.Error())
	if e.stalled {
		l.setCondition(tko.ConditionStalled, tko.ConditionTrue, e.reason, e.Error())
	} else if e.wait == 0 {
		l.setCondition(tko.ConditionReconciling, tko.ConditionTrue, tko.SourceReasonRetrying, "reconciliation will be retried")
	}
}

// setCondition sets a condition. Its transition time changes only with its status.
func (l *reconciliation) setCondition(typ, status, reason, message string) {
	separator := "\n" // between problems
	if !strings.Contains(message, separator) {
		separator = "; "
	}
	message = List(strings.Split(message, separator), separator, maxMessage)
	c := tko.Condition{Type: typ, Status: status, Reason: reason, Message: message, LastTransition: time.Now().UTC().Truncate(time.Microsecond)}
	l.status.Conditions = tko.MergeConditions(l.status.Conditions, c)
}

// setConsistent sets Consistent to False if there are notes about contradictions, or
// about what is left out.
func (l *reconciliation) setConsistent(reason string, notes []string) {
	if len(notes) == 0 {
		l.status.Conditions = tko.WithoutCondition(l.status.Conditions, tko.ConditionConsistent)
		return
	}
	l.setCondition(tko.ConditionConsistent, tko.ConditionFalse, reason, strings.Join(notes, "\n"))
}

// setSubscribed reports whether the servers of an inventory report changes.
func (l *reconciliation) setSubscribed(s Subscriber) {
	switch wanted, err := s.Subscription(); {
	case !wanted:
		l.status.Conditions = tko.WithoutCondition(l.status.Conditions, tko.ConditionSubscribed)
	case err != nil:
		l.setCondition(tko.ConditionSubscribed, tko.ConditionFalse, tko.SourceReasonNoEvents, err.Error()+": changes are noticed after the interval")
	default:
		l.setCondition(tko.ConditionSubscribed, tko.ConditionTrue, tko.SourceReasonEvents, "the server reports changes")
	}
}

// List joins as many texts as fit into limit bytes, followed by "and N more" if
// some are left out. It always holds at least a part of the first one.
func List(texts []string, separator string, limit int) string {
	const room = len("and 1234567890 more")
	length := 0
	for i, text := range texts {
		length += len(text) + len(separator)
		last := i == len(texts)-1
		if length <= limit-room-len(separator) || last && length-len(separator) <= limit {
			continue
		}
		if i == 0 {
			texts, i = slices.Clone(texts), 1
			texts[0] = printable.Short(text, max(limit-room-len(separator), 0))
		}
		if more := len(texts) - i; more > 0 {
			return strings.Join(append(slices.Clone(texts[:i]), fmt.Sprintf("and %d more", more)), separator)
		}
		break
	}
	return strings.Join(texts, separator)
}

func short(text string) string { return printable.Short(text, maxMessage) }
