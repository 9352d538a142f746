package tosca

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/child"
)

// The bounds of the compiler, in addition to those that it sets itself.
const (
	compileTime = 30 * time.Second
	maxResponse = 32 << 20
	maxProblem  = 4096
)

// Command is the name of the compiler.
const Command = "tko-tosca"

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
	out, problem := child.NewOutput(maxResponse, nil), child.NewOutput(maxProblem, nil)
	cmd.Stdout, cmd.Stderr = out, problem
	err = cmd.Run()
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, tko.Errorf(tko.ErrInvalid, "compiling the service template takes longer than %s", compileTime)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case out.Full():
		return nil, tko.Errorf(tko.ErrInvalid, "the compiled service template is larger than %d MiB", maxResponse>>20)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, tko.Errorf(tko.ErrInvalid, "compiling the service template failed, perhaps for lack of memory: %s: %s", exit, firstLine(string(problem.Bytes())))
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", command[0], err)
	}
	var response Response
	decoder := json.NewDecoder(bytes.NewReader(out.Bytes()))
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
