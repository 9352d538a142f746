// Package clusters tests sites that are real Kubernetes clusters: objects that heal, placements that are replaced,
// images that are pulled before a change, and Flux.
package clusters
