// Package spanner is the store on Spanner, with its GoogleSQL dialect: keys that spread instead
// of the one head row of the relational core, and positions made from commit timestamps. ADR 35
// has the reasons.
//
// It isn't complete: it lacks backups, restores, and the encryption of packages. What it lacks is refused by an [UnsupportedError].
// cmd/tko-server-spanner opens it.
// Databases are for trials: a later version refuses them instead of migrating them.
//
// Start reading at [Store], then at [Store.Commit] and [Store.Changes].
package spanner
