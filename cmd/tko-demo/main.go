// Command tko-demo demonstrates TKO: it starts a server with a store in a folder,
// registers the example catalog, follows its topologies until every site is
// scheduled, and then continues to serve. With -kubernetes, the sites are two real
// Kubernetes clusters, which it starts and stops.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/cmd/internal/server"
	"github.com/tko-orchestrator/tko/internal/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1) //nolint:gocritic // all deferred calls have run
	}
}

type options struct {
	once    bool
	dir     string
	catalog string
	bin     string
	store   string
	timeout time.Duration

	kubernetes string   // folder of Kubernetes' programs, for the demo with clusters
	arguments  []string // additional arguments of the server
	ca         string   // file of the authority of the server's certificate; it serves plain text if empty
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("tko-demo", flag.ContinueOnError)
	flags.BoolVar(&o.once, "once", false, "stop when everything is scheduled and checked")
	flags.StringVar(&o.dir, "dir", "demo", "folder for the store and the sites' repository")
	flags.StringVar(&o.catalog, "catalog", "", "folder of the catalog (default examples, or examples/kubernetes)")
	flags.StringVar(&o.bin, "bin", "bin", "folder of the binaries")
	flags.StringVar(&o.store, "store", "", "store of the server: a PostgreSQL DSN, or a database on Spanner as for tko-server-spanner (default: an embedded store in the folder)")
	flags.StringVar(&o.kubernetes, "kubernetes", "", "folder of Kubernetes' programs, for the demo with clusters as sites (test/setup/kube.sh prints it)")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "time limit until everything is scheduled")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q: see tko-demo -help for the flags, such as -once", flags.Arg(0))
	}
	if o.catalog == "" && o.kubernetes != "" {
		o.catalog = filepath.Join("examples", "kubernetes")
	}
	o.catalog = cmp.Or(o.catalog, "examples")
	for _, dir := range []*string{&o.dir, &o.catalog, &o.bin} {
		absolute, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = absolute
	}
	if err := os.MkdirAll(o.dir, 0o750); err != nil {
		return err
	}
	if o.kubernetes != "" {
		return runKubernetes(ctx, o)
	}
	o.store = cmp.Or(o.store, "sqlite:"+filepath.Join(o.dir, "tko.db"))
	catalog, err := demo.Load(o.catalog, map[string]string{"BIN": o.bin, "DEMO": o.dir})
	if err != nil {
		return err
	}
	sources, err := catalog.WriteInventory(o.dir)
	if err != nil {
		return err
	}
	o.arguments = append(o.arguments, "--gitops-sources="+sources)
	return perform(ctx, o, demonstration{
		why: "make demo", advice: ". To start over: make clean-demo demo", stopping: "Stopping.",
		work: func(working context.Context, _ *tkoServer, c *client.Client) error {
			began := time.Now()
			progress, err := work(working, o, catalog, c)
			if ctx.Err() != nil {
				return err // Ctrl-C
			}
			report(progress)
			if err == nil {
				say("\nAll sites are scheduled, %s after the start.", since(began))
			}
			return err
		},
		tour: func(s *tkoServer) { tour(o, s) },
	})
}

// A demonstration is what a demo does with its server.
type demonstration struct {
	why      string // of what it writes
	work     func(context.Context, *tkoServer, *client.Client) error
	tour     func(*tkoServer)
	advice   string // after a failure
	stopping string // after Ctrl-C
}

// perform starts a server, does the work within the time limit, and then serves until
// Ctrl-C.
func perform(ctx context.Context, o options, d demonstration) error {
	running, err := start(ctx, o)
	if err != nil && ctx.Err() != nil {
		return nil // Ctrl-C
	}
	if err != nil {
		return err
	}
	defer running.Stop()
	say("server  %s, log in %s", strings.Join(running.GRPC, " and "), running.log)
	c, err := client.Dial(client.Options{Address: running.GRPC[0], TLS: o.tls(), Author: tko.Author{Who: "demo", Why: d.why}})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()

	late := fmt.Errorf("not done after %s", o.timeout)
	working, cancel := context.WithTimeoutCause(ctx, o.timeout, late)
	defer cancel()
	err = d.work(working, running, c)
	switch {
	case ctx.Err() != nil:
		return nil // Ctrl-C
	case err != nil:
		if ended := working.Err() != nil || errors.Is(err, context.DeadlineExceeded); ended && !errors.Is(err, late) { // a call was in progress
			err = fmt.Errorf("%w: %w", late, err)
		}
		return fmt.Errorf("%w\nThe server's log is in %s%s", err, running.log, d.advice)
	case o.once:
		return nil
	}
	d.tour(running)
	select {
	case <-ctx.Done():
		say("\n%s", d.stopping)
		return nil
	case <-running.Done:
		return fmt.Errorf("the server ended: see %s", running.log)
	}
}

// tls returns what secures the connection to the server; nil if nothing does.
func (o options) tls() *client.TLS {
	if o.ca == "" {
		return nil
	}
	return &client.TLS{CA: o.ca}
}

