package isolate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin/supervise"
)

// The modes of isolation.
const (
	Best    = "best"    // the layers that this machine has
	Require = "require" // the server doesn't start without them
	Off     = "off"     // none
)

// The names of layers.
const (
	LayerFiles     = "files"     // only its own files can be read and written
	LayerNetwork   = "network"   // no network, except for plugins with the property _network
	LayerSyscalls  = "syscalls"  // system calls that no plugin needs are refused
	LayerProcesses = "processes" // other processes can't be signaled or inspected
	LayerUser      = "user"      // another user than the server's
)

// Required are the layers that [Require] needs.
var Required = []string{LayerFiles, LayerNetwork, LayerSyscalls, LayerProcesses}

// Options are the settings of an Isolation.
type Options struct {
	Mode     string   // Best if empty
	Users    Users    // user IDs of plugins; they run as the server's user if zero
	Readable []string // files and folders that plugins may read, in addition to the system's
	Writable []string // files and folders that they may also write
	Dir      string   // parent of the runs' folders; the system's temporary folder if empty
	Log      *slog.Logger

	// NoBubblewrap and NoNamespaces leave out layers, for tests of the others.
	NoBubblewrap, NoNamespaces bool
}

// Users is a range of user IDs, of which each run gets one.
type Users struct{ First, Last int }

// ParseUsers reads FIRST-LAST. The error is an ErrInvalid.
func ParseUsers(text string) (Users, error) {
	first, last, _ := strings.Cut(text, "-")
	f, err := strconv.Atoi(first)
	l, err2 := strconv.Atoi(last)
	if err != nil || err2 != nil || f < 1 || l < f || l > 1<<31-2 {
		return Users{}, tko.Errorf(tko.ErrInvalid, "%q is not a range of user IDs: use FIRST-LAST, such as 2000000000-2000000255", text)
	}
	return Users{f, l}, nil
}

// An Isolation restricts plugins. It is safe for concurrent use. A nil
// Isolation restricts nothing.
type Isolation struct {
	options Options
	method  method
	user    bool // whether runs get users of their own
	next    atomic.Int64
	layers  []tko.IsolationLayer
}

// A method is a set of layers that are applied together.
type method struct {
	bubblewrap string  // path of the program, or ""
	namespaces uintptr // flags of clone(2)
	landlock   int     // version of its ABI, 0 for none
	filter     []byte  // seccomp program
}

