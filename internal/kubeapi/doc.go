// Package kubeapi serves the catalog as an aggregated API of Kubernetes:
// tko.nephio.org/v1alpha1, on k8s.io/apiserver. It decodes, calls the catalog
// and encodes, and has no rules of its own. Nothing is kept in etcd.
//
// Start reading at [New]; kinds.go has what differs between the kinds.
package kubeapi
