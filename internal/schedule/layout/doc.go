// Package layout has the files that the deployments of a site become, for targets that write
// files: a folder for each deployment, and in it a file for each resource.
//
//	<deployment>/00-cluster/<kind>_<name>.yaml
//	<deployment>/10-namespaced/<namespace>/<kind>_<name>.yaml
//
// <kind> is Kind.version.group ("Deployment.v1.apps"; "Namespace.v1" of
// Kubernetes' core), <namespace> is "_unset" for resources that specify none. In
// all of these names, characters that some file systems refuse are written as %
// and two hexadecimal digits; names that are too long are cut and end with a
// digest. So two resources never share a file. Resources of the nephio.org groups
// and nephio.org annotations are left out.
//
// Start reading at [Render].
package layout
