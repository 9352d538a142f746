//go:build linux

package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tko-orchestrator/tko/test/eventually"
)

// boot starts systemd on a copy of this machine: in namespaces of its own, on a file
// system whose changes are discarded. It changes the root, because systemd's sandboxes
// are refused in a chroot.
const boot = `
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount --rbind /dev dev
mkdir -p mnt/old
rm -rf etc/tko var/lib/tko
pivot_root . mnt/old
cd /
umount -l /mnt/old
ip link set lo up
exec env -i "PATH=$PATH" container=other TERM=dumb LANG=C.UTF-8 "$2" --system --unit=sysinit.target --show-status=no
`

// A machine runs systemd as a container does.
type machine struct {
	t   *testing.T
	pid int
}

// startMachine starts a machine, and stops it when the test ends.
func startMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("run this test as root: it starts systemd in namespaces")
	}
	init := needed(t, "/lib/systemd/systemd", "systemd")
	needed(t, "ip", "iproute2")
	dir, err := os.MkdirTemp("", "tko-machine-") //nolint:usetesting // users of the machine pass through it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := exec.Command("unshare", "--mount", "--pid", "--fork", "--cgroup", "--net", "--uts", "--ipc", "--kill-child", "bash", "-c", boot, "boot", dir, init)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t}
	t.Cleanup(func() {
		if t.Failed() && m.pid != 0 {
			out, _ := m.try("journalctl --no-pager --lines=100")
			t.Log(out)
		}
		if m.pid != 0 {
			_ = syscall.Kill(m.pid, syscall.SIGKILL)
		}
		_ = c.Process.Kill()
		_ = c.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("boot:\n%s", text)
		}
	})
	eventually.True(t, "systemd", func() bool {
		children, err := os.ReadFile("/proc/" + strconv.Itoa(c.Process.Pid) + "/task/" + strconv.Itoa(c.Process.Pid) + "/children")
		if err != nil || len(strings.Fields(string(children))) == 0 {
			return false
		}
		pid, err := strconv.Atoi(strings.Fields(string(children))[0])
		if err != nil {
			return false
		}
		m.pid = pid
		name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
		if err != nil || strings.TrimSpace(string(name)) != "systemd" {
			return false
		}
		state, _ := m.try("systemctl is-active sysinit.target")
		return strings.TrimSpace(state) == "active"
	})
	return m
}

// try runs commands on the machine.
func (m *machine) try(commands string) (string, error) {
	m.t.Helper()
	return try(m.t, "", "nsenter", "--target", strconv.Itoa(m.pid), "--all", "--root", "--wd", "bash", "-c", commands)
}

func (m *machine) run(commands string) string {
	m.t.Helper()
	out, err := m.try(commands)
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return strings.TrimSpace(out)
}

// copy copies a file to the machine.
func (m *machine) copy(from, to string) {
	m.t.Helper()
	command(m.t, "", "cp", from, filepath.Join("/proc", strconv.Itoa(m.pid), "root", to))
}

// expect checks what commands print.
func (m *machine) expect(want, commands string) {
	m.t.Helper()
	if got := m.run(commands); got != want {
		m.t.Errorf("%s\nprints %q, want %q", commands, got, want)
	}
}

// eventually waits until commands print something.
func (m *machine) eventually(want, commands string) {
	m.t.Helper()
	eventually.True(m.t, commands+" to print "+want, func() bool {
		out, err := m.try(commands)
		return err == nil && strings.Contains(out, want)
	})
}

