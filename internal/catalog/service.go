package catalog

import (
	"context"
	"log/slog"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/changelog"
	"github.com/tko-orchestrator/tko/internal/enrollment"
	"github.com/tko-orchestrator/tko/internal/history"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/source"
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

	// A cause that removes more than ConfirmAbove entities, or more than ConfirmPercent of
	// a kind and more than tko.ReachFew, must confirm the count (see
	// [tko.WithConfirmation]). tko.DefaultConfirmAbove and
	// tko.DefaultConfirmPercent if zero; no limits if negative.
	ConfirmAbove   int
	ConfirmPercent int

	// Reach limits what a cause may change without consent.
	Reach ReachLimits
	// TopologyDepth is the maximum number of levels of nested deployments;
	// tko.DefaultTopologyDepth if zero, and unlimited if negative.
	TopologyDepth int

	// Access is how rights are enforced; rights.Off if empty.
	Access rights.Mode
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
	// OwnerGroups is how long the groups of an owner are those that it had when it wrote a
	// revision; without end if 0. After that, what depends on them is held.
	OwnerGroups time.Duration
	// CheckFunction returns an ErrInvalid if this server doesn't run a KRM function, as its
	// image names it. If nil, all are accepted.
	CheckFunction func(image string) error
	// Audit records changes and refusals in the audit log.
	Audit bool
	// CheckSource returns an ErrInvalid if the definition of a GitOps source can't work. If
	// nil, sources can't be registered.
	CheckSource func(tko.SourceDefinition) error
	// Leash has what the operator declared credentials for; nothing if nil.
	Leash *leash.Leash
	// SourceUses returns how the definition of a GitOps source uses credentials. If nil,
	// sources aren't checked.
	SourceUses func(tko.SourceDefinition) []leash.Use
	// Notify sends the messages of subscriptions. If nil, they can't be registered.
	Notify source.Messenger
	// InspectPlugin returns the condition of a plugin that is about to be registered, by
	// whether this server can run it; ok is false if there is nothing to report. None if nil.
	InspectPlugin func(tko.Plugin) (c tko.Condition, ok bool)
	// CompareWait is how long CompareSite waits for a meta-scheduler; 1 min if 0.
	CompareWait time.Duration

	Log       *slog.Logger // for deletions and approvals; none if nil
	LogLevels LogLevels    // of the server's log; none if nil
	Runs      *PluginRuns  // of plugins in this process; none if nil
	// Refused is called for each request for which the caller has no right (verb, kind),
	// or no valid credentials (login), with the decision: refuse, or report if the
	// request is served nevertheless. None if nil.
	Refused func(verb, kind, decision string)
}

// A Service is the catalog. All records are written through it. Its methods are those of
// its parts, each of which has one purpose. They may be called concurrently. Several
// services may share a store, or stores on one database.
//
// The caller owns its arguments, which are not changed, and the results. The
// context has the author of a change and the reason for it (see
// [tko.WithAuthor]).
//
// Errors are of the kinds of package tko, and their texts are for users; any
// other error is a fault of the store or of a validator.
type Service struct {
	*Entities
	*Registry
	*DeploymentWriter
	*Modifier
	*Approver
	*Remover
	*RecordWriter
	*Statuses

	*changelog.ChangeLog
	*history.History
	*Restorer
	*Snapshots
	*Explainer

	*RolloutControl
	*RolloutPlans
	*RolloutRunner
	*SiteFreezes
	*SiteStops

	*rights.AccessControl
	*rights.Owners
	*rights.AuditTrail
	*WorkQueue
	*Comparer
	*source.Keeper
	*source.SubscriptionKeeper
	*source.ViewKeeper
	*enrollment.AgentEnrollments
	*Administration
}

