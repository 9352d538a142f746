//go:build unix

package compile

import (
	"fmt"
	"runtime/debug"
	"syscall"
	"time"
)

// The bounds of the process. The parent process bounds its wall-clock time.
const (
	maxMemory = 512 << 20
	maxCPU    = 60 // seconds
	maxFiles  = 3  // the standard streams, and nothing else
)

// confine takes the right to open files and connections from the process, and bounds
// its memory and processor time.
func confine() error {
	// The runtime opens the files that it needs to wait for I/O before that.
	<-time.After(time.Nanosecond)
	debug.SetMemoryLimit(maxMemory / 2)
	for _, l := range []struct {
		what  string
		which int
		value uint64
	}{
		{"the memory", syscall.RLIMIT_DATA, maxMemory},
		{"the processor time", syscall.RLIMIT_CPU, maxCPU},
		{"open files", syscall.RLIMIT_NOFILE, maxFiles},
	} {
		limit := syscall.Rlimit{Cur: l.value, Max: l.value}
		if err := syscall.Setrlimit(l.which, &limit); err != nil {
			return fmt.Errorf("bound %s: %w", l.what, err)
		}
	}
	return nil
}
