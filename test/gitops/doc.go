// Package gitops tests the role gitops with real processes: kill -9 at random
// moments, and several replicas. There is nothing to import.
package gitops
