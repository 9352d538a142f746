package catalog

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/krm"
)

// Options are the settings of a [Service]. The zero value works.
type Options struct {
	InstanceName        string
	InstanceDescription string
	Version             string
	AddressPorts        func() []string             // addresses of the API, for About; none if nil
	Conditions          func() []tko.Condition      // of the server, for About; none if nil
	Isolation           func() []tko.IsolationLayer // of plugins, for About; none if nil
	DefaultFormat       krm.Format                  // of packages, for clients that don't set one; CBOR if empty

	ModificationTime time.Duration // validity of modification tokens; 10 s if zero
	MinBackoff       time.Duration // delay after the first failure of work; 1 s if zero
	MaxBackoff       time.Duration // maximum delay after failures of work; 60 s if zero

	// WithdrawApproval withdraws the approval of a deployment when its package
	// or site changes, if a person must approve it: its annotation
	// nephio.org/approve is Manual, or it is Default and ManualApprove is set.
	WithdrawApproval bool
	// ManualApprove states that preparers don't approve deployments
	// automatically.
	ManualApprove bool

	// A request that deletes or approves more than ConfirmAbove entities, and
	// more than ConfirmPercent of their kind, must confirm the count (see
	// [tko.WithConfirmation]). tko.DefaultConfirmAbove and
	// tko.DefaultConfirmPercent if zero.
	ConfirmAbove   int
	ConfirmPercent int

	// Access is how rights are enforced; AccessOff if empty.
	Access AccessMode
	// AccessAnonymous is the role of callers without credentials on this machine;
	// none if empty.
	AccessAnonymous access.Role
	// BreakGlass are the subjects that may make themselves administrators for an
	// hour: the Unix users of the server and root.
	BreakGlass []string
	// Persons are the names of persons by subject: subjects of one person count as one
	// author and one approver.
	Persons map[string]string
	// AccessKubernetes is the role of users of the Kubernetes API, about whose verbs
	// the cluster decides; none if empty.
	AccessKubernetes access.Role
	// Audit records changes and refusals in the audit log.
	Audit bool
	// CheckSource returns an ErrInvalid if the definition of a GitOps source can't work. If
	// nil, sources can't be registered.
	CheckSource func(tko.SourceDefinition) error
	// CompareWait is how long CompareSite waits for a meta-scheduler; 1 min if 0.
	CompareWait time.Duration

	Log       *slog.Logger // for deletions and approvals; none if nil
	LogLevels LogLevels    // of the server's log; none if nil
	// Refused is called for each request for which the caller has no right (verb, kind),
	// or no valid credentials (login), with the decision: refuse, or report if the
	// request is served nevertheless. None if nil.
	Refused func(verb, kind, decision string)
}

// A Service is the catalog. All records are written through it. Its methods may
// be called concurrently. Several services may share a store, or stores on one
// database.
//
// The caller owns its arguments, which are not changed, and the results. The
// context has the author of a change and the reason for it (see
// [tko.WithAuthor]).
//
// Errors are of the kinds of package tko, and their texts are for users; any
// other error is a fault of the store or of a validator.
type Service struct {
	store     Store
	options   Options
	log       *slog.Logger
	validator Validator
	rules     ruleCache
	bases     baseCache
	started   startCache
	rewrites  atomic.Int32 // number of further registrations that read before they write: see readFirst
	ids       idSource
	changes   *changeCache
	idle      map[string]*idleQueue // by queue
	current   atomic.Int32          // number of watches that have reached the newest change

	accessLock  lock
	accessRules *ruleBook // nil: not read yet
	refusals    refusals
	planner     plan.Planner
	rollouts    knownRollouts
	transitions transitionCache
	retention   atomic.Pointer[Retention] // in force; nil: all is retained
}

// New makes a catalog on a store. The caller closes the store.
func New(store Store, validator Validator, options Options) *Service {
	setDefault(&options.DefaultFormat, krm.CBOR)
	setDefault(&options.ModificationTime, 10*time.Second)
	setDefault(&options.MinBackoff, time.Second)
	setDefault(&options.MaxBackoff, max(options.MinBackoff, time.Minute))
	setDefault(&options.ConfirmAbove, tko.DefaultConfirmAbove)
	setDefault(&options.ConfirmPercent, tko.DefaultConfirmPercent)
	setDefault(&options.Access, AccessOff)
	setDefault(&options.CompareWait, time.Minute)
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	idle := map[string]*idleQueue{}
	for _, queue := range tko.Queues() {
		idle[queue] = &idleQueue{}
	}
	return &Service{refusals: refusals{refused: options.Refused, store: store, enabled: options.Audit, log: options.Log}, store: store, options: options, log: options.Log, validator: validator, changes: newChangeCache(store), idle: idle}
}

