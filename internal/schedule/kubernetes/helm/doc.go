// Package helm deploys Helm charts for a cluster target. A [Store] reads charts from
// a folder, a repository or a registry, with limits, and caches fetched charts by
// digest. A [Client] deploys releases in a cluster with Helm's library, and cleans up
// after a process that died during an operation.
//
// The package doesn't decide when to deploy: it has no inventories, deployments or
// health. Start reading at [Client.Deploy].
package helm