// New finds the layers that work on this machine: it runs a program under them
// that tries what they forbid. It logs what is missing. The error is
// ErrUnavailable if layers are required and missing.
func New(ctx context.Context, o Options) (*Isolation, error) {
	if o.Mode == "" {
		o.Mode = Best
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	i := &Isolation{options: o}
	if o.Mode == Off {
		for _, name := range append(slices.Clone(Required), LayerUser) {
			i.layers = append(i.layers, tko.IsolationLayer{Name: name, State: tko.LayerOff, Reason: "--plugin-isolation is off"})
		}
		o.Log.WarnContext(ctx, "plugins run without isolation: they can do everything that the server's user can", "plugin_isolation", Off)
		return i, nil
	}
	i.probe(ctx)
	var missing []string
	for _, layer := range i.layers {
		if layer.State != tko.LayerMissing {
			continue
		}
		if slices.Contains(Required, layer.Name) {
			missing = append(missing, layer.Name+": "+layer.Reason)
		}
		o.Log.WarnContext(ctx, "isolation of plugins is incomplete", "layer", layer.Name, "reason", layer.Reason)
	}
	if o.Mode == Require && len(missing) > 0 {
		return nil, tko.Errorf(tko.ErrUnavailable, "--plugin-isolation=require: this machine lacks layers: %s", strings.Join(missing, "; "))
	}
	return i, nil
}

// Layers returns the layers and their states.
func (i *Isolation) Layers() []tko.IsolationLayer {
	if i == nil {
		return nil
	}
	return i.layers
}

// Off reports whether nothing is restricted.
func (i *Isolation) Off() bool { return i == nil || i.options.Mode == Off }

// Has reports whether a layer works.
func (i *Isolation) Has(layer string) bool {
	return i != nil && slices.ContainsFunc(i.layers, func(l tko.IsolationLayer) bool { return l.Name == layer && l.State == tko.LayerOn })
}

// A Run is a program to be isolated.
type Run struct {
	Program  *Program
	Dir      string   // the run's own folder, which it may write
	Readable []string // further files and folders that it may read
	Network  bool     // whether it has the server's network
	// Ports are TCP ports that it may reach without the network; with namespaces,
	// they are those that Forward listens on.
	Ports []int
	// Forward maps addresses in the program's network namespace, HOST:PORT of
	// loopback, to addresses that the server connects to. They are the only ones
	// that the program reaches.
	Forward map[string]string
	Files   int64 // limit of a file's size in bytes; no limit if 0
}

// errNoNamespaces is the reason why a plugin with _isolation=strict isn't run.
var errNoNamespaces = errors.New("this server has no namespaces for plugins")

// Strict returns an error if a program would not run in namespaces.
func (i *Isolation) Strict() error {
	if i.Off() || i.method.bubblewrap == "" && i.method.namespaces == 0 {
		return errNoNamespaces
	}
	return nil
}

// Alone reports whether programs without the network have a network namespace of
// their own.
func (i *Isolation) Alone() bool {
	return !i.Off() && (i.method.bubblewrap != "" || i.method.namespaces != 0)
}

// Launch returns the restrictions of a run. The caller starts the program, and
// then calls started; it calls done when the program has ended.
func (i *Isolation) Launch(ctx context.Context, r Run) (launch *supervise.Launch, started, done func(), err error) {
	if i.Off() {
		nothing := func() {}
		if r.Program == nil || r.Program.File == nil {
			return nil, nothing, nothing, nil
		}
		return &supervise.Launch{Program: r.Program.File}, nothing, nothing, nil
	}
	return i.launch(ctx, r)
}

// probeResult reads what a probe printed.
func probeResult(output string) map[string]string {
	result := map[string]string{}
	for line := range strings.Lines(output) {
		layer, state, _ := strings.Cut(strings.TrimSpace(line), " ")
		result[layer] = state
	}
	return result
}

// probe finds the best method that works.
func (i *Isolation) probe(ctx context.Context) {
	reasons := map[string]string{}
	methods := i.methods(reasons)
	users := []bool{false}
	if i.options.Users != (Users{}) {
		if os.Geteuid() == 0 {
			users = []bool{true, false}
		} else {
			reasons[LayerUser] = "the server doesn't run as root, so it can't switch to other users"
		}
	} else {
		reasons[LayerUser] = "no users are configured: see --plugin-users"
	}
	var result map[string]string
	for _, m := range methods {
		for _, user := range users {
			i.method, i.user = m, user
			output, err := i.try(ctx)
			result = probeResult(output)
			if err == nil && result["work"] != "denied" {
				if result["network"] == "denied" {
					delete(reasons, LayerNetwork)
				}
				i.report(result, reasons)
				return
			}
			if err == nil {
				err = errors.New("a program can't read its own folder")
			}
			if user {
				reasons[LayerUser] = err.Error()
			}
			for _, layer := range m.layers() {
				if reasons[layer] == "" {
					reasons[layer] = m.name() + ": " + err.Error()
				}
			}
		}
	}
	i.method, i.user = method{}, false
	i.report(nil, reasons)
}

func (m method) name() string {
	switch {
	case m.bubblewrap != "":
		return m.bubblewrap
	case m.namespaces != 0:
		return "namespaces, Landlock and seccomp"
	default:
		return "Landlock and seccomp"
	}
}

func (m method) layers() []string {
	if m.bubblewrap != "" || m.namespaces != 0 {
		return []string{LayerNetwork, LayerProcesses}
	}
	return []string{LayerFiles, LayerSyscalls}
}

func (i *Isolation) report(result, reasons map[string]string) {
	for _, name := range Required {
		layer := tko.IsolationLayer{Name: name, State: tko.LayerOn, Reason: i.method.name()}
		if name == LayerNetwork && !i.Alone() && result[name] == "denied" {
			layer.State, layer.Reason = tko.LayerMissing, "Landlock restricts TCP only: "+reasons[name]
		} else if result[name] != "denied" {
			layer.State, layer.Reason = tko.LayerMissing, reasons[name]
			if layer.Reason == "" {
				layer.Reason = "this machine's kernel has neither namespaces nor Landlock for it"
			}
		}
		i.layers = append(i.layers, layer)
	}
	user := tko.IsolationLayer{Name: LayerUser, State: tko.LayerMissing, Reason: reasons[LayerUser]}
	if i.user {
		user.State, user.Reason = tko.LayerOn, fmt.Sprintf("one of %d-%d for each run", i.options.Users.First, i.options.Users.Last)
	}
	i.layers = append(i.layers, user)
}

// refused makes a file that plugins must not be able to read.
func (i *Isolation) refused() (*os.File, error) {
	var failed error
	for _, dir := range []string{i.options.Dir, os.TempDir(), "/var/tmp", "/dev/shm", "."} {
		dir, err := filepath.Abs(cmp.Or(dir, os.TempDir()))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(slices.Concat(i.options.Readable, i.options.Writable), func(allowed string) bool {
			relative, err := filepath.Rel(allowed, dir)
			return err == nil && filepath.IsLocal(relative)
		}) {
			continue
		}
		file, err := os.CreateTemp(dir, "tko-isolation-")
		if err == nil {
			return file, nil
		}
		failed = err
	}
	if failed == nil {
		failed = errors.New("plugins may read all folders for temporary files: see --plugin-files")
	}
	return nil, failed
}

// listenLoopback listens on IPv6 or, on machines without it, IPv4: a machine may
// have only one of them.
func listenLoopback(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	six, err := config.Listen(ctx, "tcp6", "[::1]:0")
	if err == nil {
		return six, nil
	}
	four, err4 := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err4 == nil {
		return four, nil
	}
	return nil, errors.Join(err, err4)
}

// try runs the probe under the current method.
func (i *Isolation) try(ctx context.Context) (output string, err error) {
	dir, err := os.MkdirTemp(i.options.Dir, "tko-plugin-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	secret, err := i.refused()
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(secret.Name()) }()
	if err := errors.Join(secret.Chmod(0o644), secret.Close()); err != nil {
		return "", err
	}
	listener, err := listenLoopback(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	program := &Program{Path: self, File: file}
	defer program.Close()
	return i.runProbe(ctx, program, dir, []string{supervise.ProbeName, secret.Name(), listener.Addr().String(), strconv.Itoa(os.Getpid()), filepath.Join(dir, "work")})
}