func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// About describes this server.
func (s *Service) About(ctx context.Context) (tko.About, error) {
	head, err := s.store.Head(ctx)
	if err != nil {
		return tko.About{}, err
	}
	about := tko.About{
		InstanceName:         s.options.InstanceName,
		InstanceDescription:  s.options.InstanceDescription,
		Version:              s.options.Version,
		Backend:              s.store.Backend(),
		DefaultPackageFormat: s.options.DefaultFormat,
		Position:             head,
	}
	if s.options.Isolation != nil {
		about.Isolation = s.options.Isolation()
	}
	if s.options.Conditions != nil {
		about.Conditions = s.options.Conditions()
	}
	if s.options.AddressPorts != nil {
		about.AddressPorts = s.options.AddressPorts()
	}
	return about, nil
}

// get returns one record; Revision 0 if it doesn't exist.
func (s *Service) get(ctx context.Context, fields Fields, key Key) (Record, error) {
	records, err := s.store.Get(ctx, fields, key)
	if err != nil {
		return Record{}, err
	}
	if len(records) != 1 {
		return Record{}, errors.New("the number of records that the store returned differs from the number of keys")
	}
	return records[0], nil
}

// at returns a record with its package, as of a revision; 0 is the current one, or
// that as of the moment of the context (see [tko.WithAsOf]).
// It returns ErrNotFound if there is none.
func (s *Service) at(ctx context.Context, key Key, revision int64) (Record, *caller, error) {
	ctx, c, err := s.enter(ctx, key.Kind, access.Read)
	if err != nil {
		return Record{}, nil, err
	}
	r, err := s.atOf(ctx, c, key, revision)
	return r, c, err
}

// read returns the entity of a record with its package, as at does.
func read[T any](ctx context.Context, s *Service, key Key, revision int64, entity func(*caller, Record) (T, error)) (T, error) {
	r, c, err := s.at(ctx, key, revision)
	if err != nil {
		var none T
		return none, err
	}
	return entity(c, r)
}

func (s *Service) atOf(ctx context.Context, c *caller, key Key, revision int64) (Record, error) {
	if revision < 0 {
		return Record{}, tko.Errorf(tko.ErrInvalid, "%s %q: the revision %d is negative: use 0 for the current one", key.Kind, key.ID, revision)
	}
	if CheckKey(key) != nil {
		return Record{}, missing(key)
	}
	if asOf := tko.AsOfOf(ctx); !asOf.IsZero() {
		if revision > 0 {
			return Record{}, tko.Errorf(tko.ErrInvalid, "%s %q: a revision and a moment of the past are given: use one", key.Kind, key.ID)
		}
		return s.past(ctx, c, key, Fields{Package: true, Deployments: key.Kind != tko.KindDeployment})
	}
	if revision > 0 {
		r, err := s.store.Revision(ctx, key, revision)
		if err == nil && !c.view(s).IsAll() { // the record may have been elsewhere then, or be elsewhere now
			var now Record
			if now, err = s.get(ctx, Fields{}, key); err == nil && (!c.sees(s, r) || now.Revision != 0 && !c.sees(s, now)) {
				err = tko.ErrNotFound
			}
		}
		if errors.Is(err, tko.ErrNotFound) {
			if err := checkNewID(key); err != nil {
				return Record{}, err
			}
			return Record{}, tko.Errorf(tko.ErrNotFound, "%s %q has no revision %d, or it is no longer retained", key.Kind, key.ID, revision)
		}
		return r, err
	}
	r, err := s.get(ctx, Fields{Package: true, Deployments: key.Kind != tko.KindDeployment, Scope: c.view(s)}, key)
	if err == nil {
		err = s.visible(c, r)
	}
	if err != nil {
		return Record{}, err
	}
	return r, nil
}

