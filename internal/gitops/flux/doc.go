// Package flux lets sources be objects in a Kubernetes cluster: GitOps objects,
// which refer to sources of Flux (GitRepository, OCIRepository, Bucket,
// ExternalArtifact), and, for users of OSM Ops, GitRepository objects as they
// are. It follows the objects, reads the artifacts that Flux's source-controller
// publishes, and writes back how the sources are. What is done about a revision
// is the controller's, in package gitops. Start reading at [Watcher].
package flux
