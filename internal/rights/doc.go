// Package rights decides who may do what, once for all transports. Begin with [Authorizer]: each method
// of the catalog enters through it, reads what its caller may see, permits each change, and commits with
// it. A commit that has no caller is a fault ([ErrNotEntered]), and one whose rights have changed since is
// refused by the store, because it carries the version of the rules that permit it.
//
// Controllers act as the owners of what they work for (owner.go). The rules are a [Book], which is read
// at most once in [Age]. Refusals are in the audit log ([AuditTrail]), folded when there are many.
package rights
