package callhome_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// timeLimit bounds waits. It is generous for busy machines.
const timeLimit = 2 * time.Minute

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	kube.Stop()
	process.Clean()
	os.Exit(code)
}

// A world is a server, its store, and the sites that call it.
type world struct {
	t      *testing.T
	home   string // site of its agent
	dir    string
	ca     string // file of the authority of the server
	grpc   string // address of the gRPC API
	agents string // address for agents
	flags  []string
	server *process.Server
	client *client.Client
}

// freeHost returns an address of the loopback network that other tests hardly have: neither they nor
// outgoing connections take a port of it while a server starts again.
func freeHost() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), 1+rand.IntN(250), 1+rand.IntN(250))
}

func freeAddress(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func newWorld(t *testing.T, flags ...string) *world {
	t.Helper()
	host := freeHost()
	w := &world{t: t, home: "a/1", dir: t.TempDir(), grpc: freeAddress(t, host), agents: freeAddress(t, host)}
	authority := certstest.New(t, "authority of the server")
	cert, key, _ := authority.Issue("tko-server", func(c *x509.Certificate) {
		certstest.Localhost(c)
		c.IPAddresses = append(c.IPAddresses, net.ParseIP(host))
	})
	paths := certstest.Write(t, w.dir, certstest.File{Name: "ca.crt", Data: authority.PEM()}, certstest.File{Name: "server.crt", Data: cert}, certstest.File{Name: "server.key", Data: key})
	w.ca = paths[0]
	if out, err := exec.Command(process.Build(t, "tko-server"), "agents-ca", filepath.Join(w.dir, "agents")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.flags = append([]string{
		"--store=sqlite:" + filepath.Join(w.dir, "tko.db"), "--listen-grpc=" + w.grpc, "--listen-agents=" + w.agents, "--tls-cert=" + paths[1], "--tls-key=" + paths[2],
		"--agents-ca=" + filepath.Join(w.dir, "agents.crt"), "--agents-ca-key=" + filepath.Join(w.dir, "agents.key"),
	}, flags...)
	w.start()
	w.client = w.dialGRPC(w.grpc)
	return w
}

// of returns the world for a test with a site of its own, while others use the same server.
func (w *world) of(t *testing.T, home string) *world {
	own := *w
	own.t, own.home = t, home
	return &own
}

// dialGRPC returns a client of the gRPC API at an address.
func (w *world) dialGRPC(address string) *client.Client {
	w.t.Helper()
	c, err := client.Dial(client.Options{Address: address, WaitForReady: true, Author: tko.Author{Who: "test", Why: w.t.Name()}})
	w.check(err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Agents of different sites call one server: what a test does at its site concerns no other one.
func TestAgentsOfOneServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--agents-silence=8s")
	for site, test := range map[string]func(*world){
		"stranger/1":  keyIsOfNoUseForOtherSites,
		"half-open/1": halfOpenConnectionIsReplaced,
		"full-disk/1": fullDiskOfAnAgent,
		"snapshot/1":  oldSnapshotOfAnAgent,
		"owner/1":     ownerHoldsChangesBack,
	} {
		t.Run(strings.TrimSuffix(site, "/1"), func(t *testing.T) {
			t.Parallel()
			test(w.of(t, site))
		})
	}
}

func (w *world) start() { w.server = process.StartServer(w.t, w.flags...) }

func (w *world) patient() context.Context {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), timeLimit)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// site registers a site that calls home.
func (w *world) site(id string) {
	w.t.Helper()
	_, err := w.client.RegisterSite(w.patient(), tko.Site{ID: tko.SiteID(id), Metadata: map[string]string{"place": id}, Package: krm.Package{{
		"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "site"}, "spec": map[string]any{"agent": map[string]any{}},
	}}})
	w.check(err)
}

func configMap(name, value string) krm.Package {
	return krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default"}, "data": map[string]any{"value": value}}}
}

// deploy creates a deployment that is prepared and approved.
func (w *world) deploy(site, name, value string) tko.DeploymentID {
	w.t.Helper()
	id, err := w.client.CreateDeployment(w.patient(), tko.NewDeployment{Site: tko.SiteID(site), Prepared: true, Approved: true, Merge: configMap(name, value)})
	w.check(err)
	return id
}

// change gives a deployment another value.
func (w *world) change(id tko.DeploymentID, value string) {
	w.t.Helper()
	started, err := w.client.StartModification(w.patient(), id)
	w.check(err)
	for _, r := range started.Package {
		if r.GVK().Kind == "ConfigMap" {
			r.Set(value, "data", "value")
		}
	}
	_, _, err = w.client.EndModification(w.patient(), started.Token, started.Package)
	w.check(err)
}

// token enrolls an agent of a site, and returns the file of its token.
func (w *world) token(site string, valid time.Duration) string {
	w.t.Helper()
	made, err := w.client.Access().EnrollSite(w.patient(), &tkopb.EnrollSite{SiteId: site, ValidSeconds: uint32(valid / time.Second)})
	w.check(err)
	file, err := os.CreateTemp(w.dir, "token-")
	w.check(err)
	_, err = file.WriteString(made.GetToken() + "\n")
	w.check(errors.Join(err, file.Close()))
	return file.Name()
}

// An agent is a process of tko-agent run.
type agent struct {
	w          *world
	state      string
	repository string
	kubeconfig string // of the cluster, in place of the repository
	token      string
	site       string // that it claims, for a token for several sites
	server     string
	more       []string // arguments
	cmd        *exec.Cmd
	output     eventually.Buffer
	done       chan struct{}
}

// agent starts the agent of the site.
func (w *world) agent() *agent {
	w.t.Helper()
	return w.agentOf(w.home)
}

// state returns the folder of the agent of a site.
func (w *world) state(site string) string {
	return filepath.Join(w.dir, strings.ReplaceAll(site, "/", "-"))
}

// agentOf starts the agent of a site.
func (w *world) agentOf(site string) *agent {
	w.t.Helper()
	a := &agent{w: w, state: w.state(site), repository: w.state(site) + ".git", token: w.token(site, time.Hour), server: w.agents}
	w.run(a)
	return a
}

// run starts an agent, which ends with the test.
func (w *world) run(a *agent) {
	w.t.Helper()
	a.start()
	w.t.Cleanup(func() {
		a.kill()
		if w.t.Failed() {
			w.t.Logf("tko-agent in %s:\n%s", a.state, a.output.String())
		}
	})
}

func (a *agent) command() *exec.Cmd {
	place := []string{"--repository", a.repository}
	if a.kubeconfig != "" {
		place = []string{"--kubeconfig", a.kubeconfig}
	}
	if a.site != "" {
		place = append(place, "--site", a.site)
	}
	return exec.Command(process.Build(a.w.t, "tko-agent"), append([]string{"run", "--state", a.state, "--server", a.server, "--ca", a.w.ca, "--token-file", a.token, "--interval", "1s"}, append(place, a.more...)...)...)
}

func (a *agent) start() {
	a.w.t.Helper()
	a.cmd, a.done = a.command(), make(chan struct{})
	a.cmd.Stdout, a.cmd.Stderr = &a.output, &a.output
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	a.w.check(a.cmd.Start())
	cmd, done := a.cmd, a.done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
}

// kill ends the agent with SIGKILL.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	<-a.done
}

func (a *agent) git(args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"--git-dir", a.repository}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// text returns all files of a commit as one text.
func (a *agent) text(commit string) (string, error) {
	names, err := a.git("ls-tree", "-r", "--name-only", commit)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for name := range strings.Lines(names) {
		text, err := a.git("show", commit+":"+strings.TrimSpace(name))
		if err != nil {
			return "", err
		}
		all.WriteString(text + "\n")
	}
	return all.String(), nil
}

// has waits until the repository has, and doesn't have, texts.
func (a *agent) has(with, without []string) {
	a.w.t.Helper()
	eventually.Within(a.w.t, timeLimit, fmt.Sprintf("the site has %q and not %q", with, without), func() error {
		text, err := a.text("HEAD")
		if err != nil {
			return err
		}
		return compare(text, with, without)
	})
}

func compare(text string, with, without []string) error {
	for _, one := range with {
		if !strings.Contains(text, one) {
			return fmt.Errorf("there is no %q", one)
		}
	}
	for _, one := range without {
		if strings.Contains(text, one) {
			return fmt.Errorf("there is %q", one)
		}
	}
	return nil
}

// commits returns the commits, the oldest first.
func (a *agent) commits() []string {
	a.w.t.Helper()
	out, err := a.git("rev-list", "--reverse", "HEAD")
	a.w.check(err)
	return strings.Fields(out)
}

// condition waits until an entity has a condition with a status and a reason.
func (w *world) condition(kind tko.Kind, id, typ, status, reason string) tko.Condition {
	w.t.Helper()
	var found tko.Condition
	eventually.Within(w.t, timeLimit, fmt.Sprintf("%s %q has %s=%s (%s)", kind, id, typ, status, reason), func() error {
		c := w.now(kind, id, typ)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("it is %+v", c)
		}
		found = *c
		return nil
	})
	return found
}

// reported waits until a condition of a deployment is what its agent reported about its revision.
func (w *world) reported(id tko.DeploymentID, typ, status string) {
	w.t.Helper()
	eventually.Within(w.t, timeLimit, fmt.Sprintf("the agent reports %s=%s of deployment %q", typ, status, id), func() error {
		if c := w.now(tko.KindDeployment, string(id), typ); c == nil || c.Status != status || !strings.HasPrefix(c.Message, "reported by its agent at 2") {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// now returns a condition of an entity about its revision, or nil.
func (w *world) now(kind tko.Kind, id, typ string) *tko.Condition {
	w.t.Helper()
	var stamp tko.Stamp
	if kind == tko.KindSite {
		site, err := w.client.Site(w.patient(), tko.SiteID(id), 0)
		w.check(err)
		stamp = site.Stamp
	} else {
		d, err := w.client.Deployment(w.patient(), tko.DeploymentID(id), 0)
		w.check(err)
		stamp = d.Stamp
	}
	c := tko.FindCondition(stamp.Conditions, typ)
	if c == nil || c.ObservedRevision != stamp.Revision {
		return nil
	}
	return c
}
