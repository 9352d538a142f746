package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/plugin/awx"
	"github.com/tko-orchestrator/tko/internal/plugin/isolate"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/internal/plugin/supervise"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/krm"
)

// GRPCAddress is the address at which a plugin's own client reaches the data
// controller.
type GRPCAddress struct {
	Level2Protocol string // "tcp", "tcp4" or "tcp6"; "tcp" if empty
	Address        string
	Port           int
}

// Options are the settings of a Runner. The zero value works.
type Options struct {
	GRPC            GRPCAddress        // part of every plugin's input
	LogAddressPort  string             // HOST:PORT of LogServer, part of every plugin's input; none if empty
	LogServer       *LogServer         // attributes log lines to runs; may be nil
	Host            string             // name of this machine, which replaces "localhost" in the input of plugins in pods
	ValidateTimeout time.Duration      // 30 s if 0
	PrepareTimeout  time.Duration      // 30 s if 0
	ScheduleTimeout time.Duration      // 300 s if 0
	MaxOutput       int                // bytes that a plugin may write to stdout; 64 MiB if 0
	MaxMemory       int64              // memory limit of a plugin and its child processes, in bytes; no limit if 0
	MaxProcesses    int                // plugins that run concurrently, and also the most idle persistent processes; max(4, 2 × CPUs) if 0
	IdleTime        time.Duration      // idle timeout of a persistent plugin's process; 1 min if 0
	MaxRequests     int                // requests that one process of a persistent plugin serves; 1,000 if 0
	PythonEnv       string             // Python environment of programs that end with ".py"; DefaultPythonEnv() if empty
	Environment     []string           // names of additional variables that plugins inherit from the server
	Programs        []string           // folders of the programs that plugins may run; none if empty
	Isolation       *isolate.Isolation // restricts plugins; they are not restricted if nil
	MaxFile         int64              // limit of the size of a file that a plugin writes, in bytes; 4 GiB if 0
	Dir             string             // parent of the runs' directories; the system's temporary directory if empty
	Limits          krm.Limits         // limits of plugins' output documents
	Pods            Pods               // runs plugins in pods; they fail if nil
	Functions       krmfn.Options      // settings of the kpt executor; New sets Run, MaxOutput and Limits
	AWX             awx.Options        // settings of the ansible executor
	// Token returns the token of a run that is for no work item, and ends it; such plugins
	// get none if it is nil.
	Token func(typ, name string) (token string, end func())
	Log   *slog.Logger // destination of the plugins' log lines; they are discarded if nil
	// Ran is called after each run of a plugin. None if nil.
	Ran func(Run)
}

// A Run is a run of a plugin that has ended.
type Run struct {
	Type, Name string // of the plugin
	Entity     string // the deployment (of a prepare plugin) or site (of a schedule plugin); "" for others
	Began      time.Time
	Took       time.Duration
	Result     string   // ok, refused, killed (because of a limit, or by a signal), canceled or failed
	Err        error    // nil if ok
	Lines      []string // the last ones that it logged
	More       int      // lines before them
}

// A Runner runs plugins. It is safe for concurrent use.
type Runner struct {
	options   Options
	slots     chan struct{}
	pool      pool // of persistent plugins
	functions *krmfn.Executor
	awx       *awx.Executor
	roster    roster // of plugins that awx runs
}

// New returns a Runner. Close ends the processes of persistent plugins.
func New(o Options) *Runner {
	o.GRPC.Level2Protocol = orElse(o.GRPC.Level2Protocol, "tcp")
	o.ValidateTimeout = orElse(o.ValidateTimeout, 30*time.Second)
	o.PrepareTimeout = orElse(o.PrepareTimeout, 30*time.Second)
	o.ScheduleTimeout = orElse(o.ScheduleTimeout, 300*time.Second)
	o.MaxOutput = orElse(o.MaxOutput, 64<<20)
	o.MaxFile = orElse(o.MaxFile, 4<<30)
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
		pool: pool{size: o.MaxProcesses, idle: o.IdleTime, uses: o.MaxRequests},
	}
	o.Functions.Run, o.Functions.MaxOutput, o.Functions.Limits = r.process, o.MaxOutput, o.Limits
	r.functions, r.awx = krmfn.New(o.Functions), awx.New(o.AWX)
	return r
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// DefaultPythonEnv returns the default directory of the Python environment for
// plugins: PYTHON_ENV, else tko-python-env in the home directory if it exists,
// else "".
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

// Validate runs a validate plugin on a package and returns nil if the package
// is valid. The error is an [*Error]: if it is Refused, the plugin found the
// package invalid; otherwise the plugin failed and there is no result. If
// complete is false, the package may lack required resources and fields.
func (r *Runner) Validate(ctx context.Context, p tko.Plugin, target krm.Identity, pkg krm.Package, complete bool) error {
	_, err := r.run(ctx, job{
		plugin: p, target: target, timeout: r.options.ValidateTimeout, log: r.options.Log,
		input: map[string]any{"package": list(pkg), "complete": complete},
	})
	return err
}

