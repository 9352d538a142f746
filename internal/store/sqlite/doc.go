// Package sqlite implements [record.Store] on SQLite: embedded, in one file or in
// memory. The rules are in package relational; this package opens and migrates the
// file and runs statements: one connection writes, several read, each on its own
// snapshot (WAL), and every commit is on disk when it returns.
//
// [record.Store]: https://pkg.go.dev/github.com/tko-orchestrator/tko/internal/catalog#Store
package sqlite
