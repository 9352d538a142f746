package tko

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxFleetFailures limits the groups of failures of a [Fleet].
const maxFleetFailures = 2000

// A FleetSelect selects sites, and the deployments at them. The zero value selects all sites and
// all deployments.
type FleetSelect struct {
	Sites        []string          // patterns of IDs
	SiteMetadata map[string]string // key: pattern
}

// A Fleet is a summary of the sites and deployments that a caller may read. All clients show the
// same numbers, because only a [FleetCount] makes them.
type Fleet struct {
	// Position is the newest change that was certainly counted; 0: not known. With Exact nothing
	// newer was counted.
	Position int64
	Exact    bool
	Time     time.Time // when it was counted, by the server's clock

	Sites, Deployments FleetCounts

	Failures        []FleetFailure // the most frequent first
	FailuresLeftOut int            // of groups beyond the first 2000
	Waits           []FleetWait
}

// Waiting returns how many entities of a kind wait for the same.
func (f Fleet) Waiting(kind Kind, what string) int {
	for _, w := range f.Waits {
		if w.Kind == kind && w.What == what {
			return w.Count
		}
	}
	return 0
}

// FleetCounts are numbers of entities of a kind.
type FleetCounts struct {
	Total        int
	Prepared     int // deployments only, as Approved
	Approved     int
	Scheduled    int // the condition Scheduled is True
	NotScheduled int // the condition Scheduled is False
	Unhealthy    int // the condition Healthy is False: also of those that come up

	Failing, Waiting, Working, Unknown, Healthy int // by their [State]: each entity has one
}

// State returns the number of entities in a state.
func (c *FleetCounts) State(state State) int {
	if n := c.state(state); n != nil {
		return *n
	}
	return 0
}

func (c *FleetCounts) state(state State) *int {
	switch state {
	case StateFailing:
		return &c.Failing
	case StateWaiting:
		return &c.Waiting
	case StateWorking:
		return &c.Working
	case StateUnknown:
		return &c.Unknown
	case StateHealthy:
		return &c.Healthy
	}
	return nil
}

// A FleetFailure is a group of entities of a kind with a condition that is False for the same
// reason, and that no user and no other entity can end by just going on.
type FleetFailure struct {
	Kind         Kind
	Type, Reason string // of the condition
	Count        int
	Since        time.Time // of the oldest one, as Example and Message
	Example      string    // ID; "" if it isn't known
	Message      string
}

// A FleetWait is the number of entities of a kind that wait for the same.
type FleetWait struct {
	Kind  Kind
	What  string // one of the constants
	Count int
}

// What entities wait for.
const (
	WaitsStopped    = "stopped"    // the release of a stop
	WaitsApproval   = "approval"   // the first approval
	WaitsWithdrawn  = "withdrawn"  // another approval, because they have changed
	WaitsProposal   = "proposal"   // the approval of changes of placements
	WaitsPreparer   = "preparer"   // a preparer
	WaitsScheduler  = "scheduler"  // the meta-scheduler
	WaitsSuspended  = "suspended"  // the end of a suspension
	WaitsFrozen     = "frozen"     // the end of a freeze
	WaitsReferences = "references" // templates or sites that don't exist yet
	WaitsPartly     = "partly"     // they were delivered in part
	WaitsApart      = "apart"      // a rollout that changes a site from which theirs is kept apart
)

// waits are in the order of a [Fleet].
var waits = []string{WaitsStopped, WaitsApproval, WaitsWithdrawn, WaitsProposal, WaitsPreparer, WaitsScheduler, WaitsSuspended, WaitsFrozen, WaitsReferences, WaitsPartly, WaitsApart}

// A fleetGroup is what the entities of a [FleetFailure] have in common.
type fleetGroup struct {
	kind        Kind
	typ, reason string
}

// A FleetCount counts sites and deployments. The zero value has counted none.
type FleetCount struct {
	sites, deployments FleetCounts
	failures           map[fleetGroup]*FleetFailure
	leftOut            int
	waits              map[FleetWait]int // by kind and reason
}

// AddSite counts n sites that are equal but for their IDs, messages and times.
func (f *FleetCount) AddSite(s Site, n int) {
	conditions := s.Stamp.Conditions
	f.add(&f.sites, s.Summary().State, conditions, n)
	if HasCondition(conditions, ConditionResolvedRefs, ReasonWaitsForReferences) {
		f.wait(KindSite, WaitsReferences, n)
	}
	f.addFailures(KindSite, string(s.ID), conditions, n)
}

// AddDeployment counts n deployments that are equal but for their IDs, messages and times.
func (f *FleetCount) AddDeployment(d Deployment, n int) {
	conditions := d.Stamp.Conditions
	f.add(&f.deployments, d.Summary().State, conditions, n)
	if d.Prepared {
		f.deployments.Prepared += n
	}
	if d.Approved {
		f.deployments.Approved += n
	}
	if reason := waitOf(d); reason != "" {
		f.wait(KindDeployment, reason, n)
	}
	if HasCondition(conditions, ConditionPlaced, ReasonChangeProposed) {
		f.wait(KindDeployment, WaitsProposal, n)
	}
	if HasCondition(conditions, ConditionResolvedRefs, ReasonWaitsForReferences) {
		f.wait(KindDeployment, WaitsReferences, n)
	}
	if HasCondition(conditions, ConditionDelivered, ReasonDeliveredPartly) {
		f.wait(KindDeployment, WaitsPartly, n)
	}
	f.addFailures(KindDeployment, string(d.ID), conditions, n)
}

