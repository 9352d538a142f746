// Package process starts the real binaries for tests, and stops them, however
// the test ends. It builds each binary once per test process, into Go's build
// cache.
package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// FreePort returns a port of 127.0.0.1 that is free.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address, _ := l.Addr().(*net.TCPAddr)
	return address.Port
}

// timeLimit bounds the start and the stop of a server. It is generous for busy
// machines.
const timeLimit = 3 * time.Minute

// programVariable returns the environment variable that names the path of a program of this repository, if the
// programs were built once for all packages' tests (test/setup/run.sh does). Each program has its own: go test repeats
// the tests of a package if a variable that they read has changed, so that those that don't start a program stay
// cached when it changes.
func programVariable(name string) string {
	prefix := "TKO_TEST_PROGRAM_"
	if plain {
		prefix = "TKO_TEST_PLAIN_PROGRAM_"
	}
	return prefix + strings.ReplaceAll(name, "-", "_")
}

var plain bool

// Plain makes the tests of a package start programs without the race detector, with which programs take several
// times as long. Call it first in TestMain of packages whose subject is a client, a page or a package: test/e2e,
// callhome, faults, gitops, kubernetes, rolling and upgrade run the same servers with the detector.
func Plain() { plain = true }

// Build returns the path of a binary of this repository, built from cmd/NAME.
func Build(t testing.TB, name string) string {
	t.Helper()
	path, err := build(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	buildLock sync.Mutex
	built     = map[string]string{}
	buildDir  string // of all of them: the server finds its programs next to it
)

func build(name string) (string, error) {
	buildLock.Lock()
	defer buildLock.Unlock()
	if path, ok := built[name]; ok {
		return path, nil
	}
	if path := os.Getenv(programVariable(name)); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", programVariable(name), err)
		}
		return path, nil
	}
	if buildDir == "" {
		dir, err := os.MkdirTemp("", "tko-test-bin-")
		if err != nil {
			return "", err
		}
		buildDir = dir
	}
	path := filepath.Join(buildDir, name)
	args := []string{"build", "-o", path}
	command := exec.Command("go")
	command.Env = os.Environ()
	if Race() {
		args = append(args, "-race")
		command.Env = append(command.Env, "CGO_ENABLED=1")
	}
	command.Args = append(append(command.Args, args...), "github.com/tko-orchestrator/tko/cmd/"+name)
	out, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	built[name] = path
	return path, nil
}

// Folder builds the named programs, and returns a folder that contains them.
func Folder(t testing.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		Build(t, name)
	}
	return filepath.Dir(Build(t, "tko-demo")) // the others are next to it
}

// Built returns environment variables with which a test in another process finds programs.
func Built(t testing.TB, names ...string) []string {
	t.Helper()
	variables := make([]string, len(names))
	for i, name := range names {
		variables[i] = programVariable(name) + "=" + Build(t, name)
	}
	return variables
}

// raceOfOthers is in the reports of a data race of k8s.io/apiserver v0.37: it clones the settings of TLS while net/http
// configures HTTP/2 in them.
const raceOfOthers = "DynamicServingCertificateController"

// dataRace returns the first report of a data race in the output of a program, apart from those of others; "" if there
// is none.
func dataRace(output string) string {
	for report := range strings.SplitSeq(output, "==================") {
		if strings.Contains(report, "WARNING: DATA RACE") && !strings.Contains(report, raceOfOthers) {
			return report
		}
	}
	return ""
}

// Race reports whether the programs that tests start have the race detector.
func Race() bool {
	return !plain && (raceDetector || os.Getenv("TKO_TEST_PROGRAMS_RACE") != "")
}

// Clean removes the binaries that were built. Call it at the end of TestMain.
func Clean() {
	buildLock.Lock()
	defer buildLock.Unlock()
	_ = os.RemoveAll(buildDir)
	buildDir = ""
	clear(built)
}

// kubernetesFlags are the beginnings of flags with which the server may need
// tko-kubernetes.
var kubernetesFlags = []string{"--kubernetes=", "--kubeconfigs", "--kubeconfig-secrets", "--management-kubeconfig", "--allow-in-cluster", "--flux-", "--plugin-kubeconfig"}

// Programs builds the server, and the programs that it may need with flags. It
// returns their paths; the first is the server's.
func Programs(t testing.TB, args ...string) []string {
	t.Helper()
	server := "tko-server"
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--store=spanner:") }) {
		server = "tko-server-spanner"
	}
	paths := []string{Build(t, server)}
	needs := func(arg string) bool {
		return slices.ContainsFunc(kubernetesFlags, func(flag string) bool { return strings.HasPrefix(arg, flag) })
	}
	if slices.ContainsFunc(args, needs) {
		paths = append(paths, Build(t, "tko-kubernetes"))
	}
	return paths
}

// A Server is a tko-server under test; with a store on Spanner, a tko-server-spanner.
type Server struct {
	GRPC string // an address of its gRPC API
	Web  string // of its HTTP API
	Kube string // of its Kubernetes API, if it serves one
	PID  int

	Health  string // of its health probes, if it serves them
	Hooks   string // of its webhooks, if it serves them
	Metrics string // of its metrics, if it serves them

	t      testing.TB
	cmd    *exec.Cmd
	output *output
	done   chan struct{}
}

// StartServer starts tko-server with the given flags, on free ports, and waits until
// it serves. It stops the server when the test ends, and shows its log if the test
// failed. A data race of the server fails the test.
func StartServer(t testing.TB, args ...string) *Server {
	t.Helper()
	return startServer(t, t.TempDir(), nil, nil, args)
}

