// Package artifacts reads what repositories of artifacts publish: manifests and layers of OCI registries, and indexes of Helm
// repositories. Everything that it reads is bounded, and digests are verified. Who may read, from where, and with which
// credentials is its callers' business, and so is what they do with an artifact.
package artifacts
