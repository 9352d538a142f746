package rights

import (
	"log/slog"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/leash"
)

// A Mode is how rights are enforced.
type Mode string

// The modes.
const (
	Off     Mode = "off"     // every caller may do everything
	Report  Mode = "report"  // likewise, but what enforce would refuse is logged and audited
	Enforce Mode = "enforce" // callers may do what bindings permit
)

// Settings are those of an [Authorizer].
type Settings struct {
	Access           Mode          // how rights are enforced
	AccessAnonymous  access.Role   // of callers without credentials on this machine; none if empty
	AccessKubernetes access.Role   // of users of the Kubernetes API; none if empty
	BreakGlass       []string      // subjects that may make themselves administrators for an hour
	OwnerGroups      time.Duration // how long the groups of an owner are those that it had; without end if 0
	Audit            bool          // changes and refusals are recorded in the audit log

	// Leash has what the operator declared credentials for; nothing if nil.
	Leash *leash.Leash
	// SourceUses and SubscriptionUses return how a source or a subscription uses credentials. If
	// nil, they aren't checked.
	SourceUses       func(tko.SourceDefinition) []leash.Use
	SubscriptionUses func(tko.Subscription) []leash.Use

	Log     *slog.Logger                      // of refusals and changes of rules
	Refused func(verb, kind, decision string) // is called for each refusal; none if nil
}
