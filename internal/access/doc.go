// Package access is the model of rights: verbs, roles, bindings with a scope,
// and policies of approvals. It compiles the bindings of a caller to a [Grant],
// whose predicates both decide about single entities and select entities in the
// stores' queries. It is pure: the catalog keeps the bindings and enforces the
// grants, transports authenticate the callers.
//
// Start reading at [Grant].
package access
