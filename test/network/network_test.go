//go:build linux

package network

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// variable has the name of the test that runs in its namespaces.
const variable = "TKO_TEST_NETWORK"

// The addresses of the machine and of the other one.
const (
	six, otherSix   = "fd00:7::1", "fd00:7::2"
	four, otherFour = "10.7.0.1", "10.7.0.2"
)

// cable makes two network namespaces, joined by a cable, and runs the test in the
// first one. Another process keeps the second one.
const cable = `
set -e
unshare --net sleep infinity &
other=$!
export TKO_TEST_NETWORK_OTHER=$other
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
there() { nsenter --net --target $other "$@"; }
ip link add cable type veth peer name cable netns $other
ip address add fd00:7::1/64 dev cable nodad
there ip address add fd00:7::2/64 dev cable nodad
for command in "" there; do
	$command ip link set lo up
	$command ip link set cable up
	if [ "$1" = ipv6 ]; then
		$command ip -4 address flush dev lo
	fi
done
if [ "$1" = dual ]; then
	ip address add 10.7.0.1/24 dev cable
	there ip address add 10.7.0.2/24 dev cable
fi
shift
"$@" && code=0 || code=$?
kill $other
exit $code
`

func TestMain(m *testing.M) {
	process.Plain()
	code := pgtest.Main(m)
	process.Clean()
	os.Exit(code)
}

