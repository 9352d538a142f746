package plugin_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/isolate"
)

// isolations are the ways in which plugins are isolated, as far as this machine
// has them.
func isolations(t *testing.T) map[string]*isolate.Isolation {
	t.Helper()
	users := isolate.Users{First: 2_000_000_000, Last: 2_000_000_255}
	all := map[string]isolate.Options{
		"best": {}, "namespaces": {NoBubblewrap: true}, "Landlock": {NoNamespaces: true},
	}
	if os.Geteuid() == 0 {
		all["best as another user"], all["namespaces as another user"] = isolate.Options{Users: users}, isolate.Options{NoBubblewrap: true, Users: users}
		all["Landlock as another user"] = isolate.Options{NoNamespaces: true, Users: users}
	}
	found := map[string]*isolate.Isolation{}
	for name, o := range all {
		o.Dir = publicDir(t)
		i, err := isolate.New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v", name, i.Layers())
		if !i.Has(isolate.LayerFiles) || !i.Has(isolate.LayerSyscalls) {
			t.Errorf("%s: this machine can't isolate plugins", name)
			continue
		}
		found[name] = i
	}
	return found
}

// publicDir returns a folder that other users can pass through.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tko-test-") //nolint:usetesting // folders of TempDir are for their owner only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// attempts are what a plugin must not be able to do: scripts that succeed if it
// can.
func attempts(server, secret, sibling, outside string) map[string]string {
	return map[string]string{
		"read the server's files":        "cat " + secret,
		"read the server's environment":  "cat /proc/" + server + "/environ",
		"read the server's memory":       "head -c 1 /proc/" + server + "/mem || cat /proc/" + server + "/maps",
		"pass through the server's root": "cat /proc/" + server + "/root" + secret,
		"read another run's folder":      "cat " + sibling,
		"write outside of its folder":    "echo x >" + outside + "; false",
		"write into the system":          "echo x >/usr/lib/tko-test",
		"read passwords":                 "cat /etc/shadow",
		"signal the server":              "kill -0 " + server,
		"mount":                          "mount -t tmpfs none /mnt",
		"make namespaces":                "unshare -Ur true",
		"trace":                          `python3 -c 'import ctypes,sys; sys.exit(0 if ctypes.CDLL(None).ptrace(0,0,0,0) == 0 else 1)'`,
	}
}

func TestIsolatedPluginReachesNothingButItsOwn(t *testing.T) {
	for name, isolation := range isolations(t) {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", "/usr/bin:/bin:/usr/sbin:/sbin") // the first python3 may be a user's
			dir := publicDir(t)
			secret := filepath.Join(publicDir(t), "secret")
			sibling := filepath.Join(dir, "tko-plugin-other", "work", "file")
			for _, path := range []string{secret, sibling} {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("canary"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			outside := filepath.Join(dir, "outside")
			r := plugin.New(plugin.Options{Programs: []string{"/"}, Dir: dir, Isolation: isolation})
			defer r.Close()
			for attempt, script := range attempts(strconv.Itoa(os.Getpid()), secret, sibling, outside) {
				if attempt == "signal the server" && !isolation.Has(isolate.LayerProcesses) {
					continue
				}
				err := r.Validate(t.Context(), shell("validate", "cat >/dev/null; if "+script+" >/dev/null 2>&1; then echo 'error: done'; else echo 'error: denied'; fi"), target, pkg, true)
				if err == nil || !strings.HasSuffix(err.Error(), ": denied") {
					t.Errorf("%s: got %v, want it to be denied", attempt, err)
				}
			}
			if _, err := os.Stat(outside); err == nil {
				t.Error("a plugin wrote outside of its folder")
			}
			needs := "cat >/dev/null; echo x >file && cat file >/dev/null && [ \"$HOME\" = \"$(pwd)\" ] && ls /usr/bin >/dev/null && head -c 1 /dev/urandom >/dev/null && [ \"$(umask)\" = 0077 ] && echo '{}'"
			if err := r.Validate(t.Context(), shell("validate", needs), target, pkg, true); err != nil {
				t.Errorf("what plugins need: %v", err)
			}
		})
	}
}