func work(ctx context.Context, o options, catalog *demo.Catalog, c *client.Client) (progress demo.Progress, err error) {
	if err := catalog.Register(ctx, c, indented); err != nil {
		return progress, err
	}
	say("catalog %d templates, %d plugins from %s", len(catalog.Templates), len(catalog.Plugins), o.catalog)
	sites, err := catalog.AwaitSites(ctx, c, func(text string) { indented("waiting: " + text) })
	if err != nil {
		return progress, err
	}
	say("sites   %d from the inventory %s", sites, filepath.Join(o.dir, catalog.Inventory.Sites))
	ids, err := catalog.Create(ctx, c)
	if err != nil {
		return progress, err
	}
	for i, id := range ids {
		say("create  %s from template %s", id, catalog.Topologies[i].Template)
	}
	follow := func(report func(demo.Progress)) error {
		if progress, err = demo.Follow(ctx, c, interval, report); err != nil {
			return err
		}
		return catalog.Check(progress, filepath.Join(o.dir, "sites.git"))
	}
	if err := follow(func(p demo.Progress) {
		indented(p.String())
		for _, problem := range p.Problems {
			indented("waiting: " + problem)
		}
	}); err != nil {
		return progress, err
	}
	say("\nA new version of the SMF: a rollout upgrades its deployments in two waves, of which a metric decides. Then it is undone.")
	metrics, err := demo.ServeMetrics(ctx)
	if err != nil {
		return progress, err
	}
	defer metrics.Close()
	if err := demo.Upgrade(ctx, c, metrics.URL, indented); err != nil {
		return progress, err
	}
	err = follow(func(p demo.Progress) { indented(p.String()) })
	return progress, err
}

func report(p demo.Progress) {
	say("")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "SITE\tREGION\tTIER\tSCHEDULED\tRUNS")
	for _, s := range p.Sites {
		var runs []string
		for _, d := range s.Deployments {
			runs = append(runs, strings.TrimPrefix(string(d.Template), "workload/"))
		}
		if s.Waiting > 0 {
			runs = append(runs, fmt.Sprintf("(%d waiting for approval)", s.Waiting))
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\n", s.ID, s.Metadata["region"], s.Metadata["tier"], s.Scheduled, len(s.Deployments), strings.Join(runs, " "))
	}
	_ = w.Flush()
}

func tour(o options, s *tkoServer) {
	host, port, err := net.SplitHostPort(s.GRPC[0])
	if err != nil {
		return
	}
	command := "bin/tko"
	if port != "50050" {
		command = fmt.Sprintf("TKO_GRPC_ADDRESS=%s TKO_GRPC_PORT=%s bin/tko", host, port)
	}
	say(`
Look around (in another terminal):
  %[1]s site list
  %[1]s site explain north/edge-1             # where its values come from: here, the CSV file
  %[1]s inventory status
  %[1]s deployment list --site-metadata region=north
  %[1]s deployment get ID                      # an ID of the list: the package, as it is now
  git --git-dir %[2]s/sites.git log --stat     # what the sites should run
  curl http://%[3]s/api/deployment/list
Change something:
  echo north/edge-4,site/edge:v1,private,north,,, >> %[2]s/sites.csv  # a new site, within seconds
  %[1]s deployment create workload/nrf:v1 --site north/edge-1 --wait
  %[1]s deployment approve --site-id 'west/**'  # the distributed units there: their sites follow
  %[1]s deployment create topology/cu-tosca:v1 --wait  # topology/cu once more, from TOSCA: prints its ID
  %[1]s status                                  # reports the conflict with what runs, which stays as it is
  %[1]s deployment delete ID                    # that ID: the conflict ends
Serving until Ctrl-C.`, command, o.dir, strings.Join(s.Web[:min(1, len(s.Web))], ""))
}

// interval is that of looks at the progress.
const interval = 200 * time.Millisecond

func indented(text string) { say("        %s", text) }

func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format+"\n", args...) }

// A tkoServer is the server of the demo.
type tkoServer struct {
	*server.Server

	log string // file
}

// plugins returns the folder of the catalog's scripts.
func (o options) plugins() string {
	dir := filepath.Join(o.catalog, "plugins")
	if _, err := os.Stat(dir); err != nil && o.kubernetes != "" {
		return filepath.Join(filepath.Dir(o.catalog), "plugins")
	}
	return dir
}

// start starts the server, at the usual ports if they are free.
func start(ctx context.Context, o options) (*tkoServer, error) {
	s, err := startAt(ctx, o, address(ctx, "50050", o.once), address(ctx, "50051", o.once))
	if err != nil && strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) { // since it was free
		return startAt(ctx, o, anyAddress, anyAddress)
	}
	return s, err
}

func startAt(ctx context.Context, o options, grpc, web string) (*tkoServer, error) {
	inventory := filepath.Join(o.dir, "inventory")
	if err := os.MkdirAll(inventory, 0o750); err != nil { // isolated plugins can write only to folders that exist
		return nil, err
	}
	log, err := os.Create(filepath.Join(o.dir, "server.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	s, err := server.Start(ctx, o.bin, filepath.Join(o.dir, "ready.json"), log, append([]string{
		"--store=" + o.store, "--listen-grpc=" + grpc, "--listen-web=" + web,
		"--target-git-cache=" + filepath.Join(o.dir, "git-cache"), "--target-git-local=" + o.dir, "--tosca-local=" + o.catalog, "--instance-name=demo",
		"--plugin-programs=" + o.bin, "--plugin-programs=" + o.plugins(), "--plugin-files-writable=" + inventory,
		"--remote-addresses=127.0.0.1/32", // of the stand-in for Prometheus
	}, o.arguments...)...)
	if errors.Is(err, server.ErrEnded) {
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%w:\n%s", err, text)
	}
	return &tkoServer{s, log.Name()}, err
}

const anyAddress = "localhost:0"

// address returns host:port with the given port if it is free and anyPort is false,
// else with port 0.
func address(ctx context.Context, port string, anyPort bool) string {
	if anyPort {
		return anyAddress
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		// The port may be that of an outgoing connection, too, to which one can't connect.
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
		if errors.Is(err, syscall.EADDRINUSE) {
			return anyAddress
		}
		if err == nil {
			_ = listener.Close()
		}
	}
	return "localhost:" + port
}
