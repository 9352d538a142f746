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
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/work"
)

// kept is what the controller keeps in a source's State.
type kept struct {
	Generation string   `json:"generation,omitempty"` // of the spec that was applied
	OSM        *osmKept `json:"osm,omitempty"`
}

// A look is one at one source, with a claim of its work.
type look struct {
	controller *Controller
	source     *source
	spec       Spec
	claim      tko.WorkItem
	called     bool // it was called for, or may have been: it isn't just due
	log        *slog.Logger

	before tko.SourceStatus
	status tko.SourceStatus
	state  kept
	files  fs.FS // of the revision, as they are read
}

// do looks, keeps how it went, and says when to look again.
func (l *look) do(ctx context.Context) work.Result {
	err := l.load(ctx)
	if err != nil {
		return work.Result{Err: err}
	}
	if l.spec.Forget {
		return l.leave(ctx)
	}
	again, err := l.reconcile(ctx)
	switch {
	case errors.Is(err, errClaim) || ctx.Err() != nil:
		l.source.record = tko.Source{} // what is kept is somebody else's by now
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
	}
	if known.wait == 0 {
		known.wait = l.spec.Retry
	}
	l.failed(known)
	if saveErr := l.save(ctx); saveErr != nil {
		return work.Result{Err: errors.Join(err, saveErr)}
	}
	if known.wait > 0 {
		return work.Result{Outcome: tko.WorkLater, Retry: known.wait}
	}
	return work.Result{Err: err}
}

// A conditionError is a failure, and how it is said.
type conditionError struct {
	reason  string
	err     error
	stalled bool          // nothing helps but a change
	wait    time.Duration // look again after that; with back-off if 0
}

func (e *conditionError) Error() string { return e.err.Error() }
func (e *conditionError) Unwrap() error { return e.err }

// errClaim says that somebody else may be working on the source.
var errClaim = errors.New("the claim of the source was lost")

// load reads how the source is.
func (l *look) load(ctx context.Context) error {
	s := l.source
	now, err := l.controller.client.SourceUnless(ctx, l.spec.Name, s.record.Version)
	switch {
	case errors.Is(err, tko.ErrNotFound):
		s.record, s.last = tko.Source{Name: l.spec.Name}, nil
	case err != nil:
		return err
	case s.record.Version != 0 && now.Version == s.record.Version:
		s.record.Approved = now.Approved
	default:
		s.record, s.last = now, nil
	}
	l.before, l.status = s.record.Status, s.record.Status
	l.status.Items = slices.Clone(l.status.Items)
	l.status.Conditions = slices.Clone(l.status.Conditions)
	l.status.Kind, l.status.URL, l.status.Ref, l.status.Path = l.spec.Kind, l.spec.URL, l.spec.Ref, l.spec.Path
	l.state = kept{}
	if len(s.record.State) > 0 {
		if err := json.Unmarshal(s.record.State, &l.state); err != nil {
			return fmt.Errorf("the state of source %q can't be read: %w", l.spec.Name, err)
		}
	}
	return nil
}

// save keeps how the source is, if that is news.
func (l *look) save(ctx context.Context) error {
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
		return fmt.Errorf("keep how source %q is: %w", l.spec.Name, err)
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

// same says whether there is nothing new to keep. Who looked is not.
func same(a, b tko.Source) bool {
	if a.Version == 0 {
		return false
	}
	a.Status.Holder = b.Status.Holder
	x, errX := json.Marshal(a.Status)
	y, errY := json.Marshal(b.Status)
	return errX == nil && errY == nil && string(x) == string(y) && string(a.State) == string(b.State)
}

// reconcile makes TKO as the source says, and answers when to look again.
func (l *look) reconcile(ctx context.Context) (again time.Duration, err error) {
	if l.spec.Suspend {
		l.say(tko.ConditionUnknown, tko.SourceReasonSuspended, "the source is suspended")
		return around(l.spec.Interval), l.save(ctx)
	}
	revision, err := l.spec.From.Revision(ctx)
	if err != nil {
		return 0, l.fetchFailed(ctx, err)
	}
	if err := l.dependencies(ctx, revision); err != nil {
		return 0, err
	}
	if l.settled(ctx, revision) {
		l.succeed(revision) // a failure before that may be over
		return around(l.spec.Interval), l.save(ctx)
	}
	r, err := l.read(ctx, revision)
	if err != nil {
		return 0, l.fetchFailed(ctx, err)
	}
	l.status.Attempted = revision
	if last := l.source.last; last != nil && !l.called && r.wrong == nil && last.may(revision, l.spec) {
		return l.conclude(ctx, revision, r.osm, last.messages, "")
	}
	l.source.last = nil
	return l.apply(ctx, revision, r)
}

// fetchFailed is a failure to read the source. Somebody who stops us is none.
func (l *look) fetchFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	e := &conditionError{reason: tko.SourceReasonFetchFailed, err: err, stalled: errors.Is(err, tko.ErrInvalid)}
	if e.stalled {
		e.wait = around(l.spec.Interval)
	}
	if errors.Is(err, tko.ErrDenied) {
		e.reason, e.stalled, e.wait = tko.SourceReasonDenied, true, around(l.spec.Interval)
	}
	if again := (*AgainError)(nil); errors.As(err, &again) {
		e.wait = again.After
	}
	return e
}

