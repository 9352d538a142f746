package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// The times and limits of a notifier.
const (
	lease      = 20 * time.Second // of the server that sends
	renewEvery = 5 * time.Second
	lookEvery  = time.Second // for new events
	saveEvery  = 30 * time.Second

	minBackoff = time.Second // after the first failure of a destination
	maxBackoff = 5 * time.Minute

	page       = 1000    // changes that are read at once
	maxRange   = 200_000 // changes that one message tells
	maxReaders = 4       // subscriptions that read at once
)

// A Backend is what a notifier reads and writes: [catalog.Told].
type Backend interface {
	HoldNotifier(ctx context.Context, holder string, lease time.Duration) (bool, error)
	All(ctx context.Context) (all []tko.Subscription, states map[string][]byte, err error)
	Save(ctx context.Context, holder, name string, doc []byte) error
	Newest(ctx context.Context) (position, audited int64, err error)
	Reader
}

// A Reader reads what a subscription tells, as its owner.
type Reader interface {
	Changes(ctx context.Context, name string, after, upTo int64, limit int, kinds []tko.Kind) (tko.SubscribedChanges, error)
	Audited(ctx context.Context, name string, after, upTo int64, limit int) (tko.SubscribedRecords, error)
	Sources(ctx context.Context, name string) ([]tko.Source, error)
}

// A Notifier sends the messages of all subscriptions, if it is the one of several servers
// that does.
type Notifier struct {
	Access   Access
	Instance string // name of the installation, in messages
	Log      *slog.Logger
	Look     time.Duration // between looks for events; 1 s if 0

	readers chan struct{}
	counts  counters
}

// New returns a notifier.
func New(access Access, instance string, log *slog.Logger) *Notifier {
	return &Notifier{Access: access, Instance: instance, Log: log, readers: make(chan struct{}, maxReaders)}
}

func (n *Notifier) lookEvery() time.Duration {
	if n.Look > 0 {
		return n.Look
	}
	return lookEvery
}

// Check returns an ErrInvalid if a subscription can't work, and whether it tells audit
// records.
func (*Notifier) Check(s tko.Subscription) (audits bool, err error) {
	if err := Check(s); err != nil {
		return false, err
	}
	spec, err := Parse(s)
	return err == nil && spec.Audits(), err
}

// Uses returns how a subscription uses credentials.
func (*Notifier) Uses(s tko.Subscription) []leash.Use { return Uses(s) }

// Test sends a test message and returns its ID.
func (n *Notifier) Test(ctx context.Context, s tko.Subscription) (id string, err error) {
	spec, err := Parse(s)
	if err != nil {
		return "", err
	}
	m := testMessage(s, time.Now())
	m.Instance = n.Instance
	template, err := compile(spec.Template)
	if err != nil {
		return "", tko.Errorf(tko.ErrInvalid, "subscription %q: %w", s.Name, err)
	}
	template.render(&m)
	if err := n.send(ctx, s, spec, m); err != nil {
		return "", tko.Errorf(tko.ErrInvalid, "subscription %q: the test message was not sent: %s", s.Name, printable.Short(printable.Text(err.Error()), 2*maxLine))
	}
	if m.Problem != "" {
		return "", tko.Errorf(tko.ErrInvalid, "subscription %q: the test message was sent with the default text, because %s", s.Name, m.Problem)
	}
	return m.ID, nil
}

func (n *Notifier) send(ctx context.Context, s tko.Subscription, spec *Spec, m Message) error {
	kind, to, _ := spec.To.recipient()
	began := time.Now()
	err := to.send(ctx, m, n.Access.outlet(s.Name))
	n.counts.sent(kind, err, time.Since(began))
	return err
}

