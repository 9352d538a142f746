package kubernetes_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func conditions(r report.State) []tko.Condition {
	return []tko.Condition{
		{Type: tko.ConditionScheduled, Status: r.Scheduled.Status, Reason: r.Scheduled.Reason, Message: r.Scheduled.Message, LastTransition: time.Now()},
		{Type: tko.ConditionHealthy, Status: r.Healthy.Status, Reason: r.Healthy.Reason, Message: r.Healthy.Message, LastTransition: time.Now()},
	}
}

func TestUnreachableClusterIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	d := deployment("a", configMap("x", "1"))
	d.Stamp.Conditions = conditions(w.reconcile(d).Deployments["a"])
	w.gate.down.Store(true)
	r, err := w.schedule(t.Context(), d, deployment("new", configMap("y", "1")))
	if err == nil || !strings.Contains(err.Error(), "unreachable") || errors.Is(err, tko.ErrInvalid) {
		t.Error(err)
	}
	if n := w.gate.refused.Load(); n > 2 {
		t.Errorf("%d requests in one reconciliation", n)
	}
	same(t, "the site", []string{"Unknown", "Unreachable", ""}, []string{r.Site.Healthy.Status, r.Site.Healthy.Reason, r.Site.Scheduled.Status})
	same(t, "the health", "Unknown", r.Deployments["a"].Healthy.Status)
	same(t, "one that never was there", "Unknown Unreachable", r.Deployments["new"].Healthy.Status+" "+r.Deployments["new"].Healthy.Reason)
	if r.Requeue != kubernetes.Soon {
		t.Errorf("the next attempt is after %s", r.Requeue)
	}

	// The longer the cluster is unreachable, the longer are the intervals; the
	// condition stays the same.
	w.site.Stamp.Conditions = conditions(r.Site)
	w.site.Stamp.Conditions[1].LastTransition = time.Now().Add(-time.Minute)
	again, _ := w.schedule(t.Context(), d)
	same(t, "said again", r.Site, again.Site)
	if again.Requeue < 30*time.Second || again.Requeue > time.Minute {
		t.Errorf("the next attempt is after %s", again.Requeue)
	}
	w.site.Stamp.Conditions[1].LastTransition = time.Now().Add(-24 * time.Hour)
	again, _ = w.schedule(t.Context(), d)
	if again.Requeue > 11*time.Minute {
		t.Errorf("the next attempt is after %s", again.Requeue)
	}

	// Without a kubeconfig, the health is unknown too.
	w.set("none.yaml", "kubeconfig", "file")
	r, err = w.schedule(t.Context(), d)
	if err == nil || r.Site.Healthy.Reason != trigger.ReasonUnknown || r.Deployments["a"].Healthy.Reason != trigger.ReasonUnknown {
		t.Errorf("without a kubeconfig: %v, %v", r, err)
	}
	w.set("edge.yaml", "kubeconfig", "file")

	w.gate.down.Store(false)
	r = w.reconcile(d)
	same(t, "it is back", "True Healthy", r.Site.Healthy.Status+" "+r.Site.Healthy.Reason)
}

func TestReconciliationContinuesAfterAPIServerRestart(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	dir := t.TempDir()
	text, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "edge.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	target := kubernetes.New(kubernetes.Options{Kubeconfigs: dir})
	defer target.Close()
	cluster := krm.Resource{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "spec": map[string]any{"kubeconfig": map[string]any{"file": "edge.yaml"}}}
	reconcile := func(value string) (report.Report, error) {
		return target.Schedule(t.Context(), cluster, tko.Site{ID: "s"}, []tko.Deployment{deployment("a", configMap("x", value))}, nil)
	}
	if _, err := reconcile("1"); err != nil {
		t.Fatal(err)
	}
	c.StopAPI()
	r, err := reconcile("2")
	if err == nil || r.Site.Healthy.Reason != trigger.ReasonUnreachable || !strings.Contains(err.Error(), "unreachable: connection refused") {
		t.Errorf("while the API server is stopped: %v, %v", r.Site, err)
	}
	c.StartAPI(t)
	if _, err = reconcile("2"); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(kubetest.Config(c))
	if err != nil {
		t.Fatal(err)
	}
	u, err := client.Resource(kinds["ConfigMap"]).Namespace("default").Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "what is there", "2", krm.Resource(u.Object).Text("data", "key"))
}

