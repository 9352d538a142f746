package tko

// MetadataSuspend is the key of the metadata that suspends a site: nothing is scheduled
// there, and what runs there stays, until the key is removed.
const MetadataSuspend = "tko.nephio.org/suspend"

// ReasonSuspended is the reason of the conditions Frozen of a suspended site, and
// Scheduled of a deployment that waits there.
const ReasonSuspended = "Suspended"

// Suspended reports whether a site with this metadata is suspended: it has the key
// [MetadataSuspend], with any value but false.
func Suspended(metadata map[string]string) bool {
	value, ok := metadata[MetadataSuspend]
	return ok && value != "false"
}