// The package of the server is installed, upgraded and removed on a real systemd: it
// serves over activated sockets, runs plugins under all layers of isolation, and keeps
// settings and state.
func TestPackagedServerUnderSystemd(t *testing.T) {
	t.Parallel()
	needed(t, "dpkg", "dpkg")
	packages := dist(t)
	m := startMachine(t)
	client, server := find(t, packages, "tko_*.deb"), find(t, packages, "tko-server_*.deb")
	m.copy(client, "/root/client.deb")
	m.copy(server, "/root/server.deb")
	m.copy(find(t, packages, "tko-agent_*.deb"), "/root/agent.deb")

	m.run("dpkg --install /root/agent.deb && tko-agent --version && tko-agent run --help | grep -q token-file && man -P cat tko-agent-run | grep -q 'Call a server'")
	m.expect("inactive", "systemctl is-active tko-agent.service || true") // nothing is started
	m.expect("700 600", "echo $(stat -c %a /etc/tko-agent) $(stat -c %a /etc/tko-agent/agent.env)")
	m.expect("", "systemd-analyze verify tko-agent.service 2>&1 | grep tko || true")
	m.run(`printf 'token' >/etc/tko-agent/site.token
		echo 'TKO_AGENT_ARGUMENTS=--server=127.0.0.1:1 --token-file=/etc/tko-agent/site.token --repository=/var/lib/tko-agent/site.git' >/etc/tko-agent/agent.env
		systemctl start tko-agent`)
	m.eventually("the agent can't be enrolled yet", "journalctl --no-pager -u tko-agent.service") // it reads its files, and runs
	m.expect("active", "systemctl is-active tko-agent.service")
	m.run("dpkg --remove tko-agent")
	m.expect("inactive", "systemctl is-active tko-agent.service || true")
	m.run("dpkg --install /root/client.deb /root/server.deb")
	m.expect("inactive", "systemctl is-active tko-server.service || true") // nothing is started
	m.expect("640 root tko", "stat -c '%a %U %G' /etc/tko/server.yaml")
	m.expect("750 tko tko", "stat -c '%a %U %G' /var/lib/tko")
	m.expect("", "systemd-analyze verify tko-server.service tko-data.service 2>&1 | grep tko || true")
	m.run("man -P cat tko-server | grep -q 'Serve TKO' && man -P cat tko-deployment-list | grep -q DEPLOYMENT && man -P cat tko-kubernetes | grep -q 'Serve TKO'")
	m.expect("site", "bash -c 'source /usr/share/bash-completion/completions/tko && complete -p tko >/dev/null' && tko __complete sit 2>/dev/null | head -1 | cut -f 1")
	m.run("test -s /usr/share/zsh/site-functions/_tko -a -s /usr/share/fish/vendor_completions.d/tko.fish -a -s /usr/share/bash-completion/completions/tko-server")

	plugin := filepath.Join(t.TempDir(), "namespace")
	command(t, "", "go", "build", "-o", plugin, "github.com/tko-orchestrator/tko/examples/plugins/namespace")
	m.copy(plugin, "/usr/local/bin/namespace")
	m.run(`mkdir -p /usr/local/lib/tko/plugins && mv /usr/local/bin/namespace /usr/local/lib/tko/plugins/ && chmod 0755 /usr/local/lib/tko/plugins/namespace
		printf 'plugin-programs: [/usr/local/lib/tko/plugins]\nplugin-isolation: require\n' >>/etc/tko/server.yaml`)
	m.run(`runuser -u tko -- tko-server access init --store=sqlite:/var/lib/tko/tko.db --admin=unix:0
		systemctl enable tko-server.service && systemctl start tko-server-unix.socket tko-server-grpc.socket tko-server-web.socket`)
	m.expect("inactive", "systemctl is-active tko-server.service || true")
	if about := m.run("tko about"); strings.Count(about, ": on, ") != 4 || !strings.Contains(about, "tkoVersion") { // starts the server
		t.Errorf("not all layers of isolation work under the hardened unit:\n%s", about)
	}
	m.eventually("active", "systemctl is-active tko-server.service") // it serves before systemd knows it
	m.expect("notify", "systemctl show -P Type tko-server.service")
	if status := m.run("systemctl show -P StatusText tko-server.service"); !strings.HasPrefix(status, "serving [::1]:50050") {
		t.Errorf("the status is %q", status)
	}
	m.expect("tko", "ps -o user= -p $(systemctl show -P MainPID tko-server.service)")

	// A plugin runs in its sandbox.
	m.run(`tko plugin register prepare namespace /usr/local/lib/tko/plugins/namespace --trigger workload.plugin.nephio.org,v1alpha1,Namespace
		tko template register t --stdin <<'END'
apiVersion: workload.plugin.nephio.org/v1alpha1
kind: Namespace
metadata: {name: ns}
spec: {namespace: packaged}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
END
		tko deployment create t`)
	m.eventually("namespace: packaged", "tko deployment get $(tko deployment list --format=bare | head -1)")

	// Other users have no rights, and can't use the Unix socket.
	out, err := m.try("runuser -u nobody -- tko site list") // plain-words: ok, the name of a user
	if err == nil || !strings.Contains(out, "anonymous may not read") {
		t.Errorf("a user without rights lists sites: %v\n%s", err, out)
	}
	m.run("curl --silent --show-error --output /dev/null 'http://[::1]:50051/'")

	// Reload keeps the process.
	pid := m.run("systemctl show -P MainPID tko-server.service")
	m.run("systemctl reload tko-server.service")
	m.expect(pid, "systemctl show -P MainPID tko-server.service")
	m.eventually("reloaded the files", "journalctl --no-pager -u tko-server.service")

	// The watchdog replaces a server that hangs.
	m.run("mkdir -p /run/systemd/system/tko-server.service.d && printf '[Service]\nWatchdogSec=20\nTimeoutAbortSec=5\n' >/run/systemd/system/tko-server.service.d/watchdog.conf && systemctl daemon-reload && systemctl restart tko-server.service")
	pid = m.run("systemctl show -P MainPID tko-server.service")
	m.run("kill -STOP " + pid)
	m.eventually("watchdog", "journalctl --no-pager -u tko-server.service | grep -i watchdog")
	m.eventually("active", "test $(systemctl show -P MainPID tko-server.service) -ne "+pid+" && systemctl is-active tko-server.service | grep -x active")

	m.run("rm -r /run/systemd/system/tko-server.service.d && systemctl daemon-reload && systemctl restart tko-server.service")

	// An upgrade keeps settings and state, and restarts what runs.
	pid = m.run("systemctl show -P MainPID tko-server.service")
	m.run("dpkg --install --force-confdef /root/client.deb /root/server.deb")
	m.expect("active", "systemctl is-active tko-server.service")
	if now := m.run("systemctl show -P MainPID tko-server.service"); now == pid {
		t.Error("the upgrade leaves the old program running")
	}
	m.expect("1", "grep -c '^plugin-isolation: require' /etc/tko/server.yaml")
	m.run("tko template get t")

	// A removal stops the server; neither it nor a purge removes the state.
	m.run("dpkg --remove tko-server")
	m.expect("", "pgrep -x tko-server || true")
	m.run("test -s /var/lib/tko/tko.db -a -s /etc/tko/server.yaml")
	m.run("dpkg --purge tko-server")
	m.run("test -s /var/lib/tko/tko.db -a ! -e /etc/tko/server.yaml")
}

// The data controller alone serves under its stricter unit.
func TestPackagedDataControllerUnderSystemd(t *testing.T) {
	t.Parallel()
	packages := dist(t)
	m := startMachine(t)
	m.copy(find(t, packages, "tko_*.deb"), "/root/client.deb")
	m.copy(find(t, packages, "tko-server_*.deb"), "/root/server.deb")
	m.run(`dpkg --install /root/client.deb /root/server.deb
		runuser -u tko -- tko-server access init --store=sqlite:/var/lib/tko/tko.db --admin=unix:0
		systemctl start tko-data.service`)
	about := m.run("tko about")
	if !strings.Contains(about, "files: on, Landlock") || !strings.Contains(about, "syscalls: on, Landlock") {
		t.Errorf("validate plugins have neither Landlock nor seccomp:\n%s", about)
	}
	m.expect("unix:0", "tko whoami | sed -n 's/^subject: //p'")
	m.run("systemctl stop tko-data.service")
	m.expect("success", "systemctl show -P Result tko-data.service")
}
