package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/bench"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/krm"
)

const agentsUsage = `Usage: tko-bench agents -ca FILE [flags]

Measures a server with many agents of sites that call home. It runs them in processes of their own, with the code of
tko-agent, each agent with a folder and a bare git repository. It registers and enrolls the sites bench-agents/N, and measures
the server while all are idle, a deployment at every site until all agents have reported it, and with -restart the time until
all agents are connected again after the server was killed and started.

Each agent needs two open files, and a connection at the server one: raise the limits of both (ulimit -n), or use more
-processes. A server that -restart starts ends with the command.

  tko-bench agents -address localhost:50050 -agents localhost:50060 -ca ca.crt -n 2000 -pid $(pidof tko-server)
  tko-bench agents -ca ca.crt -n 20000 -processes 4 -pid $(pidof tko-server) -restart 'tko-server --store=sqlite:tko.db …'

`

// agentsBench is a run of tko-bench agents.
type agentsBench struct {
	address, agents, ca, dir string
	first, n, clients, pid   int
	processes                int
	restart                  string
	child                    bool
	idle                     time.Duration
	wait                     time.Duration

	client *client.Client
	fleet  []*agentsProcess
	report func(format string, args ...any)
}

func agents(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("tko-bench agents", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = io.WriteString(stderr, agentsUsage)
		flags.PrintDefaults()
	}
	b := agentsBench{report: func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format+"\n", args...) }}
	flags.StringVar(&b.address, "address", client.DefaultAddress, "address of the server's gRPC API")
	flags.StringVar(&b.agents, "agents", "localhost:50060", "address of the server for agents")
	flags.StringVar(&b.ca, "ca", "", "file of the authority of the server's certificate")
	flags.StringVar(&b.dir, "dir", "", "folder of the agents (default: a temporary one)")
	flags.IntVar(&b.first, "first", 0, "number of the first site")
	flags.IntVar(&b.n, "n", 1000, "number of agents")
	flags.IntVar(&b.processes, "processes", 1, "number of processes of agents")
	flags.IntVar(&b.clients, "clients", 8, "number of concurrent clients")
	flags.IntVar(&b.pid, "pid", 0, "ID of the server's process on this machine, for memory and processor time, and to be killed by -restart")
	flags.StringVar(&b.restart, "restart", "", "command that starts the server again, after this one has killed it")
	flags.DurationVar(&b.idle, "idle", time.Minute, "duration of the measurement of idle agents")
	flags.DurationVar(&b.wait, "wait", 30*time.Minute, "time limit of each step")
	flags.BoolVar(&b.child, "child", false, "run only the agents, for another process of this command")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return errUsage
	}
	wrong := func(format string, args ...any) error {
		_, _ = fmt.Fprintf(stderr, "tko-bench: "+format+"\n", args...)
		return errUsage
	}
	switch {
	case flags.NArg() > 0 || b.n < 1 || b.clients < 1 || b.first < 0 || b.processes < 1:
		return wrong("use flags only, and numbers above 0\nSee tko-bench agents -h.")
	case b.pid != 0 && bench.Resident(b.pid) == 0:
		return wrong("the process %d can't be read: give the ID of the server's process on this machine, or no -pid", b.pid)
	case b.restart != "" && b.pid == 0:
		return wrong("-restart needs the -pid of the server that it kills")
	}
	if limit := filesLimit(); limit > 0 && b.n/b.processes*2+200 > limit {
		return wrong("%d agents in each of %d processes need %d open files, and the limit is %d: use more -processes, or raise it (ulimit -n)", b.n/b.processes, b.processes, b.n/b.processes*2+200, limit)
	}
	if b.child {
		return b.runChild(ctx, os.Stdin, stdout)
	}
	return b.run(ctx)
}

// filesLimit returns the number of files that a process may have open; 0 if it isn't known.
func filesLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return 0
	}
	return int(limit.Cur)
}

