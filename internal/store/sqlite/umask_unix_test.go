//go:build unix

package sqlite_test

import "syscall"

// setUmask sets the umask of the process, and returns the function that sets it back.
func setUmask(mask int) func() {
	before := syscall.Umask(mask)
	return func() { syscall.Umask(before) }
}
