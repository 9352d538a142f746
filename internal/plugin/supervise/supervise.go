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

// MaxProcesses is how many processes a supervised program may consist of.
const MaxProcesses = 256

// patience is how long a supervisor that is to end everything may take.
const patience = 10 * time.Second

// Limits bound a program, and what it starts.
type Limits struct {
	// Memory is how many bytes each process may have of its own, and all of them
	// together; as many as there are if 0. Nothing is bounded where there is no
	// supervisor.
	Memory int64
	// Daemons says that what the program leaves behind goes on: nobody supervises
	// it, and only its process group is killed.
	Daemons bool
}

// An ExitError says how a program ended that did not end well.
type ExitError struct {
	Code   int            // its exit code, or -1
	Signal syscall.Signal // that ended it, or 0
	Limit  string         // what it exceeded, for which it was killed; or ""
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

// A Process is a program that was started, and all that it starts.
type Process struct {
	command *exec.Cmd // the supervisor, or the program itself
	control *os.File  // closing it ends everything; nil without a supervisor
	report  *os.File  // what the supervisor has to say
	mark    string    // in the environment of the program
	exited  chan struct{}
	err     error // once exited is closed
}

// Start starts a command, whose streams must be files or nothing and whose
// folder should be its own. What it adds to the command is its own business:
// use the Process.
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
	if err == nil {
		p.command = &exec.Cmd{
			Path: "/proc/self/exe", Args: append([]string{name, strconv.FormatInt(l.Memory, 10), cmd.Path}, cmd.Args...), Dir: cmd.Dir, Env: cmd.Env,
			Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, ExtraFiles: []*os.File{pipes[0][0], pipes[1][1]},
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

// markOf is by what the processes of a command are told from others if their
// supervisor is gone: the variable that has their folder.
func markOf(cmd *exec.Cmd) string {
	for _, variable := range cmd.Env {
		if cmd.Dir != "" && variable == "TMPDIR="+cmd.Dir {
			return variable
		}
	}
	return ""
}

// Kill ends the program and all that it started. It doesn't wait; it may be
// called at any time, and again.
func (p *Process) Kill() {
	select {
	case <-p.exited: // its number may be somebody else's by now
		return
	default:
	}
	if p.control == nil {
		_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
		return
	}
	if p.control.Close() == nil { // the first time
		hopeless := time.AfterFunc(patience, func() { _ = p.command.Process.Kill() })
		go func() {
			<-p.exited
			hopeless.Stop()
		}()
	}
}

// Exited is closed when nothing is left of the program.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits until nothing is left of the program, and answers how it ended:
// nil if well, an [*ExitError], or why it could not be run or is not known.
func (p *Process) Wait() error {
	<-p.exited
	return p.err
}

func (p *Process) wait() error {
	if p.control == nil {
		err := p.command.Wait()
		_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL) // what it left behind
		return exitOf(err)
	}
	text, readErr := io.ReadAll(io.LimitReader(p.report, 64<<10))
	waitErr := p.command.Wait()
	_, _ = p.report.Close(), p.control.Close()
	if len(text) == 0 || readErr != nil {
		sweep(p.mark)
		return fmt.Errorf("its supervisor was ended: %w", errors.Join(readErr, exitOf(waitErr)))
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

// The words of a supervisor's report.
const (
	reportExit   = "exit"   // and the code
	reportSignal = "signal" // and its number
	reportLimit  = "limit"  // and which
	reportFailed = "failed" // and why
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
