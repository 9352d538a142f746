// Package server starts and stops a tko-server, for the demo and the benchmarks.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrEnded reports that the server ended before it served. Its log says why.
var ErrEnded = errors.New("the server did not start")

// A Server is a running tko-server.
type Server struct {
	GRPC, Web, Agents []string        // its addresses
	PID               int             `json:"-"`
	Started           time.Time       `json:"-"`
	Done              <-chan struct{} `json:"-"` // closed when it has ended

	process *os.Process
}

// Start starts the tko-server in a folder, or the tko-server-spanner if --store among its arguments needs that, and waits until it serves. ready is the file in which the server writes that; it
// is removed first. The server outlives the context: call Stop.
func Start(ctx context.Context, folder, ready string, log *os.File, args ...string) (*Server, error) {
	if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if os.Geteuid() == 0 { // as in containers; the programs may be in a folder that only root can read
		args = append(args, "--allow-root", "--plugin-users=none")
	}
	program := "tko-server"
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--store=spanner:") }) {
		program = "tko-server-spanner"
	}
	//nolint:gosec // the binary that make built
	command := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(folder, program), append(args, "--ready-file="+ready)...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C goes to this program only, which stops the server
	started := time.Now()
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("%w: build it with make build", err)
	}
	done := make(chan struct{})
	s := &Server{PID: command.Process.Pid, Started: started, Done: done, process: command.Process}
	go func() {
		_ = command.Wait()
		close(done)
	}()
	for {
		if data, err := os.ReadFile(ready); err == nil && json.Unmarshal(data, s) == nil { //nolint:gosec // our own file
			return s, nil
		}
		select {
		case <-done:
			return nil, ErrEnded
		case <-ctx.Done():
			s.Stop()
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// Stop stops the server, and waits until it has ended.
func (s *Server) Stop() {
	_ = s.process.Signal(syscall.SIGTERM)
	<-s.Done
}
