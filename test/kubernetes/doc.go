// Package kubernetes tests TKO's aggregated API behind a real Kubernetes API server,
// with kubectl and with client-go and controller-runtime.
package kubernetes
