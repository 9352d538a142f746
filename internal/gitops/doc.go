// Package gitops is the GitOps controller: it keeps TKO's entities, and network
// services in Open Source MANO, in step with sources: git repositories that it
// polls, and artifacts of Flux.
//
// What a source owns and how it is are kept by the data controller. Several
// controllers share the sources by the queue of work: one works on a source at a
// time, and what it changes depends on its claim, so that one that was paused
// for too long changes nothing any more. Each source is looked at on its own: a
// broken one disturbs no other.
//
// Start reading at [Controller]; a look at a source is in look.go. What manifests
// are is said by package manifest, what is done about them by package plan.
package gitops