// StartServerUnprivileged is StartServer with additional environment variables, as an
// unprivileged user: UID 65534 if the test's user is root, otherwise the test's user.
func StartServerUnprivileged(t testing.TB, env []string, args ...string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "tko-test-user-") //nolint:usetesting // folders of TempDir are for their owner only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var as *syscall.Credential
	if os.Geteuid() == 0 {
		const nobody = 65534
		as = &syscall.Credential{Uid: nobody, Gid: nobody}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return startServer(t, dir, env, as, args)
}

// Environment returns settings of tko-server for tests. They may run as root, and their plugins are anywhere, also in
// folders of the test that only its user can read. They collect garbage as often as those of users: tests measure their
// memory.
func Environment() []string {
	return []string{"GOGC=100", "TKO_ALLOW_ROOT=true", "TKO_PLUGIN_PROGRAMS=/", "TKO_PLUGIN_USERS=none", "TKO_PLUGIN_FILES_WRITABLE=" + os.TempDir()}
}

// StartServerWith is StartServer with additional environment variables.
func StartServerWith(t testing.TB, env []string, args ...string) *Server {
	t.Helper()
	return startServer(t, t.TempDir(), env, nil, args)
}

// StartOtherServer is StartServer with a program of another version.
func StartOtherServer(t testing.TB, program string, args ...string) *Server {
	t.Helper()
	return startProgram(t, program, t.TempDir(), nil, nil, args)
}

func startServer(t testing.TB, dir string, env []string, as *syscall.Credential, args []string) *Server {
	t.Helper()
	return startProgram(t, "", dir, env, as, args)
}

// startProgram starts a program, or that of this repository if it is empty.
func startProgram(t testing.TB, program, dir string, env []string, as *syscall.Credential, args []string) *Server {
	t.Helper()
	ready := filepath.Join(dir, "ready.json")
	s := &Server{t: t, output: &output{}, done: make(chan struct{})}
	args = append([]string{"--listen-grpc=localhost:0", "--listen-web=localhost:0", "--listen-log=localhost:0", "--ready-file=" + ready}, args...)
	programs := []string{program}
	if program == "" {
		programs = Programs(t, args...)
	}
	s.cmd = exec.Command(programs[0], args...)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	s.cmd.Env = append(append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir()), append(Environment(), env...)...)
	if as != nil { // that user can't read the binary or the test's folder
		if err := exec.Command("cp", append(programs, dir)...).Run(); err != nil {
			t.Fatal(err)
		}
		s.cmd.Path, s.cmd.Dir = filepath.Join(dir, filepath.Base(programs[0])), dir
		s.cmd.Env = append(s.cmd.Env, "HOME="+dir, "XDG_CACHE_HOME="+dir)
	}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: as}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.PID = s.cmd.Process.Pid
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		s.Stop()
		if report := dataRace(s.Log()); report != "" {
			t.Errorf("tko-server has a data race:\n%s", report)
		}
		if t.Failed() {
			t.Logf("tko-server %s:\n%s", strings.Join(args, " "), s.output)
		}
	})
	s.waitReady(ready)
	return s
}

func (s *Server) waitReady(path string) {
	s.t.Helper()
	deadline := time.After(timeLimit)
	for {
		var addresses struct{ GRPC, Web, Kubernetes, Health, Webhook, Metrics []string }
		if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &addresses) == nil {
			if len(addresses.GRPC) > 0 {
				s.GRPC = addresses.GRPC[0]
			}
			if len(addresses.Web) > 0 {
				s.Web = addresses.Web[0]
			}
			if len(addresses.Kubernetes) > 0 {
				s.Kube = addresses.Kubernetes[0]
			}
			if len(addresses.Metrics) > 0 {
				s.Metrics = addresses.Metrics[0]
			}
			if len(addresses.Health) > 0 {
				s.Health = addresses.Health[0]
			}
			if len(addresses.Webhook) > 0 {
				s.Hooks = addresses.Webhook[0]
			}
			return
		}
		select {
		case <-s.done:
			s.t.Fatalf("tko-server ended at start:\n%s", s.output)
		case <-deadline:
			s.t.Fatalf("tko-server is not ready after %s:\n%s", timeLimit, s.output)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop asks the server to stop and waits until it has. It may be called again.
func (s *Server) Stop() {
	s.t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(timeLimit):
		s.t.Errorf("tko-server did not stop within %s", timeLimit)
		s.Kill()
	}
}

// Kill ends the server with SIGKILL.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Log returns the server's output so far.
func (s *Server) Log() string { return s.output.String() }

// output collects what a process writes, while it writes.
type output struct {
	lock   sync.Mutex
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.buffer.Write(p)
}

func (o *output) String() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.buffer.String()
}

// CLI runs tko with the server's address, and returns its output and exit code.
func (s *Server) CLI(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(Build(s.t, "tko"), args...)
	cmd.Env = append(os.Environ(), s.Env()...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Env returns the environment variables of the server's address for tko.
func (s *Server) Env() []string {
	host, port := splitAddress(s.GRPC)
	return []string{"TKO_GRPC_ADDRESS=" + host, "TKO_GRPC_PORT=" + port}
}

func splitAddress(address string) (host, port string) {
	i := strings.LastIndex(address, ":")
	return strings.Trim(address[:i], "[]"), address[i+1:]
}
