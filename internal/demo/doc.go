// Package demo registers the entities of a catalog folder (see [Load]) with a server,
// creates its topologies, follows them until every site is scheduled, and checks the
// result. The demo, the end-to-end tests and the benchmarks use it.
package demo
