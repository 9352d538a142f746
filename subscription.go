package tko

import (
	"encoding/json"
	"time"

	"github.com/tko-orchestrator/tko/krm"
)

// KindSubscription is the kind of subscriptions where credentials and audit records name
// what they belong to. Subscriptions are no records.
const KindSubscription Kind = "subscription"

// SubscriptionKind is the kind of the manifests of subscriptions, whose API version is
// [SourceAPIVersion].
const SubscriptionKind = "Subscription"

// A Subscription sends messages about what its owner may see to a destination outside of
// TKO. Package internal/notify has its spec.
type Subscription struct {
	Name string `json:"name"`
	// Spec is what is reported, how, and to whom, in JSON.
	Spec []byte `json:"spec"`

	UID string `json:"uid,omitempty"` // set by the catalog: of the subscription as long as it exists; begins the IDs of its messages
	// Parent is the GitOps source whose repository declares it; "" if a user did. Set by the
	// catalog.
	Parent string `json:"parent,omitempty"`
	// Begin is the position of the change log, and BeginAudit the number of the audit record,
	// after which it tells. Set by the catalog.
	Begin      int64              `json:"begin,omitempty"`
	BeginAudit int64              `json:"beginAudit,omitempty"`
	Owner      Owner              `json:"-"`                // as whom it reads; set by the catalog
	By         Author             `json:"by,omitzero"`      // set by the catalog: who changed it last
	Created    time.Time          `json:"created,omitzero"` // set by the catalog
	Updated    time.Time          `json:"updated,omitzero"` // set by the catalog
	Status     SubscriptionStatus `json:"-"`                // set by the catalog
}

// A SubscriptionStatus says how far a subscription is, and what is wrong with it.
type SubscriptionStatus struct {
	Sent        int64         // messages that the destination accepted
	LastSent    time.Time     // of the newest of them; zero if there is none
	LastMessage string        // likewise
	Position    int64         // of the change log: newer changes are not reported yet
	Lag         time.Duration // age of the oldest change that is not reported or passed over yet
	Attempts    int           // at the message that is being sent
	NextTry     time.Time     // of sending it; zero if it isn't being retried
	// Conditions are Accepted, Complete and Rendered.
	Conditions []Condition
}

// Conditions of subscriptions.
const (
	ConditionAccepted = "Accepted" // the destination accepts messages
	ConditionRendered = "Rendered" // the templates give texts
	ConditionComplete = "Complete" // no change was removed from the log before it was reported
)

// Reasons of the conditions of subscriptions.
const (
	SubscriptionReasonSent      = "Sent"
	SubscriptionReasonWaiting   = "NothingToTell"
	SubscriptionReasonFailed    = "DestinationFailed"
	SubscriptionReasonHeld      = "OwnerHeld"
	SubscriptionReasonRestored  = "Restored" // messages wait until an operator releases them after a restore
	SubscriptionReasonSuspended = "Suspended"
	SubscriptionReasonRendered  = "Rendered"
	SubscriptionReasonTemplate  = "TemplateFailed"
	SubscriptionReasonNoGap     = "NoGap"
	SubscriptionReasonGap       = "HistoryRemoved"
)

// Same reports whether two subscriptions tell the same to the same destination.
func (s Subscription) Same(other Subscription) bool {
	return s.Name == other.Name && sameJSON(s.Spec, other.Spec) && s.Parent == other.Parent
}

// A RegisteredSubscription is the result of registering a subscription.
type RegisteredSubscription struct {
	Name    string
	Created bool
	Changed bool
}

// IsSubscription reports whether a resource is the manifest of a subscription.
func IsSubscription(r krm.Resource) bool {
	gvk := r.GVK()
	return gvk.Group == "tko.nephio.org" && gvk.Kind == SubscriptionKind
}

// SubscriptionOf reads a manifest. The server checks its spec. The error is an ErrInvalid.
func SubscriptionOf(r krm.Resource) (Subscription, error) {
	spec, err := declaredSpec(r, IsSubscription(r), SubscriptionKind)
	if err != nil {
		return Subscription{}, err
	}
	return Subscription{Name: r.Name(), Spec: spec}, nil
}

// Declared returns a subscription as a repository declares it, among its sources.
func (s Subscription) Declared() SourceDefinition {
	return SourceDefinition{Kind: SubscriptionKind, Name: s.Name, Spec: s.Spec}
}

// UndeclaredSubscription begins the names of subscriptions among [DeclaredSources.Kept].
const UndeclaredSubscription = "subscription/"

// IsSubscription reports whether a definition that a repository declares is that of a
// subscription.
func (d SourceDefinition) IsSubscription() bool { return d.Kind == SubscriptionKind }

// Manifest returns the manifest of a subscription.
func (s Subscription) Manifest() (krm.Resource, error) {
	var spec map[string]any
	if err := json.Unmarshal(s.Spec, &spec); err != nil {
		return nil, Errorf(ErrInvalid, "the spec of subscription %q: %w", s.Name, err)
	}
	return declaredManifest(SubscriptionKind, s.Name, spec), nil
}

// A SubscribedChange is a change that the owner of a subscription may see, with what is
// known about the entity now.
type SubscribedChange struct {
	Change

	Created bool // the change created the entity
	// What the entity is now, or was before its deletion: empty if the owner may not see it.
	Template   TemplateID
	Site       SiteID
	Metadata   map[string]string
	Conditions []Condition // of one that exists
	// Current reports that the change is the newest one of the entity.
	Current bool
	Frozen  bool // its site is frozen now
}

// SubscribedChanges are changes after a position.
type SubscribedChanges struct {
	Changes  []SubscribedChange
	Position int64     // up to which they are read
	Time     time.Time // of the newest change that was read; zero if there is none
	Head     int64     // of the log
	// GoneTo is the position up to which changes are no longer retained: those that were
	// asked for after the given position are missing. 0: none are.
	GoneTo int64
}

// A SubscribedRecord is an audit record as text of JSON.
type SubscribedRecord struct {
	Seq  int64
	Text []byte
}

// SubscribedRecords are audit records after a number. The fields are as in SubscribedChanges.
type SubscribedRecords struct {
	Records []SubscribedRecord
	Seq     int64
	Head    int64
	GoneTo  int64
}
