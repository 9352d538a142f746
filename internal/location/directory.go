package location

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// ReadFS reads the package in a folder of a file system, as [Read] reads a directory. Errors name
// the folder.
func ReadFS(ctx context.Context, files fs.FS, folder string, options Options) (krm.Package, error) {
	options = options.withDefaults()
	below, err := fs.Sub(files, folder)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	found, err := readFS(ctx, below, options)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", folder, err)
	}
	return decode(folder, found, options)
}

// readDirectory reads a directory. It follows links to files within it, skips links
// to directories, and returns an error for links that lead out of it.
func readDirectory(ctx context.Context, dir string, options Options) ([]file, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", plain(err))
	}
	defer func() { _ = root.Close() }()
	return readFS(ctx, root.FS(), options)
}

func readFS(ctx context.Context, files fs.FS, options Options) ([]file, error) {
	s := selection{options: options}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
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
		return addFile(&s, files, name)
	})
	if err != nil {
		return nil, err
	}
	return s.result()
}

func addFile(s *selection, files fs.FS, name string) error {
	info, err := fs.Stat(files, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, plain(err))
	}
	if info.IsDir() {
		return nil // a link to a directory, with the extension of a file
	}
	if !info.Mode().IsRegular() {
		return tko.Errorf(tko.ErrInvalid, "%s is not a regular file", name)
	}
	f, err := files.Open(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, plain(err))
	}
	defer func() { _ = f.Close() }()
	return s.add(filepath.ToSlash(name), f)
}
