// Package gitops tests the role gitops with real processes: kill -9 at random
// moments, and several replicas. It exports nothing.
package gitops
