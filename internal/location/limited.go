package location

import (
	"sync/atomic"

	"github.com/go-git/go-billy/v5"
)

// Limited returns a file system to which at most that many bytes can be written.
// exceeded reports whether a write has failed for that reason.
func Limited(fs billy.Filesystem, bytes int64) (limited billy.Filesystem, exceeded func() bool) {
	left := new(atomic.Int64)
	left.Store(bytes)
	return &limitedFS{Filesystem: fs, left: left}, func() bool { return left.Load() < 0 }
}
