// Package topology prepares the resources of topology.nephio.org: it picks or
// provisions the sites that Site resources ask for, and creates the child
// deployments that Placement resources ask for.
//
// What a resource asks for is decided by pure functions of the package (read.go,
// plan.go); only then is the data controller asked for templates and sites, and
// told to create. All of it can be repeated: the same resource of the same
// deployment is the same provisioned site and the same children, for ever.
//
// It does not decide what is prepared when, and stores no package: that is
// package prepare's. Start reading at [Preparer.Prepare].
package topology
