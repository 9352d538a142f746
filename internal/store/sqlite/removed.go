package sqlite

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// A place is where the file of a database is, and what was there when it was
// opened. SQLite goes on with a file that was removed or replaced: what it
// writes then is gone when the process ends.
type place struct {
	path   string
	opened os.FileInfo
	gone   atomic.Bool // it was said in the log
}

func placeOf(path string) (*place, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &place{path: path, opened: info}, nil
}

// check returns an error if the file is no longer where it was. It is so until
// the same file is there again.
func (db *database) check(ctx context.Context) error {
	p := db.place
	if p == nil {
		return nil
	}
	now, err := os.Stat(p.path)
	if err == nil && os.SameFile(p.opened, now) {
		if p.gone.CompareAndSwap(true, false) {
			db.log.InfoContext(ctx, "the file of the store is back", "path", p.path)
		}
		return nil
	}
	if err == nil {
		err = fmt.Errorf("another file is at %s", p.path)
	}
	if p.gone.CompareAndSwap(false, true) {
		db.log.ErrorContext(ctx, "the file of the store was removed or replaced while the server runs: nothing is written any more. "+
			"Put it back, or stop the server and restore a backup", "path", p.path, "err", err)
	}
	return &relational.AwayError{
		Text:  "the file of the server's database was removed or replaced, nothing was changed: the operator must put it back or restore a backup",
		Cause: err,
	}
}