// An AgainError is one of a Fetcher that knows when to ask again.
type AgainError struct {
	After time.Duration
	Err   error
	Quiet bool // it is no failure: how the source is stays
}

func (e *AgainError) Error() string { return e.Err.Error() }
func (e *AgainError) Unwrap() error { return e.Err }

// dependencies says what must be ready first: at the same revision, if it is of
// the same place.
func (l *look) dependencies(ctx context.Context, revision string) error {
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
			problem = fmt.Sprintf("source %q isn't there", name)
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

// freed says whether those that depend on the source may go on since this look.
func (l *look) freed() bool {
	now := l.source.record.Status
	return ready(now) && (!ready(l.before) || l.before.Applied != now.Applied)
}

func ready(s tko.SourceStatus) bool {
	return conditionOf(s, tko.ConditionReady).Status == tko.ConditionTrue
}

// conditionOf returns a condition; the zero value if there is none of that type.
func conditionOf(s tko.SourceStatus, typ string) tko.Condition {
	for _, c := range s.Conditions {
		if c.Type == typ {
			return c
		}
	}
	return tko.Condition{}
}

// dependencyWait is how soon a dependency is looked at again.
const dependencyWait = 30 * time.Second

// settled says whether everything is as the revision says, as far as we know
// without asking much. When the source was called for, what was checked a while
// ago doesn't count: TKO is asked whether anything changed, and an OSM is compared.
func (l *look) settled(ctx context.Context, revision string) bool {
	s := l.source
	if l.status.Applied != revision || l.state.Generation != l.spec.Generation || l.status.PendingRemoval != "" || l.state.OSM.busy() || s.checked.IsZero() {
		return false
	}
	switch c := conditionOf(l.status, tko.ConditionReady); {
	case c.Status == tko.ConditionTrue:
	case c.Reason == tko.SourceReasonFetchFailed || c.Reason == tko.SourceReasonDependency: // nothing of the revision was looked at then
	default:
		return false
	}
	if !l.called && time.Since(s.checked) < l.spec.Resync {
		return true
	}
	if l.state.OSM != nil {
		return false
	}
	about, err := l.controller.client.About(ctx)
	if err != nil || about.Position != s.position {
		return false
	}
	s.checked = time.Now()
	return true
}

// at has the files of a revision.
func (l *look) at(ctx context.Context, revision string) error {
	s := l.source
	// What was asked for may have changed what the same revision holds.
	key := revision + " " + l.spec.Generation
	if s.tree != nil && s.revision == key {
		return nil
	}
	t, err := l.spec.From.Fetch(ctx, revision)
	if err != nil {
		return err
	}
	s.forget()
	s.tree, s.revision = t, key
	return nil
}

// A reading is what a revision holds, or what is wrong with it.
type reading struct {
	manifests []manifest.Manifest
	osm       *osmWanted
	wrong     error
}

// read reads a revision. The error is a failure to get it. What was read while
// others removed its files, as those do who clean folders of temporary files,
// doesn't count: it would seem to have left the source.
func (l *look) read(ctx context.Context, revision string) (r reading, err error) {
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
			r.manifests, r.wrong = manifest.Read(l.files, l.spec.Path)
		}
		osm, osmErr := l.readOSM()
		r.osm, r.wrong = osm, errors.Join(r.wrong, osmErr)
		if l.source.tree.Whole() {
			return r, nil
		}
		l.source.forget()
	}
	return r, errors.New("somebody removes the files of the revision while they are read: name a folder that nobody cleans, --gitops-dir")
}

// rounds bounds how often a revision is looked at again because something was
// found half done.
const rounds = 3

