// Package puller describes the tools that pull the commits of the git target into
// clusters, and judges by their reports whether deployments are healthy:
//
//   - Flux: a Kustomization, whose status names the revision that it applied last and the
//     objects of that revision;
//   - Argo CD: an Application, whose status names the compared revision, and which objects
//     are in sync and healthy.
//
// A site's Repository names one of them in spec.status. The package is pure: it parses that
// field ([Read]) and the objects of the tools ([Observe]), and judges ([Report.Judge]). The
// git target reads what the revisions contain, and package kubernetes reads the objects, in
// the program tko-kubernetes.
package puller
