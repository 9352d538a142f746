// Package relational is what the stores on SQL databases share: every rule of
// [catalog.Store], written once over a small interface to a database.
//
// A database package (sqlite, postgres) implements [Database]: it opens,
// migrates, runs statements in transactions and says how its SQL differs
// ([Dialect]). Everything else is here. It knows no driver.
//
// Start reading at [Store], then at Commit: all commits of all servers take the
// lock of the one row of the table head first. So they are strictly one after
// the other, positions are dense and in the order of commits, and no reader of
// the log ever finds something before what it has seen. What that would cost is
// won back by putting concurrent calls into one transaction.
package relational
