package config

import (
	"errors"
	"syscall"
)

// DefaultListenLog is where the plugins' log server listens unless it is said
// otherwise. Only one process of a machine can: the others do without.
const DefaultListenLog = "localhost:50055"

// IsInUse says whether an address couldn't be listened on because somebody else
// does.
func IsInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

func isInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES)
}
