// Package gitops is the GitOps controller. It reconciles TKO's entities, and
// network services in Open Source MANO, with sources: git repositories that it
// polls, and artifacts of Flux.
//
// The data controller stores the inventory and the status of each source. Several
// controllers share the sources through the work queue: one works on a source at
// a time, and its writes depend on its claim, so that a controller that was
// paused for too long writes nothing. Each source is reconciled independently: a
// broken one affects no other.
//
// Start reading at [Controller]; the reconciliation of a source is in
// reconcile.go. Package manifest reads manifests, package plan computes and
// applies the changes.
package gitops
