// Package derivation describes what the package of a deployment was made from: the
// template, what its creation merged into that, and what each step of preparation
// changed since. The catalog stores a record for each revision, equal ones once.
// Planners take preparation off a package with it, and blame finds the origin of a
// field. Edits by users aren't in a record: they are the revisions between records.
//
// It is pure. Start reading at Record.
package derivation
