// Package relational holds the parts that the stores on SQL databases share: every
// rule of [record.Store], written once over a small interface to a database.
//
// A database package (sqlite, postgres) implements [Database]: it opens and
// migrates the database, runs statements in transactions and describes its SQL
// (see package sqldb). How lists find their records is in package selection, and what is
// removed with time in package retention. Everything else is here. This package knows no
// driver.
//
// Start reading at [Store], then at Commit: every commit of every server first
// locks the one row of the table head. So commits are strictly one after the
// other, positions are dense and in the order of commits, and a reader of the log
// never finds a change at a position before one that it has seen. Putting
// concurrent calls into one transaction makes up for the cost of the lock.
//
// The files are named after what they do:
//
//   - commit: calls wait for a transaction, which is decided in memory (_group, _token,
//     _cascade), without the lock if possible (_optimistic), and written (_flush, _metadata);
//   - list: rows are read and given to the caller, on a snapshot that may end (_lease), from
//     an offset (_offset), or as of a position (_past);
//   - read, past: records, together (_group), and as of a position, even one whose state is
//     not retained as a whole (_before);
//   - backup, restore, collect, seal, schema: the database as a whole;
//   - queue, hold, source, target, access, audit, rollout: what is stored that is no record;
//   - store, retry, observe, clock, news, standby: what all of them use.
package relational
