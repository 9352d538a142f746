package tkoserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/cmd/internal/wiring"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/child"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/history"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/logging"
	"github.com/tko-orchestrator/tko/internal/manual"
	"github.com/tko-orchestrator/tko/internal/metrics"
	"github.com/tko-orchestrator/tko/internal/notify"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/awx"
	"github.com/tko-orchestrator/tko/internal/plugin/isolate"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/internal/prepare/tosca"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/controller"
	"github.com/tko-orchestrator/tko/internal/rollout/planner"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/osm"
	"github.com/tko-orchestrator/tko/internal/sibling"
	"github.com/tko-orchestrator/tko/internal/spelling"
	"github.com/tko-orchestrator/tko/internal/systemd"
	"github.com/tko-orchestrator/tko/internal/tracing"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/internal/validate/remote"
	"github.com/tko-orchestrator/tko/internal/version"
	"github.com/tko-orchestrator/tko/internal/webapi"
	"github.com/tko-orchestrator/tko/krm"
)

const long = `tko-server serves TKO. By default one process does everything, with its state in a file:

  tko-server --store=sqlite:tko.db

Large installations keep the state in PostgreSQL and run the roles apart, each in as many processes as it needs:

  tko-server --roles=data --store=postgres://tko@db/tko --listen-grpc='*:50050'
  tko-server --roles=preparer --data=tko-data:50050
  tko-server --roles=meta-scheduler --data=tko-data:50050
  tko-server --roles=gitops --data=tko-data:50050 --git=https://git.example.com/fleet.git

kubectl uses the Kubernetes aggregated API, which the role data serves with --kubernetes: see docs/kubernetes-api.md.

Plugins run only programs below --plugin-programs, isolated from the machine as far as it can: see docs/plugins.md.

tko-server backup writes everything in the store to an archive while servers run, tko-server restore fills an empty store from it,
also one of the other kind: see docs/operations.md.

A schema that is missing or of an older version is migrated at the start; a newer one is rejected.

By default the APIs are served to this machine only: over the loopback interface, and over a Unix socket whose clients are known by
their user IDs. Other machines are served with TLS, and only if clients have identities:

  tko-server --listen-grpc='*:50050' --tls-cert=server.crt --tls-key=server.key --tls-client-ca=ca.crt

Instead of certificates, or in addition to them, clients may have tokens: of an OpenID Connect issuer (--oidc-issuer), of a Kubernetes
cluster (--token-review), or static ones (--token-file; make them with tko-server token add). See docs/security.md.

Under systemd, or another service manager with its protocols, the server takes the sockets that it is passed (LISTEN_FDS), named grpc,
unix, web, kubernetes, agents, webhook, log, debug, health or metrics, in place of the addresses in its settings; notifies it when it serves, and its
watchdog; and reads certificates and tokens again at SIGHUP. See docs/install.md.

Every flag can be set by an environment variable, TKO_ and its name in capitals with _ (TKO_STORE), or in a YAML file given
with --config (store: ...). Flags win over the environment, and that over the file.

Exit codes: 0 stopped as asked, 1 failed, 2 wrong settings. With --check: 0 valid, 1 the store can't be used, 2 wrong settings.`

