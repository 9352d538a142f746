package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

const (
	maxKubeconfig = 1 << 20
	dialTimeout   = 5 * time.Second
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// connections holds the open connections to clusters: at most one for each
// kubeconfig and impersonated user, and no more than MaxConnections unless all are in use.
type connections struct {
	options Options

	mu      sync.Mutex
	entries map[connectionKey]*cluster
	closed  bool
	sweeper *time.Timer
}

// A connectionKey identifies a connection.
type connectionKey struct {
	kubeconfigRef

	as string // the impersonated user and groups; empty for none
}

// get returns the connection for a kubeconfig, with its current credentials, that
// impersonates a user if as isn't empty. The user of the credentials must be granted the
// kubeconfig and its host. The caller calls release when it no longer needs the connection.
func (c *connections) get(ctx context.Context, by leash.User, from kubeconfigRef, as trigger.Impersonation) (conn *cluster, release func(), err error) {
	grant, err := by.Grant(credentialOf(from), "")
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", from, err)
	}
	config, digest, err := c.credentials(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	if err := grant.At(config.Host); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", from, err)
	}
	s := connectionKey{kubeconfigRef: from}
	if as.User != "" {
		if config.Impersonate.UserName != "" {
			return nil, nil, tko.Errorf(tko.ErrInvalid, "%s: it impersonates a user itself: remove that, or spec.impersonate", from)
		}
		config.Impersonate = rest.ImpersonationConfig{UserName: as.User, Groups: as.Groups}
		s.as = fmt.Sprintf("%q", append([]string{as.User}, as.Groups...))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, tko.Errorf(tko.ErrUnavailable, "stopping")
	}
	conn = c.entries[s]
	if conn == nil || conn.digest != digest {
		fresh, err := newCluster(config, digest, c.options.Timeout)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s, err)
		}
		if conn != nil {
			c.options.Log.InfoContext(ctx, "cluster credentials changed, reconnecting", "from", s.String())
			c.retire(s)
		}
		conn = fresh
		c.entries[s] = conn
	}
	conn.users++
	c.shrink()
	return conn, sync.OnceFunc(func() { c.release(conn) }), nil
}

// credentialOf returns the name of the credential that a reference to a kubeconfig names.
func credentialOf(s kubeconfigRef) string {
	switch {
	case s.InCluster:
		return leash.Name(leash.KindServer, leash.InCluster)
	case s.Secret != "":
		return leash.SecretName(s.SecretNamespace, s.Secret)
	case s.File != "":
		return leash.Name(leash.KindKubeconfig, s.File)
	}
	return leash.Name(leash.KindServer, leash.Management)
}

func (c *connections) release(conn *cluster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.users--
	conn.used = time.Now()
	if conn.users == 0 && (conn.retired || c.closed) {
		conn.close()
		return
	}
	c.shrink()
	if c.sweeper == nil && !c.closed {
		c.sweeper = time.AfterFunc(c.options.Idle, c.sweep)
	}
}

// retire removes a connection, and closes it as soon as it has no users.
func (c *connections) retire(s connectionKey) {
	conn := c.entries[s]
	delete(c.entries, s)
	conn.retired = true
	if conn.users == 0 {
		conn.close()
	}
}

// shrink closes the least recently used connections until no more than MaxConnections
// are open, or all are in use.
func (c *connections) shrink() {
	for len(c.entries) > c.options.MaxConnections {
		var oldest *connectionKey
		for s, conn := range c.entries {
			if conn.users == 0 && (oldest == nil || conn.used.Before(c.entries[*oldest].used)) {
				oldest = &s
			}
		}
		if oldest == nil {
			return
		}
		c.retire(*oldest)
	}
}

// sweep closes idle connections.
func (c *connections) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweeper = nil
	next := time.Duration(-1)
	for s, conn := range c.entries {
		if conn.users > 0 {
			continue
		}
		left := c.options.Idle - time.Since(conn.used)
		if left <= 0 {
			c.retire(s)
		} else if next < 0 || left < next {
			next = left
		}
	}
	if next >= 0 && !c.closed {
		c.sweeper = time.AfterFunc(next, c.sweep)
	}
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.sweeper != nil {
		c.sweeper.Stop()
		c.sweeper = nil
	}
	for s := range c.entries {
		c.retire(s)
	}
}

