package tko

import "time"

// A TargetState is what a target of the meta-scheduler saves for a site: a
// record of what it made in a system that has no place for such a record. It
// is written with a claim of the site's work (queue [QueueSchedule]). It is not
// part of the site: it stays when the site is deleted, as does what was made.
type TargetState struct {
	Site  SiteID
	Name  string // of the resource of the site's package that triggers the target; 1 to 253 characters
	State []byte // in a form of the target's own; at most 64 MiB

	Version int64     // counts the saves, from 1; read only
	Updated time.Time // of the newest save; read only
}
