// Package chart has what HelmChart resources ask for, and what becomes of their
// releases. A [Chart] is the content of a HelmChart: a chart, its values, and how it is
// deployed. A [State] is what is recorded of its release, and decides on the next step. A
// [Deployer] deploys releases by package helm.
//
// The package knows no inventories, no other objects of a deployment, and no health of
// objects: the reconciler of a cluster has these. Start reading at [Read] and
// [Releases.Deploy].
package chart
