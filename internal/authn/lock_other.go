//go:build !unix

package authn

// lockFile does nothing: these systems have no such lock.
func lockFile(string) (unlock func(), err error) { return func() {}, nil }
