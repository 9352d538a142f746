// Package sqlite is the embedded [catalog.Store]: one file, or nothing but
// memory. What it does is in package relational; here is how SQLite is opened,
// migrated and spoken to: one connection that writes, several that read, each
// on a snapshot of its own (WAL), and every commit on the disk before it
// answers.
//
// [catalog.Store]: https://pkg.go.dev/github.com/tko-orchestrator/tko/internal/catalog#Store
package sqlite
