package observer

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// tenants are the authors: each may change sites and templates whose IDs begin with their name and a slash, and read
// templates that begin with "shared/".
var tenants = []string{"a", "b"}

// groups is the number of groups of sites that topologies select. Sites of both tenants are in each.
const groups = 3

// The limits of the servers. They are small, so that a short run meets them.
func limitsFor(sites int) limits {
	return limits{removed: max(12, sites/20), percent: 50, created: max(20, sites/4), sites: 5}
}

// A world is an installation of TKO with a fleet.
type world struct {
	installation

	t          *testing.T
	folder     string
	repository string
	url        string // of the repository, for servers
	address    string
	webAddress string
	limits     limits
	flags      []string
	database   *pgtest.Cluster // nil with SQLite
	authority  *certstest.Authority
	// cluster has the namespaces of some sites, id begins their names, and kubeAddress is that of TKO's Kubernetes API; all
	// zero without a cluster.
	cluster         *kube.Cluster
	id, kubeAddress string

	abandoned atomic.Bool // nothing of it is judged any more

	lock   sync.Mutex
	server *process.Server
	killed map[string]int
}

func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 { // outgoing connections have ports from 32768 on
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 16_000+rand.IntN(16_000)))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// An installation is what a world consists of.
type installation struct {
	postgres bool // otherwise SQLite
	sites    int
	clusters bool   // some sites are namespaces of a cluster
	program  string // a server with a fault; "" for that of the repository
}

func newWorld(t *testing.T, in installation) *world {
	t.Helper()
	w := &world{t: t, folder: t.TempDir(), installation: in, limits: limitsFor(in.sites), address: freeAddress(t), webAddress: freeAddress(t), killed: map[string]int{}}
	w.repository = filepath.Join(w.folder, "git", "sites.git")
	w.url = w.repository
	store := "sqlite:" + filepath.Join(w.folder, "tko.db")
	if in.postgres {
		w.database = pgtest.NewCluster(t)
		w.url = serveGit(t, w.repository)
		store = w.database.DSN()
	}
	w.authority = certstest.New(t, "authority")
	certstest.Write(t, w.folder, certstest.File{Name: "ca.crt", Data: w.authority.PEM()})
	for _, name := range append([]string{"server", "root"}, tenants...) {
		cert, key, _ := w.authority.Issue(name, func(c *x509.Certificate) {
			if name == "server" {
				certstest.Localhost(c)
			}
		})
		certstest.Write(t, w.folder, certstest.File{Name: name + ".crt", Data: cert}, certstest.File{Name: name + ".key", Data: key})
	}
	if output, err := exec.Command(process.Build(t, "tko-server"), "access", "init", "--store="+store, "--admin=cert:root").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	w.flags = []string{
		"--store=" + store, "--listen-grpc=" + w.address, "--access=enforce",
		"--tls-cert=" + w.file("server.crt"), "--tls-key=" + w.file("server.key"), "--tls-client-ca=" + w.file("ca.crt"), "--tls-client-auth=require",
		"--target-git-local=" + filepath.Dir(w.repository), "--target-git-cache=" + w.file("cache"), "--remote-addresses=127.0.0.0/8", "--remote-schemes=http",
		fmt.Sprintf("--confirm-above=%d", w.limits.removed), fmt.Sprintf("--confirm-above-percent=%d", w.limits.percent),
		fmt.Sprintf("--reach-created=%d", w.limits.created), fmt.Sprintf("--reach-sites=%d", w.limits.sites), "--reach-window=24h",
		"--listen-web=" + w.webAddress, "--git-path=" + sourceFolder, "--git-interval=1s",
		"--work-lease=2s", "--retry=100ms", fmt.Sprintf("--retry-max=%ds", min(10, 1+in.sites/200)), "--modification-time=3s",
	}
	for _, tenant := range tenants {
		w.createSource(tenant)
		w.flags = append(w.flags, "--git="+sourceName(tenant)+"=file://"+w.sourceOf(tenant))
	}
	if in.clusters {
		w.useCluster()
	}
	w.start()
	w.prepareCatalog()
	return w
}

