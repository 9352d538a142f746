// Package tkoserver is what the programs of the server share, which is all but the stores of databases whose clients are
// large: settings, roles, and the commands on a store. cmd/tko-server has SQLite and PostgreSQL, cmd/tko-server-spanner
// has Spanner, too (ADR 35).
//
// Start reading at [Main], then at serve.
package tkoserver
