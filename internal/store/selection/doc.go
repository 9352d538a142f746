// Package selection finds the records that a query selects: it writes the query's
// conditions in SQL, knows the access paths to records, and reads along the shortest one,
// in the order of IDs.
//
// Start reading at [Plan], then at [Cursor]. The package doesn't know what a record's row
// contains, and begins no transaction: its user runs its statements.
package selection
