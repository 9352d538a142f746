package tko

import "time"

// A TargetState is the state that a target of the meta-scheduler saves for a
// site: a record of the objects that it created in a system that can't store such
// a record. It is written with a claim of the site's work (queue
// [QueueSchedule]). It is not part of the site: if the site is deleted, the state
// and the objects remain.
type TargetState struct {
	Site  SiteID
	Name  string // of the resource of the site's package that triggers the target; 1 to 253 characters
	State []byte // in a form of the target's own; at most 64 MiB

	Version int64     // counts the saves, from 1; read only
	Updated time.Time // of the newest save; read only
}
