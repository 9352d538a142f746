package tko

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The default limits of what one cause may change without consent. A cause is the
// topology, source or rollout that changes are derived from; for other changes, their
// author, within [DefaultReachWindow]. DefaultConfirmAbove and DefaultConfirmPercent limit
// removals.
const (
	DefaultReachCreated  = 1000 // deployments that a topology creates, and that an author approves
	DefaultReachSites    = 10   // sites at which an author changes running deployments
	DefaultReachWindow   = 10 * time.Minute
	DefaultTopologyDepth = 16 // levels of nested topologies, the outermost included
)

// ReachFew is the number of removed entities of a kind up to which their share of the
// kind doesn't count.
const ReachFew = 10

// ReasonWaitsForApproval is the reason of a condition of a deployment that would create
// or delete more deployments than it may without consent: see [Waiting].
const ReasonWaitsForApproval = "WaitsForApproval"

// ReasonConsented is the reason of the condition of a deployment that waited for consent, until it
// is reconciled.
const ReasonConsented = "Consented"

// A Waiting is what a deployment would change and waits to: the deployments that it
// would create and remove.
type Waiting struct{ Create, Remove int }

// Count returns the number that a user consents to.
func (w Waiting) Count() int { return w.Create + w.Remove }

// String describes what waits. [ParseWaiting] reads it.
func (w Waiting) String() string {
	return fmt.Sprintf("%d deployments to create and %d to remove wait for consent", w.Create, w.Remove)
}

var waitingText = regexp.MustCompile(`(\d{1,9}) deployments to create and (\d{1,9}) to remove wait for consent`)

// ParseWaiting returns the sum of what a message says that waits. ok is false if it says
// nothing of it.
func ParseWaiting(message string) (w Waiting, ok bool) {
	for _, m := range waitingText.FindAllStringSubmatch(message, -1) {
		create, _ := strconv.Atoi(m[1])
		remove, _ := strconv.Atoi(m[2])
		w.Create, w.Remove, ok = w.Create+create, w.Remove+remove, true
	}
	return w, ok
}

// WaitingOf returns what a deployment with the conditions waits to change. ok is false if
// it waits for no consent.
func WaitingOf(conditions []Condition) (w Waiting, ok bool) {
	for _, c := range conditions {
		if (c.Type == ConditionPrepared || c.Type == ConditionPlaced) && c.Reason == ReasonWaitsForApproval && c.Status != ConditionTrue {
			if one, found := ParseWaiting(c.Message); found {
				w.Create, w.Remove, ok = w.Create+one.Create, w.Remove+one.Remove, true
			}
		}
	}
	return w, ok
}

// RolloutText is in the error for changes of a placement that a rollout must make: see
// [NeedsRollout].
const RolloutText = "the placement changes them by a rollout"

// NeedsRollout reports whether err refuses changes of a placement because a rollout must make
// them: they change running deployments at too many sites.
func NeedsRollout(err error) bool { return err != nil && strings.Contains(err.Error(), RolloutText) }

// Consents reports whether a confirmed number is consent to count changes: it is an
// upper bound, and not above the count by more than a tenth and by more than 100.
func Consents(confirmed, count int) bool {
	return confirmed >= count && (confirmed-count <= 100 || (confirmed-count)*10 <= count)
}

type cannotConsentKey struct{}

// WithoutConsent returns a context of a caller that can't confirm numbers, because its
// protocol has no field for it.
func WithoutConsent(ctx context.Context) context.Context {
	return context.WithValue(ctx, cannotConsentKey{}, true)
}

// CanConsent reports whether the caller can confirm numbers: it wasn't made by
// [WithoutConsent].
func CanConsent(ctx context.Context) bool {
	cannot, _ := ctx.Value(cannotConsentKey{}).(bool)
	return !cannot
}
