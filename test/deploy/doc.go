// Package deploy tests what installs TKO on Kubernetes, deploy/kubernetes, on
// a real API server.
package deploy