// credentials reads the current configuration of a kubeconfig, and returns it with a
// digest of its content.
func (c *connections) credentials(ctx context.Context, s kubeconfigRef) (config *rest.Config, digest string, err error) {
	switch {
	case s.InCluster:
		config, err = c.inCluster()
	case s.Agent:
		err = tko.Errorf(tko.ErrInvalid, "spec.agent: the agent of the site has the kubeconfig")
	case s.Management:
		config, err = c.fromManagement(s)
	case s.Labelled:
		config, _, err = c.ofLabelled()
	case s.Secret != "":
		config, err = c.fromSecret(ctx, s)
	case c.options.Labelled != "" && !c.isFile(s.File):
		config, err = c.fromLabelled(ctx, s)
	default:
		config, err = c.fromFile(s)
	}
	if err != nil {
		return nil, "", err
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, "", fmt.Errorf("%s: read the certificates that it names: %w", s, err)
	}
	if err := checkExpiry(config, time.Now()); err != nil {
		return nil, "", fmt.Errorf("%s: %w", s, err)
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	if config.BearerTokenFile != "" {
		token, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return nil, "", fmt.Errorf("%s: read the token that it names: %w", s, err)
		}
		config.BearerToken, config.BearerTokenFile = strings.TrimSpace(string(token)), ""
	}
	hash := sha256.New()
	for _, part := range []string{
		config.Host, config.APIPath, config.Username, config.Password, config.BearerToken, config.ServerName,
		strconv.FormatBool(config.Insecure), string(config.CAData), string(config.CertData), string(config.KeyData),
		fmt.Sprintf("%+v", config.Impersonate), fmt.Sprintf("%v", config.ExecProvider), proxyOf(config),
	} {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return config, base64.RawURLEncoding.EncodeToString(hash.Sum(nil)), nil
}

// checkExpiry returns an error if a client certificate, which is the only credential of a
// config, has expired: a cluster refuses it with an error that doesn't say so.
func checkExpiry(config *rest.Config, now time.Time) error {
	if config.BearerToken != "" || config.BearerTokenFile != "" || config.Username != "" || config.ExecProvider != nil || config.AuthProvider != nil {
		return nil
	}
	block, _ := pem.Decode(config.CertData)
	if block == nil {
		return nil
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !now.After(certificate.NotAfter) {
		return nil //nolint:nilerr // the client of the cluster reports it
	}
	return fmt.Errorf("its client certificate, of %q, expired on %s: renew it", bounded(certificate.Subject.CommonName), certificate.NotAfter.UTC().Format(time.RFC3339))
}

// proxyOf returns the URL of the proxy that a config names, or "".
func proxyOf(config *rest.Config) string {
	if config.Proxy == nil {
		return ""
	}
	u, err := config.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "cluster"}})
	if err != nil || u == nil {
		return ""
	}
	return u.String()
}

func (c *connections) inCluster() (*rest.Config, error) {
	if !c.options.InCluster {
		return nil, tko.Errorf(tko.ErrInvalid, "spec.inCluster: this meta-scheduler may not deploy to the cluster that it runs in: its operator can allow it with --allow-in-cluster")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("spec.inCluster: %w", err)
	}
	return config, nil
}