func TestUnreadableObjectsStayWhileOthersAreReconciled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	var forbidden atomic.Bool
	guard := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if forbidden.Load() && strings.Contains(r.URL.Path, "/secrets") {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusForbidden)
			_, _ = rw.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "secrets are not for you", "code": 403}`))
			return
		}
		w.gate.Config.Handler.ServeHTTP(rw, r)
	}))
	defer guard.Close()
	w.kubeconfig("edge.yaml", guard.URL, "")
	a := func(value string) tko.Deployment {
		return deployment("a", configMap("x", value), secret("one", "1"), secret("two", "1"))
	}
	w.reconcile(a("1"), deployment("b", secret("three", "1"), configMap("y", "1")))
	forbidden.Store(true)
	r, err := w.schedule(t.Context(), a("2"), deployment("c", configMap("z", "1")))
	same(t, "said", map[tko.DeploymentID]string{"a": "False Failed", "c": "True Applied"}, said(r))
	if text := r.Deployments["a"].Scheduled.Message; err == nil || !strings.Contains(text, "can't be read") || !strings.Contains(text, "secrets are not for you") {
		t.Errorf("%v: %s", err, text)
	}
	same(t, "health", "Unhealthy", r.Deployments["a"].Healthy.Reason)
	same(t, "changed", "2", w.must("ConfigMap", "x").Text("data", "key"))
	same(t, "what is there", []string{"x", "z"}, w.there("ConfigMap"))
	same(t, "nothing is forgotten", []string{"a ConfigMap x", "a Secret one", "a Secret two", "b Secret three", "c ConfigMap z"}, w.inventory())
	r = w.reconcile()
	same(t, "said", "Removing", r.Site.Scheduled.Reason)
	same(t, "nothing is forgotten", []string{"a Secret one", "a Secret two", "b Secret three"}, w.inventory())
	forbidden.Store(false)
	w.reconcile()
	same(t, "what is there", []string{}, w.there("Secret"))
	same(t, "inventory", []string{}, w.inventory())
}

func TestFewUnreachableClustersAreTriedConcurrently(t *testing.T) {
	t.Parallel()
	var trying, most atomic.Int64
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := trying.Add(1)
		defer trying.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-release
		panic(http.ErrAbortHandler)
	}))
	defer slow.Close()
	dir := t.TempDir()
	text := `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "` + slow.URL + `"}}], users: [{name: u, user: {token: x}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`
	if err := os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	target := kubernetes.New(kubernetes.Options{Kubeconfigs: dir})
	defer target.Close()
	site := tko.Site{ID: "s", Stamp: tko.Stamp{Conditions: []tko.Condition{{Type: tko.ConditionHealthy, Status: tko.ConditionUnknown, Reason: trigger.ReasonUnreachable, Message: "as before"}}}}
	cluster := krm.Resource{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "spec": map[string]any{"kubeconfig": map[string]any{"file": "edge.yaml"}}}
	const all = 50
	ended := make(chan error, all)
	for range all {
		go func() {
			_, err := target.Schedule(t.Context(), cluster, site, nil, nil)
			ended <- err
		}()
	}
	for range all - kubernetes.MaxProbes {
		if err := <-ended; err == nil || err.Error() != "as before" {
			t.Errorf("a cluster that is not tried: %v", err)
		}
	}
	close(release)
	for range kubernetes.MaxProbes {
		if err := <-ended; err == nil || err.Error() == "as before" {
			t.Errorf("a cluster that is tried: %v", err)
		}
	}
	if most.Load() > kubernetes.MaxProbes {
		t.Errorf("%d clusters were tried concurrently", most.Load())
	}
}

func TestRotatedCredentialsAreUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	var good atomic.Value
	good.Store("one")
	guard := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+good.Load().(string) {
			http.Error(rw, "no", http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization")
		w.gate.Config.Handler.ServeHTTP(rw, r)
	}))
	defer guard.Close()
	d := deployment("a", configMap("x", "1"))
	try := func(what string, works bool) {
		t.Helper()
		_, err := w.schedule(t.Context(), d)
		if (err == nil) != works {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && (strings.Contains(err.Error(), "one") || strings.Contains(err.Error(), "two")) {
			t.Errorf("%s: the error contains a secret: %v", what, err)
		}
	}
	w.kubeconfig("edge.yaml", guard.URL, "one")
	try("the first token", true)
	good.Store("two")
	try("a token that is good no longer", false)
	w.kubeconfig("edge.yaml", guard.URL, "two")
	try("the second token", true)
	w.kubeconfig("edge.yaml", guard.URL, "one")
	try("the first token again", false)

	// The same with a Secret of the management cluster.
	management := filepath.Join(w.dir, "management.yaml")
	w.kubeconfig("management.yaml", w.gate.URL, "")
	w.target.Close()
	w.target = kubernetes.New(kubernetes.Options{Management: management})
	w.set(map[string]any{"clusterAPI": map[string]any{"name": "edge", "namespace": w.ns}}, "kubeconfig")
	r, err := w.schedule(t.Context(), d)
	if err == nil || r.Site.Scheduled.Reason != trigger.ReasonWaiting || !strings.Contains(err.Error(), "not found yet") {
		t.Errorf("without a Secret: %v %v", r.Site.Scheduled, err)
	}
	kubeconfig := func(token string) string {
		w.kubeconfig("edge.yaml", guard.URL, token)
		text, err := os.ReadFile(filepath.Join(w.dir, "edge.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(text)
	}
	s := resource("v1", "Secret", "edge-kubeconfig")
	s["data"] = map[string]any{"value": kubeconfig("two")}
	w.create(s)
	try("the token of a Secret", true)
	good.Store("three")
	try("a token that is good no longer", false)
	w.patch("Secret", "edge-kubeconfig", `{"data": {"value": "`+kubeconfig("three")+`"}}`)
	try("a new token of a Secret", true)
}

func TestKubeconfigFromSecretMustNotNameProgramsOrFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.kubeconfig("management.yaml", w.gate.URL, "")
	target := kubernetes.New(kubernetes.Options{Management: filepath.Join(w.dir, "management.yaml")})
	defer target.Close()
	for name, in := range map[string]struct{ user, cluster string }{
		"program":       {user: "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}"},
		"auth-provider": {user: "auth-provider: {name: gcp, config: {cmd-path: /bin/true}}"},
		"token":         {user: "tokenFile: /etc/hostname"},
		"certificate":   {user: "client-certificate: /etc/hostname"},
		"key":           {user: "client-key: /etc/hostname"},
		"authority":     {cluster: "certificate-authority: /etc/hostname"},
	} {
		s := resource("v1", "Secret", name)
		s["stringData"] = map[string]any{"value": `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1", ` + in.cluster + `}}], users: [{name: u, user: {` + in.user + `}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`}
		w.create(s)
		w.set(map[string]any{"secret": map[string]any{"name": name, "namespace": w.ns}}, "kubeconfig")
		_, err := target.Schedule(t.Context(), w.cluster, w.site, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "put the c") || !strings.Contains(err.Error(), "into it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A kubeconfig's proxy is not used, wherever the kubeconfig comes from, unless the
// operator allows it.
func TestProxyOfKubeconfigIsNotFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.gate.Config.Handler.ServeHTTP(rw, r)
	}))
	defer proxy.Close()
	text := `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://cluster.invalid", proxy-url: "` + proxy.URL + `"}}], users: [{name: u, user: {}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`
	if err := os.WriteFile(filepath.Join(w.dir, "proxied.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.kubeconfig("management.yaml", w.gate.URL, "")
	s := resource("v1", "Secret", "proxied")
	s["stringData"] = map[string]any{"value": text}
	w.create(s)
	sources := map[string]any{
		"file":   map[string]any{"file": "proxied.yaml"},
		"Secret": map[string]any{"secret": map[string]any{"name": "proxied", "namespace": w.ns}},
	}
	try := func(proxies ...string) (failed int) {
		target := kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Management: filepath.Join(w.dir, "management.yaml"), Proxies: proxies})
		defer target.Close()
		for name, from := range sources {
			w.set(from, "kubeconfig")
			_, err := target.Schedule(t.Context(), w.cluster, w.site, nil, nil)
			if err != nil {
				failed++
				if !errors.Is(err, tko.ErrDenied) || !strings.Contains(err.Error(), "--cluster-proxies") {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		return failed
	}
	same(t, "refused", len(sources), try())
	same(t, "another is allowed", len(sources), try("http://proxy.example.net:3128"))
	same(t, "requests to the proxy", 0, asked.Load())
	same(t, "allowed", 0, try(proxy.URL+"/"))
	if asked.Load() == 0 {
		t.Error("the allowed proxy is not used")
	}
}

func TestKubeconfigFileMayNameProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	got := make(chan string, 100)
	guard := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		r.Header.Del("Authorization")
		w.gate.Config.Handler.ServeHTTP(rw, r)
	}))
	defer guard.Close()
	program := filepath.Join(w.dir, "login")
	script := "#!/bin/sh\necho '{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {\"token\": \"told\"}}'\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	text := `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "` + guard.URL + `", insecure-skip-tls-verify: true}}], contexts: [{name: c, context: {cluster: c, user: u}}],
  users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, interactiveMode: Never}}}]}`
	if err := os.WriteFile(filepath.Join(w.dir, "edge.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.reconcile(deployment("a", configMap("x", "1")))
	same(t, "authorization", "Bearer told", <-got)
}

func TestEveryKubeconfigChangeReconnects(t *testing.T) {
	t.Parallel()
	first, second := certificate(t, "first"), certificate(t, "second")
	got := make(chan string, 100)
	guard := func(name string) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			as := ""
			if all := r.TLS.PeerCertificates; len(all) > 0 {
				as = all[0].Subject.CommonName
			}
			got <- strings.TrimSpace(strings.Join([]string{name, as, user, password, r.Header.Get("Impersonate-User")}, " "))
			http.Error(rw, "no", http.StatusForbidden)
		}))
		s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	a, b := guard("a"), guard("b")
	dir := t.TempDir()
	target := kubernetes.New(kubernetes.Options{Kubeconfigs: dir})
	defer target.Close()
	cluster := krm.Resource{"spec": map[string]any{"kubeconfig": map[string]any{"file": "edge.yaml"}}}
	for _, step := range []struct {
		server     *httptest.Server
		user, want string
	}{
		{a, first, "a first"},
		{b, first, "b first"},
		{b, second, "b second"},
		{b, "{username: u, password: p}", "b  u p"},
		{b, "{username: u, password: q}", "b  u q"},
		{b, "{username: v, password: q}", "b  v q"},
		{b, "{username: v, password: q, as: w}", "b  v q w"},
	} {
		text := `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "` + step.server.URL + `", insecure-skip-tls-verify: true}}],
  contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: ` + step.user + `}]}`
		if err := os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := target.Schedule(t.Context(), cluster, tko.Site{ID: "s"}, nil, nil); err == nil {
			t.Error("no error")
		}
		same(t, "who asked where", step.want, <-got)
	}
}

// certificate returns the user entry of a kubeconfig with a client certificate for
// the name.
func certificate(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, data []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	return "{client-certificate-data: " + text("CERTIFICATE", der) + ", client-key-data: " + text("PRIVATE KEY", secret) + "}"
}

func TestInvalidClusterSpecIsExplained(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, "in", name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "in", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := func(name string) string {
		return strings.ReplaceAll(`{apiVersion: v1, kind: Config, clusters: [{name: N, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: N, user: {}}], contexts: [{name: N, context: {cluster: N, user: N}}]}`, "N", name)
	}
	write("all/a.yaml", config("a"))
	write("all/b.yaml", config("b"))
	write("all/..data/c.yaml", "not read")
	write("broken.yaml", "clusters: hunter2")
	if err := os.Symlink(filepath.Join(dir, "out.yaml"), filepath.Join(dir, "in", "link.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "out.yaml"), []byte(config("a")), 0o600); err != nil {
		t.Fatal(err)
	}
	file := func(name, in string) map[string]any {
		return map[string]any{"kubeconfig": map[string]any{"file": name, "context": in}}
	}
	tests := map[string]struct {
		why     string
		spec    map[string]any
		want    string
		invalid bool
	}{
		"a context of a folder": {"every file in it counts", file("all", "b"), "unreachable: connection refused", false},
		"no such context":       {"it is named", file("all", "z"), `has no context "z"`, false},
		"no current context":    {"the remedy is named", file("all", ""), "spec.kubeconfig.context", false},
		"not there":             {"it may come", file("none.yaml", ""), "can't be read", false},
		"no kubeconfig":         {"what is in it isn't shown", file("broken.yaml", ""), "it is not a kubeconfig", false},
		"outside":               {"other files of the machine aren't for sites", file("../out.yaml", "a"), "not below", true},
		"absolute":              {"the same", file("/etc/kubernetes/admin.conf", "a"), "not below", true},
		"by a link":             {"the same", file("link.yaml", "a"), "can't be read", false},
		"in the cluster":        {"it would be the server's own rights", map[string]any{"inCluster": true}, "--allow-in-cluster", true},
		"a Secret":              {"there is no management cluster", map[string]any{"kubeconfig": map[string]any{"secret": map[string]any{"name": "x"}}}, "--management-kubeconfig", false},
		"nowhere":               {"it must be said", map[string]any{}, "kubeconfig: missing", true},
		"two places":            {"one must be meant", map[string]any{"inCluster": true, "kubeconfig": map[string]any{"file": "x"}}, "exactly one", true},
		"a bad policy":          {"a word that isn't known means nothing", map[string]any{"inCluster": true, "drift": "Fix"}, "none of Correct", true},
		"a bad pointer":         {"it would ignore nothing", map[string]any{"inCluster": true, "ignore": []any{map[string]any{"kind": "X", "pointers": []any{"spec"}}}}, "not a JSON pointer", true},
	}
	target := kubernetes.New(kubernetes.Options{Kubeconfigs: filepath.Join(dir, "in")})
	t.Cleanup(target.Close)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := target.Schedule(t.Context(), krm.Resource{"spec": test.spec}, tko.Site{ID: "s"}, nil, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, tko.ErrInvalid) != test.invalid {
				t.Errorf("%s: %v", test.why, err)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), dir)) {
				t.Errorf("the error contains the kubeconfig's content: %v", err)
			}
		})
	}
}

func TestConnectionsAreReusedAndClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{Idle: time.Hour, MaxConnections: 2})
	var open atomic.Int64
	counted := httptest.NewUnstartedServer(w.gate.Config.Handler)
	counted.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		default:
		}
	}
	counted.Start()
	defer counted.Close()
	for _, name := range []string{"a", "b", "c", "d"} {
		w.kubeconfig(name+".yaml", counted.URL, "")
		w.set(name+".yaml", "kubeconfig", "file")
		w.site.ID = tko.SiteID(name)
		w.reconcile()
	}
	eventually.True(t, "the connections beyond the bound to close", func() bool { return open.Load() == 2 })
	before := w.gate.requests.Load()
	w.reconcile()
	if open.Load() != 2 {
		t.Errorf("%d connections, want the two from before", open.Load())
	}
	if n := w.gate.requests.Load() - before; n != 1 {
		t.Errorf("a reconciliation of an empty site takes %d requests", n)
	}
	w.target.Close()
	eventually.True(t, "the connections to close", func() bool { return open.Load() == 0 })

	w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Idle: time.Millisecond})
	w.reconcile()
	eventually.True(t, "what isn't used to close", func() bool { return open.Load() == 0 })
}

func TestInterruptedReconciliationReportsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := w.schedule(ctx, deployment("a", configMap("x", "1")))
	if err == nil {
		t.Error("no error")
	}
	same(t, "said", report.Report{}, r)
}
