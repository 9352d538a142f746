// Package deploy tests the manifests and the chart in deploy/kubernetes with a real
// API server.
package deploy
