package tko

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Stop keeps everything from beginning at a set of sites, or in a topology, until it is
// released: nothing is created, changed, prepared, scheduled, repaired or removed there, by
// anything. One of All, Topology, or Sites with SiteMetadata is set.
type Stop struct {
	ID           string            // set by the catalog
	All          bool              // everywhere, also at sites that are registered later
	Topology     DeploymentID      // the deployment and all its descendants
	Sites        []string          // patterns of site IDs: one must match. None: any site
	SiteMetadata map[string]string // patterns of the metadata of sites: all must match
	// OnlyUndo lets the undos of rollouts go on there. Everything else still waits.
	OnlyUndo bool
	Reason   string
	By       Author    // set by the catalog
	Created  time.Time // set by the catalog
	// Releasing reports that a user released the stop, or that it is the end of a freeze, and
	// that very many sites wait: they are released in waves. Until the turn of a site, nothing
	// is scheduled there, and rollouts change nothing; everything else goes on. Wave is the
	// number of waves that have begun, and Released a bound of the sites in them: see
	// [Stop.IsReleased]. Set by the catalog.
	Releasing bool
	Wave      int
	Released  int64
	// Waiting is the number of sites that waited for their release at its beginning.
	Waiting int
}

// ReleaseKey returns the place of a site in the order in which a stop releases sites, which
// depends on nothing but their IDs.
func (s Stop) ReleaseKey(id SiteID) int64 {
	sum := sha256.Sum256([]byte(s.ID + " " + string(id)))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 1)
}

// IsReleased reports whether the waves that have begun release a site.
func (s Stop) IsReleased(id SiteID) bool { return s.Releasing && s.ReleaseKey(id) < s.Released }

// A StopStatus is a stop, and what it keeps from going on. The numbers are those of the time
// at which it was read.
type StopStatus struct {
	Stop Stop
	// SiteCount is the number of sites at which it holds something, and DeploymentCount that
	// of the deployments that it holds.
	SiteCount       int
	DeploymentCount int
	// InFlight began before and has not ended. At most [MaxInFlight] are listed.
	InFlight      []InFlight
	InFlightCount int
	// WaitingSites have work that waits, and WaitingDeployments are to be prepared.
	WaitingSites       int
	WaitingDeployments int
	Rollouts           []RolloutID // that are in progress and have deployments there, at most MaxInFlight
}

// MaxInFlight is the maximum number of entries that a [StopStatus] lists of each kind.
const MaxInFlight = 100

// InFlight is work that a controller began before a stop.
type InFlight struct {
	Queue string    // QueuePrepare or QueueSchedule
	Key   string    // ID of the deployment or site
	Since time.Time // when a controller claimed it
	Until time.Time // when its lease ends; a controller that works on renews it
}

// A Release ends a stop, or lets only undos go on.
type Release struct {
	ID       string
	OnlyUndo bool
	DryRun   bool // only reports what waits
}

// A SiteStop says what of a site stops hold now.
type SiteStop struct {
	Whole bool // nothing may begin at the site
	// Held are deployments of the site that are held, if the site isn't as a whole. Objects of
	// deployments that the store doesn't have are held with them.
	Held []DeploymentID
	// Reason says for users who stopped it, why, and how it ends; "" if nothing is held.
	Reason string
}

// Any reports whether something is held.
func (s SiteStop) Any() bool { return s.Whole || len(s.Held) > 0 }

// Within reports whether everything that s holds was held before, too.
func (s SiteStop) Within(before SiteStop) bool {
	if before.Whole {
		return true
	}
	return !s.Whole && !slices.ContainsFunc(s.Held, func(id DeploymentID) bool { return !slices.Contains(before.Held, id) })
}

// ReasonStopped is the reason of conditions of what a [Stop] holds.
const ReasonStopped = "Stopped"

// SelectsSite reports whether the stop holds a site with this ID and metadata. One of a
// topology holds no site. Invalid patterns select nothing.
func (s Stop) SelectsSite(id SiteID, metadata map[string]string) bool {
	switch {
	case s.IsReleased(id):
		return false
	case s.All:
		return true
	case s.Topology != "" || len(s.Sites)+len(s.SiteMetadata) == 0:
		return false
	case len(s.Sites) > 0 && !slices.ContainsFunc(s.Sites, func(text string) bool {
		pattern, err := ParsePattern(text)
		return err == nil && pattern.Match(string(id))
	}):
		return false
	case len(s.SiteMetadata) > 0:
		return Freeze{SiteMetadata: s.SiteMetadata}.Selects(metadata)
	}
	return true
}

// Selection describes what the stop holds, for users.
func (s Stop) Selection() string {
	switch {
	case s.All:
		return "everything"
	case s.Topology != "":
		return fmt.Sprintf("topology %q", s.Topology)
	}
	var parts []string
	if len(s.Sites) > 0 {
		parts = append(parts, "sites "+strings.Join(s.Sites, ", "))
	} else {
		parts = append(parts, "sites")
	}
	for i, key := range slices.Sorted(maps.Keys(s.SiteMetadata)) {
		word := " and "
		if i == 0 {
			word = " with "
		}
		parts = append(parts, fmt.Sprintf("%s%s=%s", word, key, s.SiteMetadata[key]))
	}
	return strings.Join(parts, "")
}

// Text describes the stop for users: who, since when, why, and how it ends.
func (s Stop) Text() string {
	by := "a user"
	if s.By.Who != "" {
		by = strconv.Quote(s.By.Who)
	}
	if s.Releasing {
		return fmt.Sprintf("%s stopped %s (%s), and %d sites that waited are released in waves, of which %d have begun: a wave begins when the sites of the one before have what they waited for, and none is unhealthy; tko resume %s --confirm=%d releases all",
			by, s.Selection(), s.Reason, s.Waiting, s.Wave, s.ID, s.Waiting)
	}
	return fmt.Sprintf("%s stopped %s at %s (%s), until tko resume %s", by, s.Selection(), s.Created.UTC().Format(time.RFC3339), s.Reason, s.ID)
}
