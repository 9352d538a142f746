package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/internal/plugin/pod"
	"github.com/tko-orchestrator/tko/krm"
)

// GRPCAddress is where a plugin's own client finds the data controller.
type GRPCAddress struct {
	Level2Protocol string // "tcp", "tcp4" or "tcp6"; "tcp" if empty
	Address        string
	Port           int
}

// Options are the settings of a Runner. The zero value works.
type Options struct {
	GRPC            GRPCAddress   // told to every plugin
	LogAddressPort  string        // of LogServer, told to every plugin; none if empty
	LogServer       *LogServer    // tells whose the lines are; may be nil
	Host            string        // of this machine: told to plugins in pods where the others are told "localhost"
	ValidateTimeout time.Duration // 30 s if 0
	PrepareTimeout  time.Duration // 30 s if 0
	ScheduleTimeout time.Duration // 300 s if 0
	MaxOutput       int           // bytes that a plugin may write to stdout; 64 MiB if 0
	MaxMemory       int64         // bytes that a plugin may use, with all that it starts; without limit if 0
	MaxProcesses    int           // plugins that run at the same time; twice the CPUs, at least 4, if 0; as many persistent ones may wait
	IdleTime        time.Duration // for which a process of a persistent plugin waits for its next request; 1 min if 0
	MaxRequests     int           // that one process of a persistent plugin serves; 1,000 if 0
	PythonEnv       string        // for programs that end with ".py"; DefaultPythonEnv() if empty
	Environment     []string      // names of further variables of the server's environment that plugins get
	Dir             string        // where each run has its own directory; the system's for temporary files if empty
	Limits          krm.Limits    // of what plugins answer
	Kubeconfig      string        // of the cluster of plugins that run in pods; see pod.Options
	Functions       krmfn.Options // of the kpt executor; Run, MaxOutput and Limits follow from the others
	Log             *slog.Logger  // gets the plugins' log lines; nowhere if nil
}

// A Runner runs plugins. It is safe for concurrent use.
type Runner struct {
	options   Options
	slots     chan struct{}
	pool      pool // of persistent plugins
	functions *krmfn.Executor
	pods      *pod.Executor
}

