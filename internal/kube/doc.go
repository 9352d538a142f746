// Package kube gives tests a real Kubernetes: etcd, the API server and, where
// asked for, the controller manager, the scheduler and kwok, which plays the
// nodes. The programs are built once, by test/setup/kube.sh, and run on free
// ports of loopback with certificates of their own. There are no containers:
// pods become ready, and nothing runs in them.
//
// Start gives a test a cluster of its own; Shared gives all tests of a package
// one, which is mostly what is wanted: it takes 4 seconds and 350 MB to have
// one. A package that calls Shared calls Main from its TestMain.
package kube
