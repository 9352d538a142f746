package source

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// The limits of GitOps sources.
const (
	maxSourceName  = 253
	maxSourceState = 64 << 20
	maxSources     = 10_000 // in one call
)

// Settings are those of this package.
type Settings struct {
	Access rights.Mode // how rights are enforced
	Audit  bool        // changes are recorded in the audit log
	// CheckSource returns an ErrInvalid if the definition of a source can't work. If nil,
	// sources can't be registered.
	CheckSource func(tko.SourceDefinition) error
	// Reach returns what a source may change now without consent.
	Reach func(ctx context.Context, name string) (tko.SourceReach, error)
	// Leash has what the operator declared credentials for; nothing if nil.
	Leash *leash.Leash
	// SourceUses returns how the definition of a source uses credentials. If nil, sources aren't
	// checked.
	SourceUses func(tko.SourceDefinition) []leash.Use
	// Notify sends the messages of subscriptions. If nil, they can't be registered.
	Notify Messenger
	Log    *slog.Logger // of approvals
}

// A shared is what both keepers work with.
type shared struct {
	rights   *rights.Authorizer
	store    record.Store
	log      *slog.Logger
	settings Settings
}

// A Keeper manages GitOps sources: their definitions, and their state.
type Keeper struct {
	shared

	subscriptions *SubscriptionKeeper
	views         *ViewKeeper
}

// NewKeepers returns the keepers of sources, of subscriptions, which see changes as watchers do, and of views.
func NewKeepers(a *rights.Authorizer, store record.Store, settings Settings, changes Watched) (*Keeper, *SubscriptionKeeper, *ViewKeeper) {
	b := shared{rights: a, store: store, log: settings.Log, settings: settings}
	subscriptions := &SubscriptionKeeper{shared: b, changes: changes}
	views := &ViewKeeper{b}
	return &Keeper{shared: b, subscriptions: subscriptions, views: views}, subscriptions, views
}

func checkSourceName(name string) error {
	if name == "" || len(name) > maxSourceName || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f }) || !record.Storable(name) {
		return tko.Errorf(tko.ErrInvalid, "source %.40q: use a name of 1 to %d visible characters", name, maxSourceName)
	}
	return nil
}

// EnqueueSources requests a reconciliation of GitOps sources; if missing is
// set, only of those for which none is requested yet. approve, if not empty,
// approves a removal of the only source: it is the digest of the pending
// removal.
func (s *Keeper) EnqueueSources(ctx context.Context, names []string, missing bool, approve string) error {
	if len(names) > maxSources {
		return tko.Errorf(tko.ErrInvalid, "%d sources are to be reconciled at once: give at most %d", len(names), maxSources)
	}
	for _, name := range names {
		if err := checkSourceName(name); err != nil {
			return err
		}
	}
	ctx, c, err := s.rights.Enter(ctx, tko.KindSite, access.Call)
	if err != nil {
		return err
	}
	if !c.Grant.On(access.Call, tko.KindSite).IsAll() || approve != "" && !c.Grant.On(access.Approve, tko.KindDeployment).IsAll() {
		if err := s.rights.Refuse(ctx, c, "", "", access.Call); err != nil {
			return err
		}
	}
	if approve != "" {
		if len(names) != 1 {
			return tko.Errorf(tko.ErrInvalid, "a removal is approved for one source, not for %d", len(names))
		}
		source, err := s.store.Source(ctx, names[0])
		if err != nil {
			return err
		}
		if source.Status.PendingRemoval != approve {
			return tko.Errorf(tko.ErrConflict, "source %q has no pending removal %.40q: read its status again", names[0], approve)
		}
		if err := s.store.ApproveSource(ctx, names[0], approve); err != nil {
			return err
		}
		s.log.InfoContext(ctx, "approved a removal", "source", names[0], "digest", approve, "who", rights.Author(ctx).Who)
	}
	return s.store.EnqueueWork(ctx, tko.QueueGitOps, names, missing)
}

// Source returns a source with its state, and what it may change now. An unknown source is an ErrNotFound.
func (s *Keeper) Source(ctx context.Context, name string) (tko.Source, error) {
	if err := checkSourceName(name); err != nil {
		return tko.Source{}, err
	}
	ctx, err := s.enterSources(ctx)
	if err != nil {
		return tko.Source{}, err
	}
	source, err := s.store.Source(ctx, name)
	if err != nil {
		return tko.Source{}, err
	}
	source.Reach, err = s.settings.Reach(ctx, name)
	return source, err
}

// Sources returns all GitOps sources by name, without their state.
func (s *Keeper) Sources(ctx context.Context) ([]tko.Source, error) {
	ctx, err := s.enterSources(ctx)
	if err != nil {
		return nil, err
	}
	return s.store.Sources(ctx)
}

// enterSources begins a method that reads GitOps sources, whose statuses name entities
// of all kinds, and the repositories that they come from: it needs the right inspect.
func (s *Keeper) enterSources(ctx context.Context) (context.Context, error) {
	ctx, _, err := s.rights.Enter(ctx, "", access.Inspect)
	return ctx, err
}

// SaveSource saves a source and returns its version. It returns ErrConflict if
// the caller no longer holds the claim of the source's work.
func (s *Keeper) SaveSource(ctx context.Context, source tko.Source, claim tko.WorkItem) (int64, error) {
	if err := errors.Join(checkSourceName(source.Name), checkSourceClaim(source.Name, claim)); err != nil {
		return 0, err
	}
	ctx, _, err := s.rights.Enter(ctx, "", access.Source)
	if err != nil {
		return 0, err
	}
	if len(source.State) > maxSourceState {
		return 0, tko.Errorf(tko.ErrInvalid, "the state of source %q has %d bytes: use at most %d", source.Name, len(source.State), maxSourceState)
	}
	source.Status.Messages, source.Status.Conditions = slices.Clone(source.Status.Messages), slices.Clone(source.Status.Conditions)
	for i, text := range source.Status.Messages {
		source.Status.Messages[i] = printable.Once(text)
	}
	for i, c := range source.Status.Conditions {
		source.Status.Conditions[i].Message = printable.Once(c.Message)
	}
	return s.store.SaveSource(ctx, source, claim)
}

// ForgetSource removes a source, and its definition if that is being deleted; its entities
// stay. Errors as for SaveSource.
func (s *Keeper) ForgetSource(ctx context.Context, name string, claim tko.WorkItem) error {
	if err := errors.Join(checkSourceName(name), checkSourceClaim(name, claim)); err != nil {
		return err
	}
	ctx, c, err := s.rights.Enter(ctx, "", access.Source)
	if err != nil {
		return err
	}
	if err := s.store.ForgetSource(ctx, name, claim); err != nil {
		return err
	}
	return s.endDefinition(ctx, c, name)
}

func checkSourceClaim(name string, claim tko.WorkItem) error {
	if claim.Queue != tko.QueueGitOps || claim.Key != name {
		return tko.Errorf(tko.ErrInvalid, "source %q is saved with a claim of %.40s %.40q: claim its own work", name, claim.Queue, claim.Key)
	}
	if !record.Storable(claim.Claim) {
		return tko.Errorf(tko.ErrInvalid, "the claim of source %q is not plain text: give it as it was claimed", name)
	}
	return nil
}