// run is the program: it builds all objects, serves until the context ends, and
// returns the exit code.
func (p Program) run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var log *logging.Log // nil until the settings are loaded
	command, asked := p.settingsCommand()
	c := asked.config
	command.AddCommand(p.keysCommand(stderr)) //nolint:contextcheck // the command carries the context

	command.RunE = func(command *cobra.Command, _ []string) error { //nolint:contextcheck // the command carries the context
		if err := config.Load(command.Flags(), os.LookupEnv, asked.file); err != nil {
			return err
		}
		if asked.check || asked.print {
			return asked.report(command)
		}
		passed, err := systemd.Sockets()
		if err != nil {
			return err
		}
		defer closeAll(passed)
		if err := errors.Join(inherit(c, passed), c.Validate()); err != nil {
			return err
		}
		if os.Geteuid() == 0 && !c.AllowRoot {
			return tko.Errorf(tko.ErrInvalid, "tko-server must not run as root, because a fault would then concern the whole machine: start it as an ordinary user, or give --allow-root")
		}
		if log, err = logging.New(c.Log(stderr)); err != nil {
			return err
		}
		counted := newMetrics(c)
		log.Logger = slog.New(counted.CountLines(log.Handler()))
		logging.Libraries(log.Logger)
		ctx := command.Context()
		for _, warning := range c.Warnings(command.Flags(), os.Environ()) {
			log.WarnContext(ctx, "a setting is probably not as intended", "problem", warning)
		}
		return endWithin(ctx, c.StopTimeout, log.Logger, func() error { return p.serveTraced(ctx, counted, log, started{c, streams{stdout, stderr, passed}}) })
	}
	command.AddCommand(p.accessCommand()) //nolint:contextcheck // the command carries the context
	command.AddCommand(tokenCommand(), agentsCACommand(), manual.Command("8"))
	command.AddCommand(p.backupCommand(), p.restoreCommand(), p.promoteCommand(), p.schemaCommand(), queryCommand()) //nolint:contextcheck // the command carries the context
	command.CompletionOptions.DisableDefaultCmd = true
	command.SetHelpCommand(&cobra.Command{Hidden: true})
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	command.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return tko.Errorf(tko.ErrInvalid, "%w", spelling.Flag(c.Flags(), err))
	})
	err := command.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case log != nil && log.Format != logging.Text: // a plain line would not be JSON
		log.ErrorContext(ctx, "tko-server failed", "err", err)
		if errors.Is(err, tko.ErrInvalid) {
			return 2
		}
		return 1
	case errors.Is(err, tko.ErrInvalid):
		_, _ = fmt.Fprintf(stderr, "%[1]s: %[2]v\nSee %[1]s --help.\n", p.Name, err)
		return 2
	default:
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return 1
	}
}

// retentionOf returns the retention that the settings ask for.
func retentionOf(c *config.Config) (record.Retention, error) {
	retention := record.Retention{Changes: c.KeepChanges, Revisions: c.KeepRevisions}
	policies, err := c.LongerPolicies()
	if err != nil {
		return retention, err
	}
	for _, p := range policies {
		longer, err := history.NewLonger(p.Name, p.Keep, p.Select)
		if err != nil {
			return retention, tko.Errorf(tko.ErrInvalid, "--keep-longer: %w", err)
		}
		retention.Longer = append(retention.Longer, longer)
	}
	return retention, nil
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return tko.Errorf(tko.ErrInvalid, "%q is not a flag: set roles with --roles, and settings with flags", args[0])
	}
	return nil
}

// streams are the process's output.
type streams struct {
	out, err io.Writer
	passed   map[string][]net.Listener // sockets of the service manager
}

func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return host
}

func workerName() string { return fmt.Sprintf("%s/%d", hostname(), os.Getpid()) }

// started are what the program was started with.
type started struct {
	config *config.Config
	out    streams
}

// serveTraced serves, and exports traces if that is configured.
func (p Program) serveTraced(ctx context.Context, counted *metrics.Metrics, log *logging.Log, with started) error {
	traces, err := tracing.New(ctx, tracing.Options{Program: "tko-server", Endpoint: with.config.TracesEndpoint, Sample: with.config.TracesSample})
	if err != nil {
		return err
	}
	err = p.serve(trail.WithTracer(ctx, traces.Tracer()), counted, log, with)
	if closeErr := traces.Close(ctx); closeErr != nil {
		log.WarnContext(ctx, "the last traces are lost", "err", closeErr)
	}
	return err
}

