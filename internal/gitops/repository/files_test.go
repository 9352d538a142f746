package repository_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

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
		make := exec.Command("git", "hash-object", "-t", "tree", "--literally", "-w", "--stdin")
		make.Dir = dir
		raw := []byte(strings.TrimPrefix(strings.Fields(mode)[0], "0") + " " + name + "\x00")
		for i := 0; i < len(object); i += 2 {
			raw = append(raw, hexDigit(object[i])<<4|hexDigit(object[i+1]))
		}
		make.Stdin = strings.NewReader(string(raw))
		hash, err := make.Output()
		if err != nil {
			t.Fatal(err)
		}
		commit := git(t, dir, "commit-tree", strings.TrimSpace(string(hash)), "-m", "x")
		git(t, dir, "update-ref", "refs/heads/main", commit)
		found, err := session(t, dir, tree.Limits{}).Files(t.Context(), repository.Branches+"main", commit, "", "")
		if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "leads out of") {
			t.Errorf("a file below %q: %v, %v", name, found, err)
		}
	}
}

func hexDigit(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}
