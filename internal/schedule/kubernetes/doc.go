// Package kubernetes is the meta-scheduler's built-in target for Cluster
// resources of sites (kubernetes.plugin.nephio.org/v1alpha1): it makes a
// Kubernetes cluster hold what the site's deployments say, by server-side
// apply, and says how that does.
//
// What was applied for a deployment is recorded in the cluster itself, in an
// inventory: a ConfigMap per deployment, which always names at least what is
// there, because it is written before anything is applied and again afterwards.
// So a meta-scheduler that dies at any moment leaves nothing behind that the
// next look doesn't find. An object that an inventory names and no deployment
// wants is removed, within a budget.
//
// A look that finds nothing to do reads: the inventories, and the objects, a
// list for all of a kind in a namespace. Whether somebody else changed an
// object shows in the fields that the API server says are ours: it takes a
// field from us when another one changes it. Only an object whose fields are
// not those that we got is compared, by applying it without effect.
//
// It knows nothing of the records of TKO beyond what it is given, and keeps
// nothing but connections. Start reading at [Target.Schedule].
package kubernetes
