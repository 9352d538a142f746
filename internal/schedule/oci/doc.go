// Package oci is the scheduling target that publishes the deployments of a site as an OCI
// artifact in a registry, from which Flux (OCIRepository), Argo CD or the site itself pulls
// them. A resource of [GVK] in a site's package triggers it:
//
//	apiVersion: oci.plugin.nephio.org/v1alpha1
//	kind: Artifact
//	metadata: {name: main}
//	spec:
//	  url: oci://registry.example.com/fleet   # the registry, and the first parts of the repository
//	  repository: lagos                       # below the URL; the site's ID is the default
//	  tag: latest                             # the default
//	  mediaType: application/vnd.cncf.flux.content.v1.tar+gzip # of the layer; the default
//	  credentials:                            # files in the meta-scheduler's folder of secrets
//	    username: tko
//	    passwordFile: lagos/password          # or
//	    tokenFile: lagos/token
//	    signingKeyFile: cosign.pem            # signs artifacts as cosign does
//	  caFile: ca.pem                          # of the registry's certificate
//	  status:                                 # read by package puller
//	    flux: {kubeconfig: {file: hub.yaml}}  # or argocd, or none
//
// # Artifacts
//
// An artifact is an image manifest with one layer, a compressed archive of the files that
// package layout describes. Its configuration has the site, the deployments with their
// revisions, and the digests of their files. So TKO knows its own artifacts, and needs no layer
// to find out whether something changed. The same files give the same layer, and the same
// revisions the same digest.
//
// Once an artifact is there, the tag stays: a site without deployments has an artifact without
// objects, so that tools remove them from the cluster. They would keep all objects if the tag
// were removed.
//
// # How it works
//
// Blobs are pushed first, and the manifest with its tag last, so the tag always names a
// complete artifact, also after kill -9. Registries can't compare and swap: the tag is read
// again before it is moved, and after, and the work is repeated if another writer moved it.
// The signature is pushed before the tag is moved, so tools that verify it find it.
//
// Start reading at [Target].
package oci
