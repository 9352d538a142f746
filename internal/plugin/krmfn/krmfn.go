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

// A Process is a program to be run: its input goes to stdin.
type Process struct {
	Arguments   []string // the first is the program, looked for on the PATH if it has no slash
	Name        string   // what the program is told that it is called; as it is called if empty
	Environment []string // beside what all plugins get
	Input       []byte
	Timeout     time.Duration
	Memory      int64 // bytes that it may use, with all that it starts; without limit if 0
	Daemons     bool  // whether what it leaves behind goes on
}

// An Output is what a process left. Also that of one that failed may be there.
type Output struct {
	Stdout   []byte
	Stderr   string // its end
	ExitCode int
}

// Options are the settings of an Executor.
type Options struct {
	// Run runs programs, bounded in time, memory and output. An exit code is no
	// error.
	Run func(ctx context.Context, p Process) (Output, error)
	// Self is a program that begins with [Child]; without one, the built-in
	// functions whose config is a program (starlark, apply-replacements) are
	// refused.
	Self      string
	Guard     *guard.Guard  // says where images and modules may come from; from everywhere if nil
	Engine    string        // podman, docker, nerdctl, or a path; the first of them on the PATH if empty
	Memory    int64         // bytes that a function may use; 512 MiB if 0
	CPUs      float64       // that a container may use; 1 if 0
	Fetch     time.Duration // limit of getting an image or module ready; 5 min if 0
	Cache     string        // folder for compiled modules and fetched ones; they are only in memory if empty
	Builtin   bool          // whether images of the public catalog run built in, where they are
	MaxOutput int           // bytes; 64 MiB if 0
	Limits    krm.Limits    // of what functions answer
}

// An Executor runs KRM functions. It is safe for concurrent use.
type Executor struct {
	options Options
	fetches locks // by image or module: what several runs need is fetched once

	mu      sync.Mutex
	images  map[string]bool // known to be there
	modules modules
}

// New makes an Executor.
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
	Target     krm.Identity      // the resource that triggered it, which is in the package
	Package    krm.Package       // left alone
	Timeout    time.Duration
	Log        *slog.Logger // gets the results that are no errors
	Note       func(string) // gets them, too, as a user reads them; may be nil
}

// An Error says why a function failed; it has changed nothing.
type Error struct {
	Message string
	Results bool   // whether the function said so itself, in its results
	Stderr  string // the end of it, if it didn't

	cause error
}

func (e *Error) Error() string { return e.Message }

// Unwrap is what made the function fail, such as the end of a context.
func (e *Error) Unwrap() error { return e.cause }

// Run runs a function on a package and answers what the function made of it.
// The error is an [*Error].
func (e *Executor) Run(ctx context.Context, c Call) (krm.Package, error) {
	config, err := functionConfig(c)
	if err != nil {
		return nil, &Error{Message: err.Error(), cause: err}
	}
	name, builtin := e.builtin(c.Function, config)
	var answer list
	if builtin && !programmed[name] {
		answer, err = runBuiltin(ctx, name, list{items: c.Package.Clone(), config: config})
	} else {
		answer, err = e.protocol(ctx, c, name, list{items: c.Package, config: config})
	}
	var failed *Error
	if err != nil && !errors.As(err, &failed) {
		failed = &Error{Message: err.Error(), cause: err}
	}
	if failed != nil {
		return nil, failed
	}
	if message := refusal(answer.results); message != "" {
		return nil, &Error{Message: message, Results: true}
	}
	logResults(ctx, c.Log, answer.results)
	noteResults(c.Note, answer.results)
	clean(answer.items, c.Package)
	if err := answer.items.Check(); err != nil {
		return nil, &Error{Message: fmt.Sprintf("its output is malformed: items: %s", err), cause: err}
	}
	return answer.items, nil
}

// builtin says whether a function is run built in, and its name there. An image
// whose program needs a module that is not built in is left to the container
// engine.
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
	answer, err := decode(out.Stdout, e.options.Limits)
	if out.ExitCode != 0 {
		if err == nil && refusal(answer.results) != "" {
			return answer, nil // says more than the exit code
		}
		return list{}, &Error{Message: fmt.Sprintf("it ended with exit code %d", out.ExitCode), Stderr: out.Stderr}
	}
	if err != nil {
		return list{}, &Error{Message: err.Error(), Stderr: out.Stderr, cause: err}
	}
	return answer, nil
}

// clean takes off the annotations that the libraries of functions use among
// themselves, unless they were there before.
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

// locks are locks by name.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	turn  chan struct{}
	users int
}

// lock waits for a name's turn, or the end of the context.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	held := l.held[name]
	if held == nil {
		held = &lock{turn: make(chan struct{}, 1)}
		l.held[name] = held
	}
	held.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if held.users--; held.users == 0 {
			delete(l.held, name)
		}
	}
	select {
	case held.turn <- struct{}{}:
		return func() { <-held.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
