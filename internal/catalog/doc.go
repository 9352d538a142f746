// Package catalog implements the rules of all entities in one place: how they
// are registered, created, modified, approved and deleted, through any API. It
// derives records (merging, metadata, the Deployment resource), validates them,
// and commits them to a [record.Store] on the condition that the revisions that they
// were derived from are current. It depends on no transport and no database,
// and calls nothing outside of the process during a transaction. Start reading
// at [Service] and assemble, which gives each part what it needs. What entities hold is decided
// in package content, who may change them in rights, how much at once in gate, and when in hold.
package catalog