// Run sends messages until the context ends. It returns nil then.
func (n *Notifier) Run(ctx context.Context, b Backend) error {
	r := &run{Notifier: n, backend: b, holder: uuid.NewString(), workers: map[string]*worker{}}
	defer r.stop()
	for pause.For(ctx, pause.About(n.lookEvery(), 0.1)) == nil {
		if err := r.look(ctx); err != nil && ctx.Err() == nil && time.Since(r.warned) > time.Minute {
			r.warned = time.Now()
			n.Log.WarnContext(ctx, "can't send the messages of subscriptions now, will try again", "err", err)
		}
	}
	return nil
}

// A run is what a notifier does as one holder of the lease.
type run struct {
	*Notifier

	backend Backend
	holder  string
	renewed time.Time // when the lease was extended last; zero if it isn't held
	asked   time.Time // when the lease was asked for last
	warned  time.Time
	// The newest positions of the logs.
	position, audited atomic.Int64

	workers map[string]*worker
	group   sync.WaitGroup
}

// look starts a worker for each subscription, and ends those of others.
func (r *run) look(ctx context.Context) error {
	all, states, err := r.backend.All(ctx)
	if err != nil {
		return err
	}
	if len(all)+len(states) == 0 {
		r.stop()
		return nil
	}
	if err := r.hold(ctx); err != nil || r.renewed.IsZero() {
		return err
	}
	position, audited, err := r.backend.Newest(ctx)
	if err != nil {
		return err
	}
	r.position.Store(position)
	r.audited.Store(audited)
	wanted := map[string]tko.Subscription{}
	for _, s := range all {
		wanted[s.Name] = s
	}
	for name, w := range r.workers {
		if s, ok := wanted[name]; !ok || !s.Updated.Equal(w.subscription.Updated) || !s.Same(w.subscription) || s.UID != w.subscription.UID || w.hasEnded() {
			w.end()
			delete(r.workers, name)
			r.counts.drop(name)
		}
	}
	for name := range states {
		if _, ok := wanted[name]; !ok {
			if err := r.backend.Save(ctx, r.holder, name, nil); err != nil {
				return err
			}
		}
	}
	for name, s := range wanted {
		if r.workers[name] == nil {
			r.start(ctx, s, states[name])
		}
	}
	return nil
}

// hold takes or extends the lease at intervals, and stops the workers without it.
func (r *run) hold(ctx context.Context) error {
	if time.Since(r.asked) < renewEvery {
		return nil
	}
	began := time.Now()
	held, err := r.backend.HoldNotifier(ctx, r.holder, lease)
	r.asked = began
	switch {
	case err == nil && held:
		r.renewed = began
	case err == nil || time.Since(r.renewed) > lease/2: // another server sends, or soon will
		r.stop()
	}
	return err
}

// stop ends all workers, because this server doesn't have the lease.
func (r *run) stop() {
	for _, w := range r.workers {
		w.cancel()
	}
	r.group.Wait()
	clear(r.workers)
	r.renewed = time.Time{}
	r.counts.none()
}

