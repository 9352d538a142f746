// Package kube starts real Kubernetes clusters for tests and the demo: etcd, the API
// server and, if requested, the controller manager, the scheduler and kwok, which
// simulates nodes. test/setup/kube.sh builds the programs once. They listen on free
// loopback ports, with certificates of their own. There are no containers: pods
// become ready, but nothing runs in them.
//
// Start gives a test its own cluster. Shared gives all tests of a package the same
// one; prefer it, because a cluster takes 4 seconds to start and 350 MB of memory. A
// package that calls Shared calls Main from its TestMain.
package kube
