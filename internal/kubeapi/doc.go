// Package kubeapi serves the catalog as an aggregated Kubernetes API,
// tko.nephio.org/v1alpha1, with k8s.io/apiserver. It decodes, calls the catalog
// and encodes, and has no rules of its own. It stores nothing in etcd.
//
// Start reading at [New]; kinds.go has the differences between the kinds.
package kubeapi