func (r *run) start(ctx context.Context, s tko.Subscription, doc []byte) {
	spec, err := Parse(s)
	if err != nil { // it was valid for an earlier version of the server
		r.Log.WarnContext(ctx, "a subscription can't work: register it again", "subscription", s.Name, "err", err)
		return
	}
	template, err := compile(spec.Template)
	if err != nil {
		r.Log.WarnContext(ctx, "a subscription can't work: register it again", "subscription", s.Name, "err", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{run: r, subscription: s, spec: spec, template: template, state: stateOf(s, doc), cancel: cancel, ended: make(chan struct{})}
	r.workers[s.Name] = w
	r.group.Go(func() {
		defer close(w.ended)
		w.loop(ctx)
	})
}

// A worker sends the messages of one subscription.
type worker struct {
	*run

	subscription tko.Subscription
	spec         *Spec
	template     compiled
	state        state
	saved        time.Time
	cancel       context.CancelFunc
	ended        chan struct{}

	seen seen // since the cursor
}

// seen is what a worker has read since the cursor, and not told yet.
type seen struct {
	position, audited int64
	at                time.Time // of the change at the position
	tally             *tally
	first, last       time.Time // of the events; zero if there are none
	looked            time.Time // at sources
}

func (w *worker) hasEnded() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

func (w *worker) end() {
	w.cancel()
	<-w.ended
}

func (w *worker) loop(ctx context.Context) {
	w.forget()
	for {
		err := w.step(ctx)
		if errors.Is(err, tko.ErrConflict) || errors.Is(err, tko.ErrNotFound) || ctx.Err() != nil { // another server sends, or it was deleted
			return
		}
		if err != nil {
			w.Log.WarnContext(ctx, "a subscription fails, will try again", "subscription", w.subscription.Name, "err", err)
		}
		w.counts.state(w.subscription.Name, w.status(0))
		if pause.For(ctx, pause.About(w.lookEvery(), 0.2)) != nil {
			return
		}
	}
}

// forget begins to read after the cursor again.
func (w *worker) forget() {
	w.seen = seen{position: w.state.Position, audited: w.state.Audited, at: w.state.At, tally: newTally()}
}

// step reads new events, fixes the next message if it is due, and sends it.
func (w *worker) step(ctx context.Context) error {
	now := time.Now()
	switch {
	case w.spec.Suspend:
		return nil
	case w.state.Pending == nil:
		var err error
		if w.hasNews(now) {
			err = w.scan(ctx, now)
		}
		if held := w.held(ctx, err); held != nil || err != nil {
			return held
		}
		if !w.isDue(now) {
			return w.pass(ctx, now)
		}
		w.state.Number++
		w.state.Pending = &pending{Number: w.state.Number, UpTo: w.seen.position, Audited: w.seen.audited, At: w.seen.at, Oldest: w.seen.first, Fixed: now.UTC()}
		if err := w.save(ctx); err != nil { // before it is sent for the first time
			w.state.Number, w.state.Pending = w.state.Number-1, nil // what isn't saved is fixed anew
			return err
		}
	case now.Before(w.state.NextTry):
		return nil
	}
	return w.tell(ctx)
}

// hasNews reports whether there may be events that weren't read.
func (w *worker) hasNews(now time.Time) bool {
	return w.state.Held != "" || w.position.Load() > w.seen.position || w.spec.Audits() && w.audited.Load() > w.seen.audited ||
		w.spec.has(OfSources) && now.Sub(w.seen.looked) > sourcesEvery
}

// held notes that the owner may not read what is reported now: nothing is lost until it may. It
// returns other errors.
func (w *worker) held(ctx context.Context, err error) error {
	if !errors.Is(err, tko.ErrDenied) {
		if err == nil && w.state.Held != "" {
			w.state.Held = ""
			return w.save(ctx)
		}
		return err
	}
	text := printable.Short(err.Error(), 2*maxLine)
	w.forget()
	if w.state.Held == text {
		return nil
	}
	if w.state.Held == "" {
		w.state.Since = time.Now().UTC()
	}
	w.state.Held = text
	return w.save(ctx)
}

// scan reads the events after those that were read before.
func (w *worker) scan(ctx context.Context, now time.Time) error {
	w.readers <- struct{}{}
	defer func() { <-w.readers }()
	before := w.seen.tally.total
	gapBefore := w.seen.tally.gap
	r := w.reading(w.state.At, w.seen.tally)
	limit := w.state.Position + maxRange
	oldest := time.Time{}
	for w.seen.position < limit {
		read, err := r.changes(ctx, w.seen.position, limit)
		if err != nil {
			return err
		}
		if oldest.IsZero() {
			oldest = read.Time
		}
		if !read.Time.IsZero() {
			w.seen.at = read.Time
		}
		moved := read.Position > w.seen.position
		w.seen.position = read.Position
		if !moved || read.Position >= read.Head {
			break
		}
	}
	audited, err := r.audited(ctx, w.seen.audited, 1<<62)
	if err != nil {
		return err
	}
	w.seen.audited = audited
	if w.spec.has(OfSources) && now.Sub(w.seen.looked) > sourcesEvery {
		w.seen.looked = now
		if err := r.sources(ctx, now); err != nil {
			return err
		}
	}
	if w.seen.tally.total > before || w.seen.tally.gap != gapBefore {
		at := now // an event from before the server's start has waited already
		if !oldest.IsZero() && oldest.Before(now) {
			at = oldest
		}
		if w.seen.first.IsZero() {
			w.seen.first = at
		}
		w.seen.last = now
		if !w.seen.at.IsZero() && w.seen.at.Before(now) {
			w.seen.last = w.seen.at
		}
	}
	return nil
}

// sourcesEvery is the time between looks at the GitOps sources, which the change log doesn't
// have.
const sourcesEvery = 5 * time.Second

// isDue reports whether the events that were seen are to be reported now.
func (w *worker) isDue(now time.Time) bool {
	if w.seen.first.IsZero() || now.Sub(w.state.LastSent) < time.Duration(w.spec.Group.Every) {
		return false
	}
	return now.Sub(w.seen.last) >= time.Duration(w.spec.Group.Wait) || now.Sub(w.seen.first) >= time.Duration(w.spec.Group.Most) || w.seen.position-w.state.Position >= maxRange
}

// pass moves the cursor over what isn't told.
func (w *worker) pass(ctx context.Context, now time.Time) error {
	still := w.seen.position == w.state.Position && w.seen.audited == w.state.Audited && len(w.seen.tally.told) == 0 // sources have no position
	if !w.seen.first.IsZero() || still && !w.saved.IsZero() {
		return nil
	}
	w.state.Position, w.state.Audited, w.state.At = w.seen.position, w.seen.audited, w.seen.at
	w.state.remember(w.seen.tally.told)
	w.state.Silenced += w.seen.tally.silenced
	w.state.Echoes += w.seen.tally.echoes
	looked := w.seen.looked
	w.forget()
	w.seen.looked = looked
	if now.Sub(w.saved) < saveEvery {
		return nil
	}
	return w.save(ctx)
}

// tell sends the message that is fixed, and moves the cursor if the destination accepts it.
func (w *worker) tell(ctx context.Context) error {
	m, r, err := w.message(ctx)
	if held := w.held(ctx, err); held != nil || err != nil {
		return held
	}
	if m.Total > 0 || m.Gap != nil {
		if err := w.send(ctx, w.subscription, w.spec, m); err != nil {
			return w.failed(ctx, err)
		}
		w.state.Sent++
		w.state.LastSent, w.state.LastID = time.Now().UTC(), m.ID
		w.state.Silenced, w.state.Echoes = 0, 0
		if m.Gap != nil {
			w.state.Gap, w.state.GapAt = m.Gap.String(), w.state.LastSent
		}
		if m.Problem != w.state.Problem {
			w.state.Problem, w.state.ProblemAt = m.Problem, w.state.LastSent
		}
	}
	p := w.state.Pending
	w.state.Position, w.state.Audited, w.state.At, w.state.Pending = max(p.UpTo, r.reached), max(p.Audited, w.state.Audited), r.at, nil
	w.state.remember(r.tally.told)
	if w.state.Failures > 0 {
		w.state.Since = time.Now().UTC()
	}
	w.state.Failures, w.state.Error, w.state.NextTry = 0, "", time.Time{}
	w.forget()
	return w.save(ctx)
}

// message makes the message that is fixed, with what the owner may see now.
func (w *worker) message(ctx context.Context) (m Message, r *reading, err error) {
	w.readers <- struct{}{}
	defer func() { <-w.readers }()
	p := w.state.Pending
	r = w.reading(w.state.At, newTally())
	for r.reached < p.UpTo {
		before := r.reached
		if _, err := r.changes(ctx, r.reached, p.UpTo); err != nil {
			return m, nil, err
		}
		if r.reached <= before {
			break
		}
	}
	if _, err := r.audited(ctx, w.state.Audited, p.Audited); err != nil {
		return m, nil, err
	}
	if w.spec.has(OfSources) {
		if err := r.sources(ctx, time.Now()); err != nil {
			return m, nil, err
		}
	}
	r.tally.silenced += w.state.Silenced
	r.tally.echoes += w.state.Echoes
	m = r.tally.messageOf(w.subscription.Name)
	m.ID, m.Instance, m.Number = fmt.Sprintf("%s.%d", w.subscription.UID, p.Number), w.Instance, p.Number
	m.Time, m.After, m.UpTo = time.Now().UTC(), w.state.Position, p.UpTo
	w.template.render(&m)
	return m, r, nil
}

// failed notes that the destination didn't accept a message.
func (w *worker) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := time.Now().UTC()
	if w.state.Failures == 0 {
		w.state.Since = now
	}
	wait := pause.About(min(maxBackoff, minBackoff<<min(w.state.Failures, 16)), 0.2)
	if asked, ok := errors.AsType[*retryError](err); ok {
		wait = max(wait, asked.after)
	}
	w.state.Failures++
	w.state.Error, w.state.NextTry = printable.Short(printable.Text(err.Error()), 2*maxLine), now.Add(wait)
	w.Log.DebugContext(ctx, "a destination did not accept a message", "subscription", w.subscription.Name, "attempt", w.state.Failures, "err", err)
	return w.save(ctx)
}

func (w *worker) save(ctx context.Context) error {
	w.state.Tried = time.Now().UTC()
	doc, err := json.Marshal(w.state)
	if err != nil {
		return err
	}
	if err := w.backend.Save(ctx, w.holder, w.subscription.Name, doc); err != nil {
		return err
	}
	w.saved = time.Now()
	return nil
}

// A reading reads events into a tally.
type reading struct {
	Reader

	name      string
	spec      *Spec
	selection *selection
	kinds     []tko.Kind
	tally     *tally
	reached   int64     // up to which changes are read
	at        time.Time // of the change there
}

func (w *worker) reading(since time.Time, t *tally) *reading {
	s := newSelection(w.spec, w.subscription.UID, since, maps.Clone(w.state.Told))
	return &reading{Reader: w.backend, name: w.subscription.Name, spec: w.spec, selection: s, kinds: s.kinds(), tally: t, reached: w.state.Position, at: since}
}

// changes reads a page of changes.
func (r *reading) changes(ctx context.Context, after, upTo int64) (tko.SubscribedChanges, error) {
	read, err := r.Changes(ctx, r.name, after, upTo, page, r.kinds)
	if err != nil {
		return read, err
	}
	r.reached = read.Position
	if !read.Time.IsZero() {
		r.at = read.Time
	}
	if read.GoneTo > after && len(r.kinds) > 0 {
		if r.tally.gap.UpTo == 0 {
			r.tally.gap.After = after
		}
		r.tally.gap.UpTo = read.GoneTo
	}
	for _, c := range read.Changes {
		r.selection.change(c, r.tally)
	}
	return read, nil
}

// audited reads audit records after a number, and returns the number up to which they are
// read.
func (r *reading) audited(ctx context.Context, after, upTo int64) (int64, error) {
	if !r.spec.Audits() {
		return after, nil
	}
	for {
		read, err := r.Audited(ctx, r.name, after, upTo, page)
		if err != nil {
			return after, err
		}
		if read.GoneTo > after {
			r.tally.gap.Records += read.GoneTo - after
		}
		for _, one := range read.Records {
			if err := r.selection.record(one, r.tally); err != nil {
				return after, err
			}
		}
		if read.Seq <= after || len(read.Records) == 0 {
			return max(after, read.Seq), nil
		}
		after = read.Seq
	}
}

func (r *reading) sources(ctx context.Context, now time.Time) error {
	all, err := r.Sources(ctx, r.name)
	if err == nil {
		r.selection.sources(all, now, r.tally)
	}
	return err
}
