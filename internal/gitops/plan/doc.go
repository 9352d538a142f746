// Package plan computes the changes that a revision of a source makes in TKO, and
// applies them. [Make] only reads and makes dry runs, so the same code previews a
// revision; [Plan.Apply] applies the changes in the order of their dependencies.
package plan
