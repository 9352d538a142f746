package child_test

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/child"
)

// io.Copy and package exec use a writer's method ReadFrom if it has one.
func TestOutputIsLimitedHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(io.Writer) error{
		"copied": func(w io.Writer) error { _, err := io.Copy(w, strings.NewReader(strings.Repeat("x", 100))); return err },
		"of a program": func(w io.Writer) error {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do echo x; done")
			cmd.Stdout = w
			return cmd.Run()
		},
		"in parts": func(w io.Writer) error {
			_, first := io.WriteString(w, "123456")
			_, second := io.WriteString(w, "78901")
			return errors.Join(first, second)
		},
	} {
		calls := 0
		o := child.NewOutput(10, func() { calls++ })
		if err := write(o); err == nil || !o.Full() || calls != 1 || len(o.Bytes()) > 10 {
			t.Errorf("%s: %v, full: %t after %d calls, with %d bytes", name, err, o.Full(), calls, len(o.Bytes()))
		}
	}
	o := child.NewOutput(10, nil)
	if _, err := io.WriteString(o, "1234567890"); err != nil || o.Full() {
		t.Errorf("as much as allowed: %v, full: %t", err, o.Full())
	}
	if _, err := io.WriteString(o, "1"); !errors.Is(err, child.ErrFull) {
		t.Errorf("one more: %v", err)
	}
}

func TestProgramsThatAreNowhereAreNotFound(t *testing.T) {
	t.Parallel()
	if path, err := child.Find("sh"); err != nil || !strings.HasSuffix(path, "/sh") {
		t.Errorf("sh is at %q, %v", path, err)
	}
	if _, err := child.Find("tko-no-such-program"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
