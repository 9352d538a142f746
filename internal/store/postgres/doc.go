// Package postgres is the [catalog.Store] on PostgreSQL, which several servers
// may share. What it does is in package relational; here is how PostgreSQL is
// opened, migrated, spoken to and listened to.
//
// [catalog.Store]: https://pkg.go.dev/github.com/tko-orchestrator/tko/internal/catalog#Store
package postgres