func (b *agentsBench) run(ctx context.Context) (err error) {
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "tko-bench-agents-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	}
	if b.client, err = client.Dial(client.Options{Address: b.address, WaitForReady: true, Author: tko.Author{Who: "tko-bench"}}); err != nil {
		return err
	}
	defer func() { _ = b.client.Close() }()
	before := bench.Resident(b.pid)
	began := time.Now()
	if err := b.each(ctx, b.enroll); err != nil {
		return fmt.Errorf("making tokens: %w", err)
	}
	b.report("registered %d sites and made their tokens in %s", b.n, time.Since(began).Round(time.Second))
	ctx, stop := context.WithCancel(ctx)
	defer func() { err = errors.Join(err, b.endProcesses(stop)) }()
	if err := b.startProcesses(ctx); err != nil {
		return err
	}
	began = time.Now()
	if err := b.until(ctx, "all agents are enrolled", func(p progress) int { return p.enrolled }); err != nil {
		return err
	}
	b.report("agents enrolled in %s", time.Since(began).Round(100*time.Millisecond))
	if err := b.until(ctx, "all agents are connected", func(p progress) int { return p.connected }); err != nil {
		return err
	}
	b.report("agents connected after %s", time.Since(began).Round(100*time.Millisecond))
	if err := b.measureIdle(ctx, before); err != nil {
		return err
	}
	if err := b.measureDeployments(ctx); err != nil {
		return err
	}
	if b.restart != "" {
		return b.measureRestart(ctx)
	}
	return nil
}

// measureDeployments measures a deployment at each site until all agents have reported it.
func (b *agentsBench) measureDeployments(ctx context.Context) error {
	began, used := time.Now(), bench.ProcessorTime(b.pid)
	if err := b.each(ctx, func(ctx context.Context, i int) error {
		_, err := b.client.CreateDeployment(ctx, tko.NewDeployment{Site: b.site(i), Prepared: true, Approved: true, Merge: krm.Package{{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "bench"}, "data": map[string]any{"value": "1"},
		}}})
		return err
	}); err != nil {
		return err
	}
	written := time.Since(began)
	if err := b.reported(ctx); err != nil {
		return err
	}
	cost := "the server's processor time is not known without -pid"
	if b.pid != 0 {
		cost = fmt.Sprintf("%s of the server's processor time", (bench.ProcessorTime(b.pid) - used).Round(10*time.Millisecond))
	}
	b.report("a deployment at each of %d sites: written in %s, reported by all agents in %s, %s", b.n, written.Round(100*time.Millisecond), time.Since(began).Round(100*time.Millisecond), cost)
	return nil
}

// measureRestart kills the server, starts it, and measures until all agents are connected again.
func (b *agentsBench) measureRestart(ctx context.Context) error {
	old := b.pid
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing the server, the process %d: %w", old, err)
	}
	if err := b.poll(ctx, "the killed server has ended", func() (bool, error) { return bench.Resident(old) == 0, nil }); err != nil {
		return err
	}
	for _, p := range b.fleet { // connections from now on are to the new server
		if err := p.mark(); err != nil {
			return err
		}
	}
	if err := b.poll(ctx, "all processes count anew", func() (bool, error) { return b.sum(func(p progress) int { return p.marks }) == len(b.fleet), nil }); err != nil {
		return err
	}
	began := time.Now()
	server := exec.CommandContext(ctx, "sh", "-c", "exec "+b.restart) //nolint:gosec // of the user of this command
	server.Stdout, server.Stderr = os.Stderr, os.Stderr
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	if err := server.Start(); err != nil {
		return fmt.Errorf("-restart: %w", err)
	}
	b.pid = server.Process.Pid
	var ended error
	done := make(chan struct{})
	go func() {
		ended = server.Wait()
		close(done)
	}()
	defer func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		<-done
	}()
	var first, half time.Duration
	err := b.poll(ctx, "all agents are connected again", func() (bool, error) {
		select {
		case <-done:
			return false, fmt.Errorf("-restart: the server has ended: %w", ended)
		default:
		}
		n := b.sum(func(p progress) int { return p.connected })
		if n > 0 && first == 0 {
			first = time.Since(began)
		}
		if n >= b.n/2 && half == 0 {
			half = time.Since(began)
		}
		return n >= b.n, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %d of %d", err, b.sum(func(p progress) int { return p.connected }), b.n)
	}
	b.report("restart: the first agent is connected again after %s, half of them after %s, all after %s; %s of the server's processor time, %d MiB resident",
		first.Round(100*time.Millisecond), half.Round(100*time.Millisecond), time.Since(began).Round(100*time.Millisecond), bench.ProcessorTime(b.pid).Round(10*time.Millisecond), bench.Resident(b.pid)>>20)
	return nil
}

