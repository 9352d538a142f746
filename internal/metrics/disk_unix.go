//go:build linux || darwin

package metrics

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SpaceOf returns the space of the file system of a folder; of its parent, if it
// doesn't exist yet.
func SpaceOf(folder string) (Space, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return Space{}, err
	}
	var stat unix.Statfs_t
	for {
		err := unix.Statfs(folder, &stat)
		if parent := filepath.Dir(folder); errors.Is(err, fs.ErrNotExist) && parent != folder {
			folder = parent
			continue
		}
		if err != nil {
			return Space{}, fmt.Errorf("read the free space of %s: %w", folder, err)
		}
		block := uint64(stat.Bsize) //nolint:gosec // positive; its type differs between systems
		return Space{Free: stat.Bavail * block, Size: stat.Blocks * block}, nil
	}
}
