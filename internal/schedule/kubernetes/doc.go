// Package kubernetes is the meta-scheduler's target for Cluster resources of sites
// (kubernetes.plugin.nephio.org/v1alpha1). It applies the site's deployments to a
// Kubernetes cluster by server-side apply, and reports the result and the health of
// the objects.
//
// An inventory in the cluster, a ConfigMap per deployment, records the applied
// objects. It always names at least the objects that exist, because it is written
// before anything is applied, and again afterwards. If a meta-scheduler dies at any
// moment, the next reconciliation finds all objects. An object that an inventory
// names and no deployment wants is removed, within a budget.
//
// A reconciliation observes the cluster: it reads the inventories, and the recorded
// objects with one list per kind and namespace. It decides on an action for each
// object, and executes the actions. To detect drift, it compares the managed fields
// that the API server attributes to TKO with those recorded after the last apply: the
// API server takes a field from TKO when another client changes it. Only an object
// whose managed fields differ is compared, by a dry-run apply.
//
// HelmCharts are objects, too, whose content and releases package chart knows. Here, a
// release is no more than objects that are applied and removed together, by others.
//
// The package reads no entities but its arguments. Its only state is connections and
// watches. Start reading at [Target.Schedule].
package kubernetes
