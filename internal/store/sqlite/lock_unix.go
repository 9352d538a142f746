//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/tko-orchestrator/tko"
)

// lock takes the lock of a store's file for this process. It locks a second file with
// the suffix .lock, which the system unlocks when the process ends, even if it is
// killed. The second file is never removed: otherwise, a third process could lock a
// new one while the old one is still locked.
func lock(path string) (unlock func() error, err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		defer f.Close() //nolint:errcheck // it was only read
		return nil, tko.Errorf(tko.ErrBusy, "the store %s is in use by another server%s: stop that one first, or keep the state in PostgreSQL, which any number of servers can share", path, holder(f))
	case errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.ENOLCK):
		return f.Close, errNoLocks // a file system without locks
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // informational
	}
	return f.Close, nil
}

// holder describes the process that holds the lock, if the file names it.
func holder(f *os.File) string {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	pid, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}
