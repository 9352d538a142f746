package tosca

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// The bounds of the compiler, in addition to those that it sets itself.
const (
	compileTime = 30 * time.Second
	maxResponse = 32 << 20
	maxProblem  = 4096
)

// Command is the name of the compiler.
const Command = "tko-tosca"

// findCommand returns the path of the compiler: next to this program, or on the PATH.
func findCommand() (string, error) {
	if self, err := os.Executable(); err == nil {
		sibling := filepath.Join(filepath.Dir(self), Command)
		if info, err := os.Stat(sibling); err == nil && info.Mode().IsRegular() {
			return sibling, nil
		}
	}
	return exec.LookPath(Command)
}

// run compiles a request. The error is a tko.ErrInvalid if the service template is
// wrong or exceeds a bound.
func run(ctx context.Context, command []string, request Request) (*Service, error) {
	ctx, cancel := context.WithTimeout(ctx, compileTime)
	defer cancel()
	in, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode the service template: %w", err)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the operator configures it
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.Dir = os.TempDir()
	cmd.Stdin = bytes.NewReader(in)
	cmd.WaitDelay = time.Second
	out, problem := &bounded{limit: maxResponse}, &bounded{limit: maxProblem}
	cmd.Stdout, cmd.Stderr = out, problem
	err = cmd.Run()
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, tko.Errorf(tko.ErrInvalid, "compiling the service template takes longer than %s", compileTime)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case out.full:
		return nil, tko.Errorf(tko.ErrInvalid, "the compiled service template is larger than %d MiB", maxResponse>>20)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, tko.Errorf(tko.ErrInvalid, "compiling the service template failed, perhaps for lack of memory: %s: %s", exit, firstLine(problem.String()))
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", command[0], err)
	}
	var response Response
	decoder := json.NewDecoder(&out.Buffer)
	decoder.UseNumber()
	if err := decoder.Decode(&response); err != nil {
		return nil, fmt.Errorf("read the output of %s: %w", command[0], err)
	}
	if response.Problem != "" || response.Service == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%s", response.Problem)
	}
	return response.Service, nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// A bounded is a buffer whose writes fail beyond a limit.
type bounded struct {
	bytes.Buffer
	limit int
	full  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		b.full = true
		return 0, io.ErrShortWrite
	}
	return b.Buffer.Write(p)
}
