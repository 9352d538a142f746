package faults

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// A setup is a way to install TKO.
type setup struct {
	postgres                    bool // otherwise SQLite, and all roles in one process
	tls                         bool // certificates, identities and enforced rights
	kubernetes                  bool // the Kubernetes API, served by tko-kubernetes
	data, preparers, schedulers int
}

// fleet is the number of sites that placements use.
const fleet = 6

// A world is an installation of TKO, with a link in front of each component.
type world struct {
	t      *testing.T
	setup  setup
	folder string
	disk   string // of the database

	daemons  []*daemon
	links    map[string]*link
	database *pgtest.Cluster // nil with SQLite
	store    string          // as the checker reads it
	grpc     []string        // addresses of the data servers
	git      *gitServer
	mode     string // file with the mode of the plugin

	authority, stranger *certstest.Authority
	certificates        []string // names of files that may be replaced
}

// freeAddress returns an address for a server that is started again. No outgoing
// connection gets its port meanwhile: those have ports from 32768 on.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 16_000+rand.IntN(16_000)))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	// Plugins and PostgreSQL run as other users.
	folder, err := os.MkdirTemp("", "tko-faults-") //nolint:usetesting // folders of TempDir are for their owner only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, setup: s, folder: folder, links: map[string]*link{}}
	w.git = newGitServer(t, folder)
	w.link("git", w.git.address)
	store := w.startStore()
	w.makeCertificates()
	w.startServers(store)
	w.prepareCatalog()
	return w
}

func (w *world) link(name string, ends ...string) *link {
	w.links[name] = newLink(w.t, name, ends...)
	return w.links[name]
}

// startStore returns the value of --store for the servers.
func (w *world) startStore() string {
	if !w.setup.postgres {
		w.disk = mountDisk(w.t, "256m")
		w.store = filepath.Join(w.disk, "tko.db")
		return "sqlite:" + w.store
	}
	w.disk = mountDisk(w.t, "1g")
	w.database = pgtest.NewClusterIn(w.t, w.disk)
	w.store = w.database.DSN()
	address := strings.TrimPrefix(w.store[:strings.LastIndex(w.store, "/")], "postgres://tko@")
	return strings.Replace(w.store, address, w.link("database", address).address, 1)
}

// makeCertificates makes a certificate for each component.
func (w *world) makeCertificates() {
	if !w.setup.tls {
		return
	}
	w.authority, w.stranger = certstest.New(w.t, "authority"), certstest.New(w.t, "stranger")
	certstest.Write(w.t, w.folder, certstest.File{Name: "ca.crt", Data: w.authority.PEM()})
	w.certificates = []string{"server", "preparer", "scheduler"}
	for _, name := range append([]string{"admin", "client", "observer"}, w.certificates...) {
		w.writeCertificate(name, w.authority, 12*time.Hour)
	}
}

