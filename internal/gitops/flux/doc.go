// Package flux makes sources of GitOps from objects of a Kubernetes cluster:
// artifacts of Flux's source-controller (GitRepository, OCIRepository, Bucket,
// ExternalArtifact), used by objects of our own kind, GitOps, or by themselves,
// as OSM Ops did.
//
//   - [Fetcher] gets the files of an artifact, checked and bounded.
//   - [Controller] watches objects, hands revisions to an [Applier], and says on
//     the objects, in events and to Flux's notification-controller what came of it.
//
// It knows neither what is in a revision nor how that is applied. Package
// fluxtest plays source-controller. Start reading at [Controller.Run].
package flux
