package record

// The kinds of stored rules of access.
const (
	RuleBinding  = "binding"
	RulePolicy   = "policy"
	RuleApproval = "approval"
	RuleSetup    = "setup"
	// RuleEnrollment is the kind of enrollments of agents: a certificate is valid as long as there
	// is one.
	RuleEnrollment = "enrollment"
)

// isRight states for each kind of stored rules whether it gives or limits the rights of
// clients. A restore without rights keeps the others.
var isRight = map[string]bool{
	RuleBinding: true, RulePolicy: true, RuleApproval: true, RuleSetup: true, RuleEnrollment: true,
	RuleFreeze: false, RuleSource: false, RuleStop: false,
	RuleSubscription: false, // it tells what its owner may read
	RuleView:         false,
	RuleOwner:        false, // a source that stays without its owner would have more rights
}

// IsRight reports whether a stored rule gives or limits the rights of clients.
func (r AccessRule) IsRight() bool { return isRight[r.Kind] }

// RuleFreeze is the kind of freezes among the stored rules of access: who may change
// what at a site is decided with them, in the same transactions.
const RuleFreeze = "freeze"

// RuleStop is the kind of stops among the stored rules of access: they hold from the commit
// that writes them, because every other commit checks the version of the rules.
const RuleStop = "stop"

// RuleSubscription is the kind of subscriptions among the stored rules of access: whether
// their owners may read what they tell is decided with these.
const RuleSubscription = "subscription"

// RuleView is the kind of saved views of the dashboards among the stored rules of access: as
// subscriptions, repositories declare them with the rights of their owners.
const RuleView = "view"

// RuleSource is the kind of definitions of GitOps sources among the stored rules of access:
// they decide which repositories may change what is stored.
const RuleSource = "source"
