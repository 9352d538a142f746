// Package demo registers a catalog folder (see [Load]) with a server, creates
// its topologies, follows them until every site is scheduled, and checks what
// came out. The demo, the end-to-end tests and the benchmarks use it.
package demo
