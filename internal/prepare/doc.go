// Package prepare is the preparer: the controller that takes deployments from
// unprepared to prepared. It prepares the resources of a package, with package
// topology or with plugins, in iterations until none is left to prepare. Then it
// marks the deployment prepared and, if the deployment permits it, approved.
//
// The preparer has no state of its own: all state is in the deployments. Any
// number of preparers share the work, and the work of one that is killed is
// repeated by another. The package does not validate: the data controller refuses
// invalid packages.
//
// Start reading at [Preparer.Run], then reconcile.go. Pure decisions are in
// decide.go.
package prepare
