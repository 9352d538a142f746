package tko

import (
	"fmt"
	"time"
)

// A Fence says which of several stores commands the agents of sites: copies of one store, such as the
// one that a backup was restored into in another region. An agent that has seen an epoch takes over
// nothing from a store with a lower one.
type Fence struct {
	// Epoch is the fencing epoch: 0 in a store that was never promoted, and the time of the promotion
	// in microseconds since 1970, or more, in others. A backup has that of its store.
	Epoch int64
	// Standby reports that the store was restored from a backup, and not promoted since: it commands
	// no agents, because the store that the backup is of may still do so.
	Standby bool
}

// EpochText returns a fencing epoch for users.
func EpochText(epoch int64) string {
	if epoch == 0 {
		return "0 (never promoted)"
	}
	return fmt.Sprintf("%d (promoted at %s)", epoch, time.UnixMicro(epoch).UTC().Format(time.RFC3339))
}

// FencedText says for users that the agent of a site has seen a greater epoch than that of the store
// of this server, which it therefore refuses.
func FencedText(site SiteID, seen, own int64) string {
	return fmt.Sprintf("the agent of site %q refuses this server: it has connected to a store with the fencing epoch %s, and this one has %s. Nothing at the site is changed from here: stop the servers of this store, or, if it is the one that shall command, promote it (tko-server promote --after %d)",
		site, EpochText(seen), EpochText(own), seen)
}
