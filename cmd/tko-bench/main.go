// Command tko-bench measures TKO on its stores, or any server of tko.Data, and in the
// same run raw PostgreSQL for comparison. It prints Markdown or JSON.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tko-orchestrator/tko/bench"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return 2
	default:
		fmt.Fprintln(os.Stderr, "tko-bench:", err)
		return 1
	}
}

// errUsage reports invalid flags. The message is already on standard error.
var errUsage = errors.New("see tko-bench -h")

const usage = `Usage: tko-bench [flags]
       tko-bench fill [flags]
       tko-bench agents [flags]

Measures TKO through its API, tko.Data, and raw PostgreSQL in the same run: compare their ratios between machines, not the
seconds. Prints a table on the standard output, and its progress on the standard error.

Without -address it starts the servers that it measures: for each of -stores a tko-server with an empty database, which it
fills with a fleet of -deployments (see tko-bench fill -h), and preparers when it needs them. PostgreSQL must be installed, or
TKO_TEST_POSTGRES be the DSN of a user who may create databases.

  tko-bench -deployments 1000000 -stores postgresql
  tko-bench -deployments 100000 -rows 'first row|get'

With -address it measures a running server. It fills that server, too, and writes to it: don't use a server in production. Rows that
need a method that the server doesn't have are reported as not measured. With -web it also measures the dashboard's HTTP API, with -dsn and -pid
the server's database and process.

  tko-bench -address localhost:50050 -web localhost:50051 -dsn postgres://tko@localhost/tko -pid 4711

Exit codes: 0 measured; 1 failed, also if only some rows failed; 2 wrong flags.

`

type options struct {
	bench.Options
	stores  string
	bin     string
	address string
	web     string
	dsn     string
	pid     int
	json    bool

	report func(string)
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{report: func(text string) { _, _ = fmt.Fprintln(stderr, text) }}
	var placements, rows string
	flags := flag.NewFlagSet("tko-bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = io.WriteString(stderr, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.address, "address", "", "address of the gRPC API of a server to measure")
	flags.StringVar(&o.web, "web", "", "with -address: address of the server's HTTP API, for the rows of the dashboard")
	flags.StringVar(&o.dsn, "dsn", "", "with -address: DSN of the server's PostgreSQL, for raw numbers, transactions and disk")
	flags.IntVar(&o.pid, "pid", 0, "with -address: ID of the server's process on this machine, for memory and processor time")
	flags.StringVar(&o.stores, "stores", "postgresql,sqlite", "without -address: the stores to measure")
	flags.StringVar(&o.bin, "bin", "bin", "folder with tko-server, which is used without -address, with tko and tko-kubernetes")
	flags.IntVar(&o.Deployments, "deployments", 100_000, "number of deployments of the fleet")
	flags.IntVar(&o.Sites, "sites", 0, "number of sites of the fleet (default: one for 50 deployments)")
	flags.Uint64Var(&o.Seed, "seed", 1, "random seed of the fleet")
	flags.IntVar(&o.Clients, "clients", 16, "number of concurrent clients")
	flags.IntVar(&o.Register, "register", 5000, "number of sites to register one by one")
	flags.IntVar(&o.Create, "create", 10_000, "number of deployments to create one by one")
	flags.StringVar(&placements, "placements", "10000", "numbers of sites of the placements, separated by commas")
	flags.IntVar(&o.Samples, "samples", 200, "number of samples of each latency; slow operations have fewer")
	flags.IntVar(&o.Watchers, "watchers", 1000, "number of watchers of the change feed")
	flags.IntVar(&o.Missed, "missed", 1_000_000, "number of changes that a resumed watch reads; all changes if there are fewer")
	flags.IntVar(&o.Dependents, "dependents", 100_000, "number of deployments of the template that is deleted")
	flags.IntVar(&o.Prepared, "prepared", 1000, "number of deployments that a plugin prepares")
	flags.IntVar(&o.Planned, "planned", 20_000, "number of deployments of a rollout that is planned")
	flags.IntVar(&o.Backlog, "backlog", 6000, "number of deployments that preparers prepare without plugins")
	flags.IntVar(&o.Inventory, "inventory", 20_000, "number of sites of the inventory")
	flags.IntVar(&o.Applied, "applied", 20_000, "number of sites whose manifests tko apply applies")
	flags.IntVar(&o.Catalog, "catalog", 1000, "number of packages of the catalog, which has 50 versions of each")
	flags.IntVar(&o.Statuses, "statuses", 500, "number of sites whose status Flux reports")
	flags.IntVar(&o.Network, "network", 2000, "number of sites of a network that is placed, prepared and delivered to git as a whole")
	flags.IntVar(&o.NetworkTemplates, "network-templates", 50, "number of deployments at each of these sites")
	flags.IntVar(&o.StreamSites, "stream-sites", 90_000, "number of sites of a list")
	flags.IntVar(&o.StreamDeployments, "stream-deployments", 20_000, "number of deployments of a list; those of the fleet if there are fewer")
	flags.StringVar(&o.Python, "python", "", "without -address: Python environment of plugins in Python, with the SDK in it or in PYTHONPATH")
	flags.DurationVar(&o.Idle, "idle", 20*time.Second, "duration of the measurement of the idle system")
	flags.DurationVar(&o.PreparerWait, "patience", 20*time.Second, "with -address: time limit for a preparer to start working") // plain-words: ok, the name of a flag
	flags.StringVar(&rows, "rows", "", "regular expression of the rows to measure (default: all)")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, errUsage
	}
	if err := o.check(flags, placements, rows); err != nil {
		_, _ = fmt.Fprintf(stderr, "tko-bench: %v\nSee tko-bench -h.\n", err)
		return nil, errUsage
	}
	return o, nil
}

