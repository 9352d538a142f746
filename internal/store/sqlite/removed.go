package sqlite

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// A storeFile identifies the file of a database as it was when it was opened. SQLite
// continues to use a file that was removed or replaced: what it writes then is lost
// when the process ends.
type storeFile struct {
	path    string
	opened  os.FileInfo
	missing atomic.Bool // logged once
}

func statFile(path string) (*storeFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &storeFile{path: path, opened: info}, nil
}

// check returns an error while the file is no longer at its path.
func (db *database) check(ctx context.Context) error {
	p := db.file
	if p == nil {
		return nil
	}
	now, err := os.Stat(p.path)
	if err == nil && os.SameFile(p.opened, now) {
		if p.missing.CompareAndSwap(true, false) {
			db.log.InfoContext(ctx, "the file of the store is back", "path", p.path)
		}
		return nil
	}
	if err == nil {
		err = fmt.Errorf("another file is at %s", p.path)
	}
	if p.missing.CompareAndSwap(false, true) {
		db.log.ErrorContext(ctx, "the file of the store was removed or replaced while the server runs: nothing is written any more. "+
			"Put it back, or stop the server and restore a backup", "path", p.path, "err", err)
	}
	return &relational.AwayError{
		Text:  "the file of the server's database was removed or replaced, nothing was changed: the operator must put it back or restore a backup",
		Cause: err,
	}
}
