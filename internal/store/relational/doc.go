// Package relational holds the parts that the stores on SQL databases share: every
// rule of [catalog.Store], written once over a small interface to a database.
//
// A database package (sqlite, postgres) implements [Database]: it opens and
// migrates the database, runs statements in transactions and describes its SQL
// ([Dialect]). Everything else is here. This package knows no driver.
//
// Start reading at [Store], then at Commit: every commit of every server first
// locks the one row of the table head. So commits are strictly one after the
// other, positions are dense and in the order of commits, and a reader of the log
// never finds a change at a position before one that it has seen. Putting
// concurrent calls into one transaction makes up for the cost of the lock.
package relational
