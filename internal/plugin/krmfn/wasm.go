package krmfn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/child"
)

const (
	maxModule  = 64 << 20 // bytes of a WebAssembly module
	maxModules = 32       // compiled modules that are cached in memory
	wasmPage   = 64 << 10
	maxStderr  = 2 << 10
)

// modules caches compiled WebAssembly modules. Executor.mu guards it.
type modules struct {
	runtime  wazero.Runtime // nil until the first use
	compiled map[[sha256.Size]byte]*module
	files    map[string]moduleFile
	clock    int64
}

type module struct {
	compiled wazero.CompiledModule
	users    int
	used     int64
}

// A moduleFile records the content of a path, so that an unchanged file is not
// read again.
type moduleFile struct {
	size     int64
	modified time.Time
	digest   [sha256.Size]byte
}

// runWasm runs a function as a WebAssembly module in this process. The module
// has stdin, stdout and stderr, but no files, no network and no environment
// variables, and its clock does not show the real time.
func (e *Executor) runWasm(ctx context.Context, c Call, input []byte) (out Output, err error) {
	compiled, done, err := e.module(ctx, c.Function.Name, c.Properties[tko.FunctionPull])
	if err != nil {
		return Output{}, err
	}
	defer done()

	timed, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("it did not end within %s", c.Timeout))
	defer cancel()
	running, stop := context.WithCancelCause(timed)
	defer stop(nil)
	stdout := child.NewOutput(e.options.MaxOutput, func() {
		stop(fmt.Errorf("it wrote more than %d bytes to stdout", e.options.MaxOutput))
	})
	stderr := &ends{}
	config := wazero.NewModuleConfig().WithName("").WithArgs("function").
		WithStdin(bytes.NewReader(input)).WithStdout(stdout).WithStderr(stderr)
	config = withClock(config)
	instance, err := e.modules.runtime.InstantiateModule(running, compiled, config)
	if instance != nil {
		defer func() { err = errors.Join(err, instance.Close(context.WithoutCancel(ctx))) }()
	}
	out = Output{Stdout: stdout.Bytes(), Stderr: stderr.String()}
	var exit *sys.ExitError
	switch {
	case running.Err() != nil:
		return out, context.Cause(running)
	case errors.As(err, &exit):
		out.ExitCode = int(exit.ExitCode())
	case err != nil:
		return out, fmt.Errorf("it could not be run: %s", short(err.Error()))
	}
	return out, nil
}

// module returns a compiled module, which stays in the cache until the caller
// calls done.
func (e *Executor) module(ctx context.Context, name, pull string) (compiled wazero.CompiledModule, done func(), err error) {
	// Concurrent runs read, fetch and compile a module once.
	unlock, err := e.fetches.lock(ctx, "wasm:"+name)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if err := e.startWasm(ctx); err != nil {
		return nil, nil, fmt.Errorf("WebAssembly can't be run: %w", err)
	}
	if reference, ok := strings.CutPrefix(name, "oci://"); ok {
		path, err := e.fetchModule(ctx, reference, pull)
		if err != nil {
			return nil, nil, err
		}
		name = path
	}
	code, digest, m, err := e.readModule(name)
	if err != nil {
		return nil, nil, err
	}
	if m == nil {
		compiled, err := e.modules.runtime.CompileModule(ctx, code)
		if err != nil {
			return nil, nil, fmt.Errorf("its module can't be compiled: %s", short(err.Error()))
		}
		m = e.cacheModule(ctx, digest, compiled)
	}
	return m.compiled, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		m.users--
	}, nil
}

// startWasm creates the runtime that all modules share.
func (e *Executor) startWasm(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.modules.runtime != nil {
		return nil
	}
	pages := min(max(e.options.Memory/wasmPage, 1), 1<<16)
	config := wazero.NewRuntimeConfig().WithCloseOnContextDone(true).WithMemoryLimitPages(uint32(pages))
	if dir := e.folder("compiled"); dir != "" {
		cache, err := wazero.NewCompilationCacheWithDir(dir)
		if err != nil {
			return err
		}
		config = config.WithCompilationCache(cache)
	}
	ctx = context.WithoutCancel(ctx)
	runtime := wazero.NewRuntimeWithConfig(ctx, config)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, runtime); err != nil {
		return errors.Join(err, runtime.Close(ctx))
	}
	e.modules = modules{runtime: runtime, compiled: map[[sha256.Size]byte]*module{}, files: map[string]moduleFile{}}
	return nil
}