// fromFile reads a file in the folder of kubeconfigs, or merges all files of a folder
// in it.
func (c *connections) fromFile(s kubeconfigRef) (*rest.Config, error) {
	if c.options.Kubeconfigs == "" {
		return nil, errors.New("spec.kubeconfig.file: this meta-scheduler has no folder of kubeconfigs: its operator configures one with --kubeconfigs")
	}
	root, err := os.OpenRoot(c.options.Kubeconfigs)
	if err != nil {
		return nil, fmt.Errorf("open the folder of kubeconfigs: %w", err)
	}
	defer func() { _ = root.Close() }()
	name := filepath.ToSlash(filepath.Clean(filepath.FromSlash(s.File)))
	files := []string{name}
	if info, err := root.Stat(name); err == nil && info.IsDir() {
		entries, err := fs.ReadDir(root.FS(), name)
		if err != nil {
			return nil, fmt.Errorf("spec.kubeconfig.file %q can't be read: %w", s.File, reason(err))
		}
		files = nil
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") { // a mounted Secret has hidden folders
				files = append(files, path.Join(name, e.Name()))
			}
		}
		slices.Sort(files)
	}
	merged := api.NewConfig()
	for _, file := range files {
		one, err := readKubeconfig(root, file)
		if err != nil {
			return nil, fmt.Errorf("spec.kubeconfig.file %q: %w", file, err)
		}
		origin := filepath.Join(c.options.Kubeconfigs, filepath.FromSlash(file))
		for _, cluster := range one.Clusters {
			cluster.LocationOfOrigin = origin
		}
		for _, user := range one.AuthInfos {
			user.LocationOfOrigin = origin
		}
		merge(merged, one)
	}
	if err := clientcmd.ResolveLocalPaths(merged); err != nil {
		return nil, fmt.Errorf("spec.kubeconfig.file %q: %w", s.File, err)
	}
	return c.choose(merged, s, "spec.kubeconfig.file "+fmt.Sprintf("%q", s.File))
}

// merge adds the entries of from that into doesn't have: the first file that defines
// a name wins.
func merge(into, from *api.Config) {
	if into.CurrentContext == "" {
		into.CurrentContext = from.CurrentContext
	}
	addMissing(into.Clusters, from.Clusters)
	addMissing(into.AuthInfos, from.AuthInfos)
	addMissing(into.Contexts, from.Contexts)
}

func addMissing[V any](into, from map[string]*V) {
	for name, v := range from {
		if into[name] == nil {
			into[name] = v
		}
	}
}

func readKubeconfig(root *os.Root, name string) (*api.Config, error) {
	file, err := root.Open(name)
	if err != nil {
		// Not ErrInvalid: files of mounted Secrets may appear later.
		return nil, fmt.Errorf("it can't be read: %w", reason(err))
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxKubeconfig+1))
	if err != nil {
		return nil, fmt.Errorf("it can't be read: %w", reason(err))
	}
	return parseKubeconfig(data)
}

// parseKubeconfig parses a kubeconfig. Its errors don't contain the content, as the
// parser's do.
func parseKubeconfig(data []byte) (*api.Config, error) {
	if len(data) > maxKubeconfig {
		return nil, fmt.Errorf("it is longer than %d bytes", maxKubeconfig)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, errors.New("it is not a kubeconfig")
	}
	return config, nil
}

// choose returns the config of a context. It returns ErrDenied if the cluster is
// reached through a proxy that the operator doesn't allow: a proxy can read and
// change all requests.
func (c *connections) choose(config *api.Config, s kubeconfigRef, what string) (*rest.Config, error) {
	made, err := choose(config, s, what)
	if err != nil {
		return nil, err
	}
	at := config.Contexts[cmp.Or(s.Context, config.CurrentContext)]
	cluster := config.Clusters[at.Cluster]
	if cluster == nil || cluster.ProxyURL == "" || slices.ContainsFunc(c.options.Proxies, func(allowed string) bool { return sameProxy(allowed, cluster.ProxyURL) }) {
		return made, nil
	}
	return nil, tko.Errorf(tko.ErrDenied, "%s: its cluster %q names a proxy (proxy-url), which is not one that this meta-scheduler may use: its operator allows proxies with --cluster-proxies", what, at.Cluster)
}

// sameProxy returns whether two URLs have the same scheme and host.
func sameProxy(a, b string) bool {
	one, err := url.Parse(a)
	if err != nil {
		return false
	}
	other, err := url.Parse(b)
	return err == nil && other.Host != "" && one.Scheme == other.Scheme && strings.EqualFold(one.Host, other.Host)
}

// choose returns the config of a context.
func choose(config *api.Config, s kubeconfigRef, what string) (*rest.Config, error) {
	name := cmp.Or(s.Context, config.CurrentContext)
	if config.Contexts[name] == nil {
		if s.Context == "" {
			return nil, fmt.Errorf("%s has no current context: name one in spec.kubeconfig.context", what)
		}
		return nil, fmt.Errorf("%s has no context %q", what, s.Context)
	}
	made, err := clientcmd.NewNonInteractiveClientConfig(*config, name, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: context %q: %w", what, name, err)
	}
	return made, nil
}

