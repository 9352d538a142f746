package repository_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/repository"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
)

// session fetches the branch main of a repository.
func session(t *testing.T, dir string, limits tree.Limits) *repository.Session {
	t.Helper()
	r, err := repository.New(repository.Options{URL: "file://" + dir, Dir: t.TempDir(), Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.FetchAll(t.Context(), []string{repository.Branches + "main"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The files of a session are a file system as the standard library requires one: those that a checkout has, or those in a folder.
func TestFilesOfASessionAreAFileSystem(t *testing.T) {
	t.Parallel()
	dir := hostile(t)
	s := session(t, dir, tree.Limits{})
	commit := git(t, dir, "rev-parse", "main")
	for folder, want := range map[string][]string{"": {"a.yaml", "big", "deep/er/b.yaml"}, "deep": {"deep/er/b.yaml"}, "nowhere": nil} {
		found, err := s.Files(t.Context(), repository.Branches+"main", commit, folder, "")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, files(t, found)); diff != "" {
			t.Errorf("the folder %q (-want +got):\n%s", folder, diff)
		}
		if err := fstest.TestFS(found, want...); err != nil {
			t.Errorf("the folder %q: %v", folder, err)
		}
		for _, name := range want {
			got, err := fs.ReadFile(found, name)
			expected, readErr := os.ReadFile(dir + "/" + name)
			if err := errors.Join(err, readErr); err != nil || string(got) != string(expected) {
				t.Errorf("%s has %d bytes, want %d: %v", name, len(got), len(expected), err)
			}
		}
	}
	if _, err := s.Files(t.Context(), repository.Branches+"main", git(t, dir, "rev-parse", "main~1"), "", ""); err == nil {
		t.Error("a branch that was moved since it was listed is read")
	}
}

// What is read of a revision is limited as if it were in a folder.
func TestFilesBeyondLimitsAreRefused(t *testing.T) {
	t.Parallel()
	dir := hostile(t)
	commit := git(t, dir, "rev-parse", "main")
	_, err := session(t, dir, tree.Limits{Files: 2}).Files(t.Context(), repository.Branches+"main", commit, "", "")
	if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "more than 2 files") {
		t.Errorf("three files: %v", err)
	}
	found, err := session(t, dir, tree.Limits{Bytes: 4000}).Files(t.Context(), repository.Branches+"main", commit, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.ReadFile(found, "a.yaml"); err != nil {
		t.Error(err)
	}
	if _, err := fs.ReadFile(found, "big"); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "more than 4000 bytes") {
		t.Errorf("a file of 5000 bytes: %v", err)
	}
}

// Names in a tree are what its author wrote.
func TestFilesStayInTheirFolder(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{"..": "040000 tree", "../x": "100644 blob", ".": "040000 tree"} {
		dir := hostile(t)
		object := git(t, dir, "rev-parse", map[bool]string{true: "main:deep", false: "main:a.yaml"}[strings.HasSuffix(mode, "tree")])
		stored, err := gogit.PlainOpen(dir)
		if err != nil {
			t.Fatal(err)
		}
		raw := stored.Storer.NewEncodedObject()
		raw.SetType(plumbing.TreeObject)
		w, err := raw.Writer()
		if err != nil {
			t.Fatal(err)
		}
		to := plumbing.NewHash(object)
		_, err = w.Write(append([]byte(strings.TrimPrefix(strings.Fields(mode)[0], "0")+" "+name+"\x00"), to[:]...))
		hash, storeErr := stored.Storer.SetEncodedObject(raw)
		if err := errors.Join(err, storeErr); err != nil {
			t.Fatal(err)
		}
		commit := git(t, dir, "commit-tree", hash.String(), "-m", "x")
		git(t, dir, "update-ref", "refs/heads/main", commit)
		found, err := session(t, dir, tree.Limits{}).Files(t.Context(), repository.Branches+"main", commit, "", "")
		if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "leads out of") {
			t.Errorf("a file below %q: %v, %v", name, found, err)
		}
	}
}
