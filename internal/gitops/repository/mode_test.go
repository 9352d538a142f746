package repository_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/internal/gitops/repository"
)

// Executable files in git stay executable: packages for OSM contain programs.
func TestExecutableFilesOfCommitsStayExecutable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	want := map[string]fs.FileMode{"a/run": 0o700, "plain": 0o600}
	for name, mode := range want {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "1")
	r, err := repository.New(repository.Options{URL: "file://" + dir, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	revision, err := r.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Fetch(t.Context(), revision)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Close() }()
	for name, mode := range want {
		if info, err := fs.Stat(got, name); err != nil || info.Mode() != mode {
			t.Errorf("the mode of %s is %v, %v; want %v", name, info.Mode(), err, mode)
		}
	}
}
