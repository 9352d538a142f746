package kube

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// timeLimit bounds each wait. It is generous: other builds may slow the machine down.
const timeLimit = 4 * time.Minute

// Token is a bearer token of an administrator.
const Token = "administrator-of-tests"

// Options select the components of a cluster in addition to its API server.
type Options struct {
	// Controllers adds the controller manager, the scheduler and a kwok node.
	// Deployments then get pods, pods become ready, objects without an owner are
	// garbage-collected, deleted namespaces are removed, and aggregated roles such as
	// view have rules. Pods with an image whose name has "never-ready" never become ready.
	Controllers bool
	// Programs is the folder of the Kubernetes programs; if empty, the folder that
	// test/setup/kube.sh prints.
	Programs string
}

// A Cluster is a running Kubernetes cluster. It is safe for concurrent use.
type Cluster struct {
	// Kubeconfig is the path of an administrator's kubeconfig.
	Kubeconfig string
	// Programs is the folder of kubectl and the other programs.
	Programs string

	folder  string
	port    int
	pki     *pki
	options Options
	keeper  *keeper

	etcd, api *daemon
	others    []*daemon
}

// Start starts a cluster and closes it when the test ends. If the test failed, it
// logs the output of the cluster's programs.
func Start(t testing.TB, options Options) *Cluster {
	t.Helper()
	c, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.showLogs(t)
	return c
}

var (
	sharedLock sync.Mutex
	sharedOnes = map[Options]*Cluster{}
)

// Shared returns the cluster with these options that all tests of this process share,
// and starts it on the first call. It runs until Main stops it.
func Shared(t testing.TB, options Options) *Cluster {
	t.Helper()
	sharedLock.Lock()
	defer sharedLock.Unlock()
	c := sharedOnes[options]
	if c == nil {
		var err error
		if c, err = New(options); err != nil {
			t.Fatal(err)
		}
		sharedOnes[options] = c
	}
	c.showLogs(t)
	return c
}

// Main runs the tests of a package, then stops the clusters that Shared started. Call
// it from TestMain. The clusters also end if the test process is killed.
func Main(m *testing.M) int {
	code := m.Run()
	Stop()
	return code
}

// Stop stops the clusters that Shared started, for packages whose TestMain has more to stop than Main does.
func Stop() {
	sharedLock.Lock()
	defer sharedLock.Unlock()
	for options, c := range sharedOnes {
		c.Close()
		delete(sharedOnes, options)
	}
}