func TestIsolatedPluginReachesOnlyTheDataController(t *testing.T) {
	for name, isolation := range isolations(t) {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
			server, other := greet(t, "data"), greet(t, "other")
			udp, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = udp.Close() }()
			host, port := split(t, server)
			_, otherPort := split(t, other)
			_, udpPort := split(t, udp.LocalAddr().String())
			r := plugin.New(plugin.Options{Programs: []string{"/"}, Dir: publicDir(t), Isolation: isolation, GRPC: plugin.GRPCAddress{Address: host, Port: port}})
			defer r.Close()
			ask := func(port int, properties map[string]string) string {
				p := shell("validate", fmt.Sprintf("address=$(sed -n 's/^  address: *//p' | tr -d '\"'); exec 2>/dev/null; exec 3<>/dev/tcp/$address/%d && read -r line <&3; echo \"error: got $line\"", port))
				p.Arguments[0], p.Properties = "bash", properties
				err := r.Validate(t.Context(), p, target, pkg, true)
				if err == nil {
					return ""
				}
				_, got, _ := strings.Cut(err.Error(), ": got ")
				return got
			}
			if got := ask(port, nil); got != "data" {
				t.Errorf("the data controller: got %q, want a connection to the address of the input", got)
			}
			if got := ask(otherPort, nil); got != "" {
				t.Errorf("another service of this machine: got %q, want no connection", got)
			}
			if got := ask(otherPort, map[string]string{tko.PropertyNetwork: "true"}); got != "other" {
				t.Errorf("with the property %s: got %q, want a connection", tko.PropertyNetwork, got)
			}
			script := fmt.Sprintf("cat >/dev/null; python3 -c 'import socket\ntry: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b\"x\", (\"127.0.0.1\", %d))\nexcept OSError: pass\nsocket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect((\"127.0.0.1\", %d))' 2>/dev/null && echo 'error: done'; echo '{}' ", udpPort, otherPort)
			if err := r.Validate(t.Context(), shell("validate", script), target, pkg, true); err != nil {
				t.Errorf("Multipath TCP: %v, want it to be denied", err)
			}
			if err := udp.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if n, _, err := udp.ReadFrom(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes arrived over UDP, want none", n)
			}
		})
	}
}

func TestIsolatedPersistentPluginServesRequests(t *testing.T) {
	for name, isolation := range isolations(t) {
		t.Run(name, func(t *testing.T) {
			server := greet(t, "data")
			host, port := split(t, server)
			r := plugin.New(plugin.Options{Programs: []string{"/"}, Dir: publicDir(t), Isolation: isolation, GRPC: plugin.GRPCAddress{Address: host, Port: port}})
			defer r.Close()
			p := shell("validate", `while read -r word n size; do head -c "$size" >/dev/null; exec 3<>/dev/tcp/`+host+`/`+strconv.Itoa(port)+`; read -r line <&3; out="error: got $line $$"; printf 'tko-response %s %s\n%s' "$n" "${#out}" "$out"; done`)
			p.Arguments[0], p.Properties = "bash", map[string]string{tko.PropertyPersistent: "true"}
			var all []string
			for range 3 {
				err := r.Validate(t.Context(), p, target, pkg, true)
				if err == nil || !strings.Contains(err.Error(), "got data") {
					t.Fatalf("got %v, want the data controller's response", err)
				}
				all = append(all, err.Error())
			}
			if all[0] != all[1] || all[1] != all[2] {
				t.Errorf("got %q, want one process", all)
			}
		})
	}
}

func TestStrictPluginIsNotRunWithoutNamespaces(t *testing.T) {
	isolation, err := isolate.New(t.Context(), isolate.Options{NoNamespaces: true})
	if err != nil {
		t.Fatal(err)
	}
	p := shell("validate", "echo '{}'")
	p.Properties = map[string]string{tko.PropertyIsolation: "strict"}
	err = plugin.New(plugin.Options{Programs: []string{"/"}, Isolation: isolation}).Validate(t.Context(), p, target, pkg, true)
	if err == nil || !strings.Contains(err.Error(), tko.PropertyIsolation) {
		t.Errorf("got %v, want a refusal that names the property", err)
	}
}

// greet serves connections with a line, and returns the address.
func greet(t *testing.T, line string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			w := bufio.NewWriter(conn)
			_, _ = io.WriteString(w, line+"\n")
			_, _ = w.Flush(), conn.Close()
		}
	}()
	return listener.Addr().String()
}

func split(t *testing.T, address string) (host string, port int) {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	if port, err = strconv.Atoi(text); err != nil {
		t.Fatal(err)
	}
	return host, port
}