func (f *FleetCount) add(c *FleetCounts, state State, conditions []Condition, n int) {
	c.Total += n
	switch ConditionIs(conditions, ConditionScheduled) {
	case ConditionTrue:
		c.Scheduled += n
	case ConditionFalse:
		c.NotScheduled += n
	}
	if count := c.state(state); count != nil {
		*count += n
	}
	if ConditionIs(conditions, ConditionHealthy) == ConditionFalse {
		c.Unhealthy += n
	}
}

func (f *FleetCount) wait(kind Kind, reason string, n int) {
	if f.waits == nil {
		f.waits = map[FleetWait]int{}
	}
	f.waits[FleetWait{Kind: kind, What: reason}] += n
}

// waitOf returns what a deployment waits for first; "" if it doesn't.
func waitOf(d Deployment) string {
	conditions := d.Stamp.Conditions
	scheduled, prepared := ConditionIs(conditions, ConditionScheduled), ConditionIs(conditions, ConditionPrepared)
	switch {
	case HasCondition(conditions, ConditionScheduled, ReasonStopped), !d.Prepared && HasCondition(conditions, ConditionPrepared, ReasonStopped):
		return WaitsStopped
	case !d.Prepared && prepared != ConditionFalse:
		return WaitsPreparer
	case d.Prepared && !d.Approved && HasCondition(conditions, ConditionApproved, ReasonApprovalWithdrawn):
		return WaitsWithdrawn
	case d.Prepared && !d.Approved:
		return WaitsApproval
	case d.Prepared && d.Site != "" && scheduled != ConditionTrue && scheduled != ConditionFalse:
		return WaitsScheduler
	case HasCondition(conditions, ConditionScheduled, ReasonSuspended):
		return WaitsSuspended
	case HasCondition(conditions, ConditionScheduled, ReasonFrozen):
		return WaitsFrozen
	case HasCondition(conditions, ConditionScheduled, ReasonApart):
		return WaitsApart
	}
	return ""
}

// notFailures are the reasons of conditions that are False while something waits, and of what
// was delivered in part.
var notFailures = []string{
	ReasonSuspended, ReasonFrozen, ReasonApart, ReasonStopped, ReasonWaitsForReferences, ReasonDeliveredPartly,
}

// isFailure reports whether a condition is False, and doesn't just wait for a user, for what
// doesn't exist yet, or for the end of a freeze or stop.
func isFailure(c *Condition) bool {
	switch {
	case c.Status != ConditionFalse, c.Type == ConditionApproved, c.Type == ConditionFrozen:
		return false
	case c.Type == ConditionPlaced && c.Reason == ReasonChangeProposed:
		return false
	}
	return !slices.Contains(notFailures, c.Reason)
}

// addFailures counts the failures of n entities. Without an ID, the oldest is not known: see
// [FleetCount.SetOldest].
func (f *FleetCount) addFailures(kind Kind, id string, conditions []Condition, n int) {
	for i := range conditions {
		c := &conditions[i]
		if !isFailure(c) {
			continue
		}
		key := fleetGroup{kind, c.Type, c.Reason}
		group := f.failures[key]
		if group == nil {
			if len(f.failures) == maxFleetFailures {
				f.leftOut += n
				continue
			}
			if f.failures == nil {
				f.failures = map[fleetGroup]*FleetFailure{}
			}
			group = &FleetFailure{Kind: kind, Type: c.Type, Reason: c.Reason}
			f.failures[key] = group
		}
		group.Count += n
		if id != "" && (group.Example == "" || c.LastTransition.Before(group.Since)) {
			group.set(id, c)
		}
	}
}

func (f *FleetFailure) set(id string, c *Condition) {
	f.Since, f.Example, f.Message = c.LastTransition, id, c.Text()
}

// SetOldest sets the entity that has failed for longest, of those with the same condition.
func (f *FleetCount) SetOldest(kind Kind, id string, c Condition) {
	if group := f.failures[fleetGroup{kind, c.Type, c.Reason}]; group != nil {
		group.set(id, &c)
	}
}

// Fleet returns what was counted.
func (f *FleetCount) Fleet() Fleet {
	sum := Fleet{Sites: f.sites, Deployments: f.deployments, FailuresLeftOut: f.leftOut}
	for _, kind := range []Kind{KindDeployment, KindSite} {
		for _, reason := range waits {
			if n := f.waits[FleetWait{Kind: kind, What: reason}]; n > 0 {
				sum.Waits = append(sum.Waits, FleetWait{kind, reason, n})
			}
		}
	}
	for group := range maps.Values(f.failures) {
		sum.Failures = append(sum.Failures, *group)
	}
	slices.SortFunc(sum.Failures, func(a, b FleetFailure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(string(b.Kind), string(a.Kind)), strings.Compare(a.Type, b.Type), strings.Compare(a.Reason, b.Reason))
	})
	return sum
}
