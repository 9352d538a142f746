package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/tko-orchestrator/tko"
)

// defaultPager is the pager if none is set, provided that it is installed.
const defaultPager = "less"

// A pager is a program that shows results page by page. The nil pager is none.
type pager struct {
	app   *app
	cmd   *exec.Cmd
	pipe  io.WriteCloser
	named string
}

// pagerCommand returns the program that shows lists, "" for none: there is none
// if results don't go to a terminal or aren't text.
func (a *app) pagerCommand() string {
	if f := a.format(); !a.terminal || a.globals.quiet || f == formatCBOR || f == formatMessagePack {
		return ""
	}
	if a.globals.pagerSet {
		return a.globals.pager
	}
	if pager, ok := os.LookupEnv("PAGER"); ok {
		return pager
	}
	if terminal := os.Getenv("TERM"); terminal == "" || terminal == "dumb" {
		return ""
	}
	if _, err := exec.LookPath(defaultPager); err != nil {
		return ""
	}
	return defaultPager
}

// startPager starts the pager, if there is one, and redirects the output to it
// until end.
func (a *app) startPager(ctx context.Context) (*pager, error) {
	command := strings.TrimSpace(a.pagerCommand())
	if command == "" {
		return nil, nil
	}
	// The user ends the pager: it must be able to restore the terminal.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", command) //nolint:gosec // the user's own command
	cmd.Stdout, cmd.Stderr = a.streams.Out, a.streams.Err
	cmd.Env = os.Environ()
	if os.Getenv("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRX") // end if it fits on the screen, show colors, leave the text there
	}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, tko.Errorf(errUsage, "start the pager %q: %w: name another with --pager, or none with --pager=", command, err)
	}
	a.out.Reset(pipe)
	return &pager{app: a, cmd: cmd, pipe: pipe, named: command}, nil
}

// end writes the rest, waits until the pager ends, and returns the error of
// writing. It is no error if the pager ends early.
func (p *pager) end(err error) error {
	if p == nil {
		return err
	}
	if flushErr := p.app.out.Flush(); err == nil {
		err = flushErr
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		err = nil
	}
	p.app.out.Reset(p.app.streams.Out)
	_ = p.pipe.Close() // it may have ended
	if waitErr := p.cmd.Wait(); err == nil && waitErr != nil && !endedBySignal(waitErr) {
		err = tko.Errorf(errUsage, "pager %q failed: %w: name another with --pager, or none with --pager=", p.named, waitErr)
	}
	return err
}

func endedBySignal(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}