func (o *options) check(flags *flag.FlagSet, placements, rows string) (err error) {
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	for text := range strings.SplitSeq(placements, ",") {
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-placements %q: give numbers from 1 up, separated by commas", placements)
		}
		o.Placements = append(o.Placements, n)
	}
	flags.VisitAll(func(f *flag.Flag) {
		if get, ok := f.Value.(flag.Getter); ok && f.Value.String() != f.DefValue {
			if n, ok := get.Get().(int); ok && n < 1 {
				err = errors.Join(err, fmt.Errorf("-%s %d: give a number from 1 up", f.Name, n))
			}
		}
	})
	if err != nil {
		return err
	}
	if o.Sites < 1 {
		o.Sites = max(1, o.Deployments/50)
	}
	if o.address == "" && (o.web != "" || o.dsn != "" || o.pid != 0) {
		return errors.New("-web, -dsn and -pid describe the server at -address: set -address, too")
	}
	if rows != "" {
		if o.Rows, err = regexp.Compile(rows); err != nil {
			return fmt.Errorf("-rows: %w", err)
		}
	}
	for store := range strings.SplitSeq(o.stores, ",") {
		if !slices.Contains([]string{storePostgreSQL, storeSQLite}, store) {
			return fmt.Errorf("-stores %q: there are %s and %s", o.stores, storePostgreSQL, storeSQLite)
		}
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "agents" {
		return agents(ctx, args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "fill" {
		return fill(ctx, args[1:], stdout, stderr)
	}
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	raw, tables, failed := o.measure(ctx)
	if len(tables) == 0 {
		return failed
	}
	if o.json {
		return errors.Join(failed, bench.JSON(stdout, raw, tables))
	}
	if _, err := fmt.Fprintf(stdout, "%s\n\n", raw); err != nil {
		return err
	}
	return errors.Join(failed, bench.Markdown(stdout, tables))
}

// measure returns the rates of raw PostgreSQL, a table for each server, and the
// errors.
func (o *options) measure(ctx context.Context) (rates bench.RawRates, tables []bench.Table, failed error) {
	dsn := o.dsn
	if o.address == "" {
		var stop func()
		var err error
		if dsn, stop, err = pgtest.Start(ctx); err != nil {
			return rates, nil, err
		}
		defer stop()
	}
	var raw *bench.Raw
	if dsn != "" {
		var err error
		if raw, err = bench.OpenRaw(ctx, dsn, o.Options); err != nil {
			return rates, nil, fmt.Errorf("raw PostgreSQL: %w", err)
		}
		defer func() { failed = errors.Join(failed, raw.Close(context.WithoutCancel(ctx))) }()
	}
	if o.address != "" {
		target := bench.Target{Address: o.address, PID: o.pid, DSN: o.dsn, Command: filepath.Join(o.bin, "tko")}
		if o.web != "" {
			target.Web = func() string { return o.web }
		}
		table, err := bench.Run(ctx, target, raw, o.Options, o.report)
		return raw.Rates(), appendIfAny(tables, table), err
	}
	for store := range strings.SplitSeq(o.stores, ",") {
		table, err := o.own(ctx, store, dsn, raw)
		tables = appendIfAny(tables, table)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", store, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return raw.Rates(), tables, failed
}

func appendIfAny(tables []bench.Table, t bench.Table) []bench.Table {
	if len(t.Rows) == 0 {
		return tables
	}
	return append(tables, t)
}