func (l *look) apply(ctx context.Context, revision string, r reading) (again time.Duration, err error) {
	manifests, osm := r.manifests, r.osm
	if r.wrong != nil {
		return 0, l.invalid(r.wrong)
	}
	if l.spec.OSMOnly && osm == nil && len(l.status.Items) == 0 && l.state.OSM == nil {
		l.succeed(revision)
		l.done(revision)
		return around(l.spec.Interval), l.save(ctx)
	}
	about, err := l.controller.client.About(ctx) // before we look: what comes later is seen the next time
	if err != nil {
		return 0, err
	}
	var p *plan.Plan
	for range rounds {
		if p, err = plan.Make(ctx, l.controller.client, manifests, l.status.Items, l.policy()); err != nil {
			if errors.Is(err, tko.ErrInvalid) {
				return 0, l.invalid(err)
			}
			return 0, err
		}
		l.status.Messages = nil
		l.keepItems(p.Items)
		if len(p.Actions) == 0 {
			break
		}
		if err := l.carryOut(ctx, p, revision); err != nil {
			return 0, err
		}
	}
	if l.source.position = about.Position; p != nil && len(p.Actions) > 0 {
		l.source.position = -1
	}
	return l.conclude(ctx, revision, osm, p.Messages, p.Asks)
}

// conclude makes an OSM as the revision says, after TKO, about which there may be
// messages.
func (l *look) conclude(ctx context.Context, revision string, osm *osmWanted, messages []string, asks string) (again time.Duration, err error) {
	l.status.Messages, l.status.PendingRemoval = slices.Clone(messages), asks
	again, pending, err := l.applyOSM(ctx, osm, revision)
	if err != nil {
		l.source.last = nil
		return 0, err
	}
	if l.source.last != nil {
		l.source.last.messages = messages
	}
	if asks != "" {
		l.source.last = nil
		l.say(tko.ConditionFalse, tko.SourceReasonApproval, strings.Join(messages, "; "))
		l.source.checked = time.Now()
		return around(l.spec.Interval), l.save(ctx)
	}
	if pending != "" {
		return again, l.save(ctx)
	}
	l.done(revision)
	l.succeed(revision)
	return again, l.save(ctx)
}

// succeed sets Ready: all of a revision is applied.
func (l *look) succeed(revision string) {
	l.status.Attempted = revision
	if l.spec.OSMOnly && len(l.status.Items) == 0 && l.state.OSM == nil {
		l.say(tko.ConditionTrue, tko.SourceReasonNothing, "the revision holds nothing for TKO")
		return
	}
	l.say(tko.ConditionTrue, tko.SourceReasonSucceeded, "applied revision "+revision)
}

func (l *look) policy() plan.Policy {
	return plan.Policy{Source: l.spec.Name, Prune: l.spec.Prune, Adopt: l.spec.Adopt, Budget: l.spec.Budget, Approve: l.source.record.Approved}
}

// invalid is a revision that has to change. It isn't tried again before the
// interval is over, as what it refers to may come.
func (l *look) invalid(err error) error {
	return &conditionError{reason: tko.SourceReasonInvalid, err: err, stalled: true, wait: around(l.spec.Interval)}
}

// carryOut does what is planned, and keeps what was done.
func (l *look) carryOut(ctx context.Context, p *plan.Plan, revision string) error {
	l.progress(fmt.Sprintf("applying revision %s: %d changes", revision, len(p.Actions)))
	l.log.InfoContext(ctx, "applying", "revision", revision, "changes", len(p.Actions))
	operations, err := p.Apply(ctx, l.controller.client, revision, func(ctx context.Context, items []tko.SourceItem) error {
		l.keepItems(items)
		return l.save(ctx)
	})
	l.note(operations...)
	if err == nil {
		return nil
	}
	if errors.Is(err, errClaim) {
		return err
	}
	if errors.Is(err, tko.ErrInvalid) {
		return l.invalid(err)
	}
	return err
}

// keepItems replaces the entities in the inventory, and leaves what isn't.
func (l *look) keepItems(items []tko.SourceItem) {
	rest := slices.DeleteFunc(slices.Clone(l.status.Items), func(i tko.SourceItem) bool { return slices.Contains(manifest.Order, tko.Kind(i.Kind)) })
	l.status.Items = append(slices.Clone(items), rest...)
}

// maxOperations is how many operations a source remembers.
const maxOperations = 20

func (l *look) note(operations ...tko.SourceOperation) {
	operations = slices.Clone(operations)
	slices.Reverse(operations)
	l.status.Operations = append(operations, l.status.Operations...)
	l.status.Operations = l.status.Operations[:min(maxOperations, len(l.status.Operations))]
}

// done notes that all of a revision is applied.
func (l *look) done(revision string) {
	l.status.Attempted, l.status.Applied, l.status.PendingRemoval = revision, revision, ""
	l.state.Generation = l.spec.Generation
	l.source.checked = time.Now()
}

