package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/cmd/internal/server"
	"github.com/tko-orchestrator/tko/internal/demo"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// The test program is the demo, too, and the server that the demo starts, by its name.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "tko-demo":
		main()
	case "tko-server":
		os.Exit(standIn(os.Args[1:]))
	default:
		os.Exit(m.Run())
	}
}

// standIn stands in for tko-server: it serves no API, and does as the environment says.
func standIn(args []string) int {
	folder := filepath.Dir(os.Args[0])
	report := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
	report("arguments", strings.Join(args, "\n"))
	switch does := os.Getenv("STAND_IN"); {
	case does == "ends":
		fmt.Println("the settings are wrong")
		return 2
	case does == "taken" && !slices.Contains(args, "--listen-grpc=localhost:0"):
		fmt.Println("listen:", syscall.EADDRINUSE)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if os.Getenv("STAND_IN") == "silent" {
		<-ctx.Done()
		report("ended", strconv.Itoa(os.Getpid()))
		return 0
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		switch os.Getenv("STAND_IN") {
		case "hangs":
			report("called", method)
			<-stream.Context().Done()
			return stream.Context().Err()
		default:
			return status.Error(codes.PermissionDenied, "no right for "+method)
		}
	}))
	go func() { _ = s.Serve(listener) }()
	address := listener.Addr().String()
	text, err := json.Marshal(server.Server{GRPC: []string{address}, Web: []string{address}})
	if err != nil {
		panic(err)
	}
	for _, arg := range args {
		if path, ok := strings.CutPrefix(arg, "--ready-file="); ok {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				panic(err)
			}
		}
	}
	<-ctx.Done()
	s.Stop()
	report("ended", strconv.Itoa(os.Getpid()))
	return 0
}

// programs returns a folder with this program as the demo and as the server.
func programs(t *testing.T) (bin string) {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin = t.TempDir()
	if err := errors.Join(os.Symlink(own, filepath.Join(bin, "tko-demo")), os.Symlink(own, filepath.Join(bin, "tko-server"))); err != nil {
		t.Fatal(err)
	}
	return bin
}

// demonstrate returns the demo as a process with a catalog of one plugin.
func demonstrate(t *testing.T, bin, does string, args ...string) (*exec.Cmd, *eventually.Buffer) {
	t.Helper()
	catalog := t.TempDir()
	if err := os.WriteFile(filepath.Join(catalog, "catalog.yaml"), []byte("plugins: [{type: prepare, name: p, arguments: [\"${BIN}/p\"]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "state")
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "tko-demo"), append([]string{"-bin=" + bin, "-dir=" + folder, "-catalog=" + catalog, "-once"}, args...)...)
	command.Env = append(os.Environ(), "STAND_IN="+does)
	out := new(eventually.Buffer)
	command.Stdout, command.Stderr = out, out
	return command, out
}

func content(bin, name string) string {
	text, _ := os.ReadFile(filepath.Join(bin, name))
	return string(text)
}

// A server that lacks something makes the demo fail: with a text that names it, and the
// exit code 1. The server has ended then.
func TestDemoFailsWithTheReasonAndStopsItsServer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		does    string
		args    []string
		says    []string
		started bool // the server has started, and must have ended
	}{
		"a server that refuses":       {"refuses", nil, []string{`demo: register plugin "prepare|p": `, "no right for /tko.Data/", "server.log", "make clean-demo demo"}, true},
		"a server that is too slow":   {"hangs", []string{"-timeout=300ms"}, []string{`demo: not done after 300ms: register plugin "prepare|p": `, "server.log"}, true},
		"a server that doesn't start": {"ends", nil, []string{"demo: the server did not start", "the settings are wrong"}, false},
		"an unknown argument":         {"ends", []string{"once"}, []string{`demo: unknown argument "once"`, "-once"}, false},
		"an unknown flag":             {"ends", []string{"-forever"}, []string{"flag provided but not defined: -forever"}, false},
		"no catalog":                  {"ends", []string{"-catalog=/none"}, []string{"demo: open /none/catalog.yaml"}, false},
		"no programs":                 {"ends", []string{"-bin=/none"}, []string{"/none/tko-server", "make build"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := programs(t)
			command, out := demonstrate(t, bin, test.does, test.args...)
			err := command.Run()
			if command.ProcessState.ExitCode() != 1 {
				t.Errorf("%v, want the exit code 1", err)
			}
			for _, part := range test.says {
				if !strings.Contains(out.String(), part) {
					t.Errorf("%q is not in the output:\n%s", part, out)
				}
			}
			if ended := content(bin, "ended"); test.started != (ended != "") {
				t.Errorf("the server has ended: %q, want %t", ended, test.started)
			}
		})
	}
}

// The arguments of the server: all its files are in the folder of the demo, and it serves
// this machine only.
func TestDemoStaysInItsFolder(t *testing.T) {
	t.Parallel()
	bin := programs(t)
	command, out := demonstrate(t, bin, "refuses")
	if err := command.Run(); err == nil {
		t.Fatalf("the stand-in is no server:\n%s", out)
	}
	args := strings.Split(content(bin, "arguments"), "\n")
	folder := ""
	for _, arg := range command.Args {
		if value, ok := strings.CutPrefix(arg, "-dir="); ok {
			folder = value
		}
	}
	for _, want := range []string{
		"--store=sqlite:" + folder + "/tko.db", "--listen-grpc=localhost:0", "--listen-web=localhost:0", "--target-git-local=" + folder, "--target-git-cache=" + folder + "/git-cache",
		"--plugin-programs=" + bin, "--plugin-files-writable=" + folder + "/inventory", "--ready-file=" + folder + "/ready.json",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("the server's arguments lack %s:\n%s", want, strings.Join(args, "\n"))
		}
	}
	if slices.Contains(args, "--insecure") {
		t.Error("the demo's server is insecure")
	}
	if _, err := os.Stat(filepath.Join(folder, "inventory")); err != nil {
		t.Error(err)
	}
}

