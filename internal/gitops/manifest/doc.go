// Package manifest reads the entities of a revision of a source: YAML manifests
// of tko.nephio.org/v1alpha1, as kubectl accepts them. It only reads and checks
// files, and contacts no server. Start reading at [Read].
package manifest