// writeCertificate replaces a certificate and its key.
func (w *world) writeCertificate(name string, authority *certstest.Authority, validity time.Duration) {
	subject := name
	if name == "observer" {
		subject = "scheduler" // a controller, whose certificate no fault concerns
	}
	cert, key, _ := authority.Issue(subject, func(c *x509.Certificate) {
		if name == "server" {
			certstest.Localhost(c)
		}
		c.NotAfter = time.Now().Add(validity)
	})
	for suffix, data := range map[string][]byte{".key": key, ".crt": cert} {
		path := filepath.Join(w.folder, name+suffix)
		if err := os.WriteFile(path+".new", data, 0o600); err != nil {
			w.t.Error(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) file(name string) string { return filepath.Join(w.folder, name) }

func (w *world) startServers(store string) {
	common := []string{"--confirm-above=1000000", "--confirm-above-percent=100", "--reach-created=0", "--reach-sites=0", "--reach-off-reason=a test", "--work-lease=2s", "--retry=100ms", "--retry-max=1s", "--modification-time=3s", "--plugin-timeout=3s", "--audit-interval=10s"}
	schedule := []string{"--remote-addresses=127.0.0.0/8", "--remote-schemes=http"}
	webs := []string{"--listen-web="}
	if !w.setup.postgres {
		address, web := freeAddress(w.t), freeAddress(w.t)
		w.link("web", web)
		webs = []string{"--listen-web=" + web}
		w.grpc = []string{address}
		args := append(append([]string{"--store=" + store, "--listen-grpc=" + address, "--git-cache=" + w.file("git-cache")}, common...), append(schedule, webs...)...)
		if w.setup.kubernetes {
			kubernetes := freeAddress(w.t)
			w.link("kubernetes", kubernetes)
			args = append(args, "--kubernetes="+kubernetes, "--kubernetes-trust-everybody")
		}
		w.start("server", args...)
	} else {
		w.startRoles(store, common, schedule, webs)
	}
	w.link("clients", w.grpc...)
	w.link("other clients", w.grpc...)
}

func (w *world) startRoles(store string, common, schedule, webs []string) {
	var data []string
	if w.setup.tls {
		init := exec.Command(process.Build(w.t, "tko-server"), "access", "init", "--store="+w.store, "--admin=cert:admin")
		if output, err := init.CombinedOutput(); err != nil {
			w.t.Fatalf("%v\n%s", err, output)
		}
		data = []string{
			"--tls-cert=" + w.file("server.crt"), "--tls-key=" + w.file("server.key"), "--tls-client-ca=" + w.file("ca.crt"), "--tls-client-auth=require",
			"--access=enforce", "--controllers=preparer=cert:preparer", "--controllers=meta-scheduler=cert:scheduler",
		}
	}
	data = append(append(data, common...), webs...)
	for i := range w.setup.data {
		address := freeAddress(w.t)
		w.grpc = append(w.grpc, address)
		args := append([]string{"--roles=data", "--store=" + store, "--listen-grpc=" + address}, data...)
		w.start(fmt.Sprint("data-", i), args...)
	}
	controller := func(role, certificate string, more ...string) []string {
		args := append([]string{"--roles=" + role, "--data=" + w.link(role, w.grpc...).address}, append(common, more...)...)
		if w.setup.tls {
			args = append(args, "--data-tls-ca="+w.file("ca.crt"), "--data-tls-cert="+w.file(certificate+".crt"), "--data-tls-key="+w.file(certificate+".key"))
		}
		return append(args, webs...)
	}
	preparer, scheduler := controller("preparer", "preparer"), controller("meta-scheduler", "scheduler", schedule...)
	for i := range w.setup.preparers {
		w.start(fmt.Sprint("preparer-", i), preparer...)
	}
	for i := range w.setup.schedulers {
		name := fmt.Sprint("scheduler-", i)
		w.start(name, append(scheduler, "--git-cache="+w.file("git-cache-"+name))...)
	}
}

func (w *world) start(name string, args ...string) {
	w.daemons = append(w.daemons, startDaemon(w.t, name, w.folder, args...))
}

// dial returns a client with an identity, through a link, or directly to a data server.
func (w *world) dial(address, identity string, timeout time.Duration) *client.Client {
	w.t.Helper()
	o := client.Options{Address: address, Timeout: timeout, Author: tko.Author{Who: identity, Why: "the test of faults"}}
	if w.setup.tls {
		o.TLS = &client.TLS{CA: w.file("ca.crt"), Cert: w.file(identity + ".crt"), Key: w.file(identity + ".key"), ServerName: "localhost"}
	}
	c, err := client.Dial(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// patient bounds what must succeed.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
	t.Cleanup(cancel)
	return ctx
}

const (
	workPackage = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {tag: none}
---
apiVersion: faults.example/v1
kind: Kept
metadata: {name: kept}
`
	manualPackage = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {tag: none}
---
apiVersion: faults.example/v1
kind: Once
metadata: {name: once}
---
apiVersion: deployment.nephio.org/v1alpha1
kind: Deployment
metadata: {name: deployment, annotations: {nephio.org/approve: Manual}}
`
	topologyPackage = `
apiVersion: topology.nephio.org/v1alpha1
kind: Template
metadata: {name: work}
spec: {templateId: "work:v1"}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Sites
metadata: {name: all}
spec: {select: {metadata: {fleet: "yes"}}}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec: {templates: [{template: work, sites: [all]}]}
`
)

func parse(t *testing.T, text string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// prepareCatalog registers what the workload needs, before any fault.
func (w *world) prepareCatalog() {
	ctx := patient(w.t)
	admin := w.dial(w.grpc[0], "admin", 0)
	eventually.NoError(w.t, "the servers", func() error {
		for _, address := range w.grpc {
			if _, err := w.dial(address, "admin", time.Second).About(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if w.setup.tls {
		for _, role := range []string{"editor", "approver"} {
			if _, err := admin.Access().Bind(ctx, &tkopb.Binding{Subject: "cert:client", Role: role}); err != nil {
				w.t.Fatal(err)
			}
		}
		w.awaitRights(ctx)
	}
	plugins := w.file("plugins")
	program := filepath.Join(plugins, pluginName)
	w.mode = filepath.Join(plugins, "mode")
	if err := os.Mkdir(plugins, 0o755); err != nil {
		w.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	if output, err := exec.Command("cp", self, program).CombinedOutput(); err != nil {
		w.t.Fatalf("%v\n%s", err, output)
	}
	for kind, persistent := range map[string]string{"Kept": "true", "Once": "false"} {
		if _, err := admin.RegisterPlugin(ctx, tko.Plugin{
			Type: tko.PluginPrepare, Name: strings.ToLower(kind), Arguments: []string{program}, Properties: map[string]string{tko.PropertyPersistent: persistent},
			Triggers: []krm.GVK{{Group: "faults.example", Version: "v1", Kind: kind}},
		}); err != nil {
			w.t.Fatal(err)
		}
	}
	for id, text := range map[tko.TemplateID]string{"work:v1": workPackage, "manual:v1": manualPackage, "topology:v1": topologyPackage} {
		if _, err := admin.RegisterTemplate(ctx, tko.Template{ID: id, Package: parse(w.t, text)}); err != nil {
			w.t.Fatal(err)
		}
	}
	repository := parse(w.t, fmt.Sprintf("{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: repository}, spec: {url: %q}}", "http://"+w.links["git"].address+"/sites.git"))
	for i := range fleet {
		site := tko.Site{ID: tko.SiteID(fmt.Sprint("fleet/", i)), Package: repository, Metadata: map[string]string{"fleet": "yes"}}
		if _, err := admin.RegisterSite(ctx, site); err != nil {
			w.t.Fatal(err)
		}
	}
}

// awaitRights waits until all servers have read the rights of clients, which they do
// within a second.
func (w *world) awaitRights(ctx context.Context) {
	for _, address := range w.grpc {
		access := w.dial(address, "client", time.Minute).Access()
		eventually.NoError(w.t, "the rights of clients", func() error {
			for verb, kind := range map[string]string{"create": "site", "approve": "deployment"} {
				response, err := access.CanI(ctx, &tkopb.CanI{Verb: verb, Kind: kind})
				if err != nil {
					return err
				}
				if !response.GetAllowed() {
					return fmt.Errorf("%s %s is not allowed", verb, kind)
				}
			}
			return nil
		})
	}
}

// A gitServer serves the repository of the sites.
type gitServer struct {
	address, folder string
	refuse          atomic.Bool
}

func newGitServer(t *testing.T, folder string) *gitServer {
	t.Helper()
	g := &gitServer{folder: filepath.Join(folder, "sites.git")}
	gittest.Run(t, folder, "init", "--quiet", "--bare", "--initial-branch=main", g.folder)
	gittest.Run(t, g.folder, "config", "http.receivepack", "true")
	backend := gittest.Handler(t, folder)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.address = listener.Addr().String()
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if g.refuse.Load() {
			http.Error(response, "out of service", http.StatusServiceUnavailable)
			return
		}
		backend.ServeHTTP(response, request)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return g
}

// files returns the contents of the files in the repository.
func (g *gitServer) files(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	if err := exec.Command("git", "--git-dir", g.folder, "rev-parse", "--verify", "--quiet", "main").Run(); err != nil {
		return files
	}
	archive, err := exec.Command("git", "--git-dir", g.folder, "archive", "main").Output() // of one commit
	if err != nil {
		t.Fatal(err)
	}
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}

// pluginProcesses returns the processes of plugins.
func (w *world) pluginProcesses() []int {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []int
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid); err == nil && strings.Contains(string(text), w.file("plugins")) {
			found = append(found, pid)
		}
	}
	return found
}

func kill(pid int, signal syscall.Signal) { _ = syscall.Kill(pid, signal) }
