package tko

import "fmt"

// MetadataSuspend is the key of the metadata that suspends a site or a deployment: what it
// has at the site stays as it is, and nothing is applied, repaired or removed, until the key
// is removed.
const MetadataSuspend = "tko.nephio.org/suspend"

// ReasonSuspended is the reason of the conditions Frozen of what is suspended, and Scheduled
// of a deployment that waits for its end.
const ReasonSuspended = "Suspended"

// Suspended reports whether a site or deployment with this metadata is suspended: it has the
// key [MetadataSuspend], with any value but false.
func Suspended(metadata map[string]string) bool {
	value, ok := metadata[MetadataSuspend]
	return ok && value != "false"
}

// SuspendedText describes for users that a site or deployment is suspended, and how that ends.
func SuspendedText(kind Kind, id string) string {
	return fmt.Sprintf("%s %q is suspended by its metadata %s, until tko %s resume", kind, id, MetadataSuspend, kind)
}
