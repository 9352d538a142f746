package catalog

import (
	"log/slog"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/internal/record"
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
	Notify Messenger
	// InspectPlugin returns the condition of a plugin that is about to be registered, by
	// whether this server can run it; ok is false if there is nothing to report. None if nil.
	InspectPlugin func(tko.Plugin) (c tko.Condition, ok bool)
	// CompareWait is how long CompareSite waits for a meta-scheduler; 1 min if 0.
	CompareWait time.Duration

	Log       *slog.Logger // for deletions and approvals; none if nil
	LogLevels LogLevels    // of the server's log; none if nil
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

	*ChangeLog
	*History
	*Snapshots
	*Explainer

	*RolloutControl
	*RolloutPlans
	*RolloutRunner
	*SiteFreezes
	*SiteStops

	*AccessControl
	*Owners
	*AuditTrail
	*WorkQueue
	*Comparer
	*SourceRegistry
	*SubscriptionRegistry
	*AgentEnrollments
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
	setDefault(&options.Access, AccessOff)
	setDefault(&options.CompareWait, time.Minute)
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	idle := map[string]*idleQueue{}
	for _, queue := range tko.Queues() {
		idle[queue] = &idleQueue{}
	}
	c := &core{shares: lru.New[string, cachedShares](maxForebears), lineage: lru.New[string, cachedForebear](maxForebears)}
	c.claims = lru.New[string, heldClaim](maxCachedClaims)
	c.store, c.options, c.log, c.validator = store, options, options.Log, validator
	c.refusals = refusals{refused: options.Refused, store: store, enabled: options.Audit, log: options.Log}
	s := &Service{
		Entities:       &Entities{core: c},
		Registry:       &Registry{core: c},
		Statuses:       &Statuses{core: c},
		Approver:       &Approver{core: c},
		ChangeLog:      &ChangeLog{core: c, changes: &changeCache{feed: store}, transitions: lru.New[int64, transition](maxTransitions)},
		History:        &History{core: c},
		SiteFreezes:    &SiteFreezes{core: c},
		SiteStops:      &SiteStops{core: c},
		AccessControl:  &AccessControl{core: c},
		Owners:         &Owners{core: c},
		AuditTrail:     &AuditTrail{core: c},
		WorkQueue:      &WorkQueue{core: c, idle: idle},
		SourceRegistry: &SourceRegistry{core: c},
		Administration: &Administration{core: c},
	}
	s.SubscriptionRegistry = &SubscriptionRegistry{core: c, changes: s.ChangeLog}
	s.AgentEnrollments = &AgentEnrollments{core: c, statuses: s.Statuses}
	s.DeploymentWriter = &DeploymentWriter{core: c, registry: s.Registry, statuses: s.Statuses}
	s.Modifier = &Modifier{core: c, deployments: s.DeploymentWriter}
	s.Remover = &Remover{core: c, entities: s.Entities}
	s.Comparer = &Comparer{core: c, entities: s.Entities}
	s.Snapshots = &Snapshots{core: c, entities: s.Entities, deployments: s.DeploymentWriter, changeLog: s.ChangeLog}
	rollouts := &rolloutStore{core: c}
	s.RolloutPlans = &RolloutPlans{rolloutStore: rollouts, entities: s.Entities, history: s.History}
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
