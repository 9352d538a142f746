package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// generated are the folders that no test depends on: what set-up and builds leave there.
var generated = []string{".git", "node_modules", "bin", "__pycache__", "dist-packages", "site"}

// Reads says that the test depends on files that other programs read: scripts, modules of Python, sources of plugins. go
// test sees only the files that the test reads itself; without this call, it would show a cached result after such a
// file has changed. The paths are of files or folders, from the root of the repository.
func Reads(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		err := filepath.WalkDir(filepath.Join(Root(), path), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && slices.Contains(generated, entry.Name()):
				return fs.SkipDir
			case !entry.Type().IsRegular():
				return nil
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			return f.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
