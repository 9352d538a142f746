// Package validate checks packages and reports all errors at once. It has the
// schemas of the standard resources of one Kubernetes version (embedded,
// generated from Kubernetes' published OpenAPI), reads other schemas from
// configured locations, and checks custom resources by the CRDs in a package or
// in templates, and TKO's own kinds. It runs plugins of type validate through
// an interface. It uses the network only if a schema location requires it, and
// stores nothing. Start reading at [Validator.Validate].
//
// It does not check what only the API server checks: admission, CRD rules that
// compare with an earlier state, and checks that Kubernetes has in code and not
// in schemas, such as the format of names.
package validate

// The schemas are generated from the source of Kubernetes in the Go module
// proxy. To use another version, change it here and generate.
//
//go:generate go run ./gen -version v1.37.1 -out schemas/kubernetes.json.gz