// serve starts the roles and serves until the context ends.
func (p Program) serve(ctx context.Context, counted *metrics.Metrics, root *logging.Log, with started) error {
	c, out := with.config, with.out
	log := root.Logger
	log.InfoContext(ctx, "starting", "version", version.String(), "roles", strings.Join(c.Roles, ","), "pid", os.Getpid())
	allowed, err := wiring.NewGuards(c)
	if err != nil {
		return err
	}
	secure, err := newSecurity(&c.Identity, log.With("component", logging.Security))
	if err != nil {
		return err
	}
	secure.reach = c.Reach
	s := &server{program: p, config: c, log: log, levels: root.Levels, format: root.Format, tracer: trail.TracerOf(ctx), metrics: counted, allowed: allowed, pods: &wiring.Pods{}, clusters: &wiring.Clusters{}, worker: workerName(), out: out, security: secure, passed: out.passed}
	counted.Add(certificateSampler(c, secure))
	if c.KubernetesCert == "" && c.KubernetesKey == "" {
		c.KubernetesCert, c.KubernetesKey = c.Identity.TLSCert, c.Identity.TLSKey
	}
	defer s.close()
	s.logInsecure(ctx)
	if err := s.listen(ctx); err != nil {
		return err
	}
	s.logReachability(ctx)
	runner, err := s.plugins(ctx)
	if err != nil {
		return err
	}
	defer runner.Close()

	// The APIs outlive the controllers, so that these can release their work.
	apis, stopAPIs := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAPIs()
	serving, apis := errgroup.WithContext(apis)
	serving.Go(func() error { return secure.run(apis) })
	if c.Has(config.RoleData) {
		if err := s.data(ctx, apis, serving, runner); err != nil {
			return err
		}
	} else {
		s.prepareKubernetes()
	}
	if err := s.startKubernetes(ctx, apis, serving); err != nil {
		return err
	}
	clients, err := s.connect()
	if err != nil {
		return err
	}
	defer clients.close()
	data := clients.of(identity.RoleServer)

	controllers, working := errgroup.WithContext(ctx)
	if c.Has(config.RoleData) {
		if err := s.events(working, controllers); err != nil {
			return err
		}
		s.logAccess(ctx)
		s.logHolds(ctx)
		if err := s.keepAudit(working, controllers); err != nil {
			return err
		}
		retention, err := retentionOf(c)
		if err != nil {
			return err
		}
		controllers.Go(func() error { return s.service.Retain(working, retention) })
		controllers.Go(func() error { return s.notifier.Run(working, s.service.Told()) })
		controllers.Go(func() error {
			return s.service.ReleaseStops(identity.With(working, identity.Controller(identity.RoleServer)))
		})
		controllers.Go(func() error { return s.day.Run(identity.With(working, identity.Controller(identity.RoleServer))) })
	}
	if inspector := inspectorOf(c, runner); len(inspector.Types) > 0 {
		inspector.Plugins, inspector.Log = data, log.With("component", logging.Plugins)
		controllers.Go(func() error { return inspector.Run(working) })
	}
	if c.Has(config.RolePreparer) {
		policy, _ := c.Reach.Rollout() // checked by Validate
		p := prepare.New(clients.of(identity.RolePreparer), runner, prepare.Options{
			Worker: s.worker, Concurrency: c.PreparerConcurrency, Lease: c.WorkLease, MaxIterations: c.PreparerIterations,
			TOSCA:       tosca.New(tosca.Options{Schemes: c.TOSCASchemes, Guard: allowed.TOSCA}),
			ReachPolicy: policy,
			Backoff:     c.Retry, MaxBackoff: c.RetryMax, ManualApprove: !c.PreparerAutoApprove, Observer: counted, Log: log.With("role", config.RolePreparer, "component", logging.Preparer),
		})
		controllers.Go(func() error { return p.Run(working) })
	}
	if c.Has(config.RoleMetaScheduler) {
		m := schedule.New(clients.of(identity.RoleScheduler), runner, schedule.Options{
			Worker: s.worker, Concurrency: c.SchedulerConcurrency, Gather: c.SchedulerGather, Lease: c.WorkLease, Guard: allowed.Git, GitCache: c.GitCache, GitSecrets: c.GitSecrets, References: wiring.Secrets(c), Leash: allowed.Leash,
			Kubernetes: func(enqueue func(...tko.SiteID)) schedule.Clusters {
				s.clusters.Enqueue(enqueue)
				return s.clusters
			},
			OSM: osm.Options{Secrets: c.OSMSecrets, Interval: c.ClusterInterval}, Interval: c.ClusterInterval,
			Log: log.With("role", config.RoleMetaScheduler, "component", logging.MetaScheduler), Observer: counted, Applied: counted.Applied,
		})
		controllers.Go(func() error { return m.Run(working) })
	}
	if c.Has(config.RoleRollout) {
		if err := s.rollouts(working, controllers, clients.of(identity.RoleRollout)); err != nil {
			return err
		}
	}
	if c.Has(config.RoleGitOps) {
		if err := s.gitOps(working, controllers, clients.of(identity.RoleGitOps)); err != nil {
			return err
		}
	}
	if err := s.ready(); err != nil {
		return err
	}
	for _, l := range s.debug {
		controllers.Go(func() error { return s.serveDebug(working, l) })
	}
	for _, l := range s.health {
		controllers.Go(func() error {
			return serveHealth(working, secure.listener(l, wiring.HTTPProtocol), data, s.kubernetes, s.disks)
		})
	}
	for _, l := range s.scraped {
		controllers.Go(func() error { return s.serveMetrics(working, l) })
	}
	for _, l := range s.logs {
		controllers.Go(func() error { return s.logServer.Serve(working, secure.listener(l)) })
	}
	controllers.Go(func() error { return s.manage(working) })
	controllers.Go(func() error { // an API that fails ends all of them
		select {
		case <-working.Done():
			return nil
		case <-apis.Done():
			return context.Cause(apis)
		}
	})
	err = controllers.Wait()
	log.InfoContext(ctx, "stopping")
	stopAPIs()
	if apiErr := serving.Wait(); apiErr != nil && !errors.Is(apiErr, context.Canceled) {
		err = errors.Join(err, apiErr)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// rollouts runs the role rollout, and accepts the reports of ticket systems for it.
func (s *server) rollouts(ctx context.Context, controllers *errgroup.Group, data *client.Client) error {
	log := s.log.With("role", config.RoleRollout)
	tickets, err := wiring.Tickets(s.config, s.allowed)
	if err != nil {
		return err
	}
	controllers.Go(func() error {
		return controller.Run(ctx, data, controller.Options{
			Worker: s.worker, Lease: s.config.WorkLease, Log: log, Observer: s.metrics, Measure: wiring.Measures(s.config, s.allowed).Measure, Ask: tickets.Do,
		})
	})
	for _, l := range s.tickets {
		server := &http.Server{Handler: tickets.Calls(data.ReportRolloutTicket, log), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
		controllers.Go(func() error { return wiring.ServeHTTP(ctx, server, s.security.listener(l, wiring.HTTPProtocol)) })
	}
	return nil
}

// A server holds the objects that serve builds.
type server struct {
	program  Program
	config   *config.Config
	log      *slog.Logger
	metrics  *metrics.Metrics
	levels   *logging.Levels
	format   string       // of the log
	tracer   trace.Tracer // nil without traces
	allowed  wiring.Guards
	notifier *notify.Notifier
	worker   string                    // shown to users
	passed   map[string][]net.Listener // by the service manager
	out      streams

	kubernetes *sibling.Program // started when it is first needed
	clusters   *wiring.Clusters
	pods       *wiring.Pods

	grpc, web, logs, debug, health, scraped, kube, hooks, tickets, agents []net.Listener
	unix                                                                  []net.Listener // none without a Unix socket
	security                                                              *security
	store                                                                 record.Store // nil without the data controller
	service                                                               *catalog.Service
	inProcess                                                             map[string]*bufconn.Listener // by role; nil without the data controller
	logServer                                                             plugin.LogServer
	isolated                                                              *isolate.Isolation
	runs                                                                  catalog.PluginRuns // of plugins in this process
	day                                                                   *webapi.FleetDay   // nil without the data controller
}

// listen opens the sockets first, so that clients can connect as soon as the
// addresses are known.
func (s *server) listen(ctx context.Context) error {
	open := func(name, address string, to *[]net.Listener) (err error) {
		*to, err = s.sockets(ctx, name, address)
		return err
	}
	if s.config.Has(config.RoleData) {
		if err := errors.Join(open("grpc", s.config.ListenGRPC, &s.grpc), open("web", s.config.ListenWeb, &s.web), open("kubernetes", s.config.Kubernetes, &s.kube), open("agents", s.config.Agents.Listen, &s.agents), s.listenUnix(ctx)); err != nil {
			return err
		}
	}
	logs := open("log", s.config.ListenLog, &s.logs)
	if config.IsInUse(logs) && s.config.ListenLog == config.DefaultListenLog {
		s.log.InfoContext(ctx, "no log server for plugins: another server uses the address", "listen_log", s.config.ListenLog)
		logs = nil
	}
	scraped := open("metrics", s.config.ListenMetrics, &s.scraped)
	if config.IsInUse(scraped) && s.config.ListenMetrics == config.DefaultListenMetrics {
		s.log.InfoContext(ctx, "no metrics: another server uses the address", "listen_metrics", s.config.ListenMetrics)
		scraped = nil
	}
	return errors.Join(logs, scraped, open("debug", s.config.ListenDebug, &s.debug), open("health", s.config.ListenHealth, &s.health), open("webhook", s.config.GitOps.Webhook, &s.hooks), open("tickets", s.config.Tickets.Listen, &s.tickets))
}

// logReachability warns that a server that listens on loopback only can't be reached
// from other machines, or at another address of this machine.
func (s *server) logReachability(ctx context.Context) {
	if len(s.grpc) == 0 || slices.ContainsFunc(s.grpc, func(l net.Listener) bool { return !isLoopback(l.Addr()) }) {
		return
	}
	args := []any{"grpc", addresses(s.grpc)}
	if own := ownAddress(s.config.IPStack); own != "" {
		args = append(args, "not_at", own)
	}
	s.log.InfoContext(ctx, "the gRPC API is served on loopback only: clients that connect to another address of this machine, as the original tko command does by default, "+
		"need --grpc-address=localhost; --listen-grpc=*:50050 serves every address, with TLS and identities (see docs/security.md)", args...)
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// allowedHosts returns the names under which browsers may reach an address: the
// configured ones, the address's and the machine's.
func (s *server) allowedHosts(address string) []string {
	hosts := slices.Clone(s.config.WebHosts)
	if host, _, err := net.SplitHostPort(address); err == nil && host != "" && host != "*" {
		hosts = append(hosts, host)
	}
	if host, err := os.Hostname(); err == nil {
		hosts = append(hosts, host)
	}
	return hosts
}

func addresses(listeners []net.Listener) []string {
	list := []string{}
	for _, l := range listeners {
		list = append(list, l.Addr().String())
	}
	return list
}

// isolation returns the isolation of plugins; nil if this process runs none.
func (s *server) isolation(ctx context.Context) (*isolate.Isolation, error) {
	c := s.config
	programs := isolate.Programs{Folders: c.PluginPrograms}
	if err := programs.CheckFolders(); err != nil {
		return nil, err
	}
	for _, path := range slices.Concat(c.PluginFiles, c.PluginFilesWritable) {
		if _, err := os.Stat(path); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "--plugin-files or --plugin-files-writable: plugins can't use %q: %w: create it, or remove it from the flag", path, err)
		}
	}
	o := isolate.Options{Mode: c.PluginIsolation, Readable: c.PluginFiles, Writable: c.PluginFilesWritable, Log: s.log.With("component", logging.Plugins)}
	switch c.PluginUsers {
	case "none":
	case "auto":
		if os.Geteuid() == 0 {
			o.Users = isolate.Users{First: firstPluginUser, Last: firstPluginUser + 255}
		}
	default:
		var err error
		if o.Users, err = isolate.ParseUsers(c.PluginUsers); err != nil {
			return nil, err
		}
	}
	return isolate.New(ctx, o)
}

// firstPluginUser is in a range of user IDs that systemd's conventions leave
// unused.
const firstPluginUser = 2_000_000_000

// ran counts a run of a plugin, and keeps it for the dashboard.
func (s *server) ran(r plugin.Run) {
	s.metrics.Ran(r.Type, r.Name, r.Result, r.Took)
	run := tko.PluginRun{Plugin: tko.Plugin{Type: r.Type, Name: r.Name}.ID(), ID: r.Entity, Began: r.Began, Took: r.Took, Result: r.Result, Lines: r.Lines, More: r.More}
	switch r.Type {
	case tko.PluginPrepare:
		run.Kind = tko.KindDeployment
	case tko.PluginSchedule:
		run.Kind = tko.KindSite
	}
	if r.Err != nil {
		run.Error = r.Err.Error()
	}
	s.runs.Add(run)
}

func (s *server) plugins(ctx context.Context) (*plugin.Runner, error) {
	var err error
	if s.isolated, err = s.isolation(ctx); err != nil {
		return nil, err
	}
	address := s.config.Data
	if len(s.grpc) > 0 {
		address = s.grpc[0].Addr().String()
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the port of %q is not a number", address)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost" // all interfaces; plugins run on this machine
	}
	self, _ := child.Self() // without it, there are no built-in functions
	o := plugin.Options{
		Programs: s.config.PluginPrograms, Isolation: s.isolated,
		GRPC:            plugin.GRPCAddress{Address: host, Port: port},
		Ran:             s.ran,
		ValidateTimeout: s.config.PluginTimeout, PrepareTimeout: s.config.PluginTimeout, ScheduleTimeout: s.config.PluginScheduleTimeout,
		MaxProcesses: s.config.PluginConcurrency, MaxMemory: s.config.PluginMemory, PythonEnv: s.config.PythonEnv, Environment: s.config.PluginEnvironment, Log: s.log.With("component", logging.Plugins),
		Pods: s.pods, Host: ownAddress(s.config.IPStack),
		AWX: awx.Options{Guard: s.allowed.Remote, Secrets: s.config.AWXSecrets, References: wiring.Secrets(s.config), Leash: s.allowed.Leash},
		Functions: krmfn.Options{
			Guard: s.allowed.Remote, Self: self, Engine: s.config.KptEngine, Memory: s.config.KptMemory, CPUs: s.config.KptCPUs, Fetch: s.config.KptFetchTimeout,
			Cache: functionCache(s.config.KptCache), Builtin: s.config.KptBuiltin,
		},
	}
	if len(s.grpc) > 0 { // otherwise the data controller is another process
		o.Token = s.security.runs.Issue
	}
	if len(s.logs) > 0 {
		s.logServer.Log = o.Log
		o.LogServer, o.LogAddressPort = &s.logServer, s.logs[0].Addr().String()
		if a, ok := s.logs[0].Addr().(*net.TCPAddr); ok && a.IP.IsUnspecified() {
			o.LogAddressPort = net.JoinHostPort("localhost", strconv.Itoa(a.Port))
		}
	}
	return plugin.New(o), nil
}

// ownAddress returns an address of this machine that other machines may reach; "" if
// it has none.
func ownAddress(ipStack string) string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range addresses {
		n, ok := a.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if v4 := n.IP.To4() != nil; v4 && ipStack == "ipv6" || !v4 && ipStack == "ipv4" {
			continue
		}
		return n.IP.String()
	}
	return ""
}

// functionCache returns the folder of cached modules of KRM functions, "" for none.
func functionCache(configured string) string {
	if configured != "" {
		return configured
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "tko", "functions")
}

// inspectorOf returns an inspector of the plugins that a server runs.
func inspectorOf(c *config.Config, runner *plugin.Runner) *plugin.Inspector {
	inspector := &plugin.Inspector{Runner: runner, Host: hostname()}
	for role, typ := range map[string]string{config.RoleData: tko.PluginValidate, config.RolePreparer: tko.PluginPrepare, config.RoleMetaScheduler: tko.PluginSchedule} {
		if c.Has(role) {
			inspector.Types = append(inspector.Types, typ)
		}
	}
	return inspector
}

func (s *server) data(ctx, apis context.Context, serving *errgroup.Group, runner *plugin.Runner) error {
	store, err := s.program.openStore(ctx, s.config, s.log.With("component", logging.Store))
	if err != nil {
		return err
	}
	s.store = store
	s.observe(store)
	if err := encrypt(ctx, store, s.config.EncryptionKey, s.config.Vault); err != nil {
		return err
	}
	validator, err := validate.New(validate.Options{
		SchemaLocations: s.config.SchemaLocations, KubernetesVersion: s.config.KubernetesVersion, Secrets: s.config.SecretsCheck, Fetch: remote.Fetch, Plugins: runner, Log: s.log.With("component", logging.Catalog),
	})
	if err != nil {
		return err
	}
	persons, err := s.config.Access.PersonsBySubject()
	if err != nil {
		return err
	}
	policy, _ := s.config.Reach.Rollout() // checked by Validate
	limits, _ := s.config.Reach.Limits()
	s.notifier = wiring.Notifier(s.config, s.allowed, s.log.With("role", config.RoleData))
	s.metrics.Add(notifySampler(s.notifier))
	s.service = catalog.New(store, validator, catalog.Options{
		Notify:       s.notifier,
		InstanceName: s.config.InstanceName, InstanceDescription: s.config.InstanceDescription, Version: version.String(),
		AddressPorts: func() []string { return addresses(s.grpc) }, Conditions: s.security.conditions, Isolation: s.isolated.Layers,
		DefaultFormat:    krm.Format(s.config.PackageFormat),
		ModificationTime: s.config.ModificationTime, MinBackoff: s.config.Retry, MaxBackoff: s.config.RetryMax,
		ConfirmAbove: wiring.LimitOr(s.config.Reach.Removed), ConfirmPercent: s.config.Reach.RemovedPercent, TopologyDepth: s.config.Reach.Depth,
		Reach: gate.ReachLimits{
			Created: wiring.LimitOr(s.config.Reach.Created), Sites: wiring.LimitOr(s.config.Reach.Sites), Window: s.config.Reach.Window,
			Original: s.config.Reach.Original, OriginalPercent: s.config.Reach.OriginalPercent,
			Policy: policy, Rules: limits,
		},
		WithdrawApproval: s.config.WithdrawApproval, ManualApprove: !s.config.PreparerAutoApprove,
		Access: rights.Mode(s.config.AccessMode()), AccessAnonymous: access.Role(s.config.Access.Anonymous), AccessKubernetes: access.Role(s.config.Access.Kubernetes),
		Persons: persons, Audit: s.config.Access.Audit, BreakGlass: localAdministrators(), CheckSource: gitops.CheckDefinition, Leash: s.allowed.Leash, SourceUses: gitops.CredentialUses, OwnerGroups: s.config.Access.OwnerGroups, CheckFunction: runner.CheckFunction, InspectPlugin: inspectorOf(s.config, runner).Condition,
		Log: s.log.With("role", config.RoleData, "component", logging.Catalog), LogLevels: s.levels, Runs: &s.runs, Refused: s.metrics.Denied,
	})
	s.service.PlanWith(planner.New(planner.OnCatalog(s.service), planner.Options{Runner: runner, ManualApprove: !s.config.PreparerAutoApprove}))
	if err := s.security.authenticate(&s.config.Identity, s.service); err != nil {
		return err
	}
	s.security.refused, s.security.rate = s.service.RecordRefusal, s.config.RequestsPerClient
	api := grpcapi.NewServer(s.service, grpcapi.Options{
		Refused:  s.service.RecordRefusal,
		Observer: s.metrics.API("grpc", grpcapi.LimitNames()...), Callers: s.security.callers, Secure: s.security.grpc(), Impersonate: s.service.MayImpersonate,
		DefaultFormat: krm.Format(s.config.PackageFormat), MaxMessage: s.config.MaxMessage, Stopping: apis.Done(), SlowWatch: s.config.SlowWatch, Log: s.log.With("component", logging.API), Tracer: s.tracer,
		Turns: s.security.turns,
		Limits: grpcapi.Limits{
			Connection: wiring.LimitOr(s.config.StreamsPerConnection), Client: wiring.LimitOr(s.config.StreamsPerClient), Total: wiring.LimitOr(s.config.Streams),
			Rate: wiring.LimitOr(s.config.RequestsPerClient),
		},
	})
	s.inProcess = map[string]*bufconn.Listener{}
	var listeners []net.Listener
	for _, role := range identity.Roles() {
		s.inProcess[role] = bufconn.Listen(1 << 20)
		listeners = append(listeners, grpcapi.ListenProcess(s.inProcess[role], role))
	}
	for _, l := range s.unix {
		listeners = append(listeners, grpcapi.Listen(l))
	}
	s.prepareKubernetes()
	for _, l := range s.grpc {
		listeners = append(listeners, grpcapi.Listen(l))
	}
	for _, l := range listeners {
		serving.Go(func() error { return api.Serve(l) })
	}
	webLog := s.log.With("component", logging.Web)
	handler, err := s.webHandler(webLog, apis.Done())
	if err != nil {
		return err
	}
	web := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ConnContext: withConn, ErrorLog: slog.NewLogLogger(webLog.Handler(), slog.LevelWarn)}
	for _, l := range s.web {
		serving.Go(func() error { return s.security.serveHTTP(context.WithoutCancel(apis), web, l) }) // stopHTTP ends it
	}
	serving.Go(func() error {
		<-apis.Done()
		err := stopHTTP(apis, web)
		stopGRPC(apis, api, s.log)
		return err
	})
	if err := s.serveAgents(apis, serving); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "serving", "grpc", addresses(s.grpc), "web", addresses(s.web), "kubernetes", addresses(s.kube), "store", store.Backend())
	return nil
}

