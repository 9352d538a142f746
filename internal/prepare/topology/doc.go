// Package topology prepares the resources of topology.nephio.org: it picks or
// provisions the sites that Site resources ask for, and creates the child
// deployments that Placement resources ask for.
//
// Pure functions (read.go, plan.go) read the requests of a package. Only then the
// preparer reads templates and sites from the data controller and creates children.
// All steps are idempotent: the same resource of the same deployment always leads to
// the same provisioned site and the same children.
//
// The package does not decide what is prepared when, and stores no package: package
// prepare does. Start reading at [Preparer.Prepare].
package topology
