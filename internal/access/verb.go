package access

import (
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// A Verb is a kind of action.
type Verb string

// Verbs on entities. A verb is granted within a scope.
const (
	Read      Verb = "read"      // get, list, watch, count: a list shows contents, so these are one verb
	Create    Verb = "create"    // templates, sites, deployments, rollouts
	Update    Verb = "update"    // templates, sites, deployments
	Delete    Verb = "delete"    // templates, sites, deployments
	Purge     Verb = "purge"     // deletion of a selection, in addition to delete
	Approve   Verb = "approve"   // deployments
	Call      Verb = "call"      // reconciliation of a site
	Register  Verb = "register"  // create, replace and delete plugins, which run programs
	Commit    Verb = "commit"    // results of a controller: packages of deployments and their children
	Provision Verb = "provision" // sites with generated IDs
	Condition Verb = "condition" // conditions of sites, deployments and plugins
	Secret    Verb = "secret"    // values of Secrets in packages
	// Credential lets sites, templates, plugins and sources use credentials of the server
	// without a declaration. Only bindings without a scope grant it, because credentials
	// have none.
	Credential Verb = "credential"
)

// Verbs without an entity. They are granted as a whole: only bindings without a
// scope grant them.
const (
	Prepare     Verb = "prepare"     // work of the preparer
	Schedule    Verb = "schedule"    // work of the meta-scheduler, and the states of its targets
	Advance     Verb = "advance"     // work of the rollout controller
	Events      Verb = "events"      // work of posting Kubernetes Events
	Source      Verb = "source"      // work of the GitOps controller, and its sources
	Inspect     Verb = "inspect"     // modification tokens of others, GitOps sources, and calls of them
	Define      Verb = "define"      // GitOps sources in the store, which change entities of all kinds but plugins
	Emergency   Verb = "emergency"   // approval of waves of rollouts without the ticket that they wait for
	Subscribe   Verb = "subscribe"   // subscriptions, which send what their owners may read to other hosts
	Publish     Verb = "publish"     // views of the dashboards, which all who read anything see
	Bind        Verb = "bind"        // bindings and policies
	Audit       Verb = "audit"       // the audit log
	Backup      Verb = "backup"      // whole backups
	Logs        Verb = "log"         // levels of the server's log
	Impersonate Verb = "impersonate" // to act under a name that the caller verified
	Own         Verb = "own"         // owners of entities: as whom controllers derive from them
	Open        Verb = "open"        // every caller: about and health
)

// Scoped reports whether a verb is granted within a scope.
func (v Verb) Scoped() bool {
	switch v {
	case Prepare, Schedule, Advance, Events, Source, Inspect, Define, Subscribe, Publish, Emergency, Bind, Audit, Backup, Logs, Impersonate, Own, Open:
		return false
	default:
		return true
	}
}

// A Role is a named set of verbs.
type Role string

// The roles. Each right of its own is a role of the same name: define, subscribe, publish, emergency, secret,
// audit, backup, impersonate, own and credential.
const (
	Viewer    Role = "viewer"
	Editor    Role = "editor"
	Approver  Role = "approver"
	Operator  Role = "operator"
	Admin     Role = "admin"
	Delegated Role = "delegated" // for callers of the Kubernetes API: RBAC decides the verb, the scope narrows it

	ControllerPrepare  Role = "controller-prepare"
	ControllerSchedule Role = "controller-schedule"
	ControllerGitOps   Role = "controller-gitops"
	ControllerRollout  Role = "controller-rollout"
	Plugin             Role = "plugin"

	DefineRole      Role = "define"
	SubscribeRole   Role = "subscribe"
	EmergencyRole   Role = "emergency"
	PublishRole     Role = "publish"
	SecretRole      Role = "secret"
	AuditRole       Role = "audit"
	BackupRole      Role = "backup"
	ImpersonateRole Role = "impersonate"
	OwnRole         Role = "own"
	CredentialRole  Role = "credential"
)

var entities = []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment}

// kindsOf returns the kinds of entities that a verb is for.
func (v Verb) kindsOf() []tko.Kind {
	switch v {
	case Read:
		return append(slices.Clone(entities), tko.KindPlugin, tko.KindRollout)
	case Create, Update, Delete:
		return append(slices.Clone(entities), tko.KindRollout)
	case Purge, Secret:
		return entities
	case Approve:
		return []tko.Kind{tko.KindDeployment, tko.KindRollout}
	case Commit:
		return []tko.Kind{tko.KindDeployment}
	case Call, Provision, Credential:
		return []tko.Kind{tko.KindSite}
	case Register:
		return []tko.Kind{tko.KindPlugin}
	case Condition:
		return []tko.Kind{tko.KindSite, tko.KindDeployment, tko.KindPlugin}
	default:
		return nil
	}
}

// users are the verbs that concern users; administrators hold them all.
var users = []Verb{Read, Create, Update, Delete, Purge, Approve, Call, Inspect, Register}

var roles = map[Role][]Verb{
	Viewer:    {Read},
	Editor:    {Read, Create, Update, Delete},
	Approver:  {Read, Approve},
	Operator:  {Read, Call, Purge, Inspect, Credential, Publish},
	Admin:     append(slices.Clone(users), Define, Subscribe, Publish, Emergency, Bind, Own, Audit, Backup, Logs, Secret, Credential),
	Delegated: append(slices.Clone(users), Condition, Secret),

	ControllerPrepare:  {Read, Create, Commit, Provision, Condition, Prepare, Secret, Credential},
	ControllerSchedule: {Read, Condition, Schedule, Call, Secret},
	ControllerGitOps:   {Read, Create, Update, Delete, Register, Condition, Source, Inspect, Call, Secret, Credential},
	ControllerRollout:  {Read, Advance},
	Plugin:             {Read, Create, Update, Delete, Provision},

	DefineRole:      {Define, Inspect},
	SubscribeRole:   {Subscribe, Inspect},
	EmergencyRole:   {Emergency},
	PublishRole:     {Publish},
	SecretRole:      {Read, Secret},
	AuditRole:       {Audit},
	BackupRole:      {Backup},
	ImpersonateRole: {Impersonate},
	OwnRole:         {Own},
	CredentialRole:  {Credential},
}

// Roles returns the names of all roles, sorted.
func Roles() []Role { return slices.Sorted(maps.Keys(roles)) }

// Verbs returns the verbs of a role; nil for an unknown role.
func (r Role) Verbs() []Verb { return slices.Clone(roles[r]) }

// AllVerbs returns all verbs, sorted.
func AllVerbs() []Verb {
	all := map[Verb]bool{Open: true, Events: true} // no role has these
	for _, verbs := range roles {
		for _, v := range verbs {
			all[v] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
