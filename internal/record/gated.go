package record

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// A Gated is writes that passed the gate: the only form in which a [Writer] commits
// them. Its fields are not exported, so a way to write that misses the gate doesn't
// compile; package catalog alone calls [Gate], in one place (test/conventions).
type Gated struct {
	writes []Write
	reach  Reach
}

// Writes returns the writes, in their order. The caller must not change them.
func (g Gated) Writes() []Write { return g.writes }

// Reach returns how the writes are counted.
func (g Gated) Reach() Reach { return g.reach }

// Gate makes a Gated, for the gate of package catalog: nothing else may call it.
func Gate(reach Reach, writes []Write) Gated { return Gated{writes, reach} }

// Ungated returns writes that are not counted, for tests of stores. Tests in
// test/conventions refuse it in other code.
func Ungated(writes ...Write) Gated { return Gate(Reach{}, writes) }

// UngatedReach returns writes that are counted in a given way. Like [Ungated], it is
// for tests only.
func UngatedReach(reach Reach, writes ...Write) Gated { return Gate(reach, writes) }

// A Count is a kind of change that is counted for a cause.
type Count string

// The counts of a cause.
const (
	// CountCreated are deployments that derivations created.
	CountCreated Count = "created"
	// CountApproved are deployments that were approved after they were created.
	CountApproved Count = "approved"
	// CountSites are sites at which running deployments were changed, each once.
	CountSites Count = "sites"
	// The entities of a kind that were deleted. A deployment that another one replaced
	// is not among them.
	CountTemplates   = Count("removed/" + tko.KindTemplate)
	CountSitesGone   = Count("removed/" + tko.KindSite)
	CountDeployments = Count("removed/" + tko.KindDeployment)
	CountPlugins     = Count("removed/" + tko.KindPlugin)
	// The entities of a kind that lost their template or site by a deletion.
	CountOrphanSites       = Count("orphaned/" + tko.KindSite)
	CountOrphanDeployments = Count("orphaned/" + tko.KindDeployment)
)

// Removals are the counts of removed entities.
func Removals() []Count {
	return []Count{CountTemplates, CountSitesGone, CountDeployments, CountPlugins}
}

// Orphans are the counts of entities that lost their template or site.
func Orphans() []Count { return []Count{CountOrphanSites, CountOrphanDeployments} }

// OrphanOf returns the count of entities of a kind that lost their template or site.
func OrphanOf(kind tko.Kind) Count { return Count("orphaned/" + kind) }

// RemovalOf returns the count of removed entities of a kind.
func RemovalOf(kind tko.Kind) Count { return Count("removed/" + kind) }

// Suspended reports whether a record, or its site, is suspended by its metadata.
func Suspended(r Record) bool { return r.Metadata != nil && tko.Suspended(r.Effective()) }

// Touched returns the sites at which a change of a running deployment has an effect:
// none if it wasn't running, or if nothing that sites get has changed. The end of a
// suspension, also of a site, has one: what waited for it is released. It is a pure
// function, which stores call.
func Touched(before, after Record) []string {
	was, is := Placed(before), Placed(after)
	resumed := Suspended(before) && !Suspended(after)
	switch {
	case before.Kind == tko.KindSite && resumed:
		return []string{before.ID}
	case before.Kind != tko.KindDeployment:
		return nil
	case was == "", was == is && before.Digest == after.Digest && !resumed:
		return nil
	case is == "" || is == was:
		return []string{was}
	}
	return []string{was, is}
}

