// Package catalog holds the rules of all records, once: what registering,
// creating, modifying, approving and deleting mean, whatever API they come
// through. It derives what is written (merging, metadata, the Deployment
// resource), has it validated, and commits it to a [Store] against the revision
// that it was derived from. It knows no transport and no database, and runs
// nothing that leaves the process inside a transaction. Start reading at
// [Service]; what is derived from what is in derive.go.
package catalog
