// Package deploy tests what installs TKO on Kubernetes, deploy/kubernetes and
// deploy/images, on a real API server and with a real container engine.
package deploy
