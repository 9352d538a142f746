package location

import (
	"sync/atomic"

	"github.com/go-git/go-billy/v5"
)

// Limited is a file system in which no more than that many bytes can be
// written. exceeded says whether somebody has tried to.
func Limited(fs billy.Filesystem, bytes int64) (limited billy.Filesystem, exceeded func() bool) {
	left := new(atomic.Int64)
	left.Store(bytes)
	return &limitedFS{Filesystem: fs, left: left}, func() bool { return left.Load() < 0 }
}
