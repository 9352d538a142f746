package callhome_test

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// region returns a second region, with a store of its own, which is empty, and the same authority of
// agents. Agents verify the servers of both. Its server isn't started.
func (w *world) region(name string) *world {
	w.t.Helper()
	host := freeHost()
	dir := filepath.Join(w.dir, name)
	w.check(os.Mkdir(dir, 0o700))
	r := &world{t: w.t, home: w.home, dir: dir, ca: w.ca, grpc: freeAddress(w.t, host), agents: freeAddress(w.t, host)}
	authority := certstest.New(w.t, "authority of the region")
	cert, key, _ := authority.Issue("tko-server", func(c *x509.Certificate) {
		certstest.Localhost(c)
		c.IPAddresses = append(c.IPAddresses, net.ParseIP(host))
	})
	paths := certstest.Write(w.t, dir, certstest.File{Name: "server.crt", Data: cert}, certstest.File{Name: "server.key", Data: key})
	ca, err := os.OpenFile(w.ca, os.O_APPEND|os.O_WRONLY, 0)
	w.check(err)
	_, err = ca.Write(authority.PEM())
	w.check(errors.Join(err, ca.Close()))
	r.flags = []string{
		"--store=" + r.store(), "--listen-grpc=" + r.grpc, "--listen-agents=" + r.agents, "--tls-cert=" + paths[0], "--tls-key=" + paths[1],
		"--agents-ca=" + filepath.Join(w.dir, "agents.crt"), "--agents-ca-key=" + filepath.Join(w.dir, "agents.key"), "--agents-silence=8s",
	}
	return r
}

func (w *world) store() string { return "sqlite:" + filepath.Join(w.dir, "tko.db") }

// program runs a command of tko-server, and returns its output.
func (w *world) program(args ...string) (string, error) {
	w.t.Helper()
	out, err := exec.Command(process.Build(w.t, "tko-server"), args...).CombinedOutput()
	return string(out), err
}