// readModule reads a module's code, or returns it compiled from the cache and
// marks it as used.
func (e *Executor) readModule(path string) (code []byte, digest [sha256.Size]byte, m *module, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, digest, nil, fmt.Errorf("its module can't be read: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, digest, nil, fmt.Errorf("its module %q is not a file", path)
	}
	if m := e.compiledModule(path, info); m != nil {
		return nil, digest, m, nil
	}
	file, err := os.Open(path) //nolint:gosec // registering a plugin allows its module to run
	if err != nil {
		return nil, digest, nil, fmt.Errorf("its module can't be read: %w", err)
	}
	defer func() { _ = file.Close() }()
	code, err = io.ReadAll(io.LimitReader(file, maxModule+1))
	if err != nil {
		return nil, digest, nil, fmt.Errorf("its module can't be read: %w", err)
	}
	if len(code) > maxModule {
		return nil, digest, nil, fmt.Errorf("its module has more than %d bytes", maxModule)
	}
	digest = sha256.Sum256(code)
	e.mu.Lock()
	// A later write within the clock's resolution would not change ModTime.
	if time.Since(info.ModTime()) > time.Minute {
		e.modules.files[path] = moduleFile{size: info.Size(), modified: info.ModTime(), digest: digest}
	}
	e.mu.Unlock()
	return code, digest, e.useModule(digest), nil
}

func (e *Executor) compiledModule(path string, info os.FileInfo) *module {
	e.mu.Lock()
	known, ok := e.modules.files[path]
	e.mu.Unlock()
	if !ok || known.size != info.Size() || !known.modified.Equal(info.ModTime()) {
		return nil
	}
	return e.useModule(known.digest)
}

func (e *Executor) useModule(digest [sha256.Size]byte) *module {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.modules.compiled[digest]
	if m != nil {
		e.modules.clock++
		m.users, m.used = m.users+1, e.modules.clock
	}
	return m
}

// cacheModule adds a compiled module to the cache and marks it as used. If the
// cache is full, it evicts the least recently used module that no run uses.
func (e *Executor) cacheModule(ctx context.Context, digest [sha256.Size]byte, compiled wazero.CompiledModule) *module {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.modules.compiled) >= maxModules {
		var oldest [sha256.Size]byte
		var found *module
		for d, m := range e.modules.compiled {
			if m.users == 0 && (found == nil || m.used < found.used) {
				oldest, found = d, m
			}
		}
		if found != nil {
			delete(e.modules.compiled, oldest)
			_ = found.compiled.Close(ctx)
		}
		clear(e.modules.files)
	}
	e.modules.clock++
	m := &module{compiled: compiled, users: 1, used: e.modules.clock}
	e.modules.compiled[digest] = m
	return m
}

// withClock gives a module a clock that starts in 2000 and advances with each
// reading, so that a function returns the same output every time. Sleep returns
// at once.
func withClock(config wazero.ModuleConfig) wazero.ModuleConfig {
	const begin, tick = 946_684_800, int64(time.Microsecond)
	now := int64(0)
	return config.
		WithWalltime(func() (int64, int32) {
			now += tick
			return begin + now/int64(time.Second), int32(now % int64(time.Second))
		}, sys.ClockResolution(tick)).
		WithNanotime(func() int64 {
			now += tick
			return now
		}, sys.ClockResolution(tick)).
		WithNanosleep(func(d int64) { now += max(d, 0) })
}

// ends is a writer that retains the beginning and the end of what is written to
// it.
type ends struct {
	begin, end []byte
	cut        bool
}

func (e *ends) Write(p []byte) (int, error) {
	n := len(p)
	if room := maxStderr/2 - len(e.begin); room > 0 {
		room = min(room, len(p))
		e.begin = append(e.begin, p[:room]...)
		p = p[room:]
	}
	e.end = append(e.end, p...)
	if extra := len(e.end) - maxStderr/2; extra > 0 {
		e.end = append(e.end[:0], e.end[extra:]...)
		e.cut = true
	}
	return n, nil
}

func (e *ends) String() string {
	between := ""
	if e.cut {
		between = "…"
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(e.begin)+between+string(e.end), "\uFFFD"))
}
