package sibling

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/child"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/version"
)

// Options are the settings of a Program.
type Options struct {
	Name     string                 // of the program's file, such as tko-kubernetes
	Purpose  string                 // what the program is needed for, for errors
	Settings any                    // what the program gets, as JSON
	Files    map[string]Files       // open files that the program inherits, such as listeners
	Methods  Endpoint               // that the program may call
	Connect  func(net.Conn)         // serves the program's connection to the data controller; it has none if nil
	Stdout   io.Writer              // of the program
	Stderr   io.Writer              // of the program
	Log      *slog.Logger           // discarded if nil
	Pause    time.Duration          // before the first attempt to start it again; it doubles up to a minute. 1 s if 0
	Stop     time.Duration          // limit of stopping, after which the program is killed; 10 s if 0
	Command  func() (string, error) // finds the program; next to this one or on the PATH if nil
	Required bool                   // Run fails if the program can't start the first time, unless it is killed
}

// Files are open files with the same purpose.
type Files []interface{ File() (*os.File, error) }

const (
	maxPause   = time.Minute
	startLimit = 2 * time.Minute
	goodRun    = time.Minute // after which the pause is short again
)

// A Program is a sibling program. It may be used by many goroutines.
type Program struct {
	options Options
	needed  chan struct{} // closed when the program is first needed
	need    sync.Once
	ended   chan struct{} // closed when Run returns

	mu      sync.Mutex
	peer    *Peer         // nil while the program does not serve
	problem error         // why it doesn't; nil before the first attempt
	changed chan struct{} // closed when peer or problem changes
	pid     int
	served  bool // at least once
}

// New returns a program, which [Program.Run] starts when it is first needed.
func New(o Options) *Program {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Pause == 0 {
		o.Pause = time.Second
	}
	if o.Stop == 0 {
		o.Stop = 10 * time.Second
	}
	if o.Command == nil {
		o.Command = func() (string, error) { return find(o.Name, o.Purpose) }
	}
	return &Program{options: o, needed: make(chan struct{}), ended: make(chan struct{}), changed: make(chan struct{})}
}

// find returns the path of a program: next to this one, or on the PATH.
func find(name, purpose string) (string, error) {
	path, err := child.Find(name)
	if err != nil {
		return "", tko.Errorf(tko.ErrUnavailable, "the program %s is neither next to %s nor on the PATH: install it there, from the same release; it is needed for %s", name, own(), purpose)
	}
	return path, nil
}

// own returns the path of this program, for errors.
func own() string {
	path, err := os.Executable()
	if err != nil {
		return "this program"
	}
	return path
}

