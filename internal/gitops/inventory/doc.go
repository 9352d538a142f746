// Package inventory reads sites from inventories that others keep: files, URLs,
// NetBox, O2 IMS and Kubernetes clusters. Expressions (CEL) map their records to
// sites; sites of several origins are merged by precedence.
//
// An [Inventory] is a kind of GitOps source: it only makes manifests. Ownership,
// budgets of removals, conditions and claims are those of package gitops. An
// Inventory that can't read one of its origins completely returns an error, and so
// changes nothing.
//
// Start reading at [Inventory].
package inventory