// fromSecret reads a kubeconfig from a Secret of the management cluster. It rejects
// kubeconfigs that would run programs or read files: users who write Secrets there
// are not the operator of this machine.
func (c *connections) fromSecret(ctx context.Context, s kubeconfigRef) (*rest.Config, error) {
	management, release, err := c.get(ctx, leash.Operator(), kubeconfigRef{Management: true}, trigger.Impersonation{})
	if err != nil {
		return nil, err
	}
	defer release()
	r, err := readSecret(ctx, management, s.SecretNamespace, s.Secret, s.String())
	if err != nil {
		return nil, err
	}
	return c.secretConfig(r, s, s.SecretKey, s.String())
}

// readSecret reads a Secret, which what describes. If it does not exist, the error is a
// waitError.
func readSecret(ctx context.Context, in *cluster, namespace, name, what string) (*unstructured.Unstructured, error) {
	r, err := in.dynamic.Resource(secrets).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, &waitError{what + ": not found yet"}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return r, nil
}

// secretConfig returns the config in a key of a Secret.
func (c *connections) secretConfig(r *unstructured.Unstructured, s kubeconfigRef, key, what string) (*rest.Config, error) {
	encoded, _, _ := unstructured.NestedString(r.Object, "data", key)
	if encoded == "" {
		return nil, &waitError{fmt.Sprintf("%s: key %q: not found yet", what, key)}
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("%s, key %q: not base64", what, key)
	}
	config, err := parseKubeconfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s, key %q: %w", what, key, err)
	}
	for _, user := range config.AuthInfos {
		if user.Exec != nil || user.AuthProvider != nil || user.ClientCertificate != "" || user.ClientKey != "" || user.TokenFile != "" {
			return nil, fmt.Errorf("%s, key %q: its users name programs or files: put the credentials into it", what, key)
		}
	}
	for _, cluster := range config.Clusters {
		if cluster.CertificateAuthority != "" {
			return nil, fmt.Errorf("%s, key %q: its clusters name files: put the certificates into it", what, key)
		}
	}
	return c.choose(config, s, what)
}

// fromManagement reads the kubeconfig of the management cluster.
func (c *connections) fromManagement(s kubeconfigRef) (*rest.Config, error) {
	if c.options.Management == "" {
		return nil, errors.New("this meta-scheduler has no management cluster: its operator names the kubeconfig of one with --management-kubeconfig")
	}
	_, config, err := fromOperator(c.options.Management, s, "the kubeconfig of the management cluster")
	return config, err
}

// fromOperator reads a kubeconfig of the operator, which what describes, and chooses a
// context.
func fromOperator(file string, s kubeconfigRef, what string) (*api.Config, *rest.Config, error) {
	read, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", what, reason(err))
	}
	if err := clientcmd.ResolveLocalPaths(read); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	config, err := choose(read, s, what)
	return read, config, err
}

// reason returns the cause of a file error, without the path on this machine.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// A waitError reports that an object doesn't exist yet that another controller
// creates.
type waitError struct{ message string }

func (e *waitError) Error() string { return e.message }

// newTransport makes an HTTP client with its own connections. Those of client-go
// share connections, which can't be closed.
func newTransport(config *rest.Config, timeout time.Duration) (*http.Client, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	config.Dial = dialer.DialContext
	if config.Proxy == nil {
		config.Proxy = http.ProxyFromEnvironment
	}
	config.Timeout = timeout
	config.QPS = -1 // no client-side limit: the API server has priority and fairness
	config.UserAgent = "tko-meta-scheduler"
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return &noRetry{inner} })
	return rest.HTTPClientFor(config)
}

// errBroken reports that a connection ended before the response.
var errBroken = errors.New("the connection broke")

// noRetry hides broken connections from client-go, which would retry for ten seconds.
// The next reconciliation tries again.
type noRetry struct{ inner http.RoundTripper }

func (o *noRetry) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.inner.RoundTrip(r)
	if err != nil && (utilnet.IsProbableEOF(err) || utilnet.IsConnectionReset(err)) {
		err = errBroken
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the idle connections to close.
func (o *noRetry) WrappedRoundTripper() http.RoundTripper { return o.inner }

func closeTransport(client *http.Client) { utilnet.CloseIdleConnectionsFor(client.Transport) }