// leave ends a source that nobody asks for any more.
func (l *look) leave(ctx context.Context) work.Result {
	if l.source.record.Version == 0 { // it has ended already, or never was: nothing may bring it back
		l.controller.gone(ctx, l.source, l.spec.Name, l.spec.Report)
		return work.Result{Outcome: tko.WorkDone}
	}
	l.source.last = nil
	p, err := plan.Make(ctx, l.controller.client, nil, l.status.Items, l.policy())
	if err == nil && p.Asks != "" {
		l.status.PendingRemoval, l.status.Messages = p.Asks, p.Messages
		l.say(tko.ConditionFalse, tko.SourceReasonApproval, strings.Join(p.Messages, "; "))
		return work.Result{Outcome: tko.WorkLater, Retry: around(l.spec.Interval), Err: l.save(ctx)}
	}
	if err == nil {
		err = l.carryOut(ctx, p, "the end of the source")
	}
	if err == nil {
		var again time.Duration
		again, _, err = l.applyOSM(ctx, nil, "the end of the source")
		if err == nil && l.state.OSM.owns() && l.spec.Prune {
			return work.Result{Outcome: tko.WorkLater, Retry: again, Err: l.save(ctx)}
		}
	}
	if err == nil {
		err = l.controller.client.ForgetSource(ctx, l.spec.Name, l.claim)
	}
	if err != nil {
		l.failed(&conditionError{reason: tko.SourceReasonFailed, err: err})
		return work.Result{Err: errors.Join(err, l.save(ctx))}
	}
	l.controller.gone(ctx, l.source, l.spec.Name, l.spec.Report)
	return work.Result{Outcome: tko.WorkDone}
}

// gone forgets a source whose end was reached.
func (c *Controller) gone(ctx context.Context, s *source, name string, report func(context.Context, tko.Source)) {
	s.forget()
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

// maxMessage is how much of a failure is told.
const maxMessage = 4000

// say sets Ready, and that nothing else is going on.
func (l *look) say(status, reason, message string) {
	l.condition(tko.ConditionReady, status, reason, message)
	l.remove(tko.ConditionReconciling)
	l.remove(tko.ConditionStalled)
}

func (l *look) progress(message string) {
	l.condition(tko.ConditionReconciling, tko.ConditionTrue, tko.SourceReasonProgressing, message)
	l.condition(tko.ConditionReady, tko.ConditionUnknown, tko.SourceReasonProgressing, message)
	l.remove(tko.ConditionStalled)
}

func (l *look) failed(e *conditionError) {
	l.say(tko.ConditionFalse, e.reason, e.Error())
	if e.stalled {
		l.condition(tko.ConditionStalled, tko.ConditionTrue, e.reason, e.Error())
	} else if e.wait == 0 {
		l.condition(tko.ConditionReconciling, tko.ConditionTrue, "ProgressingWithRetry", "it is tried again")
	}
}

func (l *look) condition(typ, status, reason, message string) {
	separator := "\n" // between what is about different things
	if !strings.Contains(message, separator) {
		separator = "; "
	}
	message = List(strings.Split(message, separator), separator, maxMessage)
	c := tko.Condition{Type: typ, Status: status, Reason: reason, Message: message, LastTransition: time.Now().UTC().Truncate(time.Microsecond)}
	i := slices.IndexFunc(l.status.Conditions, func(c tko.Condition) bool { return c.Type == typ })
	if i < 0 {
		l.status.Conditions = append(l.status.Conditions, c)
		slices.SortFunc(l.status.Conditions, func(a, b tko.Condition) int { return strings.Compare(a.Type, b.Type) })
		return
	}
	if l.status.Conditions[i].Status == status {
		c.LastTransition = l.status.Conditions[i].LastTransition
	}
	l.status.Conditions[i] = c
}

func (l *look) remove(typ string) {
	l.status.Conditions = slices.DeleteFunc(l.status.Conditions, func(c tko.Condition) bool { return c.Type == typ })
}

// List joins as many texts as have no more bytes than a limit, and says how many
// others there are. Of the first there is always something.
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
			texts[0] = Short(text, max(limit-room-len(separator), 0))
		}
		if more := len(texts) - i; more > 0 {
			return strings.Join(append(slices.Clone(texts[:i]), fmt.Sprintf("and %d more", more)), separator)
		}
		break
	}
	return strings.Join(texts, separator)
}

func short(text string) string { return Short(text, maxMessage) }

// Short is as much of a text as has no more bytes than a limit, and says if that
// isn't all.
func Short(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