// Prepare runs a prepare plugin on a deployment's package. If prepared is true,
// out is the whole new package, to be stored in place of pkg; otherwise the
// plugin must run again later. The plugin itself marks resources as prepared.
// The error is an [*Error]; with an error, prepared is false and out is nil. It wraps a
// [tko.PendingError] if the work continues in another system.
// Each of notes is called with additional messages of the plugin, such as
// warnings.
func (r *Runner) Prepare(ctx context.Context, p tko.Plugin, target krm.Identity, id tko.DeploymentID, pkg krm.Package, notes ...func(string)) (prepared bool, out krm.Package, err error) {
	if p.Executor == tko.ExecutorKpt {
		began := time.Now()
		prepared, out, err = r.function(ctx, p, target, id, pkg, notes)
		r.ran(job{plugin: p, entity: string(id)}, began, nil, err)
		return prepared, out, err
	}
	output, err := r.run(ctx, job{
		plugin: p, target: target, entity: string(id), notes: notes, timeout: r.options.PrepareTimeout, log: r.options.Log.With("deployment", string(id)),
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

// Schedule runs a schedule plugin for a site, of which it needs the ID and the package. The map holds all deployments at
// the site: the plugin removes from the site whatever belongs to none of them.
// The error is an [*Error]. It wraps a [tko.PendingError] if the work continues in
// another system. Each of notes is called with a description of the run, if there is one.
func (r *Runner) Schedule(ctx context.Context, p tko.Plugin, target krm.Identity, site tko.Site, deployments map[tko.DeploymentID]krm.Package, notes ...func(string)) error {
	packages := make(map[string]any, len(deployments))
	for id, pkg := range deployments {
		packages[string(id)] = list(pkg)
	}
	_, err := r.run(ctx, job{
		plugin: p, target: target, entity: string(site.ID), notes: notes, timeout: r.options.ScheduleTimeout, log: r.options.Log.With("site", string(site.ID)),
		input: map[string]any{"siteId": string(site.ID), "sitePackage": list(site.Package), "deployments": packages},
	})
	return err
}

// job is one run of a plugin.
type job struct {
	plugin  tko.Plugin
	target  krm.Identity
	input   map[string]any // keys of the document that depend on the plugin type
	entity  string         // the deployment or site, or ""
	notes   []func(string)
	timeout time.Duration
	log     *slog.Logger

	alone       bool   // without the server's network
	request     string // the ID of the request that the run is for, or ""
	traceparent string // its trace, or ""

	logToken  string // identifies the run to the log server, or ""
	grpcToken string // identifies the run to the data controller as long as its work is claimed, or it runs; "" if it has none
}

// logOf returns the log of a run, whose lines name the request that it is for: they
// are read when the request's context is no longer at hand.
func logOf(ctx context.Context, log *slog.Logger) *slog.Logger {
	if id := trail.Request(ctx); id != "" {
		log = log.With("request_id", id)
	}
	if id := trail.TraceID(ctx); id != "" {
		log = log.With("trace_id", id)
	}
	return log
}

// slot waits until fewer than MaxProcesses plugins run. The caller calls done
// when the plugin has ended.
func (r *Runner) slot(ctx context.Context) (done func(), err error) {
	select {
	case r.slots <- struct{}{}:
		return func() { <-r.slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("it was not run: %w", context.Cause(ctx))
	}
}

// run runs a plugin and returns its output document, which reports no error.
func (r *Runner) run(ctx context.Context, j job) (map[string]any, error) {
	began := time.Now()
	var lines lastLines
	j.log = slog.New(lineKeeper{j.log.Handler(), &lines})
	output, err := r.execute(ctx, j)
	if _, pending := errors.AsType[*tko.PendingError](err); !pending {
		r.ran(j, began, &lines, err)
	}
	return output, err
}

// ran reports a run to Options.Ran.
func (r *Runner) ran(j job, began time.Time, lines *lastLines, err error) {
	if r.options.Ran == nil {
		return
	}
	run := Run{Type: j.plugin.Type, Name: j.plugin.Name, Entity: j.entity, Began: began, Took: time.Since(began), Result: resultOf(err), Err: err}
	if lines != nil {
		run.Lines, run.More = lines.take()
	}
	r.options.Ran(run)
}

func resultOf(err error) string {
	failed, isPlugin := errors.AsType[*Error](err)
	exit, isExit := errors.AsType[*supervise.ExitError](err)
	switch {
	case err == nil:
		return "ok"
	case isPlugin && failed.Refused:
		return "refused"
	case errors.Is(err, errTimeout), isExit && (exit.Limit != "" || exit.Signal != 0):
		return "killed"
	case errors.Is(err, context.Canceled):
		return "canceled"
	default:
		return "failed"
	}
}

// errTimeout is matched by the errors of plugins that did not end in time.
var errTimeout = errors.New("timeout")

// A timeoutError reports that a plugin did not end in time.
type timeoutError struct{ limit time.Duration }

func (e timeoutError) Error() string { return fmt.Sprintf("it did not end within %s", e.limit) }

func (timeoutError) Is(target error) bool { return target == errTimeout }

func (r *Runner) execute(ctx context.Context, j job) (_ map[string]any, err error) {
	ctx, span := trail.Start(ctx, "plugin.run")
	if span.IsRecording() {
		span.SetAttributes(trail.Plugin.String(j.plugin.ID()))
	}
	defer func() { trail.End(span, err) }()
	executor := orElse(j.plugin.Executor, tko.ExecutorCommand)
	switch {
	case executor != tko.ExecutorCommand && executor != tko.ExecutorAnsible:
		return nil, failure(j.plugin, j.target, nil, "the %s executor can't %s", executor, j.plugin.Type)
	case len(j.plugin.Arguments) == 0:
		return nil, failure(j.plugin, j.target, nil, "it has no arguments: the first must be the program")
	}
	execute := r.command
	if executor == tko.ExecutorAnsible {
		if err := j.plugin.Check(); err != nil { // it was registered before a change of the rules
			return nil, failure(j.plugin, j.target, err, "%s", err)
		}
		if _, local := tko.ParsePlaybook(j.plugin.Arguments[0]); !local {
			return r.job(ctx, j)
		}
		execute = r.playbook
	}

	done, err := r.slot(ctx)
	if err != nil {
		return nil, failure(j.plugin, j.target, err, "%s", err)
	}
	defer done()
	j.log = logOf(ctx, j.log)
	j.request, j.traceparent = trail.Request(ctx), trail.Traceparent(ctx)
	if r.options.LogServer != nil && r.options.LogAddressPort != "" {
		token, forget := r.options.LogServer.expect(j.log.With("plugin", j.plugin.ID(), "resource", j.target.String()))
		defer forget()
		j.logToken = token
	}
	if item, ok := tko.ClaimOf(ctx); ok {
		j.grpcToken = identity.NewPluginToken(j.plugin.Type, j.plugin.Name, item)
	} else if r.options.Token != nil {
		token, end := r.options.Token(j.plugin.Type, j.plugin.Name)
		defer end()
		j.grpcToken = token
	}
	switch {
	case executor == tko.ExecutorAnsible:
	case j.plugin.Properties[tko.PropertyPod] != "":
		execute = r.inPod
	case j.plugin.Properties[tko.PropertyPersistent] == "true":
		execute = r.persistent
	}
	data, stderr, err := execute(ctx, j)
	if err != nil {
		e := failure(j.plugin, j.target, err, "%s%s", err, r.remedy(j.plugin, stderr))
		e.Stderr = stderr
		return nil, e
	}
	output, err := decodeOutput(data, r.options.Limits)
	if err != nil {
		e := failure(j.plugin, j.target, err, "%s%s", err, r.remedy(j.plugin, stderr))
		e.Stderr = stderr
		return nil, e
	}
	return output, r.refusal(j, output)
}

var (
	noMemory   = regexp.MustCompile(`\bMemoryError\b|[Cc]annot allocate memory|std::bad_alloc|\bout of memory\b`)
	notEntered = regexp.MustCompile(`bwrap: Can't find source path ([^\n]+): Permission denied`)
)

// remedy returns what users can do about the text of a failed plugin, to be added to the
// message; "" if that is unknown.
func (r *Runner) remedy(p tko.Plugin, text string) string {
	if m := notEntered.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf(" (the user that runs plugins can't enter a folder of %s, such as root's home: install the program, and the Python of --python-env, where all users can read it, such as below /opt or /usr/local)", m[1])
	}
	if limit := r.limits(p).Memory; limit > 0 && noMemory.MatchString(text) && p.Properties[tko.PropertyPod] == "" {
		return fmt.Sprintf(" (it may use %d MiB of memory: raise that with its property %s, or for all plugins with --plugin-memory)", limit>>20, tko.PropertyMemory)
	}
	return ""
}

// refusal returns the error that a plugin's output reports; nil if there is none.
func (r *Runner) refusal(j job, output map[string]any) error {
	message, err := text(output, "error")
	if err != nil {
		return failure(j.plugin, j.target, err, "its output is malformed: %s", err)
	}
	if message == "" {
		return nil
	}
	e := failure(j.plugin, j.target, nil, "%s%s", bounded(message, maxMessage), r.remedy(j.plugin, message))
	e.Refused = true
	return e
}
