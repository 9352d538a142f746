//go:build !linux

package postgres

import "syscall"

// limitSilence does nothing: only Linux has the limit, elsewhere the system's hold.
func limitSilence(_, _ string, _ syscall.RawConn) error { return nil }