// New starts a cluster and waits until it is ready. The caller closes it.
func New(options Options) (*Cluster, error) {
	programs := options.Programs
	if programs == "" {
		var err error
		if programs, err = builtPrograms(); err != nil {
			return nil, err
		}
	}
	folder, err := os.MkdirTemp("", "tko-kubernetes-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Kubeconfig: filepath.Join(folder, "admin.kubeconfig"), Programs: programs, folder: folder, options: options}
	if c.keeper, err = keep(folder); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if err := c.start(); err != nil {
		err = fmt.Errorf("Kubernetes doesn't start: %w\n%s", err, c.logs()) //nolint:staticcheck // a name
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close stops the cluster and removes its data. Further calls do nothing.
func (c *Cluster) Close() {
	for _, d := range c.others {
		d.kill()
	}
	if c.api != nil {
		c.api.kill() // before etcd: without etcd it does not end
	}
	if c.etcd != nil {
		c.etcd.kill()
	}
	c.keeper.close()
}

// StopAPI stops the API server: it sends a signal, then kills it, because open
// watches keep it from ending. The data in etcd stay.
func (c *Cluster) StopAPI() { c.api.stop(3 * time.Second) }

// StartAPI starts the API server again, at the same address, and waits until
// it is ready.
func (c *Cluster) StartAPI(t testing.TB) {
	t.Helper()
	if err := c.startAPI(); err != nil {
		t.Fatalf("the API server doesn't start: %v\n%s", err, c.api.log())
	}
}

// URL is the address of the API server.
func (c *Cluster) URL() string { return "https://127.0.0.1:" + strconv.Itoa(c.port) }

// CA returns the PEM certificate of the authority that signed the API server's
// certificate and those of ServingCertificate.
func (c *Cluster) CA() []byte { return c.pki.ca.certificatePEM() }

// Administrator returns the certificate and the key of an administrator, in PEM.
func (c *Cluster) Administrator() (certificate, key []byte) {
	return c.pki.admin.certificatePEM(), c.pki.admin.keyPEM()
}

// User returns a client certificate for a name and groups, and its key, in PEM.
func (c *Cluster) User(t testing.TB, name string, groups ...string) (certificate, key []byte) {
	t.Helper()
	user, err := c.pki.client(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return user.certificatePEM(), user.keyPEM()
}

// FrontProxy returns a client certificate of the authority of front proxies, which may
// name users in headers, for a name, and its key, in PEM. The API server's is
// "front-proxy-client".
func (c *Cluster) FrontProxy(t testing.TB, name string) (certificate, key []byte) {
	t.Helper()
	p, err := c.pki.frontCA.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		t.Fatal(err)
	}
	return p.certificatePEM(), p.keyPEM()
}

// UserKubeconfig returns the path of a kubeconfig for a user with a client
// certificate for the name and groups.
func (c *Cluster) UserKubeconfig(t testing.TB, name string, groups ...string) string {
	t.Helper()
	user, err := c.pki.client(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := c.writeKubeconfig(path, user); err != nil {
		t.Fatal(err)
	}
	return path
}

// start starts all programs. If another process has taken one of the chosen ports
// meanwhile, it tries again with new ports, twice at most.
func (c *Cluster) start() error {
	for attempt := 1; ; attempt++ {
		ports, err := freePorts(4)
		if err != nil {
			return err
		}
		c.port = ports[0]
		if err = c.startAt(ports); err == nil || attempt == 3 || !strings.Contains(c.logs(), "address already in use") {
			return err
		}
		c.api.kill()
		c.etcd.kill()
	}
}

func (c *Cluster) startAt(ports []int) error {
	if err := c.prepare(); err != nil {
		return err
	}
	client, peer := "http://127.0.0.1:"+strconv.Itoa(ports[1]), "http://127.0.0.1:"+strconv.Itoa(ports[2])
	c.etcd = c.daemon("etcd", "--name=test", "--data-dir="+c.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=test="+peer)
	args := []string{
		"--etcd-servers=" + client, "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.port),
		"--tls-cert-file=" + c.path("apiserver.crt"), "--tls-private-key-file=" + c.path("apiserver.key"),
		"--client-ca-file=" + c.path("ca.crt"), "--token-auth-file=" + c.path("tokens.csv"),
		"--anonymous-auth=false", "--authorization-mode=RBAC", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("accounts.key"), "--service-account-signing-key-file=" + c.path("accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16,fd00:96::/108", "--endpoint-reconciler-type=none",
		"--requestheader-client-ca-file=" + c.path("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.path("front-proxy-client.crt"), "--proxy-client-key-file=" + c.path("front-proxy-client.key"),
	}
	if !c.options.Controllers {
		args = append(args, "--disable-admission-plugins=ServiceAccount") // without a controller manager, no service accounts are created
	}
	c.api = c.daemon("kube-apiserver", args...)
	if err := c.etcd.start(); err != nil {
		return err
	}
	if err := c.startAPI(); err != nil {
		return err
	}
	if !c.options.Controllers {
		return nil
	}
	return c.startControllers(ports[3])
}

// prepare writes the configuration files of the programs.
func (c *Cluster) prepare() error {
	if err := os.RemoveAll(c.path("etcd")); err != nil {
		return err
	}
	var err error
	if c.pki, err = newPKI(); err != nil {
		return err
	}
	if err := c.pki.write(c.folder); err != nil {
		return err
	}
	if err := os.WriteFile(c.path("tokens.csv"), []byte(Token+`,administrator,administrator,"system:masters"`+"\n"), 0o600); err != nil {
		return err
	}
	return c.writeKubeconfig(c.Kubeconfig, c.pki.admin)
}

func (c *Cluster) startAPI() error {
	if err := c.api.start(); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.api.await(func(ctx context.Context) error {
		return c.get(ctx, client, "/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
	})
}

const node = `{"apiVersion": "v1", "kind": "Node",
"metadata": {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {"kubernetes.io/hostname": "node", "kubernetes.io/os": "linux"}},
"status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "1000"}, "capacity": {"cpu": "64", "memory": "256Gi", "pods": "1000"}}}`

//go:embed kwok-never-ready.yaml
var neverReady []byte

func (c *Cluster) startControllers(port int) error {
	if err := os.WriteFile(c.path("kwok-never-ready.yaml"), neverReady, 0o600); err != nil {
		return err
	}
	as := []string{"--kubeconfig=" + c.Kubeconfig, "--authentication-kubeconfig=" + c.Kubeconfig, "--authorization-kubeconfig=" + c.Kubeconfig, "--leader-elect=false", "--secure-port=0"}
	c.others = []*daemon{
		c.daemon("kube-controller-manager", append([]string{
			"--service-account-private-key-file=" + c.path("accounts.key"), "--root-ca-file=" + c.path("ca.crt"), "--flex-volume-plugin-dir=" + c.path("plugins"),
			"--cluster-signing-cert-file=" + c.path("ca.crt"), "--cluster-signing-key-file=" + c.path("ca.key"),
		}, as...)...),
		c.daemon("kube-scheduler", as...),
		c.daemon("kwok", "--kubeconfig="+c.Kubeconfig, "--config="+filepath.Join(c.Programs, "kwok-stages.yaml"), "--config="+c.path("kwok-never-ready.yaml"),
			"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--node-lease-duration-seconds=40",
			"--node-ip=127.0.0.1", "--node-port=0", "--server-address=127.0.0.1:"+strconv.Itoa(port)),
	}
	for _, d := range c.others {
		if err := d.start(); err != nil {
			return err
		}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	for _, d := range c.others { // the last of them included
		if err := d.await(func(ctx context.Context) error {
			if c.get(ctx, client, "/api/v1/nodes/node") != nil {
				return c.request(ctx, client, http.MethodPost, "/api/v1/nodes", node)
			}
			return c.get(ctx, client, "/api/v1/namespaces/default/serviceaccounts/default")
		}); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) path(name string) string { return filepath.Join(c.folder, name) }

func (c *Cluster) daemon(name string, args ...string) *daemon {
	return &daemon{command: append([]string{filepath.Join(c.Programs, name)}, args...), output: c.path(name + ".log")}
}

func (c *Cluster) logs() string {
	var b strings.Builder
	for _, d := range append([]*daemon{c.etcd, c.api}, c.others...) {
		if d != nil {
			fmt.Fprintf(&b, "%s:\n%s\n", filepath.Base(d.command[0]), d.log())
		}
	}
	return b.String()
}

func (c *Cluster) showLogs(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.logs())
		}
	})
}

var builtPrograms = sync.OnceValues(func() (string, error) {
	module, err := exec.Command("go", "env", "GOMOD").Output() // of the package under test
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(filepath.Dir(strings.TrimSpace(string(module))), "test", "setup", "kube.sh"))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
})