// serveDebug serves Go's profiles until the context ends.
func (s *server) serveDebug(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	debug := &http.Server{Handler: webapi.WithHosts(s.security.identified(s.inspectors(mux), s.log), s.allowedHosts(s.config.ListenDebug)), ReadHeaderTimeout: 10 * time.Second, ConnContext: withConn}
	return s.security.serveHTTP(ctx, debug, l)
}

// inspectors refuses callers without the right to inspect: profiles show what the server
// works on. Without a data controller in this process, every identified caller has it.
func (s *server) inspectors(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.service != nil {
			if err := s.service.Authorize(r.Context(), access.Inspect, ""); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
		}
		handler.ServeHTTP(w, r)
	})
}

// clients are the controllers' clients of the data controller, by role. They use
// its API also within one process, where each role has an identity of its own.
type clients map[string]*client.Client

func (c clients) of(role string) *client.Client { return c[role] }

func (c clients) close() {
	for _, one := range c {
		_ = one.Close()
	}
}

func (s *server) connect() (clients, error) {
	all := clients{}
	for _, role := range identity.Roles() {
		var dial func(context.Context) (net.Conn, error)
		if l := s.inProcess[role]; l != nil {
			dial = l.DialContext
		}
		one, err := wiring.Connect(s.config, role, dial)
		if err != nil {
			all.close()
			return nil, err
		}
		all[role] = one
	}
	return all, nil
}

// ready writes the addresses to the ready file once the server serves.
func (s *server) ready() error {
	if s.config.ReadyFile == "" {
		return nil
	}
	text, err := json.Marshal(map[string][]string{
		"grpc": addresses(s.grpc), "web": addresses(s.web), "kubernetes": addresses(s.kube), "health": addresses(s.health), "metrics": addresses(s.scraped), "webhook": addresses(s.hooks), "tickets": addresses(s.tickets), "agents": addresses(s.agents),
	})
	if err != nil {
		return err
	}
	temporary := s.config.ReadyFile + ".new"
	if err := os.WriteFile(temporary, text, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, s.config.ReadyFile)
}

func (s *server) close() {
	for _, l := range slices.Concat(s.unix, s.grpc, s.web, s.kube, s.logs, s.debug, s.health, s.scraped, s.hooks, s.tickets, s.agents) {
		_ = l.Close()
	}
	if s.store != nil {
		if err := s.store.Close(); err != nil {
			s.log.Error("cannot close the store", "err", err)
		}
	}
}
