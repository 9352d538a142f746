package kube_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

func TestUsersHaveTheirRights(t *testing.T) {
	c := kube.Shared(t, kube.Options{})
	alice := c.UserKubeconfig(t, "alice", "readers")
	_, stderr, code := c.Try(t, alice, "", "get", "configmaps")
	if code == 0 || !strings.Contains(stderr, `User "alice" cannot list resource "configmaps"`) {
		t.Errorf("a user without rights: exit code %d, %s", code, stderr)
	}
	c.Kubectl(t, "create", "clusterrole", "reader", "--verb=get,list", "--resource=configmaps")
	c.Kubectl(t, "create", "clusterrolebinding", "readers", "--clusterrole=reader", "--group=readers")
	c.Eventually(t, "yes", "auth", "can-i", "list", "configmaps", "--as=alice", "--as-group=readers")
	_, stderr, code = c.Try(t, alice, "", "get", "configmaps")
	if code != 0 {
		t.Errorf("a user whose group has rights: exit code %d, %s", code, stderr)
	}
	client, err := kubernetes.NewForConfig(kubetest.UserConfig(t, c, "bob", "readers"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	config := kubetest.Config(c)
	config.CertData, config.KeyData, config.BearerToken = nil, nil, kube.Token
	if client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("an administrator's token: %v", err)
	}
}

func TestAggregatedServerGetsRequests(t *testing.T) {
	c := kube.Shared(t, kube.Options{})
	certificate, key := c.ServingCertificate(t)
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{TLSConfig: &tls.Config{ClientAuth: tls.RequestClientCert}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/apis/test.example.com/v1/who" {
			_, _ = fmt.Fprintf(w, "%s: %s %s", r.TLS.PeerCertificates[0].Subject, r.Header.Get("X-Remote-User"), r.Header.Get("X-Remote-Group"))
			return
		}
		_, _ = io.WriteString(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "test.example.com/v1", "resources": []}`)
	})}
	go func() { _ = server.ServeTLS(listener, certificate, key) }()
	defer server.Close()

	c.RegisterAPIService(t, "test.example.com", "v1", listener.Addr().(*net.TCPAddr).Port, c.CA())
	defer c.UnregisterAPIService(t, "test.example.com", "v1")
	if who := c.Kubectl(t, "get", "--raw", "/apis/test.example.com/v1/who"); who != "CN=front-proxy-client: administrator system:masters" {
		t.Errorf("the server is asked by %q", who)
	}
}

func TestAPIServerStopsAndStarts(t *testing.T) {
	c := kube.Start(t, kube.Options{Controllers: true})
	c.Apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "example.com/web"}]}}
`)
	c.Kubectl(t, "create", "namespace", "short-lived")
	c.StopAPI()
	if _, stderr, code := c.Try(t, c.Kubeconfig, "", "get", "nodes"); code == 0 || !strings.Contains(stderr, "refused") {
		t.Errorf("a stopped API server responds: exit code %d, %s", code, stderr)
	}
	c.StartAPI(t)
	c.Eventually(t, "2", "get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}")
	c.Kubectl(t, "delete", "namespace", "short-lived", "--timeout=4m")
	c.Close()
	c.Close()
	if _, err := os.Stat(c.Kubeconfig); !os.IsNotExist(err) {
		t.Errorf("after Close: %v", err)
	}
}