// serveGit serves a new repository over HTTP, and returns its URL.
func serveGit(t *testing.T, repository string) string {
	t.Helper()
	folder := filepath.Dir(repository)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, folder, "init", "--quiet", "--bare", "--initial-branch=main", repository)
	gittest.Run(t, repository, "config", "http.receivepack", "true")
	server := httptest.NewServer(gittest.Handler(t, folder))
	t.Cleanup(server.Close)
	return server.URL + "/" + filepath.Base(repository)
}

func (w *world) start() {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.program == "" {
		w.server = process.StartServer(w.t, w.flags...)
		return
	}
	w.server = process.StartOtherServer(w.t, w.program, w.flags...)
}

func (w *world) file(name string) string { return filepath.Join(w.folder, name) }

// dial returns a client of a subject.
func (w *world) dial(name string) *client.Client {
	w.t.Helper()
	c, err := client.Dial(client.Options{
		Address: w.address, WaitForReady: true, Author: tko.Author{Why: "set-up"},
		TLS: &client.TLS{CA: w.file("ca.crt"), Cert: w.file(name + ".crt"), Key: w.file(name + ".key"), ServerName: "localhost"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// tko runs the command as a subject, with a reason.
func (w *world) tko(ctx context.Context, name, reason, input string, args ...string) (stdout, stderr string, err error) {
	host, port, _ := net.SplitHostPort(w.address)
	cmd := exec.CommandContext(ctx, process.Build(w.t, "tko"), append(args, "--reason="+reason)...)
	cmd.Env = append(os.Environ(), "TKO_GRPC_ADDRESS="+host, "TKO_GRPC_PORT="+port, "TKO_TLS_CA="+w.file("ca.crt"), "TKO_TLS_CERT="+w.file(name+".crt"),
		"TKO_TLS_KEY="+w.file(name+".key"), "TKO_TLS_SERVER_NAME=localhost", "HOME="+w.folder)
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func parse(t *testing.T, text string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// workload returns the package of a template of a tenant. Its content names the tenant, so that the observer finds it at
// sites whichever way it came there.
func workload(name, tenant, version string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {tenant: %s, version: %s}}\n", name, tenant, version)
}

// place is the package of a topology, which the mark of its author completes.
func place(template, sites, update, mark string) string {
	return fmt.Sprintf(`
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: t}, spec: {templateId: %q}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: s}, spec: {select: %s}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: p}, spec: {templates: [{template: t, sites: [s]%s}], %s}}
`, template, sites, mark, update)
}

const mergeMark = ", merge: [{apiVersion: v1, kind: ConfigMap, name: %s}]"

func (w *world) siteID(tenant string, i int) tko.SiteID {
	return tko.SiteID(fmt.Sprintf("%s/%04d", tenant, i))
}

// isBroken reports whether the repository of a site doesn't exist, and can't be made.
func (w *world) isBroken(id tko.SiteID) bool {
	return slices.ContainsFunc(tenants, func(tenant string) bool { return id == w.siteID(tenant, w.sitesOf()-1) })
}

// brokenURL returns the URL of the repository of broken sites. A server makes a local repository that is missing, so a file is
// in its place.
func (w *world) brokenURL() string {
	broken := func(path string) string { return strings.TrimSuffix(path, ".git") + "-broken.git" }
	if w.url == w.repository {
		file := broken(w.repository)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, nil, 0o600)); err != nil {
			w.t.Fatal(err)
		}
	}
	return broken(w.url)
}

// sitesOf is the number of sites of each tenant. The last one is broken.
func (w *world) sitesOf() int { return w.sites / len(tenants) }

// prepareCatalog registers the fleet and the rights of its authors.
func (w *world) prepareCatalog() {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Minute)
	defer cancel()
	root := w.dial("root")
	check := func(_ any, err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	for _, tenant := range tenants {
		for _, role := range []string{"editor", "approver", "operator"} {
			for _, scope := range []*tkopb.Scope{
				{SiteId: tenant + "/**"}, {TemplateId: tenant + "/**", Kinds: []string{"template"}}, {TemplateId: tenant + "/top/**", Kinds: []string{"deployment"}},
			} {
				for _, subject := range w.subjectsOf(tenant) {
					check(root.Access().Bind(ctx, &tkopb.Binding{Subject: subject, Role: role, Scope: scope}))
				}
			}
		}
		for _, subject := range w.subjectsOf(tenant) {
			check(root.Access().Bind(ctx, &tkopb.Binding{Subject: subject, Role: "viewer", Scope: &tkopb.Scope{TemplateId: "shared/**", Kinds: []string{"template"}}}))
		}
	}
	for id, text := range w.templates() {
		check(root.RegisterTemplate(ctx, tko.Template{ID: id, Package: parse(w.t, text)}))
	}
	packages := map[bool]krm.Package{} // by whether the site is broken
	for bad, path := range map[bool]string{false: w.url, true: w.brokenURL()} {
		packages[bad] = parse(w.t, fmt.Sprintf("{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: repository}, spec: {url: %q}}", path))
	}
	for _, tenant := range tenants {
		for i := range w.sitesOf() {
			target := packages[w.isBroken(w.siteID(tenant, i))]
			if w.isCluster(i) {
				target = parse(w.t, clusterPackage(w.namespaceOf(tenant, i)))
			}
			check(root.RegisterSite(ctx, tko.Site{
				ID: w.siteID(tenant, i), Package: target,
				Metadata: map[string]string{"group": fmt.Sprint("g", i%groups), "pair": fmt.Sprint(tenant, i/2), "timezone": "UTC"},
			}))
		}
	}
	w.createUnits(ctx, root)
	eventually.NoError(w.t, "the rights of the authors", func() error {
		for _, tenant := range tenants {
			response, err := w.dial(tenant).Access().CanI(ctx, &tkopb.CanI{Verb: "update", Kind: "site", Id: tenant + "/0000"})
			if err != nil {
				return err
			}
			if !response.GetAllowed() {
				return fmt.Errorf("%s may not update its sites", tenant)
			}
		}
		return nil
	})
}

// subjectsOf returns the subjects that have the rights of a tenant.
func (w *world) subjectsOf(tenant string) []string {
	return []string{"cert:" + tenant, kubeSubject(tenant), "gitops:" + sourceName(tenant)}
}

// tenantOf returns the tenant whose rights a subject has; "" if it is none's.
func tenantOf(subject string) string {
	for _, tenant := range tenants {
		if subject == "cert:"+tenant || subject == kubeSubject(tenant) || subject == "gitops:"+sourceName(tenant) {
			return tenant
		}
	}
	return ""
}

// templates are the templates at the start. A "loop" places itself, and a "thief" the other tenant's templates.
func (w *world) templates() map[tko.TemplateID]string {
	all := map[tko.TemplateID]string{"shared/s:v1": workload("s", "shared", "v1")}
	for i, tenant := range tenants {
		other := tenants[1-i]
		for _, v := range []string{"v1", "v2"} {
			all[tko.TemplateID(tenant+"/w:"+v)] = workload("w", tenant, v)
			all[tko.TemplateID(tenant+"/du:"+v)] = workload("du", tenant, v)
		}
		all[tko.TemplateID(tenant+"/rival:v1")] = workload("rival", tenant, "v1")
		all[tko.TemplateID(tenant+"/secret:v1")] = fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: secret}, stringData: {tenant: %s, key: secret-of-%[1]s}}\n", tenant)
		all[tko.TemplateID(tenant+"/top/base:v1")] = "{apiVersion: v1, kind: ConfigMap, metadata: {name: top, annotations: {config.kubernetes.io/local-config: \"true\"}}, data: {tenant: " + tenant + "}}\n"
		all[tko.TemplateID(tenant+"/top/loop:v1")] = place(tenant+"/top/loop:v1", "{metadata: {group: g0}}", "update: Apply", "") + "---\n" + workload("loop", tenant, "v1")
		all[tko.TemplateID(tenant+"/top/thief:v1")] = place(other+"/secret:v1", "{all: true}", "update: Apply, budget: {delete: 100}", "")
	}
	return all
}

// killAtRandom kills the server and the database until ctx ends.
func (w *world) killAtRandom(ctx context.Context, random *rand.Rand, about time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(about/2 + time.Duration(random.Int64N(int64(about)))):
		}
		if w.database != nil && random.IntN(3) == 0 {
			w.database.Kill()
			w.database.Start() //nolint:contextcheck // it outlives the kills
			w.killed["database"]++
			continue
		}
		w.server.Kill()
		w.start()
		w.killed["server"]++
	}
}
