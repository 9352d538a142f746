// Package osm reconciles Open Source MANO with a desired state: packages of network
// functions and services, and instances of services. OSM's north-bound interface
// (NBI) is imperative and not idempotent, and doesn't record what it was asked for;
// this package compensates for that.
//
//   - Package nbi makes the requests of the NBI, and package bundle reads and packs the
//     packages.
//   - [Desired] is the desired state. Package osmops reads it from the files of a git
//     repository; the OSM target of the meta-scheduler makes it of resources.
//   - [Reconciler] compares and acts. It records what it did in a [State], which its
//     caller saves before and after each step. If a process dies, the next one
//     continues from the saved state, and nothing is made twice. Its passes observe
//     (run.go), decide (decide.go, without requests) and act (act.go, packages.go).
//
// The package depends neither on git nor on TKO's records. Package osmtest is an NBI
// for tests.
// Start reading at [Reconciler.Apply].
package osm
