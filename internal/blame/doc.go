// Package blame finds out where the values of a package come from. It goes back through
// the revisions of the entity, as version control does: a value belongs to the newest
// revision that changed it. Within a revision, what was recorded when it was written says
// which source gave the value: the template, the creation's merge, a step of preparation,
// a rollout, or an edit. It never assumes: where history isn't retained, it says so.
//
// It reads through a History and has no other I/O. Start reading at Walk.
package blame