// New makes a catalog on a store. The caller closes the store.
func New(store record.Store, validator Validator, options Options) *Service {
	setDefault(&options.DefaultFormat, krm.CBOR)
	setDefault(&options.ModificationTime, 10*time.Second)
	setDefault(&options.MinBackoff, time.Second)
	setDefault(&options.MaxBackoff, max(options.MinBackoff, time.Minute))
	setDefault(&options.ConfirmAbove, tko.DefaultConfirmAbove)
	setDefault(&options.ConfirmPercent, tko.DefaultConfirmPercent)
	options.Reach.setDefaults()
	setDefault(&options.TopologyDepth, tko.DefaultTopologyDepth)
	setDefault(&options.Access, rights.Off)
	setDefault(&options.CompareWait, time.Minute)
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	idle := map[string]*idleQueue{}
	for _, queue := range tko.Queues() {
		idle[queue] = &idleQueue{}
	}
	c := &core{shares: lru.New[string, cachedShares](maxForebears), lineage: lru.New[string, cachedForebear](maxForebears)}
	c.rights = rights.New(store, settingsOf(options), c.commitReplacing)
	c.reader = record.Lookup{Store: store}
	c.store, c.options, c.log, c.validator = store, options, options.Log, validator
	past, moments := history.New(c.rights, store, c.differ, options.Log)
	s := &Service{
		Entities:       &Entities{core: c},
		Registry:       &Registry{core: c},
		Statuses:       &Statuses{core: c},
		Approver:       &Approver{core: c},
		ChangeLog:      changelog.New(c.rights, store),
		History:        past,
		SiteFreezes:    &SiteFreezes{core: c},
		SiteStops:      &SiteStops{core: c},
		AccessControl:  c.rights.AccessControl(),
		Owners:         c.rights.Owners(),
		AuditTrail:     c.rights.AuditTrail(),
		WorkQueue:      &WorkQueue{core: c, idle: idle},
		Administration: &Administration{core: c},
	}
	s.Keeper, s.SubscriptionKeeper, s.ViewKeeper = source.NewKeepers(c.rights, store, c.sourceSettings(), changelog.SeenBy(s.ChangeLog))
	s.AgentEnrollments = enrollment.New(c.rights, store, func(ctx context.Context, site record.Key, conditions []tko.Condition) error {
		return s.setConditions(ctx, site, conditions, nil, Requirement{})
	})
	s.DeploymentWriter = &DeploymentWriter{core: c, registry: s.Registry, statuses: s.Statuses}
	s.Modifier = &Modifier{core: c, deployments: s.DeploymentWriter}
	s.Remover = &Remover{core: c, entities: s.Entities}
	s.Restorer = &Restorer{core: c, moments: moments}
	s.Comparer = &Comparer{core: c, entities: s.Entities}
	s.Snapshots = &Snapshots{core: c, entities: s.Entities, deployments: s.DeploymentWriter, changeLog: s.ChangeLog}
	rollouts := &rolloutStore{core: c}
	s.RolloutPlans = &RolloutPlans{rolloutStore: rollouts, entities: s.Entities, moments: moments}
	s.RolloutRunner = &RolloutRunner{rolloutStore: rollouts, plans: s.RolloutPlans, siteFreezes: s.SiteFreezes}
	s.RolloutControl = &RolloutControl{rolloutStore: rollouts, registry: s.Registry, plans: s.RolloutPlans, runner: s.RolloutRunner}
	s.RecordWriter = &RecordWriter{
		core: c, registry: s.Registry, deployments: s.DeploymentWriter, statuses: s.Statuses, approver: s.Approver, remover: s.Remover, control: s.RolloutControl,
	}
	s.Explainer = &Explainer{core: c, entities: s.Entities, plans: s.RolloutPlans, control: s.RolloutControl}
	return s
}

func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// A [Service] combines parts with one purpose each. All of them embed a core: its [rights.Authorizer] checks
// callers and commits, its [record.Lookup] reads records, and [validation] checks packages. A part that
// needs another one has it in a field. There are no cycles.

// A core is what all parts of a [Service] share.
type core struct {
	validation

	ids idSource

	shares  *lru.Cache[string, cachedShares]   // by cause
	lineage *lru.Cache[string, cachedForebear] // by deployment
	fleets  fleetAtHand
}

// settingsOf returns the settings of who may do what.
func settingsOf(o Options) rights.Settings {
	s := rights.Settings{
		Access: o.Access, AccessAnonymous: o.AccessAnonymous, AccessKubernetes: o.AccessKubernetes, BreakGlass: o.BreakGlass, OwnerGroups: o.OwnerGroups, Audit: o.Audit,
		Leash: o.Leash, SourceUses: o.SourceUses, Log: o.Log, Refused: o.Refused,
	}
	if o.Notify != nil {
		s.SubscriptionUses = o.Notify.Uses
	}
	return s
}

// sourceSettings returns the settings of sources and subscriptions.
func (s *core) sourceSettings() source.Settings {
	o := s.options
	return source.Settings{Access: o.Access, Audit: o.Audit, CheckSource: o.CheckSource, Reach: s.sourceReach, Leash: o.Leash, SourceUses: o.SourceUses, Notify: o.Notify, Log: o.Log}
}
