// Package field describes the fields of entities, from the tags of their types: what rows for
// programs and the specs of manifests call them. It writes rows and specs, and reads specs, so
// that a new field of an entity is in the rows of the command, in exports, and in what import,
// apply and GitOps sources read.
//
// It doesn't know identities, labels and annotations of manifests, nor computed parts of rows:
// these have a meaning of their own, and are written by hand. Start with [Of].
package field