// measureIdle measures the server while nothing happens.
func (b *agentsBench) measureIdle(ctx context.Context, before int) error {
	used, began := bench.ProcessorTime(b.pid), time.Now()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(b.idle):
	}
	if b.pid == 0 {
		return nil
	}
	after := bench.Resident(b.pid)
	b.report("idle: %.1f %% of a processor; %d MiB, %d MiB before, %.1f KiB for an agent", 100*float64(bench.ProcessorTime(b.pid)-used)/float64(time.Since(began)), after>>20, before>>20, float64(after-before)/1024/float64(b.n))
	own := 0
	for _, p := range b.fleet {
		own += bench.Resident(p.cmd.Process.Pid)
	}
	b.report("the processes of the agents: %d MiB, %.1f KiB for an agent", own>>20, float64(own)/1024/float64(b.n))
	return nil
}

func (b *agentsBench) site(i int) tko.SiteID {
	return tko.SiteID(fmt.Sprintf("bench-agents/%06d", b.first+i))
}

func (b *agentsBench) folder(i int) string {
	return filepath.Join(b.dir, fmt.Sprintf("%06d", b.first+i))
}

func (b *agentsBench) each(ctx context.Context, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(b.clients)
	for i := range b.n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// enroll registers a site, and writes the token of its agent.
func (b *agentsBench) enroll(ctx context.Context, i int) error {
	if _, err := b.client.RegisterSite(ctx, tko.Site{ID: b.site(i), Package: krm.Package{{
		"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "site"}, "spec": map[string]any{"agent": map[string]any{}},
	}}}); err != nil {
		return err
	}
	made, err := b.client.Access().EnrollSite(ctx, &tkopb.EnrollSite{SiteId: string(b.site(i)), ValidSeconds: 24 * 3600})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.folder(i), 0o700); err != nil {
		return err
	}
	return os.WriteFile(b.token(i), []byte(made.GetToken()), 0o600)
}

func (b *agentsBench) token(i int) string { return filepath.Join(b.folder(i), "token") }

// until waits until the processes have counted all agents.
func (b *agentsBench) until(ctx context.Context, what string, count func(progress) int) error {
	err := b.poll(ctx, what, func() (bool, error) { return b.sum(count) >= b.n, nil })
	if err != nil {
		return fmt.Errorf("%w: %d of %d", err, b.sum(count), b.n)
	}
	return nil
}

// reported waits until all agents have reported their deployment.
func (b *agentsBench) reported(ctx context.Context) error {
	next := time.Time{}
	return b.poll(ctx, "all agents have reported", func() (bool, error) {
		if time.Now().Before(next) { // the list is work of the server that is measured
			return false, nil
		}
		n, began := 0, time.Now()
		for d, err := range b.client.Deployments(ctx, tko.DeploymentSelect{Sites: []string{"bench-agents/*"}}, tko.ListOptions{}) {
			if err != nil {
				return false, err
			}
			if c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled); d.Site >= b.site(0) && d.Site < b.site(b.n) && c != nil && c.Status == tko.ConditionTrue {
				n++
			}
		}
		next = time.Now().Add(max(2*time.Second, 10*time.Since(began)))
		return n >= b.n, nil
	})
}

func (b *agentsBench) poll(ctx context.Context, what string, done func() (bool, error)) error {
	until := time.Now().Add(b.wait)
	for {
		ok, err := done()
		if err == nil && !ok {
			err = b.failed()
		}
		if err != nil || ok {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("not after %s: %s", b.wait, what)
		}
		if err := pause.For(ctx, 200*time.Millisecond); err != nil {
			return context.Cause(ctx)
		}
	}
}
