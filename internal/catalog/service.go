package catalog

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Options are the settings of a [Service]. The zero value works.
type Options struct {
	InstanceName        string
	InstanceDescription string
	Version             string
	AddressPorts        func() []string // where the API is served; nowhere known if nil
	DefaultFormat       krm.Format      // of packages, where a client doesn't ask for one; CBOR if empty

	ModificationTime time.Duration // how long modification tokens are good; 10 s if zero
	MinBackoff       time.Duration // before failed work comes back for the first time; 1 s if zero
	MaxBackoff       time.Duration // before failed work comes back at last; 60 s if zero

	// WithdrawApproval withdraws the approval of a deployment when its package or
	// site changes, if a person has to approve it: if its annotation
	// nephio.org/approve is Manual, or Default while ManualApprove is set.
	WithdrawApproval bool
	// ManualApprove says that preparers approve nothing by themselves.
	ManualApprove bool

	// A request that deletes or approves more than ConfirmAbove entities, and
	// more than ConfirmPercent of their kind, must confirm the count (see
	// [tko.WithConfirmation]). tko.DefaultConfirmAbove and
	// tko.DefaultConfirmPercent if zero.
	ConfirmAbove   int
	ConfirmPercent int

	Log *slog.Logger // where to report what was deleted and approved; nowhere if nil
}

// A Service is the catalog: the one way by which records are written. All of
// its methods may be called at the same time, and several services may share a
// store, or stores that share a database.
//
// What is given to a Service stays the caller's and isn't changed; what it
// answers belongs to the caller. Who makes a change, and why, is said by the
// context (see [tko.WithAuthor]).
//
// Errors are of the kinds of package tko, and their texts are for users; any
// other error is a fault of the store or of a validator.
type Service struct {
	store     Store
	options   Options
	log       *slog.Logger
	validator Validator
	rules     ruleCache
	bases     baseMemory
	rewrites  atomic.Int32 // how many of the registrations to come look first whether there is something
	ids       idSource
	recent    *recent
	lulls     map[string]*lull // by queue
}

// New makes a catalog on a store. The store stays the caller's to close.
func New(store Store, validator Validator, options Options) *Service {
	setDefault(&options.DefaultFormat, krm.CBOR)
	setDefault(&options.ModificationTime, 10*time.Second)
	setDefault(&options.MinBackoff, time.Second)
	setDefault(&options.MaxBackoff, max(options.MinBackoff, time.Minute))
	setDefault(&options.ConfirmAbove, tko.DefaultConfirmAbove)
	setDefault(&options.ConfirmPercent, tko.DefaultConfirmPercent)
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{store: store, options: options, log: options.Log, validator: validator, recent: newRecent(store), lulls: map[string]*lull{
		tko.QueuePrepare: {}, tko.QueueSchedule: {}, tko.QueueGitOps: {}, tko.QueueEvents: {},
	}}
}

func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// About says what this server is.
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
	if s.options.AddressPorts != nil {
		about.AddressPorts = s.options.AddressPorts()
	}
	return about, nil
}

// get answers one record; Revision 0 if it isn't there.
func (s *Service) get(ctx context.Context, fields Fields, key Key) (Record, error) {
	records, err := s.store.Get(ctx, fields, key)
	if err != nil {
		return Record{}, err
	}
	if len(records) != 1 {
		return Record{}, errors.New("the store answered another number of records than it was asked for")
	}
	return records[0], nil
}

// at answers a record as it is (revision 0), or as it was at a revision, with
// its package. ErrNotFound if it isn't there.
func (s *Service) at(ctx context.Context, key Key, revision int64) (Record, error) {
	if revision < 0 {
		return Record{}, tko.Errorf(tko.ErrInvalid, "%s %q: the revision %d is negative: use 0 for the current one", key.Kind, key.ID, revision)
	}
	if CheckKey(key) != nil {
		return Record{}, missing(key)
	}
	if revision > 0 {
		r, err := s.store.Revision(ctx, key, revision)
		if errors.Is(err, tko.ErrNotFound) {
			if err := checkNewID(key); err != nil {
				return Record{}, err
			}
			return Record{}, tko.Errorf(tko.ErrNotFound, "%s %q has no revision %d, or it is no longer kept", key.Kind, key.ID, revision)
		}
		return r, err
	}
	r, err := s.get(ctx, Fields{Package: true, Deployments: true}, key)
	if err == nil && r.Revision == 0 {
		return Record{}, missing(key)
	}
	return r, err
}

// commit writes, and puts the store's refusals into the user's words.
func (s *Service) commit(ctx context.Context, writes ...Write) ([]Outcome, error) {
	if claim, ok := tko.ClaimOf(ctx); ok {
		for i := range writes {
			writes[i].Claim = &claim
		}
	}
	outcomes, err := s.commitReplacing(ctx, writes)
	if err != nil {
		return nil, explain(err)
	}
	return outcomes, nil
}

// explain puts a refusal of the store into the user's words.
func explain(err error) error {
	if exceeded, ok := errors.AsType[*ExceededError](err); ok {
		return tko.Errorf(tko.ErrInvalid, "more came in since this was counted, and no more than %d may be deleted: look again at what is selected: %w", exceeded.Most, err)
	}
	missing, ok := errors.AsType[*MissingError](err)
	if !ok {
		return err
	}
	if missing.Leaving {
		return tko.Errorf(tko.ErrInvalid, "%s %q is being deleted: wait until it is gone, or name another; delete it again if that was interrupted", missing.Key.Kind, missing.Key.ID)
	}
	if missing.Key.Kind == tko.KindDeployment {
		return tko.Errorf(tko.ErrInvalid, "parent deployment %q does not exist: create it first, or leave the parent out", missing.Key.ID)
	}
	return tko.Errorf(tko.ErrInvalid, "%s %q does not exist: register it first, or name another", missing.Key.Kind, missing.Key.ID)
}

// maxAttempts bounds how often a change is derived again because the record
// moved on under it.
const maxAttempts = 12

// A finalError ends a [retry], whatever its kind.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }

func final(err error) error { return &finalError{err} }

// retry runs f until it ends in something else than a conflict, or in a final
// error. Every conflict means that somebody else got through.
func retry(ctx context.Context, f func() error) error {
	var err error
	for attempt := range maxAttempts {
		err = f()
		if end, ok := errors.AsType[*finalError](err); ok {
			return end.err
		}
		if !errors.Is(err, tko.ErrConflict) {
			return err
		}
		limit := time.Millisecond << min(attempt, 6)
		if err := sleep(ctx, rand.N(limit)); err != nil { //nolint:gosec // spreads retries, hides nothing
			return err
		}
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// author is who makes the change, as far as it can be stored.
func author(ctx context.Context) tko.Author {
	a := tko.AuthorOf(ctx)
	return tko.Author{Who: plainText(a.Who, 256), Why: plainText(a.Why, 4096)}
}

// plainText makes a text storable in every database: valid UTF-8 without NUL,
// of limited length.
func plainText(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// storable says whether a text can be asked for in every database.
func storable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// stamp is what TKO keeps about an entity.
func (r Record) stamp() tko.Stamp {
	return tko.Stamp{
		UID:        r.UID,
		Revision:   r.Revision,
		Position:   r.Position,
		Created:    r.Created.UTC(),
		Updated:    r.Updated.UTC(),
		Author:     r.Author,
		Conditions: slices.Clone(r.Conditions),
		Steps:      r.Steps,
	}
}
