// Package krm is what a package is: a list of resources in the Kubernetes
// Resource Model, their identity and annotations, how lists are merged, what
// metadata they hold, and how they are read and written as YAML and CBOR. It
// is pure: no I/O, no clock, nothing shared. Start reading at [Package].
//
// Values in a resource are nil, bool, int64, float64, string, []any and
// map[string]any, and nothing else, whatever they were read from.
package krm
