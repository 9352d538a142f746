package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/bench"
	"github.com/tko-orchestrator/tko/cmd/internal/server"
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
	target, where := bench.Target{DSN: dsn, Command: filepath.Join(o.bin, "tko")}, dsn
	if store == storeSQLite {
		target.DSN, target.File = "", filepath.Join(folder, "tko.db")
		where = "sqlite:" + target.File
	}
	starts := 0
	start := func(ctx context.Context, args ...string) (*server.Server, error) {
		starts++
		ready := filepath.Join(folder, fmt.Sprintf("ready-%d.json", starts))
		s, err := server.Start(ctx, o.bin, ready, os.Stderr, append(args, "--log-level=warn")...)
		if err != nil {
			return nil, fmt.Errorf("tko-server %s: %w", strings.Join(args, " "), err)
		}
		return s, nil
	}
	serve := func(ctx context.Context) (*server.Server, error) {
		return start(ctx, "--roles=data", "--store="+where, "--listen-grpc=localhost:0", "--listen-web=localhost:0")
	}
	data, err := serve(ctx)
	if err != nil {
		return bench.Table{}, err
	}
	defer func() { data.Stop() }()
	target.Address, target.PID = data.GRPC[0], data.PID
	target.Web = func() string { return data.Web[0] }
	target.Restart = func(ctx context.Context) (string, int, time.Time, error) {
		data.Stop()
		again, err := serve(ctx)
		if err != nil {
			return "", 0, time.Time{}, err
		}
		data = again
		return data.GRPC[0], data.PID, data.Started, nil
	}
	target.Preparers = func(ctx context.Context, n int) (pids []int, stop func(), err error) {
		var preparers []*server.Server
		stop = func() {
			for _, p := range preparers {
				p.Stop()
			}
		}
		for range n {
			p, err := start(ctx, "--roles=preparer", "--data="+data.GRPC[0], "--python-env="+o.Python, "--plugin-environment=PYTHONPATH", "--plugin-programs=/")
			if err != nil {
				stop()
				return nil, nil, err
			}
			preparers = append(preparers, p)
			pids = append(pids, p.PID)
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
		return s.PID, s.Stop, nil
	}
	fresh := 0
	target.Fresh = func(ctx context.Context, allRoles bool, more ...string) (string, int, func(), error) {
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
		s, err := start(ctx, append(args, more...)...)
		if err != nil {
			drop()
			return "", 0, nil, err
		}
		return s.GRPC[0], s.PID, func() { s.Stop(); drop() }, nil
	}
	return bench.Run(ctx, target, raw, o.Options, o.report)
}
