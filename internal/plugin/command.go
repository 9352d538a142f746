package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/child"
	"github.com/tko-orchestrator/tko/internal/plugin/supervise"
)

const (
	maxStderr = 2 << 10 // bytes of the end of stderr in the error message
	// grace is the time limit of reading pipes after the plugin has ended. They
	// close with it, unless one of its child processes escaped the supervisor.
	grace = time.Second
)

// command runs the plugin's program: input to its stdin, output from its
// stdout. When it returns, the process, its descendants and their directory no
// longer exist.
func (r *Runner) command(ctx context.Context, j job) (output []byte, stderr string, err error) {
	dir, err := os.MkdirTemp(r.options.Dir, "tko-plugin-")
	if err != nil {
		return nil, "", fmt.Errorf("it was not run: %w", err)
	}
	defer remove(dir)
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, "", fmt.Errorf("it was not run: %w", err)
	}
	program, err := r.programs().Open(j.plugin.Arguments[0])
	if err != nil {
		return nil, "", err
	}
	defer program.Close()
	logs, err := openLogPipe(filepath.Join(dir, "log"), j.log.With("plugin", j.plugin.ID(), "resource", j.target.String()))
	if err != nil {
		return nil, "", fmt.Errorf("it was not run: %w", err)
	}
	defer logs.close()
	j.alone = !r.networked(j.plugin)
	input, err := r.encodeInput(j, logs.path)
	if err != nil {
		return nil, "", fmt.Errorf("it was not run: %w", err)
	}
	start, err := r.confine(ctx, launch{cmd: r.pluginCommand(j.plugin.Arguments, program, work), program: program, dir: dir, plugin: j.plugin, limits: r.limits(j.plugin)})
	if err != nil {
		return nil, "", err
	}
	output, stderr, err = r.communicate(ctx, start, input, j.timeout)
	if err != nil {
		return nil, stderr, err
	}
	return output, stderr, nil
}

// limits returns the limits of a command plugin.
func (r *Runner) limits(p tko.Plugin) supervise.Limits {
	memory, err := p.Memory()
	if err != nil || memory == 0 { // registration refuses malformed values
		memory = r.options.MaxMemory
	}
	return supervise.Limits{Memory: memory}
}

// communicate runs a command with limits on time, output and memory. It returns
// stdout and stderr also if the command failed.
func (r *Runner) communicate(ctx context.Context, c confined, input []byte, timeout time.Duration) (stdout []byte, stderr string, err error) {
	timed, cancel := context.WithTimeoutCause(ctx, timeout, timeoutError{timeout})
	defer cancel()
	s := streams{stdout: child.NewOutput(r.options.MaxOutput, nil)}
	err = s.run(timed, c, input)
	stdout, stderr = s.stdout.Bytes(), s.stderr.String()
	var exit *supervise.ExitError
	switch {
	case timed.Err() != nil:
		return stdout, stderr, context.Cause(timed)
	case s.stdout.Full():
		return stdout, stderr, fmt.Errorf("it wrote more than %d bytes to stdout", r.options.MaxOutput)
	case err != nil && !errors.As(err, &exit):
		return stdout, stderr, fmt.Errorf("it could not be run: %w", err)
	}
	return stdout, stderr, err
}

// remove removes a plugin's directory, including directories that the plugin
// made unwritable.
func remove(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700) //nolint:gosec // a directory about to be removed
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}

// environment returns a plugin's environment. It inherits only the named
// variables from the server; its home is its working directory, unless the
// operator names HOME.
func (r *Runner) environment(path, work string, python bool) []string {
	env := []string{"PATH=" + path, "TMPDIR=" + work}
	if !slices.Contains(r.options.Environment, "HOME") {
		env = append(env, "HOME="+work)
	}
	for _, name := range append([]string{"LANG", "LC_ALL", "TZ"}, r.options.Environment...) {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if python {
		env = append(env, "PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1")
		if r.options.PythonEnv != "" {
			env = append(env, "VIRTUAL_ENV="+r.options.PythonEnv)
		}
	}
	return env
}

// streams are the stdin, stdout and stderr of a process. The pipes are made
// here rather than by package exec, so that processes that a plugin leaves
// behind can be killed as soon as the plugin has ended, and cannot block the
// reader.
type streams struct {
	stdout *child.Output
	stderr tail
}

// run runs a command until it ends or ctx is done. No process that it started
// remains when run returns.
func (s *streams) run(ctx context.Context, c confined, input []byte) error {
	defer c.done()
	cmd := c.command
	var pipes [3][2]*os.File // [stdin, stdout, stderr][read, write]
	defer func() {
		for _, p := range pipes {
			_ = p[0].Close()
			_ = p[1].Close()
		}
	}()
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		pipes[i] = [2]*os.File{r, w}
	}
	stdin, stdout, stderr := pipes[0][1], pipes[1][0], pipes[2][0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes[0][0], pipes[1][1], pipes[2][1]
	process, err := supervise.Start(cmd, c.limits)
	c.started()
	if err != nil {
		return err
	}
	_, _, _ = pipes[0][0].Close(), pipes[1][1].Close(), pipes[2][1].Close()
	stop := context.AfterFunc(ctx, process.Kill)
	defer stop()

	var streaming sync.WaitGroup
	streaming.Go(func() {
		_, _ = stdin.Write(input) // a plugin may end without reading it
		_ = stdin.Close()
	})
	streaming.Go(func() {
		if _, err := io.Copy(s.stdout, stdout); errors.Is(err, child.ErrFull) {
			process.Kill()
		}
	})
	streaming.Go(func() { _, _ = io.Copy(&s.stderr, stderr) })

	err = process.Wait()
	deadline := time.Now().Add(grace)
	_ = stdin.SetDeadline(time.Now())
	_, _ = stdout.SetReadDeadline(deadline), stderr.SetReadDeadline(deadline)
	streaming.Wait()
	return err
}

// tail is a writer that retains the last maxStderr bytes.
type tail struct {
	data []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if extra := len(t.data) - maxStderr; extra > 0 {
		t.data = append(t.data[:0], t.data[extra:]...)
		t.cut = true
	}
	return len(p), nil
}

func (t *tail) String() string {
	s := strings.TrimSpace(strings.ToValidUTF8(string(t.data), "\uFFFD"))
	if t.cut {
		s = "…" + s
	}
	return s
}
