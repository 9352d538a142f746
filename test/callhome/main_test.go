package callhome_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// timeLimit bounds waits. It is generous for busy machines.
const timeLimit = 2 * time.Minute

func TestMain(m *testing.M) {
	code := m.Run()
	process.Clean()
	os.Exit(code)
}

// A world is a server, its store, and the sites that call it.
type world struct {
	t      *testing.T
	dir    string
	ca     string // file of the authority of the server
	agents string // address for agents
	flags  []string
	server *process.Server
	client *client.Client
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func newWorld(t *testing.T, flags ...string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), agents: freeAddress(t)}
	authority := certstest.New(t, "authority of the server")
	cert, key, _ := authority.Issue("tko-server", certstest.Localhost)
	paths := certstest.Write(t, w.dir, certstest.File{Name: "ca.crt", Data: authority.PEM()}, certstest.File{Name: "server.crt", Data: cert}, certstest.File{Name: "server.key", Data: key})
	w.ca = paths[0]
	if out, err := exec.Command(process.Build(t, "tko-server"), "agents-ca", filepath.Join(w.dir, "agents")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	grpc := freeAddress(t)
	w.flags = append([]string{
		"--store=sqlite:" + filepath.Join(w.dir, "tko.db"), "--listen-grpc=" + grpc, "--listen-agents=" + w.agents, "--tls-cert=" + paths[1], "--tls-key=" + paths[2],
		"--agents-ca=" + filepath.Join(w.dir, "agents.crt"), "--agents-ca-key=" + filepath.Join(w.dir, "agents.key"),
	}, flags...)
	w.start()
	var err error
	if w.client, err = client.Dial(client.Options{Address: grpc, WaitForReady: true, Author: tko.Author{Who: "test", Why: t.Name()}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.client.Close() })
	return w
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
	token      string
	server     string
	cmd        *exec.Cmd
	output     eventually.Buffer
	done       chan struct{}
}

// agent starts the agent of the site a/1.
func (w *world) agent() *agent {
	w.t.Helper()
	const site = "a/1"
	name := strings.ReplaceAll(site, "/", "-")
	a := &agent{w: w, state: filepath.Join(w.dir, name), repository: filepath.Join(w.dir, name+".git"), token: w.token(site, time.Hour), server: w.agents}
	a.start()
	w.t.Cleanup(func() {
		a.kill()
		if w.t.Failed() {
			w.t.Logf("tko-agent of %s:\n%s", site, a.output.String())
		}
	})
	return a
}

func (a *agent) command() *exec.Cmd {
	return exec.Command(process.Build(a.w.t, "tko-agent"), "run", "--state", a.state, "--server", a.server, "--ca", a.w.ca, "--token-file", a.token, "--repository", a.repository, "--interval", "1s")
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