// commit commits writes under the claim of the context, and makes users' errors
// of the store's errors.
func (s *Service) commit(ctx context.Context, writes ...Write) (_ []Outcome, err error) {
	if claim, ok := tko.ClaimOf(ctx); ok {
		for i := range writes {
			writes[i].Claim = &claim
		}
	}
	c, ok := callerOf(ctx)
	if !ok {
		return nil, errNotEntered
	}
	ctx, span := trail.Start(ctx, "catalog.commit")
	if span.IsRecording() && len(writes) > 0 {
		span.SetAttributes(trail.Kind.String(string(writes[0].Record.Kind)), trail.ID.String(writes[0].Record.ID), trail.Count.Int(len(writes)))
	}
	defer func() { trail.End(span, err) }()
	cause := trail.Cause(ctx)
	pinned := make([]*int64, len(writes)) // versions of the rules that freezes were read of
	isPinned := false
	for i := range writes {
		pinned[i] = writes[i].Access
		isPinned = isPinned || pinned[i] != nil
	}
	for again := 0; ; again++ {
		for i := range writes {
			writes[i].Cause = cause
			if c.bound && s.options.Access == AccessEnforce {
				writes[i].Access = &c.grant.Version
				if pinned[i] != nil && *pinned[i] < c.grant.Version {
					writes[i].Access = pinned[i]
				}
			}
			if s.options.Audit {
				writes[i].Audit = c.auditCaller(ctx)
			}
		}
		outcomes, err := s.commitReplacing(ctx, writes)
		if c.bound && !isPinned && isStale(err) && again < maxAttempts {
			// The rules have changed. If the rights of the caller have not, the commit is
			// still permitted.
			if same, renewErr := s.renew(ctx, c); renewErr != nil {
				return nil, renewErr
			} else if same {
				continue
			}
		}
		if err != nil {
			return nil, explain(err)
		}
		return outcomes, nil
	}
}

// renew reads the caller's rights again, and reports whether their version is new and
// they permit the same.
func (s *Service) renew(ctx context.Context, c *caller) (same bool, err error) {
	if _, err := s.rulesOf(ctx, 0); err != nil {
		return false, err
	}
	now, err := s.caller(context.WithValue(ctx, callerKey{}, (*caller)(nil)))
	if err != nil {
		return false, err
	}
	if now.grant.Version == c.grant.Version || !now.grant.Same(c.grant) {
		return false, nil
	}
	c.grant = now.grant
	return true, nil
}

// explain converts a store's error to an error for users.
func explain(err error) error {
	if exceeded, ok := errors.AsType[*ExceededError](err); ok {
		return tko.Errorf(tko.ErrInvalid, "entities were added since they were counted, and at most %d may be deleted: check the selection again: %w", exceeded.Limit, err)
	}
	missing, ok := errors.AsType[*MissingError](err)
	if !ok {
		return err
	}
	if missing.Deleting {
		return tko.Errorf(tko.ErrInvalid, "%s %q is being deleted: wait until it is deleted, or name another; if the deletion was interrupted, delete it again", missing.Key.Kind, missing.Key.ID)
	}
	if missing.Key.Kind == tko.KindDeployment {
		return tko.Errorf(tko.ErrInvalid, "parent deployment %q does not exist: create it first, or leave the parent out", missing.Key.ID)
	}
	return tko.Errorf(tko.ErrInvalid, "%s %q does not exist: register it first, or name another", missing.Key.Kind, missing.Key.ID)
}

// maxAttempts is the maximum number of times that a change is derived because
// its record has changed.
const maxAttempts = 12

// maxPause is the longest pause before a change is derived again.
const maxPause = 2 * time.Second

// A finalError ends [retry], whatever its kind is.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }

func final(err error) error { return &finalError{err} }

// retry calls f until the result is not a conflict, or is a final error. With
// each conflict, another writer has succeeded. Pauses grow with the time that an
// attempt takes: many writers of one entity on a busy machine would otherwise all
// start again while one of them commits, so that each attempt serves only one.
func retry(ctx context.Context, f func() error) error {
	var err error
	for attempt := range maxAttempts {
		began := time.Now()
		err = f()
		if end, ok := errors.AsType[*finalError](err); ok {
			return end.err
		}
		if !errors.Is(err, tko.ErrConflict) {
			return err
		}
		limit := min(max(time.Millisecond<<min(attempt, 6), time.Duration(attempt)*time.Since(began)), maxPause)
		if pause.For(ctx, pause.Between(0, limit)) != nil {
			return ctx.Err()
		}
	}
	return err
}

// author returns the author of a change, in storable text.
func author(ctx context.Context) tko.Author {
	a := tko.AuthorOf(ctx)
	if c, ok := callerOf(ctx); ok && c.verified { // others may not write under another name
		a.Who = c.identity.Subject
	}
	return tko.Author{Who: plainText(a.Who, 256), Why: plainText(a.Why, 4096)}
}

// plainText returns a text that every database can store: valid UTF-8 without
// NUL, at most limit bytes.
func plainText(text string, limit int) string {
	return printable.Within(printable.Storable(text), limit)
}

// storable reports whether every database accepts a text as a parameter.
func storable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// stamp returns the stamp of the entity of a record. Its conditions are those of
// the record.
func (r Record) stamp() tko.Stamp {
	return tko.Stamp{
		UID:        r.UID,
		Revision:   r.Revision,
		Position:   r.Position,
		Created:    r.Created.UTC(),
		Updated:    r.Updated.UTC(),
		Author:     r.Author,
		Conditions: r.Conditions,
		Steps:      r.Steps,
	}
}