// Peer returns the program, to call it. If the program isn't started, it starts the
// program and waits until it serves. While the program does not serve, the error
// says why; the same call may succeed later.
func (p *Program) Peer(ctx context.Context) (*Peer, error) {
	p.need.Do(func() { close(p.needed) })
	for {
		p.mu.Lock()
		peer, problem, changed := p.peer, p.problem, p.changed
		p.mu.Unlock()
		switch {
		case peer != nil:
			return peer, nil
		case problem != nil:
			return nil, problem
		}
		select {
		case <-changed:
		case <-p.ended:
			return nil, tko.Errorf(tko.ErrUnavailable, "%s is not running: the server is stopping", p.options.Name)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Running returns the program, to call it, if it serves; else nil. It doesn't start
// the program.
func (p *Program) Running() *Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peer
}

// Problem returns why a program that is needed doesn't serve; nil if it serves or
// isn't needed.
func (p *Program) Problem() error {
	select {
	case <-p.needed:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peer == nil && p.problem == nil {
		return tko.Errorf(tko.ErrUnavailable, "%s is starting", p.options.Name)
	}
	return p.problem
}

// Required returns whether Run fails if the program can't start the first time.
func (p *Program) Required() bool { return p.options.Required }

// PID returns the process ID of the running program; 0 if it does not run.
func (p *Program) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

func (p *Program) set(peer *Peer, problem error, pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peer, p.problem, p.pid = peer, problem, pid
	p.served = p.served || peer != nil
	close(p.changed)
	p.changed = make(chan struct{})
}

// Run starts the program when it is needed, and again whenever it ends, until the
// context ends. Then it stops the program.
func (p *Program) Run(ctx context.Context) error {
	defer close(p.ended)
	select {
	case <-p.needed:
	case <-ctx.Done():
		return nil
	}
	wait := p.options.Pause
	for {
		began := time.Now()
		err := p.run(ctx)
		if ctx.Err() != nil {
			p.set(nil, nil, 0)
			return nil
		}
		if time.Since(began) > goodRun {
			wait = p.options.Pause
		}
		p.mu.Lock()
		served := p.served
		p.mu.Unlock()
		if p.options.Required && !served && !killed(err) {
			p.set(nil, err, 0)
			return err
		}
		problem := fmt.Errorf("%s is not running, and is started again within %s: %w", p.options.Name, wait, err)
		p.set(nil, problem, 0)
		p.options.Log.ErrorContext(ctx, "a program of this server does not run; starting it again", "program", p.options.Name, "after", wait, "err", err)
		if pause.For(ctx, wait) != nil {
			return nil
		}
		wait = min(2*wait, maxPause)
	}
}

// killed returns whether a program ended because it was killed, such as for lack of
// memory: another start may succeed.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// hello is what a program reports once it serves, or can't.
type hello struct {
	Error *Failure
}

// start is the first line of a program's input.
type start struct {
	Version  string
	Files    []string // the names of the inherited files, from the first on
	Settings json.RawMessage
}

// The first inherited files; 0 to 2 are the standard streams.
const (
	fileReport = "report" // a pipe for hello
	fileServe  = "serve"  // a socket for the server's calls of the program
	fileCall   = "call"   // a socket for the program's calls of the server
	fileData   = "data"   // a socket to the data controller
)

// run runs the program once.
func (p *Program) run(ctx context.Context) error {
	path, err := p.options.Command()
	if err != nil {
		return err
	}
	r, err := p.prepare(path)
	defer r.close()
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	ended, err := r.begin()
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	p.set(nil, nil, r.command.Process.Pid)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var servers sync.WaitGroup
	defer servers.Wait()
	defer stop()
	defer r.close()
	servers.Go(func() { _ = p.options.Methods.Serve(serving, p.options.Name, r.calls) })
	if p.options.Connect != nil {
		servers.Go(func() { p.options.Connect(r.data) })
	}
	peer, err := NewPeer(p.options.Name, r.serve)
	if err != nil {
		return p.end(r, ended, err)
	}
	defer peer.Close()
	said := make(chan error, 1)
	servers.Go(func() { said <- r.hello() })
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case err := <-said:
		if err != nil {
			return p.end(r, ended, err)
		}
	case <-limit.C:
		return p.end(r, ended, fmt.Errorf("it did not start within %s", startLimit))
	case <-ctx.Done():
		return p.end(r, ended, ctx.Err())
	}
	p.options.Log.InfoContext(ctx, "started a program of this server", "program", p.options.Name, "path", path, "pid", r.command.Process.Pid)
	p.set(peer, nil, r.command.Process.Pid)
	select {
	case err := <-ended:
		if err == nil {
			err = errors.New("it ended")
		}
		return err
	case <-ctx.Done():
		return p.end(r, ended, ctx.Err())
	}
}

// end stops the program and returns the reason.
func (p *Program) end(r *running, ended <-chan error, reason error) error {
	_ = r.input.Close() // asks it to stop
	limit := time.NewTimer(p.options.Stop)
	defer limit.Stop()
	select {
	case err := <-ended:
		if errors.Is(reason, io.EOF) && err != nil { // it ended before it served
			return fmt.Errorf("it ended: %w", err)
		}
	case <-limit.C:
		_ = r.command.Process.Kill()
		if err := <-ended; err != nil {
			p.options.Log.Warn("a program of this server did not stop in time, and was killed", "program", p.options.Name, "after", p.options.Stop, "err", err)
		}
	}
	return reason
}

// running are the process and the connections of one run.
type running struct {
	command            *exec.Cmd
	input              io.WriteCloser
	report             *os.File
	serve, calls, data net.Conn
	theirs             []*os.File // the program's ends
	start              []byte
}

func (r *running) close() {
	for _, f := range r.theirs {
		_ = f.Close()
	}
	for _, c := range []net.Conn{r.serve, r.calls, r.data} {
		if c != nil {
			_ = c.Close()
		}
	}
	if r.report != nil {
		_ = r.report.Close()
	}
	if r.input != nil {
		_ = r.input.Close()
	}
}

// prepare opens all that the program inherits. Close the result also after an error.
func (p *Program) prepare(path string) (r *running, err error) {
	r = &running{}
	names := []string{fileReport, fileServe, fileCall}
	report, write, err := os.Pipe()
	if err != nil {
		return r, err
	}
	r.report, r.theirs = report, append(r.theirs, write)
	sockets := []*net.Conn{&r.serve, &r.calls}
	if p.options.Connect != nil {
		names, sockets = append(names, fileData), append(sockets, &r.data)
	}
	for _, own := range sockets {
		conn, their, err := socketPair()
		if err != nil {
			return r, err
		}
		*own, r.theirs = conn, append(r.theirs, their)
	}
	for name, files := range p.options.Files {
		for _, one := range files {
			f, err := one.File()
			if err != nil {
				return r, err
			}
			names, r.theirs = append(names, name), append(r.theirs, f)
		}
	}
	settings, err := json.Marshal(p.options.Settings)
	if err != nil {
		return r, err
	}
	if r.start, err = json.Marshal(start{Version: version.String(), Files: names, Settings: settings}); err != nil {
		return r, err
	}
	r.command = exec.Command(path) //nolint:noctx // it is installed with this program, and stopped in order
	r.command.Stdout, r.command.Stderr, r.command.ExtraFiles = p.options.Stdout, p.options.Stderr, r.theirs
	r.command.SysProcAttr = attributes()
	r.command.WaitDelay = time.Second
	r.input, err = r.command.StdinPipe()
	return r, err
}

// begin starts the process. ended receives its result.
func (r *running) begin() (ended <-chan error, err error) {
	began, result := make(chan error), make(chan error, 1)
	go func() {
		// The kernel ends the process when the thread that started it ends.
		runtime.LockOSThread()
		err := r.command.Start()
		began <- err
		if err == nil {
			result <- r.command.Wait()
		}
	}()
	if err := <-began; err != nil {
		return nil, err
	}
	for _, f := range r.theirs {
		_ = f.Close()
	}
	r.theirs = nil
	if _, err := r.input.Write(append(r.start, '\n')); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) { // these mean that it has ended
		_ = r.command.Process.Kill()
		return nil, errors.Join(err, <-result)
	}
	return result, nil
}

// hello waits until the program serves. The error is io.EOF if it ended before.
func (r *running) hello() error {
	line, err := bufio.NewReader(r.report).ReadBytes('\n')
	if err != nil {
		return io.EOF
	}
	var h hello
	if err := json.Unmarshal(line, &h); err != nil {
		return fmt.Errorf("its report is malformed: %w", err)
	}
	if h.Error != nil {
		return h.Error.Err()
	}
	return nil
}

// socketPair returns two connected sockets: one for this process, one to inherit.
func socketPair() (own net.Conn, their *os.File, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a socket pair: %w", err)
	}
	for _, fd := range pair {
		syscall.CloseOnExec(fd)
	}
	mine := os.NewFile(uintptr(pair[0]), "sibling")
	defer func() { _ = mine.Close() }() // the connection has its own
	their = os.NewFile(uintptr(pair[1]), "sibling")
	if own, err = net.FileConn(mine); err != nil {
		_ = their.Close()
		return nil, nil, fmt.Errorf("open a socket pair: %w", err)
	}
	return own, their, nil
}