// within runs a test in network namespaces of a kind, in a process of its own.
func within(t *testing.T, kind string, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(variable) == t.Name() {
		test(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Fatal("run this test as root: it makes network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Fatal("install iproute2: the test makes network namespaces")
	}
	c := exec.CommandContext(t.Context(), "unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", cable, "cable", kind,
		os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=15m")
	c.Env = append(os.Environ(), process.Built(t, "tko", "tko-server", "tko-kubernetes")...)
	c.Env = append(c.Env, variable+"="+t.Name(), "TKO_TEST_POSTGRES_ADDRESS=::1", "TKO_TEST_POSTGRES=")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestEverythingWorksWithoutIPv4(t *testing.T) {
	within(t, "ipv6", func(t *testing.T) {
		if l, err := net.Listen("tcp4", "127.0.0.1:0"); err == nil {
			_ = l.Close()
			t.Fatal("the namespace has IPv4")
		}
		everything(t, six)
	})
}

func TestEverythingWorksOnDualStack(t *testing.T) {
	within(t, "dual", func(t *testing.T) { everything(t, six, four) })
}

// there runs a program on the other machine.
func there(t *testing.T, env []string, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "nsenter", append([]string{"--net", "--target", os.Getenv("TKO_TEST_NETWORK_OTHER"), program}, args...)...)
	c.Env, c.WaitDelay = append(os.Environ(), env...), time.Second
	out, err := c.CombinedOutput()
	return string(out), err
}

// everything starts a server with PostgreSQL at ::1 and uses all of its addresses,
// from this machine and from the other one, which connects to addresses.
func everything(t *testing.T, addresses ...string) {
	dir := t.TempDir()
	ca := certstest.New(t, "ca")
	cert, key, _ := ca.Issue("server", func(c *x509.Certificate) {
		certstest.Localhost(c)
		for _, a := range addresses {
			c.IPAddresses = append(c.IPAddresses, net.ParseIP(a))
		}
	})
	aliceCert, aliceKey, _ := ca.Issue("alice", nil)
	files := certstest.Write(t, dir, certstest.File{Name: "ca.crt", Data: ca.PEM()}, certstest.File{Name: "server.crt", Data: cert}, certstest.File{Name: "server.key", Data: key},
		certstest.File{Name: "alice.crt", Data: aliceCert}, certstest.File{Name: "alice.key", Data: aliceKey})
	dsn := pgtest.EmptyDSN(t)
	if !strings.Contains(dsn, "@[::1]:") {
		t.Fatalf("the database is at %q", dsn)
	}
	if out, err := exec.Command(process.Build(t, "tko-server"), "access", "init", "--store="+dsn, "--admin=cert:alice").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	plugin := filepath.Join(dir, "plugin.py")
	if err := os.WriteFile(plugin, []byte(pluginText), 0o755); err != nil {
		t.Fatal(err)
	}
	sites := serveGit(t)
	server := process.StartServer(t, "--store="+dsn, "--listen-grpc=*:0", "--listen-web=*:0", "--listen-health=*:0", "--kubernetes=localhost:0", "--kubernetes-trust-everybody", "--kubernetes-events=false",
		"--tls-cert="+files[1], "--tls-key="+files[2], "--tls-client-ca="+files[0], "--listen-unix=", "--git-secrets="+dir, "--access-anonymous=admin")
	port := func(address string) string {
		_, p, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if host, _, _ := net.SplitHostPort(server.GRPC); host != "::" {
		t.Errorf("the first address of the gRPC API is %s, want one of IPv6", server.GRPC)
	}

	tko := process.Build(t, "tko")
	config := []string{"XDG_CONFIG_HOME=" + dir, "HOME=" + dir}
	secure := []string{"--tls-ca=" + files[0], "--tls-cert=" + files[3], "--tls-key=" + files[4]}
	must := func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}

	// The tko command on the other machine: flags, and contexts with and without
	// brackets.
	for i, address := range addresses {
		flags := append([]string{"--grpc-address=" + address, "--grpc-port=" + port(server.GRPC)}, secure...)
		if out := must(there(t, config, tko, append([]string{"whoami"}, flags...)...)); !strings.Contains(out, "cert:alice") {
			t.Errorf("whoami at %s prints\n%s", address, out)
		}
		name := "c" + strconv.Itoa(i)
		must(there(t, config, tko, append([]string{"context", "set", name, "--address", net.JoinHostPort(address, port(server.GRPC))}, secure...)...))
		if out := must(there(t, config, tko, "about", "--context", name)); !strings.Contains(out, net.JoinHostPort("::", port(server.GRPC))) {
			t.Errorf("about at %s advertises other addresses:\n%s", address, out)
		}
		for _, path := range []string{"https://" + net.JoinHostPort(address, port(server.Web)) + "/api/about", "https://" + net.JoinHostPort(address, port(server.Health)) + "/readyz"} {
			must(there(t, config, "curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--cacert", files[0], "--cert", files[3], "--key", files[4], path))
		}
		if out, err := there(t, config, tko, append([]string{"whoami", "--grpc-address=" + address, "--grpc-port=" + port(server.GRPC), "--grpc-ip-stack=" + other(address)}, secure...)...); err == nil {
			t.Errorf("%s is reached with the other stack:\n%s", address, out)
		}
	}
	if out := must(there(t, config, tko, "about", "--context", "c0")); !strings.Contains(out, "backend: PostgreSQL") {
		t.Errorf("about prints\n%s", out)
	}

	// On this machine: localhost, and the Kubernetes API, which the sibling program
	// serves.
	local := append([]string{"--grpc-port=" + port(server.GRPC)}, secure...)
	here := func(stdin string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), tko, append(args, local...)...)
		c.Env, c.Stdin = append(os.Environ(), config...), strings.NewReader(stdin)
		out, err := c.CombinedOutput()
		return must(string(out), err)
	}
	must(there(t, config, "true"))
	if out, err := exec.Command("curl", "--silent", "--show-error", "--fail", "--insecure", "--noproxy", "*",
		"https://"+net.JoinHostPort("::1", port(server.Kube))+"/apis/tko.nephio.org/v1alpha1/sites").CombinedOutput(); err != nil || !strings.Contains(string(out), "SiteList") {
		t.Errorf("the Kubernetes API: %v\n%s", err, out)
	}

	// A plugin writes to the log server, and a deployment goes to a git repository of
	// the other machine, by its address in brackets.
	here("", "plugin", "register", "prepare", "logs", plugin, "--trigger=x.plugin.nephio.org,v1,X")
	here("{apiVersion: x.plugin.nephio.org/v1, kind: X, metadata: {name: x}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: delivered}}\n", "template", "register", "t", "--stdin")
	here(fmt.Sprintf("{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: g}, spec: {url: %q, branch: main}}\n", sites), "site", "register", "s", "--stdin")
	here("", "deployment", "create", "t", "--site=s")
	eventually.True(t, "the plugin's line in the log", func() bool {
		return strings.Contains(server.Log(), "hello over [::1]") || strings.Contains(server.Log(), "hello over ::1")
	})
	eventually.NoError(t, "the deployment in the repository", func() error {
		if strings.Contains(pushed(t), "delivered") {
			return nil
		}
		return errors.New(here("", "deployment", "list", "--format=yaml") + here("", "site", "get", "s", "--format=yaml"))
	})

	// Loopback addresses in packages stay refused, in all notations.
	for i, address := range []string{"[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]"} {
		id := "refused-" + strconv.Itoa(i)
		here(fmt.Sprintf("{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: g}, spec: {url: %q, branch: main}}\n", "http://"+address+":1/sites.git"), "site", "register", id, "--stdin")
		here("", "deployment", "create", "t", "--site="+id)
		eventually.NoError(t, "the refusal of "+address, func() error {
			if out := here("", "site", "list", "--format=yaml"); strings.Count(out, "--remote-addresses") <= i {
				return fmt.Errorf("the sites are\n%s", out)
			}
			return nil
		})
	}
}

// other returns the name of the IP stack that an address doesn't have.
func other(address string) string {
	if strings.Contains(address, ":") {
		return "ipv4"
	}
	return "ipv6"
}

// pluginText writes a line to the log server, at the address in its input.
const pluginText = `#!/usr/bin/python3
import re, socket, sys
text = sys.stdin.read()
def value(key):
    found = re.search(r"^%s: *['\"]?([^'\"\n]+)" % key, text, re.M)
    return found.group(1) if found else ""
host, port = value("logAddressPort").rsplit(":", 1)
with socket.create_connection((host.strip("[]"), int(port))) as s:
    s.sendall(("tko-log %s\nhello over %s\n" % (value("logToken"), host)).encode())
print("""prepared: true
package:
- {apiVersion: x.plugin.nephio.org/v1, kind: X, metadata: {name: x, annotations: {nephio.org/prepared: "true"}}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: delivered}}""")
`

var repository string

// serveGit serves a repository over HTTP at an address of the other machine, and
// returns its URL.
func serveGit(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	repository = filepath.Join(dir, "sites.git")
	gittest.Run(t, dir, "init", "--quiet", "--bare", "--initial-branch=main", repository)
	gittest.Run(t, repository, "config", "http.receivepack", "true")
	listener := listenThere(t)
	web := &http.Server{ReadHeaderTimeout: time.Minute, Handler: gittest.Handler(t, dir)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = web.Close(); <-done })
	return "http://" + listener.Addr().String() + "/sites.git"
}

// listenThere listens on the other machine: a socket belongs to the namespace of the
// thread that opens it.
func listenThere(t *testing.T) net.Listener {
	t.Helper()
	type result struct {
		l   net.Listener
		err error
	}
	results := make(chan result)
	go func() {
		l, err := otherListener()
		results <- result{l, err}
	}()
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.l
}

// pushed returns the files of the repository.
func pushed(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", repository, "grep", "-h", "name:", "main").CombinedOutput()
	if err != nil {
		return ""
	}
	return string(out)
}
