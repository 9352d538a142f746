package config

import (
	"errors"
	"syscall"
)

// DefaultListenLog is the default address of the plugins' log server. Only one
// process of a machine can listen there; if it is in use, other processes have no log
// server.
const DefaultListenLog = "localhost:50055"

// DefaultListenMetrics is the default address of metrics. If it is in use, a process
// has none.
const DefaultListenMetrics = "localhost:50057"

// IsInUse returns whether an address could not be listened on because another process
// does.
func IsInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

func isInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES)
}
