// Package child has what this program needs to start others: their paths, and a limit for their output. Package
// supervise has limits for programs that aren't trusted, and package sibling runs programs for as long as the server.
package child

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// Self returns the path of this program, which is right also after the file was replaced.
func Self() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// Find returns the path of a program, which is next to this one or on the PATH. Otherwise the error is an
// exec.ErrNotFound.
func Find(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// ErrFull is the error of a write beyond the limit of an Output.
var ErrFull = errors.New("too much output")

// An Output keeps what is written to it, up to a limit. It doesn't embed a buffer: io.Copy would use the buffer's method
// ReadFrom, and not see the limit.
type Output struct {
	limit  int
	full   func()
	isFull bool
	data   bytes.Buffer
}

// NewOutput returns an Output of at most limit bytes. It calls full, if that isn't nil, for each write beyond the limit.
func NewOutput(limit int, full func()) *Output { return &Output{limit: limit, full: full} }

// Write keeps p, or nothing of it and returns ErrFull.
func (o *Output) Write(p []byte) (int, error) {
	if len(p) > o.limit-o.data.Len() {
		o.isFull = true
		if o.full != nil {
			o.full()
		}
		return 0, ErrFull
	}
	return o.data.Write(p)
}

// Full reports whether a write exceeded the limit.
func (o *Output) Full() bool { return o.isFull }

// Bytes returns what was written.
func (o *Output) Bytes() []byte { return o.data.Bytes() }
