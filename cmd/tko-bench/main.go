// Command tko-bench measures TKO on its stores, and raw PostgreSQL beside it in
// the same run. It prints Markdown.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tko-orchestrator/tko/bench"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
)

var errUsage = errors.New("see tko-bench -h")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tko-bench:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be stopped
	}
}

type options struct {
	bench.Options
	stores     string
	placements string
	bin        string
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "fill" {
		return fill(ctx, args[1:], os.Stdout, os.Stderr)
	}
	var o options
	flags := flag.NewFlagSet("tko-bench", flag.ContinueOnError)
	flags.StringVar(&o.stores, "stores", "postgresql,sqlite", "stores to measure")
	flags.IntVar(&o.Clients, "clients", 16, "clients that write and read at once")
	flags.IntVar(&o.Register, "register", 5000, "sites to register one by one")
	flags.IntVar(&o.Create, "create", 10000, "deployments to create one by one")
	flags.IntVar(&o.Deployments, "deployments", 100_000, "deployments in all, for lists")
	flags.StringVar(&o.placements, "placements", "1000,10000", "sites of each placement")
	flags.IntVar(&o.Samples, "samples", 200, "samples of each latency")
	flags.StringVar(&o.bin, "bin", "bin", "folder of the binaries")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	for text := range strings.SplitSeq(o.placements, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-placements %q: give numbers, separated by commas", o.placements)
		}
		o.Placements = append(o.Placements, n)
	}
	tell := func(text string) { fmt.Fprintln(os.Stderr, text) }

	dsn, stop, err := pgtest.Start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	tell("raw PostgreSQL")
	raw, err := bench.MeasureRaw(ctx, dsn, o.Options)
	if err != nil {
		return err
	}
	tell(fmt.Sprintf("  %.0f INSERTs/s, %.0f rows/s", raw.Insert, raw.Stream))

	var tables []bench.Table
	for store := range strings.SplitSeq(o.stores, ",") {
		table, err := o.measure(ctx, store, dsn, raw, tell)
		if err != nil {
			return fmt.Errorf("%s: %w", store, err)
		}
		tables = append(tables, table)
	}
	fmt.Printf("Raw PostgreSQL in the same run: %.0f single-row INSERT transactions/s with %d clients, %.0f rows/s of SELECT.\n\n",
		raw.Insert, o.Clients, raw.Stream)
	return bench.Markdown(os.Stdout, tables)
}

func (o options) measure(ctx context.Context, store, dsn string, raw bench.Raw, tell func(string)) (bench.Table, error) {
	folder, err := os.MkdirTemp("", "tko-bench-")
	if err != nil {
		return bench.Table{}, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	where := dsn
	if store == "sqlite" {
		where = "sqlite:" + filepath.Join(folder, "tko.db")
	}
	data, err := o.start(ctx, folder, "data", "--roles=data", "--store="+where, "--listen-grpc=localhost:0", "--listen-web=")
	if err != nil {
		return bench.Table{}, err
	}
	defer data.stop()
	return bench.Run(ctx, bench.Target{
		Address: data.GRPC[0], PID: data.command.Process.Pid,
		Controllers: func() (func(), error) {
			preparer, err := o.start(ctx, folder, "preparer", "--roles=preparer", "--data="+data.GRPC[0])
			if err != nil {
				return nil, err
			}
			return preparer.stop, nil
		},
	}, raw, o.Options, tell)
}

// A process is a tko-server.
type process struct {
	GRPC    []string
	command *exec.Cmd
	done    chan struct{}
}

func (o options) start(ctx context.Context, folder, name string, args ...string) (*process, error) {
	ready := filepath.Join(folder, name+".json")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	p := &process{done: make(chan struct{})}
	//nolint:gosec // the binary that make built
	p.command = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(o.bin, "tko-server"), append(args, "--ready-file="+ready)...)
	p.command.Stderr = os.Stderr
	p.command.Args = append(p.command.Args, "--log-level=warn")
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
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *process) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	<-p.done
}
