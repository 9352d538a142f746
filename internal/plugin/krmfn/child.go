package krmfn

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/tko-orchestrator/tko/krm"
)

// childName is the name (argv[0]) under which a program is started to be a
// built-in function.
const childName = "tko-krm-function"

// Child runs a built-in function if this process was started for that. A
// program that can be [Options].Self calls Child first: if is is true, the
// program must exit with code.
func Child(args []string, in io.Reader, out, stderr io.Writer) (code int, is bool) {
	if len(args) != 3 || args[0] != childName {
		return 0, false
	}
	if err := runAsChild(args[1], args[2], in, out); err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1, true
	}
	return 0, true
}

func runAsChild(name, memory string, in io.Reader, out io.Writer) error {
	limit, err := strconv.ParseInt(memory, 10, 64)
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(limit / 2)
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	l, err := decodeOwn(text, krm.Limits{Bytes: math.MaxInt32, Values: math.MaxInt32})
	if err != nil {
		return err
	}
	l, failed := runBuiltin(context.Background(), name, l)
	if failed != nil {
		l = list{raw: []any{map[string]any{"severity": severityError, "message": failed.Error()}}}
	}
	response, err := l.encode()
	if err != nil {
		return err
	}
	if _, err := out.Write(response); err != nil {
		return err
	}
	return failed
}

// runChild runs a built-in function in a process of its own, with a memory
// limit.
func (e *Executor) runChild(ctx context.Context, name string, input []byte, timeout time.Duration) (Output, error) {
	if e.options.Self == "" {
		return Output{}, fmt.Errorf("built-in function %q: this program can't run it", name)
	}
	out, err := e.options.Run(ctx, Process{
		Arguments: []string{e.options.Self, name, strconv.FormatInt(e.options.Memory, 10)}, Name: childName,
		Environment: []string{"GOTRACEBACK=none", "GOMAXPROCS=2"}, Input: input, Timeout: timeout,
		Memory: e.options.Memory + headroom, Own: true,
	})
	if err == nil && out.ExitCode > 1 { // an exit code of the Go runtime
		return Output{}, fmt.Errorf("it failed, probably because it needs more than %d bytes of memory", e.options.Memory)
	}
	return out, err
}
