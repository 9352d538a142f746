// Package v1alpha1 is the API group tko.nephio.org/v1alpha1: TKO's entities as
// Kubernetes resources, for Go programs that use its aggregated API. They hold
// what package tko's entities hold; docs/kubernetes-api.md says what they mean.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.nephio.tko.v1alpha1
// +groupName=tko.nephio.org
package v1alpha1
