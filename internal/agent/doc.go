// Package agent applies the bundles of a site that is never connected, and reports what became of
// them: it is the meta-scheduler of one site, whose records are those of a bundle. It has no rules
// of its own about deployments; what is applied, removed, kept and reported is decided by package
// schedule and its targets.
//
// The folder of an agent has the newest bundle that was accepted. Replacing it is one rename, and
// what is applied is always that bundle, so an agent that is killed at any moment goes on where it
// was when it is called again.
//
// Start reading at [Agent.Accept] and [Agent.Apply].
package agent
