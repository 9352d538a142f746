// Package helm brings Helm charts to where a cluster target wants them. A
// [Store] reads charts: from a folder, a repository or a registry, bounded, and
// keeps what it fetched by its digest. A [Client] makes releases of them in a
// cluster by Helm's library, and cleans up what a process left that died in the
// middle of it.
//
// It decides nothing about when: it knows no inventories, no deployments and no
// health. Start reading at [Client.Deploy].
package helm