func (w *world) mustProgram(args ...string) string {
	w.t.Helper()
	out, err := w.program(args...)
	if err != nil {
		w.t.Fatalf("tko-server %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// An agentStatus is that of tko-agent status --json.
type agentStatus struct {
	Running    bool
	Epoch      int64
	Hold       string
	Connection *struct {
		Server  string
		Refused []struct{ Server string }
	}
}

func (a *agent) status() (s agentStatus, err error) {
	out, err := exec.Command(process.Build(a.w.t, "tko-agent"), "status", "--json", "--state", a.state).Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	return s, err
}

// obeys waits until the agent is connected to a region.
func (a *agent) obeys(w *world) {
	a.w.t.Helper()
	eventually.Within(a.w.t, timeLimit, "the agent is connected to "+w.agents, func() error {
		s, err := a.status()
		if err == nil && (!s.Running || s.Connection == nil || s.Connection.Server != w.agents) {
			err = errors.New("it is not")
		}
		return err
	})
}

// metric returns the line of a metric, or "".
func (w *world) metric(name string) string {
	w.t.Helper()
	response, err := http.Get("http://" + w.server.Metrics + "/metrics")
	w.check(err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	w.check(err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// A region takes over from another one with a backup of its store. From then on the agents of sites
// refuse the former one, which knows nothing of it: it neither changes nor removes anything at a
// site, at whatever moment agent and servers are killed. Before, the copy commands nothing.
func TestStaleRegionCommandsNoAgent(t *testing.T) { //nolint:funlen // one story
	t.Parallel()
	a := newWorld(t, "--agents-silence=8s", "--listen-metrics=localhost:0")
	a.site("a/1")
	id := a.deploy("a/1", "one", "v0")
	b := a.region("b")
	site := &agent{w: a, state: a.state("a/1"), repository: a.state("a/1") + ".git", token: a.token("a/1", time.Hour), server: a.agents, more: []string{"--server", b.agents, "--return", "2s"}}
	a.run(site)
	site.has([]string{"value: v0"}, nil)
	a.reported(id, tko.ConditionScheduled, tko.ConditionTrue)

	backup := filepath.Join(a.dir, "a.backup")
	a.mustProgram("backup", "--store="+a.store(), backup)
	late := a.deploy("a/1", "late", "after-the-backup")
	site.has([]string{"value: v0", "after-the-backup"}, nil)

	// The copy stands by: agents that can't reach the other region go on by themselves, and return.
	a.mustProgram("restore", "--store="+b.store(), "--access=backup", backup)
	b.start()
	a.server.Kill()
	eventually.Within(t, timeLimit, "the agent says that the copy isn't promoted", func() error {
		return compare(site.output.String(), []string{"commands no agents until it is promoted"}, nil)
	})
	site.drift("value: v0")
	site.has([]string{"value: v0"}, []string{"value: drifted"})
	a.start()
	site.obeys(a)
	b.server.Stop()

	// It is promoted, on purpose only.
	if out, err := b.program("promote", "--store="+b.store()); err == nil || !strings.Contains(out, "nothing was changed") {
		t.Errorf("promote without --fence-others: %v: %s", err, out)
	}
	b.mustProgram("promote", "--store="+b.store(), "--fence-others", "--reason=region A is lost")
	b.start()
	b.client = b.dialGRPC(b.grpc)
	site.obeys(b) // also while the other one can be reached
	a.server.Kill()
	promoted, err := site.status()
	a.check(err)
	if promoted.Epoch == 0 {
		t.Errorf("the agent has seen no epoch: %+v", promoted)
	}
	first := len(site.commits())

	// The region that was lost is back, with changes of users who don't know.
	a.start()
	a.client = a.dialGRPC(a.grpc)
	a.condition(tko.KindSite, "a/1", tko.ConditionConnected, tko.ConditionFalse, tko.ReasonFenced)
	a.change(id, "stale")
	if _, err := a.client.DeleteDeployment(tko.WithConfirmation(a.patient(), 1), late); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := b.server.CLI("hold", "release", "a/1"); code != 0 { // keeps what the backup doesn't have
		t.Fatal(out, stderr)
	}
	b.change(id, "v1")
	site.has([]string{"value: v1", "after-the-backup"}, nil)
	for round, value := range []string{"v2", "v3", "v4"} {
		b.server.Kill() // only the stale region is there
		if round > 0 {
			site.kill()
			site.start()
		}
		time.Sleep(4 * time.Second) // it is called, and nothing happens, which has no end
		b.start()
		if round > 1 {
			site.kill() // while it is connected again
			site.start()
		}
		b.change(id, value)
		site.has([]string{"value: " + value, "after-the-backup"}, nil)
	}
	b.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	for _, commit := range site.commits()[first:] {
		text, err := site.text(commit)
		a.check(err)
		if err := compare(text, []string{"value: v", "after-the-backup"}, []string{"stale"}); err != nil {
			t.Errorf("the commit %s: %v", commit, err)
		}
	}
	s, err := site.status()
	a.check(err)
	if s.Epoch != promoted.Epoch || s.Connection == nil || len(s.Connection.Refused) != 1 || s.Connection.Refused[0].Server != a.agents {
		t.Errorf("the status of the agent is %+v, want that it refuses the former region", s)
	}
	if line := a.metric(`tko_agent_connections_total{kind="fenced"}`); line == "" || strings.HasSuffix(line, " 0") {
		t.Errorf("the metric of the former region is %q, want that an agent refuses it", line)
	}
	c := a.condition(tko.KindSite, "a/1", tko.ConditionConnected, tko.ConditionFalse, tko.ReasonFenced)
	if !strings.Contains(c.Message, tko.FencedText("a/1", promoted.Epoch, 0)) {
		t.Errorf("the condition is %+v", c)
	}
	a.condition(tko.KindDeployment, string(id), tko.ConditionHealthy, tko.ConditionUnknown, tko.ReasonNotHeard)

	// An agent with a fresh folder learns the epoch when it is enrolled. It can't know what the promoted store has lost, and removes nothing.
	site.kill()
	fresh := &agent{w: b, state: site.state + ".fresh", repository: site.repository, token: b.token("a/1", time.Hour), server: b.agents}
	b.run(fresh)
	fresh.shows("it is held, and has learned the epoch", func(s agentStatus) bool { return s.Epoch == promoted.Epoch && strings.Contains(s.Hold, "new folder") })
	fresh.has([]string{"value: v4", "after-the-backup"}, []string{"stale"})
	fresh.kill()
	fresh.server = a.agents
	fresh.start()
	fresh.shows("the former region doesn't know it", func(s agentStatus) bool {
		return s.Running && s.Epoch == promoted.Epoch && (s.Connection == nil || s.Connection.Server == "")
	})
	fresh.has([]string{"value: v4", "after-the-backup"}, []string{"stale"})
	fresh.kill()
	fresh.server = b.agents
	fresh.start()
	if out, stderr, code := b.server.CLI("hold", "release", "a/1", "--remove", "--confirm=1"); code != 0 {
		t.Fatal(out, stderr)
	}
	fresh.has([]string{"value: v4"}, []string{"stale", "after-the-backup"})
}

// shows waits until the status of the agent is as it should be.
func (a *agent) shows(what string, is func(agentStatus) bool) {
	a.w.t.Helper()
	eventually.Within(a.w.t, timeLimit, what, func() error {
		s, err := a.status()
		if err == nil && !is(s) {
			err = fmt.Errorf("its status is %+v", s)
		}
		return err
	})
}
