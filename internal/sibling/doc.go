// Package sibling runs programs that are installed next to this one, and calls them.
// A sibling program holds what most installations don't use, so that its libraries
// don't burden the others.
//
// The server starts a [Program] when it first needs it, starts it again if it ends,
// and stops it with itself, even if the server is killed. The two processes are
// connected by socket pairs, which no other process can reach: each has an
// [Endpoint], whose handlers the other one calls with [Call] and [Open].
package sibling
