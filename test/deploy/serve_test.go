package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// The chart's installation serves kubectl. Without containers, the data controller
// runs in this test, with the chart's flags, service account and certificate. The API
// server reaches it through the chart's APIService.
func TestInstalledDataControllerServesKubectl(t *testing.T) {
	const namespace = "tko-serves"
	c := cluster(t)
	c.Kubectl(t, "create", "namespace", namespace)
	defer c.Kubectl(t, "delete", "namespace", namespace, "--wait=false")
	manifest := mustHelm(t, namespace, map[string]any{"kubernetesSites": map[string]any{"management": true}, "serviceMonitor": map[string]any{"enabled": true}})
	apply(t, c, manifest)
	defer apply(t, c, manifest, "delete", "--ignore-not-found")
	certificates := exec.Command(filepath.Join(folder, "certificates.sh"), namespace)
	certificates.Env = c.Env(c.Kubeconfig)
	if out, err := certificates.CombinedOutput(); err != nil {
		t.Fatalf("certificates.sh: %v\n%s", err, out)
	}

	folder := t.TempDir()
	for _, file := range []string{"tls.crt", "tls.key", "ca.crt"} {
		write(t, filepath.Join(folder, file), decoded(t, c.Kubectl(t, "-n", namespace, "get", "secret", "tko-data-tls", "-o", "jsonpath={.data."+strings.ReplaceAll(file, ".", `\.`)+"}")))
	}
	var args []string
	if err := json.Unmarshal([]byte(c.Kubectl(t, "-n", namespace, "get", "deployment", "tko-data", "-o", "jsonpath={.spec.template.spec.containers[0].args}")), &args); err != nil {
		t.Fatal(err)
	}
	port := process.FreePort(t)
	for i := range args {
		args[i] = strings.NewReplacer("*:50050", "localhost:0", "*:50052", "localhost:"+strconv.Itoa(port), "*:50059", "localhost:0", "/certificate/", folder+"/").Replace(args[i])
	}
	account := kubeconfig(t, c, namespace, "tko-data")
	server := process.StartServer(t, append(args, "--store=sqlite::memory:", "--kubernetes-kubeconfig="+account)...)

	// Without pods, the Service points to this machine, and the APIService to this
	// port.
	c.Kubectl(t, "-n", namespace, "patch", "service", "tko-data", "--type=merge", "-p", `{"spec":{"type":"ExternalName","externalName":"localhost","clusterIP":"","clusterIPs":null,"ipFamilies":null,"ipFamilyPolicy":null,"selector":null}}`)
	c.Kubectl(t, "patch", "apiservice", "v1alpha1.tko.nephio.org", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"service":{"port":%d}}}`, port))
	c.Kubectl(t, "wait", "--for=condition=Available", "--timeout=4m", "apiservice/v1alpha1.tko.nephio.org")
	// Available may become False once more on a slow machine, before clients find the kinds.
	c.Eventually(t, "List", "get", "sites.tko.nephio.org", "-o", "jsonpath={.kind}")

	// Garbage collection works for owner references in both directions; see below.
	owned := func(object, owner string) {
		t.Helper()
		reference := c.Kubectl(t, "get", owner, "-o", `jsonpath=apiVersion: {.apiVersion}, kind: {.kind}, name: {.metadata.name}, uid: {.metadata.uid}`)
		c.Apply(t, object+", ownerReferences: [{"+reference+"}]}")
	}
	c.Kubectl(t, "create", "clusterrole", "serve-owner", "--verb=get", "--resource=pods")
	owned("apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {name: owned", "clusterrole/serve-owner")
	owned("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owned, namespace: "+namespace, "site.tko.nephio.org/owned")

	// Users have the rights of the chart's roles.
	c.Kubectl(t, "create", "clusterrolebinding", "serve-viewer", "--clusterrole=tko-viewer", "--user=serve-viewer")
	c.Kubectl(t, "create", "clusterrolebinding", "serve-editor", "--clusterrole=tko-editor", "--user=serve-editor")
	defer c.Kubectl(t, "delete", "clusterrolebinding", "serve-viewer", "serve-editor")
	const template = "apiVersion: tko.nephio.org/v1alpha1\nkind: Template\nmetadata: {name: served}\n"
	c.Eventually(t, "yes", "auth", "can-i", "create", "templates.tko.nephio.org", "--as=serve-editor")
	viewer, editor := c.UserKubeconfig(t, "serve-viewer"), c.UserKubeconfig(t, "serve-editor")
	if _, stderr, code := c.Try(t, editor, template, "create", "-f", "-"); code != 0 {
		t.Fatalf("an editor may create: %s", stderr)
	}
	if out, stderr, code := c.Try(t, viewer, "", "get", "tko", "-o", "name"); code != 0 || strings.TrimSpace(out) != "site.tko.nephio.org/owned\ntemplate.tko.nephio.org/served" {
		t.Errorf("a viewer sees %q, %s", out, stderr)
	}
	if _, stderr, code := c.Try(t, viewer, template, "delete", "-f", "-"); code == 0 || !strings.Contains(stderr, "cannot delete") {
		t.Errorf("a viewer may not delete: %d, %s", code, stderr)
	}
	if out, stderr, code := server.CLI("template", "list"); code != 0 || !strings.Contains(out, "served") {
		t.Errorf("TKO has %s%s", out, stderr)
	}

	c.Kubectl(t, "create", "clusterrolebinding", "release-managers", "--clusterrole=tko-approver", "--group=release-managers")
	defer c.Kubectl(t, "delete", "clusterrolebinding", "release-managers")
	c.Eventually(t, "yes", "auth", "can-i", "update", "deployments.tko.nephio.org", "--subresource=approval", "--as=alice", "--as-group=release-managers")
	c.Eventually(t, "no", "auth", "can-i", "update", "deployments.tko.nephio.org", "--subresource=approval", "--as=alice")

	// Prometheus reads metrics as the ServiceMonitor describes, if its account has
	// the role.
	c.Kubectl(t, "-n", namespace, "create", "serviceaccount", "prometheus")
	if code, _ := metrics(t, c, namespace, folder, port); code != http.StatusForbidden {
		t.Errorf("metrics without a role: %d", code)
	}
	c.Kubectl(t, "create", "clusterrolebinding", "serve-metrics", "--clusterrole=tko-metrics", "--serviceaccount="+namespace+":prometheus")
	defer c.Kubectl(t, "delete", "clusterrolebinding", "serve-metrics")
	c.Eventually(t, "yes", "auth", "can-i", "get", "/metrics", "--as=system:serviceaccount:"+namespace+":prometheus")
	var code int
	var text string
	eventually.True(t, "access to the metrics", func() bool { // decisions are cached for some seconds
		code, text = metrics(t, c, namespace, folder, port)
		return code != http.StatusForbidden
	})
	if code != http.StatusOK || !strings.Contains(text, "apiserver_request_total{") {
		t.Errorf("metrics: status %d", code)
	}

	c.Kubectl(t, "delete", "clusterrole", "serve-owner")
	began := time.Now()
	c.Eventually(t, "", "get", "sites.tko.nephio.org", "-o", "name")
	c.Eventually(t, "", "-n", namespace, "get", "configmap", "owned", "-o", "name", "--ignore-not-found")
	t.Logf("the owned objects were collected after %s", time.Since(began).Round(time.Second))

	// The meta-scheduler uses the kubeconfig that it gets, and has the rights that it
	// needs.
	text = c.Kubectl(t, "-n", namespace, "get", "configmap", "tko-management", "-o", `jsonpath={.data.kubeconfig}`)
	const mounted = "/var/run/secrets/kubernetes.io/serviceaccount/"
	write(t, filepath.Join(folder, "ca.crt"), c.CA())
	write(t, filepath.Join(folder, "token"), []byte(token(t, c, namespace, "tko-meta-scheduler")))
	management := filepath.Join(folder, "management")
	write(t, management, []byte(strings.NewReplacer("https://kubernetes.default.svc", c.URL(), mounted, folder+"/").Replace(text)))
	if who, stderr, _ := c.Try(t, management, "", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); who != "system:serviceaccount:"+namespace+":tko-meta-scheduler" || strings.Count(text, mounted) != 2 {
		t.Errorf("the kubeconfig\n%s\nis for %q, %s", text, who, stderr)
	}
	for _, can := range []string{"yes get secrets", "no list secrets", "yes create configmaps", "yes list configmaps", "yes delete configmaps", "yes create namespaces", "no delete namespaces"} {
		want, do, _ := strings.Cut(can, " ")
		c.Eventually(t, want, append([]string{"-n", "sites", "auth", "can-i", "--as=system:serviceaccount:" + namespace + ":tko-meta-scheduler"}, strings.Fields(do)...)...)
	}
}

// kubeconfig returns the kubeconfig of a service account, with a token as pods have
// it.
func kubeconfig(t *testing.T, c *kube.Cluster, namespace, account string) string {
	t.Helper()
	text, err := yaml.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{object{"name": "c", "cluster": object{"server": c.URL(), "certificate-authority-data": c.CA()}}},
		"users":    []any{object{"name": "c", "user": object{"token": token(t, c, namespace, account)}}},
		"contexts": []any{object{"name": "c", "context": object{"cluster": "c", "user": "c"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, path, text)
	return path
}

func token(t *testing.T, c *kube.Cluster, namespace, account string) string {
	t.Helper()
	return strings.TrimSpace(c.Kubectl(t, "-n", namespace, "create", "token", account))
}

// metrics requests the metrics as the ServiceMonitor configures Prometheus: with its
// account's token, and verifying the certificate.
func metrics(t *testing.T, c *kube.Cluster, namespace, folder string, port int) (int, string) {
	t.Helper()
	monitor := c.Kubectl(t, "-n", namespace, "get", "servicemonitor", "tko-data", "-o", "json")
	var o object
	if err := json.Unmarshal([]byte(monitor), &o); err != nil {
		t.Fatal(err)
	}
	endpoint := at(o, "spec", "endpoints").([]any)[0].(object)
	name, _ := at(endpoint, "tlsConfig", "serverName").(string)
	path, _ := endpoint["path"].(string)
	ca, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost:"+strconv.Itoa(port)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token(t, c, namespace, "prometheus"))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) == 0 {
		t.Fatalf("%q: %v", text, err)
	}
	return raw
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
