package tko

import "time"

// A Freeze is a set of sites at which nothing is changed until a time: nothing is
// scheduled there, and no rollout changes deployments there. Packages may be changed
// meanwhile; they are scheduled when the freeze ends.
type Freeze struct {
	ID string // set by the catalog
	// SiteMetadata selects sites by patterns of their metadata: all must match. It isn't
	// empty. Sites that are registered or changed later are selected, too.
	SiteMetadata map[string]string
	Until        time.Time
	Reason       string
	By           Author    // set by the catalog
	Created      time.Time // set by the catalog
}

// MaxFreeze is the maximum duration of a freeze.
const MaxFreeze = 366 * 24 * time.Hour

// ConditionFrozen reports whether a freeze, or the suspension of the site or deployment,
// holds what is to be scheduled. Only what was reconciled in one has it.
const ConditionFrozen = "Frozen"

// ReasonFrozen is the reason of a Scheduled condition that waits for the end of a freeze.
const ReasonFrozen = "Frozen"

// ReasonApart is the reason of a Scheduled condition that waits for a rollout that keeps
// sites apart.
const ReasonApart = "Apart"

// Selects reports whether the freeze selects a site with this metadata, at any time.
// Invalid patterns select nothing.
func (f Freeze) Selects(metadata map[string]string) bool {
	for key, text := range f.SiteMetadata {
		value, ok := metadata[key]
		if !ok {
			return false
		}
		pattern, err := ParsePattern(text)
		if err != nil || !pattern.Match(value) {
			return false
		}
	}
	return len(f.SiteMetadata) > 0
}

// Frozen returns the freeze that holds a site the longest; false if none does at a time.
func Frozen(freezes []Freeze, metadata map[string]string, now time.Time) (longest Freeze, frozen bool) {
	for _, f := range freezes {
		if now.Before(f.Until) && f.Selects(metadata) && (!frozen || f.Until.After(longest.Until)) {
			longest, frozen = f, true
		}
	}
	return longest, frozen
}
