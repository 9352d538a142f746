// Package callhome tests sites that call home: real servers and agents, whose place is a repository, or
// a Kubernetes cluster.
package callhome
