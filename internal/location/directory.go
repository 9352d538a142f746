package location

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// readDirectory reads a directory. It follows links to files within it, skips links
// to directories, and returns an error for links that lead out of it.
func readDirectory(ctx context.Context, dir string, options Options) ([]file, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", plain(err))
	}
	defer func() { _ = root.Close() }()
	s := selection{options: options}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("%s: %w", name, plain(err))
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || !s.takes(filepath.ToSlash(name)):
			return nil
		}
		return addFile(&s, root, name)
	})
	if err != nil {
		return nil, err
	}
	return s.result()
}

func addFile(s *selection, root *os.Root, name string) error {
	info, err := root.Stat(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, plain(err))
	}
	if info.IsDir() {
		return nil // a link to a directory, with the extension of a file
	}
	if !info.Mode().IsRegular() {
		return tko.Errorf(tko.ErrInvalid, "%s is not a regular file", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, plain(err))
	}
	defer func() { _ = f.Close() }()
	return s.add(filepath.ToSlash(name), f)
}
