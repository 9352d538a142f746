// Package postgres implements [record.Store] on PostgreSQL, which several servers may
// share. The rules are in package relational; this package opens and migrates the
// database, runs statements and listens for commits.
//
// [record.Store]: https://pkg.go.dev/github.com/tko-orchestrator/tko/internal/catalog#Store
package postgres
