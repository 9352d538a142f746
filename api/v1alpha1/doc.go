// Package v1alpha1 is the API group tko.nephio.org/v1alpha1: TKO's entities as
// Kubernetes resources, for Go programs that use its aggregated API. They have
// the fields of package tko's entities; docs/kubernetes-api.md describes them.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.nephio.tko.v1alpha1
// +groupName=tko.nephio.org
package v1alpha1