// New makes a Runner. Close it, so that processes of persistent plugins end.
func New(o Options) *Runner {
	o.GRPC.Level2Protocol = orElse(o.GRPC.Level2Protocol, "tcp")
	o.ValidateTimeout = orElse(o.ValidateTimeout, 30*time.Second)
	o.PrepareTimeout = orElse(o.PrepareTimeout, 30*time.Second)
	o.ScheduleTimeout = orElse(o.ScheduleTimeout, 300*time.Second)
	o.MaxOutput = orElse(o.MaxOutput, 64<<20)
	o.MaxProcesses = orElse(o.MaxProcesses, max(4, 2*runtime.NumCPU()))
	o.IdleTime = orElse(o.IdleTime, time.Minute)
	o.MaxRequests = orElse(o.MaxRequests, 1000)
	o.Limits.Bytes = orElse(o.Limits.Bytes, o.MaxOutput)
	o.Limits.Resources = orElse(o.Limits.Resources, 100_000)
	if o.PythonEnv == "" {
		o.PythonEnv = DefaultPythonEnv()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{
		options: o, slots: make(chan struct{}, o.MaxProcesses),
		pods: pod.New(pod.Options{Kubeconfig: o.Kubeconfig, MaxOutput: o.MaxOutput}),
		pool: pool{most: o.MaxProcesses, idle: o.IdleTime, uses: o.MaxRequests},
	}
	o.Functions.Run, o.Functions.MaxOutput, o.Functions.Limits = r.process, o.MaxOutput, o.Limits
	r.functions = krmfn.New(o.Functions)
	return r
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// DefaultPythonEnv is the directory of the Python environment that plugins
// run with unless configured otherwise: PYTHON_ENV, else tko-python-env in the
// home directory if it exists, else "".
func DefaultPythonEnv() string {
	if dir := os.Getenv("PYTHON_ENV"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	dir := filepath.Join(home, "tko-python-env")
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// Validate asks a plugin what is wrong with a package, and answers nil if
// nothing is. An [*Error] that is Refused is the plugin's verdict; any other
// says that there is none. A package that isn't complete may lack what is
// required.
func (r *Runner) Validate(ctx context.Context, p tko.Plugin, target krm.Identity, pkg krm.Package, complete bool) error {
	_, err := r.run(ctx, job{
		plugin: p, target: target, timeout: r.options.ValidateTimeout, log: r.options.Log,
		input: map[string]any{"package": list(pkg), "complete": complete},
	})
	return err
}

// Prepare has a plugin prepare a deployment's package. If prepared, out is the
// whole package that the plugin made of it, to be stored in the place of pkg;
// else the plugin wants to be asked again later. The plugin marks resources
// as prepared itself. Neither is the case if there is an error, which is an
// [*Error]. What the plugin has to say beside, such as warnings, notes are told.
func (r *Runner) Prepare(ctx context.Context, p tko.Plugin, target krm.Identity, id tko.DeploymentID, pkg krm.Package, notes ...func(string)) (prepared bool, out krm.Package, err error) {
	if p.Executor == tko.ExecutorKpt {
		return r.function(ctx, p, target, id, pkg, notes)
	}
	output, err := r.run(ctx, job{
		plugin: p, target: target, timeout: r.options.PrepareTimeout, log: r.options.Log.With("deployment", string(id)),
		input: map[string]any{"deploymentId": string(id), "deploymentPackage": list(pkg)},
	})
	if err != nil {
		return false, nil, err
	}
	prepared, out, err = readPrepared(output, r.options.Limits.Resources)
	if err != nil {
		return false, nil, failure(p, target, err, "its output is malformed: %s", err)
	}
	return prepared, out, nil
}

// Schedule has a plugin schedule deployments at a site. All of the site's are
// in the map: what isn't there any more is to go from the site. The error is
// an [*Error].
func (r *Runner) Schedule(ctx context.Context, p tko.Plugin, target krm.Identity, site tko.SiteID, sitePackage krm.Package, deployments map[tko.DeploymentID]krm.Package) error {
	packages := make(map[string]any, len(deployments))
	for id, pkg := range deployments {
		packages[string(id)] = list(pkg)
	}
	_, err := r.run(ctx, job{
		plugin: p, target: target, timeout: r.options.ScheduleTimeout, log: r.options.Log.With("site", string(site)),
		input: map[string]any{"siteId": string(site), "sitePackage": list(sitePackage), "deployments": packages},
	})
	return err
}

// job is one run of a plugin.
type job struct {
	plugin  tko.Plugin
	target  krm.Identity
	input   map[string]any // what is particular to the type
	timeout time.Duration
	log     *slog.Logger

	logToken string // names the run to the log server, or ""
}

// slot waits for the plugin's turn.
func (r *Runner) slot(ctx context.Context) (done func(), err error) {
	select {
	case r.slots <- struct{}{}:
		return func() { <-r.slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("it was not run: %w", context.Cause(ctx))
	}
}

// run runs a plugin and answers its output, in which there is no error.
func (r *Runner) run(ctx context.Context, j job) (map[string]any, error) {
	switch executor := orElse(j.plugin.Executor, tko.ExecutorCommand); {
	case executor != tko.ExecutorCommand:
		return nil, failure(j.plugin, j.target, nil,
			"the %s executor is not built into this server yet: use the command executor", executor)
	case len(j.plugin.Arguments) == 0:
		return nil, failure(j.plugin, j.target, nil, "it has no arguments: the first must be the program")
	}

	done, err := r.slot(ctx)
	if err != nil {
		return nil, failure(j.plugin, j.target, err, "%s", err)
	}
	defer done()
	if r.options.LogServer != nil && r.options.LogAddressPort != "" {
		token, forget := r.options.LogServer.expect(j.log.With("plugin", j.plugin.ID(), "resource", j.target.String()))
		defer forget()
		j.logToken = token
	}
	execute := r.command
	switch {
	case j.plugin.Properties[tko.PropertyPod] != "":
		execute = r.inPod
	case j.plugin.Properties[tko.PropertyPersistent] == "true":
		execute = r.persistent
	}
	data, stderr, err := execute(ctx, j)
	if err != nil {
		e := failure(j.plugin, j.target, err, "%s", err)
		e.Stderr = stderr
		return nil, e
	}
	output, err := decodeOutput(data, r.options.Limits)
	if err != nil {
		e := failure(j.plugin, j.target, err, "%s", err)
		e.Stderr = stderr
		return nil, e
	}
	message, err := text(output, "error")
	if err != nil {
		return nil, failure(j.plugin, j.target, err, "its output is malformed: %s", err)
	}
	if message != "" {
		e := failure(j.plugin, j.target, nil, "%s", bounded(message, maxMessage))
		e.Refused = true
		return nil, e
	}
	return output, nil
}
