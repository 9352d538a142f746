// Package sqldb is what the store needs of a database: transactions, and statements in
// the SQL that SQLite and PostgreSQL share. What differs is in a [Dialect]. The package
// has no statements of its own.
//
// Start reading at [Database], then at [Statement].
package sqldb
