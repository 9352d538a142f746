// Package flux creates GitOps sources from objects in a Kubernetes cluster:
// artifacts of Flux's source-controller (GitRepository, OCIRepository, Bucket,
// ExternalArtifact), to which objects of TKO's own kind, GitOps, refer. A
// GitRepository without a GitOps object can be a source, too, as for OSM Ops.
//
//   - [Fetcher] gets the files of an artifact, checked and bounded.
//   - [Controller] watches objects, gives sources to an [Engine], and reports the
//     results in the objects' status, in events, and to Flux's
//     notification-controller.
//
// It neither reads nor applies the content of a revision. Package fluxtest
// replaces source-controller in tests. Start reading at [Controller.Run].
package flux
