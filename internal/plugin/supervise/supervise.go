package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// MaxProcesses is the most processes that a supervised program may have.
const MaxProcesses = 256

// killTimeout bounds how long a supervisor may take to kill all processes,
// before it is killed itself.
const killTimeout = 10 * time.Second

// Limits restrict a program and its descendants.
type Limits struct {
	// Memory is the limit of the private memory of each process, and of the total
	// memory of all processes, in bytes; no limit if 0. It has no effect where
	// there is no supervisor.
	Memory int64
	// Daemons lets processes that leave the program's process group survive it.
	// The program then has no supervisor, and only its process group is killed.
	Daemons bool
	// Launch restricts them further; nil for no restrictions. It has no effect
	// with Daemons.
	Launch *Launch
}

// An ExitError reports how a program ended unsuccessfully.
type ExitError struct {
	Code   int            // its exit code, or -1
	Signal syscall.Signal // the signal that ended it, or 0
	Limit  string         // the exceeded limit that it was killed for, or ""
}

func (e *ExitError) Error() string {
	switch {
	case e.Limit != "":
		return "it was ended: " + e.Limit
	case e.Signal != 0:
		return fmt.Sprintf("it ended with signal %d (%s)", int(e.Signal), e.Signal)
	default:
		return fmt.Sprintf("it ended with exit code %d", e.Code)
	}
}

// A Process is a program that was started, with all its descendants.
type Process struct {
	command *exec.Cmd // the supervisor, or the program itself
	control *os.File  // closing it ends all processes; nil without a supervisor
	report  *os.File  // the supervisor's report
	mark    string    // a variable that identifies the program's processes
	exited  chan struct{}
	err     error // set before exited is closed
}

// Start starts a command. Its streams must be files or nil, and its directory
// should belong to it alone. Start modifies cmd: the caller uses only the
// Process from then on.
func Start(cmd *exec.Cmd, l Limits) (*Process, error) {
	p := &Process{command: cmd, exited: make(chan struct{})}
	if supported && !l.Daemons {
		if err := p.supervised(cmd, l); err != nil {
			return nil, err
		}
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
	}
	go func() {
		p.err = p.wait()
		close(p.exited)
	}()
	return p, nil
}

// supervised starts the supervisor.
func (p *Process) supervised(cmd *exec.Cmd, l Limits) (err error) {
	var pipes [2][2]*os.File // [control, report][read, write]
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			break
		}
	}
	orders := ""
	files := []*os.File{pipes[0][0], pipes[1][1]}
	if err == nil && l.Launch != nil {
		var more []*os.File
		orders, more, err = encodeOrders(l.Launch, l.Memory)
		files = append(files, more...)
	}
	if err == nil {
		p.command = &exec.Cmd{
			Path: "/proc/self/exe", Args: append([]string{name, strconv.FormatInt(l.Memory, 10), orders, cmd.Path}, cmd.Args...), Dir: cmd.Dir, Env: cmd.Env,
			Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, ExtraFiles: files,
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		}
		err = p.command.Start()
	}
	_, _ = pipes[0][0].Close(), pipes[1][1].Close()
	if err != nil {
		_, _ = pipes[0][1].Close(), pipes[1][0].Close()
		return err
	}
	p.control, p.report, p.mark = pipes[0][1], pipes[1][0], markOf(cmd)
	return nil
}

// markOf returns the variable TMPDIR if it names the command's own directory,
// and "" otherwise. If the supervisor is killed, the variable identifies the
// command's processes.
func markOf(cmd *exec.Cmd) string {
	for _, variable := range cmd.Env {
		if cmd.Dir != "" && variable == "TMPDIR="+cmd.Dir {
			return variable
		}
	}
	return ""
}

// Kill ends the program and its descendants without waiting for them. It may be
// called at any time, and more than once.
func (p *Process) Kill() {
	select {
	case <-p.exited: // another process may have the process ID by now
		return
	default:
	}
	if p.control == nil {
		_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
		return
	}
	if p.control.Close() == nil { // the first time
		deadline := time.AfterFunc(killTimeout, func() { _ = p.command.Process.Kill() })
		go func() {
			<-p.exited
			deadline.Stop()
		}()
	}
}

// Exited returns a channel that is closed when the program and its descendants
// have ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits until the program and its descendants have ended. It returns nil
// if the program succeeded, an [*ExitError] if it failed, and another error if
// it could not be run or its result is unknown.
func (p *Process) Wait() error {
	<-p.exited
	return p.err
}

func (p *Process) wait() error {
	if p.control == nil {
		err := p.command.Wait()
		_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL) // processes that it left behind
		return exitOf(err)
	}
	text, readErr := io.ReadAll(io.LimitReader(p.report, 64<<10))
	waitErr := p.command.Wait()
	_, _ = p.report.Close(), p.control.Close()
	if len(text) == 0 || readErr != nil {
		sweep(p.mark)
		return fmt.Errorf("its supervisor was killed: %w", errors.Join(readErr, exitOf(waitErr)))
	}
	return parse(string(text))
}

func exitOf(err error) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return err
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return &ExitError{Code: -1, Signal: status.Signal()}
	}
	return &ExitError{Code: exit.ExitCode()}
}

// The first words of a supervisor's report.
const (
	reportExit   = "exit"   // followed by the exit code
	reportSignal = "signal" // followed by the number of the signal
	reportLimit  = "limit"  // followed by the exceeded limit
	reportFailed = "failed" // followed by the error
)

func parse(report string) error {
	word, rest, _ := strings.Cut(report, " ")
	n, err := strconv.Atoi(rest)
	switch {
	case word == reportExit && err == nil && n == 0:
		return nil
	case word == reportExit && err == nil:
		return &ExitError{Code: n}
	case word == reportSignal && err == nil:
		return &ExitError{Code: -1, Signal: syscall.Signal(n)}
	case word == reportLimit:
		return &ExitError{Code: -1, Limit: rest}
	default:
		return errors.New(rest)
	}
}
