package catalog

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/changelog"
	"github.com/tko-orchestrator/tko/internal/enrollment"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/history"
	"github.com/tko-orchestrator/tko/internal/hold"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/service"
	"github.com/tko-orchestrator/tko/internal/source"
	"github.com/tko-orchestrator/tko/internal/workqueue"
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
	Reach gate.ReachLimits
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

	*service.RolloutControl
	*service.RolloutPlans
	*service.RolloutRunner
	*hold.SiteFreezes
	*hold.SiteStops

	*rights.AccessControl
	*rights.Owners
	*rights.AuditTrail
	*workqueue.WorkQueue
	*Comparer
	*source.Keeper
	*source.SubscriptionKeeper
	*source.ViewKeeper
	*enrollment.AgentEnrollments
	*Administration
}

// New makes a catalog on a store. The caller closes the store.
func New(store record.Store, validator Validator, options Options) *Service {
	options.DefaultFormat = cmp.Or(options.DefaultFormat, krm.CBOR)
	options.ModificationTime = cmp.Or(options.ModificationTime, 10*time.Second)
	options.MinBackoff = cmp.Or(options.MinBackoff, time.Second)
	options.MaxBackoff = cmp.Or(options.MaxBackoff, max(options.MinBackoff, time.Minute))
	options.Access = cmp.Or(options.Access, rights.Off)
	options.CompareWait = cmp.Or(options.CompareWait, time.Minute)
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	limits := gate.New(store, gate.Settings{
		Reach: options.Reach, ConfirmAbove: options.ConfirmAbove, ConfirmPercent: options.ConfirmPercent, TopologyDepth: options.TopologyDepth,
	})
	commits := &replacer{store: store, gate: limits, log: options.Log}
	authorizer := rights.New(store, settingsOf(options), commits.commit)
	limits.Ask(authorizer)
	held := hold.New(authorizer, store, limits, options.Log)
	commits.holds = held.Holds
	return assemble(store, validator, options, ground{authorizer, limits, held, commits})
}

// The ground is what is below all entities.
type ground struct {
	rights   *rights.Authorizer
	gate     *gate.Gate
	held     hold.Parts
	replacer *replacer
}

// assemble gives each part of a catalog what it needs. Parts may need those that are made before
// them: there are no cycles.
func assemble(store record.Store, validator Validator, options Options, g ground) *Service {
	reader := record.Lookup{Store: store}
	ids := new(idSource)
	rules := &validation{reader: reader, store: store, validator: validator}
	refers := &references{rights: g.rights}
	approves := &approvals{rights: g.rights, mode: options.Access}
	past, moments := history.New(g.rights, store, rules.differ, options.Log)
	s := &Service{
		Entities:       &Entities{rights: g.rights, store: store, reader: reader},
		Registry:       &Registry{rights: g.rights, reader: reader, validation: rules, inspect: options.InspectPlugin, ids: ids},
		Statuses:       &Statuses{rights: g.rights, reader: reader},
		Approver:       &Approver{rights: g.rights, store: store, reader: reader, gate: g.gate, approvals: approves, persons: options.Persons, mode: options.Access, log: options.Log},
		ChangeLog:      changelog.New(g.rights, store),
		History:        past,
		SiteFreezes:    g.held.Freezes,
		SiteStops:      g.held.Stops,
		AccessControl:  g.rights.AccessControl(),
		Owners:         g.rights.Owners(),
		AuditTrail:     g.rights.AuditTrail(),
		WorkQueue:      workqueue.New(g.rights, store, workqueue.Settings{MinBackoff: options.MinBackoff, MaxBackoff: options.MaxBackoff, Free: g.held.Holds.FreeWork}),
		Restorer:       &Restorer{rights: g.rights, store: store, reader: reader, gate: g.gate, moments: moments},
		Administration: &Administration{rights: g.rights, store: store, gate: g.gate, options: options},
	}
	s.Keeper, s.SubscriptionKeeper, s.ViewKeeper = source.NewKeepers(g.rights, store, sourceSettings(options, g.gate), changelog.SeenBy(s.ChangeLog))
	s.AgentEnrollments = enrollment.New(g.rights, store, func(ctx context.Context, site record.Key, conditions []tko.Condition) error {
		return s.setConditions(ctx, site, conditions, nil, record.Requirement{})
	})
	s.DeploymentWriter = &DeploymentWriter{
		rights: g.rights, store: store, reader: reader, gate: g.gate, holds: g.held.Holds, validation: rules, references: refers, approvals: approves, replacer: g.replacer,
		ids: ids, options: options, registry: s.Registry, statuses: s.Statuses,
	}
	s.Modifier = &Modifier{rights: g.rights, store: store, reader: reader, validity: options.ModificationTime, log: options.Log, deployments: s.DeploymentWriter}
	s.Remover = &Remover{rights: g.rights, store: store, reader: reader, gate: g.gate, holds: g.held.Holds, log: options.Log, entities: s.Entities}
	s.Comparer = &Comparer{rights: g.rights, store: store, wait: options.CompareWait, entities: s.Entities}
	s.Snapshots = &Snapshots{rights: g.rights, store: store, reader: reader, validation: rules, entities: s.Entities, deployments: s.DeploymentWriter, changeLog: s.ChangeLog}
	needs := forRollouts{gate: g.gate, holds: g.held.Holds, validation: rules, approvals: approves, entities: s.Entities, registry: s.Registry}
	rollouts := service.New(g.rights, store, needs, service.Settings{
		Access: options.Access, CheckFunction: options.CheckFunction, Differ: rules.differ, Moments: moments, Log: options.Log,
	})
	s.RolloutPlans, s.RolloutRunner, s.RolloutControl = rollouts.Plans, rollouts.Runner, rollouts.Control
	s.RecordWriter = &RecordWriter{
		rights: g.rights, store: store, reader: reader, gate: g.gate, references: refers, approvals: approves, ids: ids,
		registry: s.Registry, deployments: s.DeploymentWriter, statuses: s.Statuses, approver: s.Approver, remover: s.Remover, rollouts: rollouts.Keeper,
	}
	s.Explainer = &Explainer{
		rights: g.rights, store: store, reader: reader, validation: rules, runs: options.Runs, entities: s.Entities, rollouts: rollouts.Keeper, control: s.RolloutControl,
	}
	return s
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
func sourceSettings(o Options, limits *gate.Gate) source.Settings {
	return source.Settings{Access: o.Access, Audit: o.Audit, CheckSource: o.CheckSource, Reach: limits.SourceReach, Leash: o.Leash, SourceUses: o.SourceUses, Notify: o.Notify, Log: o.Log}
}
