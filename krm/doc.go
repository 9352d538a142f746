// Package krm implements packages, which are lists of resources in the Kubernetes
// Resource Model: the identity and annotations of resources, merging, metadata,
// and encoding as YAML and CBOR. It is pure: no I/O, no clock, no shared state.
// Start reading at [Package].
//
// The values in a resource are nil, bool, int64, float64, string, []any and
// map[string]any only, in every format.
package krm
