package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tko-orchestrator/tko/bench"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
)

// The stores that are measured.
const (
	storePostgreSQL = "postgresql"
	storeSQLite     = "sqlite"
)

// own measures a server that it starts for the measurement.
func (o *options) own(ctx context.Context, store, dsn string, raw *bench.Raw) (table bench.Table, err error) {
	folder, err := os.MkdirTemp("", "tko-bench-")
	if err != nil {
		return bench.Table{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	target, where := bench.Target{DSN: dsn}, dsn
	if store == storeSQLite {
		target.DSN, target.File = "", filepath.Join(folder, "tko.db")
		where = "sqlite:" + target.File
	}
	starts := 0
	start := func(ctx context.Context, args ...string) (*server, error) {
		starts++
		return o.start(ctx, filepath.Join(folder, fmt.Sprintf("ready-%d.json", starts)), args...)
	}
	serve := func(ctx context.Context) (*server, error) {
		return start(ctx, "--roles=data", "--store="+where, "--listen-grpc=localhost:0", "--listen-web=localhost:0")
	}
	data, err := serve(ctx)
	if err != nil {
		return bench.Table{}, err
	}
	defer func() { data.stop() }()
	target.Address, target.PID = data.GRPC[0], data.command.Process.Pid
	target.Web = func() string { return data.Web[0] }
	target.Restart = func(ctx context.Context) (string, int, time.Time, error) {
		data.stop()
		again, err := serve(ctx)
		if err != nil {
			return "", 0, time.Time{}, err
		}
		data = again
		return data.GRPC[0], data.command.Process.Pid, data.started, nil
	}
	target.Preparers = func(ctx context.Context, n int) (pids []int, stop func(), err error) {
		var preparers []*server
		stop = func() {
			for _, p := range preparers {
				p.stop()
			}
		}
		for range n {
			p, err := start(ctx, "--roles=preparer", "--data="+data.GRPC[0], "--python-env="+o.Python, "--plugin-environment=PYTHONPATH", "--plugin-programs=/")
			if err != nil {
				stop()
				return nil, nil, err
			}
			preparers = append(preparers, p)
			pids = append(pids, p.command.Process.Pid)
		}
		return pids, stop, nil
	}
	target.GitOps = func(ctx context.Context, sources []byte) (int, func(), error) {
		file := filepath.Join(folder, "sources.yaml")
		if err := os.WriteFile(file, sources, 0o600); err != nil {
			return 0, nil, err
		}
		s, err := start(ctx, "--roles=gitops", "--data="+data.GRPC[0], "--gitops-sources="+file, "--gitops-dir="+folder, "--remote-addresses=127.0.0.0/8")
		if err != nil {
			return 0, nil, err
		}
		return s.command.Process.Pid, s.stop, nil
	}
	fresh := 0
	target.Fresh = func(ctx context.Context, allRoles bool) (string, int, func(), error) {
		fresh++
		own := filepath.Join(folder, fmt.Sprintf("fresh-%d", fresh))
		if err := os.Mkdir(own, 0o700); err != nil {
			return "", 0, nil, err
		}
		at, drop := "sqlite:"+filepath.Join(own, "tko.db"), func() {}
		if store == storePostgreSQL {
			var err error
			if at, drop, err = pgtest.Database(ctx); err != nil {
				return "", 0, nil, err
			}
		}
		args := []string{"--store=" + at, "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=", "--target-git-cache=" + own, "--gitops-dir=" + own, "--kpt-cache=" + own}
		if !allRoles {
			args = append(args, "--roles=data")
		}
		s, err := start(ctx, args...)
		if err != nil {
			drop()
			return "", 0, nil, err
		}
		return s.GRPC[0], s.command.Process.Pid, func() { s.stop(); drop() }, nil
	}
	return bench.Run(ctx, target, raw, o.Options, o.report)
}

// A server is a running tko-server.
type server struct {
	GRPC    []string
	Web     []string
	started time.Time
	command *exec.Cmd
	done    chan struct{}
}

// start starts a tko-server and waits until it serves.
func (o *options) start(ctx context.Context, ready string, args ...string) (*server, error) {
	p := &server{done: make(chan struct{}), started: time.Now()}
	//nolint:gosec // the binary that make built
	p.command = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(o.bin, "tko-server"), append(args, "--ready-file="+ready, "--log-level=warn", "--confirm-above=1000000000")...)
	if os.Geteuid() == 0 { // as in containers
		p.command.Args = append(p.command.Args, "--allow-root", "--plugin-users=none")
	}
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C goes to this program only, which stops the server
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("%w: build it with make build", err)
	}
	go func() {
		_ = p.command.Wait()
		close(p.done)
	}()
	for {
		if data, err := os.ReadFile(ready); err == nil && json.Unmarshal(data, p) == nil { //nolint:gosec // our own file
			return p, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("tko-server %s did not start", strings.Join(args, " "))
		case <-ctx.Done():
			p.stop()
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

func (s *server) stop() {
	_ = s.command.Process.Signal(syscall.SIGTERM)
	<-s.done
}
