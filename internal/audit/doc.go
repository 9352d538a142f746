// Package audit defines the records of the audit log and its chain of hashes:
// each record's hash covers its text and the hash of the record before it, so
// that an edited, removed, inserted or moved record is found. It is pure: stores
// write records, in the transaction of the change that they are about.
//
// Start reading at [Record] and [Chain].
package audit
