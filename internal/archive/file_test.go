package archive_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
)

func TestIncompleteFileNeverHasTheNameOfABackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "backup")
	files := func() int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	broken := errors.New("broken")
	err := archive.NewFile(name, nil, func(w io.Writer) error {
		_, _ = io.WriteString(w, "a part")
		if _, err := os.Stat(name); err == nil {
			t.Error("the file has its name before it is complete")
		}
		return broken
	})
	if !errors.Is(err, broken) || files() != 0 {
		t.Errorf("got %v and %d files after a failure", err, files())
	}
	all := func(w io.Writer) error {
		_, err := io.WriteString(w, "all")
		return err
	}
	if err := archive.NewFile(name, nil, all); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "all" || files() != 1 {
		t.Errorf("got %q, %v and %d files", text, err, files())
	}
	err = archive.NewFile(name, nil, func(io.Writer) error {
		t.Error("a file that exists would be replaced")
		return nil
	})
	if !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("got %v for a file that exists", err)
	}
	var stdout bytes.Buffer
	if err := archive.NewFile("-", &stdout, all); err != nil || stdout.String() != "all" {
		t.Errorf("got %q, %v on the standard output", stdout.String(), err)
	}
}
