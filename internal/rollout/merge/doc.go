// Package merge merges packages three ways: what changed from a base to an edit is
// applied to the current package. It reports conflicts and never decides one
// silently. It is pure: no I/O, no clock, and no shared state but the embedded types
// of Kubernetes' lists.
//
// It is not for merging packages into templates and topologies: krm.Merge does that.
//
// Start reading at Packages.
package merge

//go:generate go run ./gen -kinds ../../validate/schemas/kubernetes.json.gz -out kubernetes.json.gz