// A Reach says how a commit is counted. The store reads, checks and adds the counts
// in the transaction of the commit, so that concurrent commits of one cause can't
// exceed a limit together. The zero value counts nothing.
type Reach struct {
	// Cause has the counts that the commit adds to; "": nothing is counted.
	Cause string
	// Window is the time for which a change counts. It slides: what a cause changes in any
	// period that is as long as it is limited, and a change counts at most for a
	// part of the window longer, of [ReachParts].
	Window time.Duration
	// Derived counts deployments that are created. Otherwise approvals and the sites
	// of changed deployments are counted.
	Derived bool
	// SitesWindow, if not 0, counts the sites of changed deployments of a derived cause,
	// too, within a window of their own.
	SitesWindow time.Duration
	// RemovedSites also counts the sites at which running deployments are removed, or will be
	// replaced by ones that are created.
	RemovedSites bool
	// Limits are checked after the changes of the commit are counted, if they changed
	// one of the counts.
	Limits []ReachLimit
	// Further are limits of kinds and selections, whose counts are added in addition.
	Further []access.Limit
	// Consent, if greater than 0, is the number of changes that a caller consented to.
	// A commit that makes more fails with an *ExceededError. What was consented to
	// doesn't count towards Limits.
	Consent int
	// Sites are existing sites that the commit writes, and whose targets it changes: they are
	// counted like sites with changed deployments, if CountsSites.
	Sites []string
	// Adds are changes that follow from the commit, and are counted with it.
	Adds map[Count]int
	// Grant adds consent for later commits of the cause.
	Grant map[Count]int
}

// ReachParts is the number of parts of a window.
const ReachParts = 10

// CountsSites reports whether the sites of changed deployments are counted.
func (r Reach) CountsSites() bool { return !r.Derived || r.SitesWindow != 0 }

// WindowOf returns the window of a count.
func (r Reach) WindowOf(count Count) time.Duration {
	if (count == CountSites || strings.HasPrefix(string(count), access.LimitSites+"@")) && r.SitesWindow != 0 {
		return r.SitesWindow
	}
	return r.Window
}

// FurtherCount returns the count of a limit of a kind or selection.
func FurtherCount(l access.Limit) Count { return Count(l.Limit + "@" + l.String()) }

// IsFurther reports whether a count is that of a limit of a kind or selection: its changes
// have other counts, too.
func (c Count) IsFurther() bool { return strings.Contains(string(c), "@") }

// limitNameOf returns the name of the limits of a count.
func limitNameOf(c Count) string {
	if strings.Contains(string(c), "/") {
		return access.LimitRemoved
	}
	return string(c)
}

// Counts returns all counts of a change of a record: its own one, and those of the limits
// of kinds and selections that cover it. site is where it has its effect.
func (r Reach) Counts(count Count, of Record, site string) []Count {
	counts := []Count{count}
	for _, l := range r.Further {
		if l.Limit == limitNameOf(count) && l.Covers(access.Attributes{Kind: of.Kind, ID: of.ID, Template: of.Template, Site: of.Site}, site) {
			counts = append(counts, FurtherCount(l))
		}
	}
	return counts
}

// A ReachLimit is the maximum of the sum of some counts, without what was consented
// to.
type ReachLimit struct {
	Of   []Count
	Most int
}

// A ReachError reports that a commit would exceed a limit. Nothing was written.
type ReachError struct {
	Cause string
	Limit ReachLimit
	Had   int // counted before this commit
	Adds  int // by this commit
}

func (e *ReachError) Error() string {
	return fmt.Sprintf("%s: %d more than the %d counted exceed the limit of %d", e.Cause, e.Adds, e.Had, e.Limit.Most)
}

// Is reports true for ErrInvalid.
func (e *ReachError) Is(target error) bool { return target == tko.ErrInvalid }

// A Reached is a count of a cause.
type Reached struct {
	Cause   string
	Count   Count
	N       int // changes
	Consent int // those that were, or may be made, with consent
	Since   time.Time
	Updated time.Time
}

// Free returns the number of changes without consent.
func (r Reached) Free() int { return max(0, r.N-r.Consent) }

// Reaches reads the counts of causes.
type Reaches interface {
	// Reached returns the counts of a cause within a window that ends now; an empty
	// cause stands for the most recent ones of all causes, at most limit.
	Reached(ctx context.Context, cause string, window time.Duration, limit int) ([]Reached, error)
}

// ReachRetention is how long the counts of a cause are retained after their last
// change.
const ReachRetention = 7 * 24 * time.Hour
