// Package kubernetes tests TKO's aggregated API behind a real Kubernetes API
// server, with kubectl and with the libraries that controllers are made of.
package kubernetes
