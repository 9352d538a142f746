// Package prepare is the preparer: the controller that takes deployments from
// unprepared to prepared. It has every resource prepared that asks for it, by
// what is built in (package topology) or by plugins, again and again until
// nothing is left to prepare, and then marks the deployment prepared and, if it
// may, approved.
//
// It keeps nothing of its own: what it knows is in the deployments, so that any
// number of preparers share the work, and one that dies loses nothing but time.
// It does not validate: the data controller refuses what is invalid.
//
// Start reading at [Preparer.Run], then look.go; what is decided without asking
// anybody is in decide.go.
package prepare
