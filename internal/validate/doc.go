// Package validate says whether a package is valid, and if it isn't,
// everything that is wrong with it at once. It knows the standard resources of
// one Kubernetes version (embedded, generated from what Kubernetes publishes),
// other schemas where it is told to look, the custom resources of the CRDs that
// come with a package or with templates, and TKO's own kinds; it hands resources to plugins of
// type validate through an interface. It reads nothing from the network unless
// a schema location says so. It stores nothing. Start reading at
// [Validator.Validate].
//
// What it leaves to the API server: what admission checks, rules of CRDs that
// compare with an earlier state, and what Kubernetes checks in code and not by
// schema, such as the form of names.
package validate

// The schemas come from the source of Kubernetes, which the Go module proxy
// serves. To move to another version, change it here and generate.
//
//go:generate go run ./gen -version v1.37.1 -out schemas/kubernetes.json.gz