// Ctrl-C ends the demo, without an error, and with it its server; also while the server
// starts.
func TestInterruptEndsTheDemoAndItsServer(t *testing.T) {
	t.Parallel()
	for does, began := range map[string]string{"hangs": "called", "silent": "arguments"} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			bin := programs(t)
			command, out := demonstrate(t, bin, does)
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			eventually.True(t, "the server is there", func() bool { return content(bin, began) != "" })
			if err := command.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			err := command.Wait()
			if ended := content(bin, "ended"); ended == "" {
				t.Errorf("the server goes on:\n%s", out)
			}
			if err != nil {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}

func TestHelpIsNoError(t *testing.T) {
	t.Parallel()
	command, out := demonstrate(t, programs(t), "ends", "-help")
	if err := command.Run(); err != nil || !strings.Contains(out.String(), "-once") || !strings.Contains(out.String(), "time limit until everything is scheduled") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// The table of sites is printed once per end of a demo.
func Example_report() {
	at := func(template string) tko.Deployment { return tko.Deployment{Template: tko.TemplateID(template)} }
	report(demo.Progress{Sites: []demo.SiteProgress{
		{ID: "north/central", Metadata: map[string]string{"region": "north", "tier": "central"}, Scheduled: 2, Deployments: []tko.Deployment{at("workload/smf:v1"), at("workload/upf:v1")}},
		{ID: "west/edge-1", Metadata: map[string]string{"region": "west"}, Deployments: []tko.Deployment{at("workload/du:v1")}, Waiting: 3},
		{ID: "new"},
	}})
	// Output:
	// SITE            REGION   TIER      SCHEDULED   RUNS
	// north/central   north    central   2/2         smf:v1 upf:v1
	// west/edge-1     west               0/1         du:v1 (3 waiting for approval)
	// new                                0/0
}

// The commands of the tour reach the server, at the usual port or at another.
func TestTourHasTheAddressOfTheServer(t *testing.T) { //nolint:paralleltest // replaces the standard output
	printed := func(web []string, api string) string {
		return printed(t, func() { tour(options{dir: "/demo"}, &tkoServer{Server: &server.Server{GRPC: []string{api}, Web: web}}) })
	}
	usual := printed([]string{"[::1]:50051", "127.0.0.1:50051"}, "[::1]:50050")
	for _, line := range []string{"\n  bin/tko site list\n", " >> /demo/sites.csv ", "git --git-dir /demo/sites.git log", "curl http://[::1]:50051/api/deployment/list\n"} {
		if !strings.Contains(usual, line) {
			t.Errorf("%q is not in the tour:\n%s", line, usual)
		}
	}
	if other := printed(nil, "[::1]:7"); strings.Count(other, "TKO_GRPC_ADDRESS=::1 TKO_GRPC_PORT=7 bin/tko ") != strings.Count(usual, "  bin/tko ") {
		t.Errorf("commands of the tour lack the server's port:\n%s", other)
	}
}

// A usual port that another server uses, on either stack, is not used.
func TestPortsInUseAreAvoided(t *testing.T) {
	t.Parallel()
	free := func() (string, net.Listener) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), l
	}
	port, listener := free()
	if got := address(t.Context(), port, false); got != anyAddress {
		t.Errorf("the address is %s, and its port is in use", got)
	}
	_ = listener.Close()
	if got := address(t.Context(), port, false); got != "localhost:"+port {
		t.Errorf("the address is %s, want localhost:%s, which is free", got, port)
	}
	if got := address(t.Context(), port, true); got != anyAddress {
		t.Errorf("the address is %s, want any", got)
	}
	six, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return // this machine has no IPv6
	}
	defer func() { _ = six.Close() }()
	if got := address(t.Context(), strconv.Itoa(six.Addr().(*net.TCPAddr).Port), false); got != anyAddress {
		t.Errorf("the address is %s, and its port is in use on IPv6", got)
	}
}

// A command of the demo with clusters is run as a user would; a failure has its output.
func TestCommandsAreRunAsUsersWould(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := newShell(options{dir: dir, bin: "/demo/bin", kubernetes: "/demo/kube"}, &tkoServer{Server: &server.Server{GRPC: []string{"[::1]:7"}}}, dir)
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"echo $TKO_GRPC_ADDRESS $TKO_GRPC_PORT $HOME": "::1 7 " + dir + "\n", "pwd": dir + "\n", "echo ${PATH%%:/demo/kube*}": "/demo/bin\n",
	} {
		if out, err := s.run(t.Context(), command); err != nil || out != want {
			t.Errorf("%s: %q, %v; want %q", command, out, err, want)
		}
	}
	for command, want := range map[string]string{"echo a; echo b >&2; exit 3": "exit status 3\nb\n", "false | true": "exit status 1", "echo $NONE": "NONE: unbound variable"} {
		if out, err := s.run(t.Context(), command); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), command) {
			t.Errorf("%s: %q, %v; want %q", command, out, err, want)
		}
	}
	if out, err := s.each(t.Context(), "echo %s"); err != nil || out != "central\nedge-1\n" {
		t.Errorf("each cluster: %q, %v", out, err)
	}
	if out, err := s.each(t.Context(), "test %s = central"); err == nil {
		t.Errorf("the second cluster fails: %q", out)
	}
	if _, err := newShell(options{}, &tkoServer{Server: &server.Server{GRPC: []string{"unix"}}}, dir); err == nil {
		t.Error("an address without a port is used")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.run(ctx, "sleep 60"); err == nil {
		t.Error("a command outlives the time limit")
	}
}
