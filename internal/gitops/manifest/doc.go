// Package manifest reads the entities that a revision of a source holds: YAML
// manifests of tko.nephio.org/v1alpha1, as kubectl takes them. It reads and
// checks, and asks nobody. Start reading at [Read].
package manifest
