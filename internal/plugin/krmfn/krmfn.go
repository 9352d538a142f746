package krmfn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/krm"
)

// A Process is a program to run.
type Process struct {
	Arguments   []string // the first is the program, looked up on the PATH if it has no slash
	Name        string   // argv[0] of the program; its own name if empty
	Environment []string // in addition to the variables of all plugins
	Input       []byte   // stdin
	Timeout     time.Duration
	Memory      int64 // limit of the program and its child processes, in bytes; no limit if 0
	Own         bool  // whether it is the server's own program or the operator's, which need not be below the folders of plugins' programs
	Daemons     bool  // whether processes in other process groups survive it
}

// An Output is the output of a process. It may be set even if the process
// failed.
type Output struct {
	Stdout   []byte
	Stderr   string // the end of stderr
	ExitCode int
}

// Options are the settings of an Executor.
type Options struct {
	// Run runs programs with limits on time, memory and output. An exit code is
	// not an error.
	Run func(ctx context.Context, p Process) (Output, error)
	// Self is the path of a program that calls [Child]. If it is empty, the
	// built-in functions whose config is a program (starlark, apply-replacements)
	// are refused.
	Self      string
	Guard     *guard.Guard  // the registries that images and modules may come from; all if nil
	Engine    string        // podman, docker, nerdctl, or a path; the first of the three on the PATH if empty
	Memory    int64         // memory limit of a function in bytes; 512 MiB if 0
	CPUs      float64       // CPU limit of a container; 1 if 0
	Fetch     time.Duration // time limit for fetching an image or module; 5 min if 0
	Cache     string        // directory for fetched and compiled modules; compiled ones are only in memory if empty
	Builtin   bool          // whether images of the public catalog run as built-in functions where possible
	MaxOutput int           // limit of stdout in bytes; 64 MiB if 0
	Limits    krm.Limits    // limits of functions' output
}

// An Executor runs KRM functions. It is safe for concurrent use.
type Executor struct {
	options Options
	fetches locks // by image or module: concurrent runs fetch it once

	mu      sync.Mutex
	images  map[string]bool // known to be on this machine
	modules modules
}

// New returns an Executor.
func New(o Options) *Executor {
	if o.Memory == 0 {
		o.Memory = 512 << 20
	}
	if o.CPUs == 0 {
		o.CPUs = 1
	}
	if o.Fetch == 0 {
		o.Fetch = 5 * time.Minute
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = 64 << 20
	}
	return &Executor{options: o, images: map[string]bool{}}
}

// A Call is one run of a function.
type Call struct {
	Function   tko.Function
	Properties map[string]string // of the plugin
	Target     krm.Identity      // the resource that triggered the function, part of Package
	Package    krm.Package       // not modified
	Timeout    time.Duration
	Log        *slog.Logger // receives the results that are no errors; may be nil
	Note       func(string) // receives them as well, as text for users; may be nil
}

// An Error reports why a function failed. The package is unchanged.
type Error struct {
	Message string
	Results bool   // whether Message is from the function's own results
	Stderr  string // the end of stderr, if Results is false

	cause error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause of the failure, such as the cancellation of a
// context.
func (e *Error) Unwrap() error { return e.cause }

// Run runs a function on a package and returns the new package. The error is an
// [*Error].
func (e *Executor) Run(ctx context.Context, c Call) (krm.Package, error) {
	config, err := functionConfig(c)
	if err != nil {
		return nil, &Error{Message: err.Error(), cause: err}
	}
	name, builtin := e.builtin(c.Function, config)
	var response list
	if builtin && !programmed[name] {
		response, err = runBuiltin(ctx, name, list{items: c.Package.Clone(), config: config})
	} else {
		response, err = e.protocol(ctx, c, name, list{items: c.Package, config: config})
	}
	var failed *Error
	if err != nil && !errors.As(err, &failed) {
		failed = &Error{Message: err.Error(), cause: err}
	}
	if failed != nil {
		return nil, failed
	}
	if message := refusal(response.results); message != "" {
		return nil, &Error{Message: message, Results: true}
	}
	logResults(ctx, c.Log, response.results)
	noteResults(c.Note, response.results)
	clean(response.items, c.Package)
	if err := response.items.Check(); err != nil {
		return nil, &Error{Message: fmt.Sprintf("its output is malformed: items: %s", err), cause: err}
	}
	return response.items, nil
}

// builtin returns the name of the built-in function that runs f; ok is false if
// there is none. A starlark image whose program loads a module that is not
// built in runs in the container engine.
func (e *Executor) builtin(f tko.Function, config krm.Resource) (name string, ok bool) {
	switch f.Runtime {
	case tko.FunctionBuiltin:
		return f.Name, true
	case tko.FunctionImage:
		if !e.options.Builtin {
			return "", false
		}
		name, ok := catalogImage(f.Name)
		if ok && name == "starlark" && foreignModule(starlarkSource(config)) != "" {
			return "", false
		}
		return name, ok
	}
	return "", false
}

// protocol runs a function that reads and writes ResourceLists.
func (e *Executor) protocol(ctx context.Context, c Call, builtin string, in list) (list, error) {
	input, err := in.encode()
	if err != nil {
		return list{}, err
	}
	var out Output
	switch {
	case builtin != "":
		out, err = e.runChild(ctx, builtin, input, c.Timeout)
	case c.Function.Runtime == tko.FunctionImage:
		out, err = e.runImage(ctx, c, input)
	case c.Function.Runtime == tko.FunctionWasm:
		out, err = e.runWasm(ctx, c, input)
	default:
		out, err = e.options.Run(ctx, Process{Arguments: []string{c.Function.Name}, Input: input, Timeout: c.Timeout, Memory: e.options.Memory})
	}
	if err != nil {
		return list{}, &Error{Message: err.Error(), Stderr: out.Stderr, cause: err}
	}
	decode := decodeList
	if builtin != "" {
		decode = decodeOwn
	}
	response, err := decode(out.Stdout, e.options.Limits)
	if out.ExitCode != 0 {
		if err == nil && refusal(response.results) != "" {
			return response, nil // the results explain more than the exit code
		}
		return list{}, &Error{Message: fmt.Sprintf("it ended with exit code %d", out.ExitCode), Stderr: out.Stderr}
	}
	if err != nil {
		return list{}, &Error{Message: err.Error(), Stderr: out.Stderr, cause: err}
	}
	return response, nil
}

// clean removes the annotations that function libraries add for each other,
// unless the resource had them before.
func clean(items, before krm.Package) {
	for _, r := range items {
		annotations, ok := r.Get("metadata", "annotations")
		m, isMap := annotations.(map[string]any)
		if !ok || !isMap {
			continue
		}
		for key := range m {
			if !strings.HasPrefix(key, "internal.config.kubernetes.io/") && key != "config.kubernetes.io/index" && key != "config.kubernetes.io/path" {
				continue
			}
			if was := before.Find(r.Identity()); was == nil || was.Annotation(key) == "" {
				r.SetAnnotation(key, "")
			}
		}
	}
}

// locks are mutexes by name.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	token chan struct{} // holds one element while the lock is held
	users int
}

// lock locks a name. It waits until the lock is free or ctx is done.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	held := l.held[name]
	if held == nil {
		held = &lock{token: make(chan struct{}, 1)}
		l.held[name] = held
	}
	held.users++
	l.mu.Unlock()
	release := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		held.users--
		if held.users == 0 {
			delete(l.held, name)
		}
	}
	select {
	case held.token <- struct{}{}:
		return func() { <-held.token; release() }, nil
	case <-ctx.Done():
		release()
		return nil, context.Cause(ctx)
	}
}
