package plugin

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin/isolate"
	"github.com/tko-orchestrator/tko/internal/plugin/supervise"
)

const strict = "strict" // value of tko.PropertyIsolation

// confined is a command with its restrictions.
type confined struct {
	command *exec.Cmd
	limits  supervise.Limits
	started func() // to be called when the command has been started
	done    func() // to be called when it has ended
}

func nothing() {}

// programs returns the programs that plugins may run.
func (r *Runner) programs() isolate.Programs {
	return isolate.Programs{Folders: r.options.Programs, PythonEnv: r.options.PythonEnv, Path: os.Getenv("PATH")}
}

// pluginCommand returns the command of a plugin or function.
func (r *Runner) pluginCommand(arguments []string, program *isolate.Program, work string) *exec.Cmd {
	python := strings.HasSuffix(arguments[0], ".py")
	args := append(append([]string{}, program.Args...), arguments[1:]...)
	if program.File != nil {
		args[0] = arguments[0]
	}
	return &exec.Cmd{Path: program.Path, Args: args, Dir: work, Env: r.environment(r.path(python), work, python)}
}

// path returns the PATH of a program.
func (r *Runner) path(python bool) string {
	path := os.Getenv("PATH")
	if python && r.options.PythonEnv != "" {
		path = filepath.Join(r.options.PythonEnv, "bin") + string(filepath.ListSeparator) + path
	}
	return path
}

// networked reports whether a plugin has the server's network.
func (r *Runner) networked(p tko.Plugin) bool {
	return r.options.Isolation.Off() || p.Properties[tko.PropertyNetwork] == "true"
}

// A launch is a command that is to be run for a plugin.
type launch struct {
	cmd      *exec.Cmd
	program  *isolate.Program
	dir      string
	plugin   tko.Plugin
	limits   supervise.Limits
	readable []string // files and folders that it may read in addition to its program's
}

// confine restricts a command to what its plugin needs.
func (r *Runner) confine(ctx context.Context, l launch) (confined, error) {
	p, limits := l.plugin, l.limits
	if p.Properties[tko.PropertyIsolation] == strict {
		if err := r.options.Isolation.Strict(); err != nil {
			return confined{}, fmt.Errorf("it was not run: its property %s is strict, and %w", tko.PropertyIsolation, err)
		}
	}
	run := isolate.Run{Program: l.program, Dir: l.dir, Network: r.networked(p), Readable: append(r.readable(l.program), l.readable...), Files: r.options.MaxFile}
	if !run.Network {
		run.Forward = r.forwards()
		for _, target := range run.Forward {
			if _, text, err := net.SplitHostPort(target); err == nil {
				if port, err := strconv.Atoi(text); err == nil {
					run.Ports = append(run.Ports, port)
				}
			}
		}
	}
	start, started, done, err := r.options.Isolation.Launch(ctx, run)
	if err != nil {
		return confined{}, fmt.Errorf("it was not run: %w", err)
	}
	limits.Launch = start
	return confined{command: l.cmd, limits: limits, started: started, done: done}, nil
}

// readable returns the files that a program may read in addition to the
// system's.
func (r *Runner) readable(program *isolate.Program) []string {
	var paths []string
	own := program.Path
	if program.Script != "" {
		own = program.Script
		if prefix := interpreterPrefix(program.Path); prefix != "" {
			paths = append(paths, prefix)
		}
	}
	folder := filepath.Dir(own)
	for _, of := range r.options.Programs {
		of, err := filepath.Abs(of)
		if relative, relErr := filepath.Rel(of, own); err == nil && relErr == nil && filepath.IsLocal(relative) && of != "/" {
			folder = of
		}
	}
	paths = append(paths, folder)
	if real, err := filepath.EvalSymlinks(own); err == nil && real != own {
		paths = append(paths, filepath.Dir(real))
	}
	if r.options.PythonEnv != "" {
		paths = append(paths, r.options.PythonEnv)
	}
	for _, name := range r.options.Environment { // variables that name files are of no use without them
		switch name {
		case "KUBECONFIG", "PYTHONPATH":
			paths = append(paths, filepath.SplitList(os.Getenv(name))...)
		}
	}
	return paths
}

// interpreterPrefix returns the folder of an interpreter's installation, "" if
// it is part of the system.
func interpreterPrefix(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || filepath.Base(filepath.Dir(real)) != "bin" {
		return ""
	}
	prefix := filepath.Dir(filepath.Dir(real))
	if prefix == "/" || prefix == "/usr" {
		return ""
	}
	return prefix
}

// forwards returns the addresses that a plugin without a network reaches, by
// the addresses in its network namespace.
func (r *Runner) forwards() map[string]string {
	forwards := map[string]string{}
	g := r.options.GRPC
	if g.Port != 0 {
		forwards[loopback(g.Address, g.Port)] = net.JoinHostPort(g.Address, strconv.Itoa(g.Port))
	}
	if host, text, err := net.SplitHostPort(r.options.LogAddressPort); err == nil {
		if port, err := strconv.Atoi(text); err == nil && port != g.Port {
			forwards[loopback(host, port)] = r.options.LogAddressPort
		}
	}
	return forwards
}

// loopback returns the address at which a plugin without a network reaches a
// server: its own if it is one of loopback.
func loopback(host string, port int) string {
	a, err := netip.ParseAddr(host)
	switch {
	case err == nil && a.IsLoopback():
	case hasIPv6():
		a = netip.IPv6Loopback()
	default:
		a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.AddrPortFrom(a, uint16(port)).String() //nolint:gosec // a port
}

func hasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}
