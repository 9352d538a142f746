// Package plan decides by difference what a revision of a source changes in
// TKO, and does it. [Make] asks and changes nothing, so that the same code says
// what would happen; [Plan.Apply] does it, in the order in which it can be done.
package plan
