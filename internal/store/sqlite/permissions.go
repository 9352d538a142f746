package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/tko-orchestrator/tko"
)

// own are the permissions of a store's files: everything that rights protect is in them.
const own = 0o600

// companions are the suffixes of the files that SQLite makes next to a database. It gives them
// the permissions of the database.
var companions = []string{"", "-wal", "-shm", "-journal"}

// protect creates the file of a store for its user only. If it exists, and it or one of its
// companions can be read or written by other users, the error is an ErrInvalid, unless that is
// allowed.
func protect(path string, readable bool) error {
	// A file that exists isn't opened here: closing it would release SQLite's locks of
	// this process.
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, own) //nolint:gosec // the operator names the file
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		return file.Close()
	}
	if readable || runtime.GOOS == "windows" { // it has other permissions
		return nil
	}
	for _, suffix := range companions {
		info, err := os.Stat(path + suffix)
		if err != nil || !info.Mode().IsRegular() {
			continue // SQLite reports what else is wrong
		}
		if mode := info.Mode().Perm(); mode&^own != 0 {
			return tko.Errorf(tko.ErrInvalid, "the file %s of the store has the permissions %04o, so that other users of this machine may read or change all that is stored: "+
				"run chmod 600 %s*, or allow it with --store-readable", path+suffix, mode, path)
		}
	}
	return nil
}
