// Package decide has the rules by which stores refuse writes: what a write expects of the records
// and versions that the database has. It is pure, and the same for every store.
//
// Start reading at [Check].
package decide
