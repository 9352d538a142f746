package pod_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	streaming "k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/pod"
	"github.com/tko-orchestrator/tko/krm"
)

// A real is a real API server with a pod on a node whose kubelet is part of the
// test: it runs the commands here. Clients use a proxy, which records the
// protocols.
type real struct {
	kube      *kube.Cluster
	namespace string
	proxy     *httptest.Server

	mu      sync.Mutex
	refused bool     // whether the proxy refuses WebSocket
	spoke   []string // protocols used with the API server
	asked   []string // paths requested from the kubelet
}

func newReal(t *testing.T) *real {
	t.Helper()
	r := &real{kube: kube.Shared(t, kube.Options{})}
	kubelet := httptest.NewTLSServer(http.HandlerFunc(r.kubelet))
	t.Cleanup(kubelet.Close)
	at, err := url.Parse(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.namespace = "plugins-" + at.Port()
	manifests := fmt.Sprintf(`
{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}
---
apiVersion: v1
kind: Node
metadata: {name: %[1]s}
status: {addresses: [{type: InternalIP, address: 127.0.0.1}], daemonEndpoints: {kubeletEndpoint: {Port: %[2]s}}}
---
apiVersion: v1
kind: Pod
metadata: {name: tools, namespace: %[1]s}
spec: {nodeName: %[1]s, containers: [{name: tools, image: tools}, {name: main, image: main}]}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: tko, namespace: %[1]s}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: stranger, namespace: %[1]s}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: plugins, namespace: %[1]s}
rules: [{apiGroups: [""], resources: [pods/exec], verbs: [get, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: plugins, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: plugins}
subjects: [{kind: ServiceAccount, name: tko, namespace: %[1]s}]
`, r.namespace, at.Port())
	if _, stderr, code := r.kube.Try(t, r.kube.Kubeconfig, manifests, "create", "-f", "-"); code != 0 {
		t.Fatal(stderr)
	}
	r.kube.Eventually(t, "yes", "auth", "can-i", "create", "pods", "--subresource=exec", "--namespace="+r.namespace, "--as=system:serviceaccount:"+r.namespace+":tko")

	api, err := url.Parse(r.kube.URL())
	if err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(r.kube.CA())
	through := httputil.NewSingleHostReverseProxy(api)
	through.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}}
	r.proxy = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		protocol := strings.ToLower(q.Header.Get("Upgrade"))
		r.mu.Lock()
		refused := r.refused && protocol == "websocket"
		if !refused {
			r.spoke = append(r.spoke, protocol)
		}
		r.mu.Unlock()
		if refused {
			http.Error(w, "what is WebSocket?", http.StatusBadRequest)
			return
		}
		through.ServeHTTP(w, q)
	}))
	t.Cleanup(r.proxy.Close)
	return r
}

// kubelet is the kubelet of the pod's node.
func (r *real) kubelet(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.asked = append(r.asked, q.URL.Path)
	r.mu.Unlock()
	query := q.URL.Query()
	streaming.ServeExec(w, q, &cluster{}, "tools", "", "", query["command"],
		&streaming.Options{Stdin: query.Get("input") == "1", Stdout: query.Get("output") == "1", Stderr: query.Get("error") == "1"},
		time.Minute, time.Minute, []string{streaming.StreamProtocolV4Name})
}

// kubeconfig returns the path of a kubeconfig for a service account, through
// the proxy.
func (r *real) kubeconfig(t *testing.T, account string) string {
	t.Helper()
	token := strings.TrimSpace(r.kube.Kubectl(t, "create", "token", account, "--namespace="+r.namespace))
	return write(t, r.proxy, r.proxy.URL, token)
}

// Plugins run in pods of a real Kubernetes, over WebSocket, or SPDY where a
// proxy refuses WebSocket, for users with the right to exec.
func TestRunsInPodsOfARealAPIServer(t *testing.T) {
	t.Parallel()
	for protocol, refused := range map[string]bool{"websocket": false, "spdy/3.1": true} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			r := newReal(t)
			r.refused = refused
			kubeconfig := r.kubeconfig(t, "tko")
			e := pod.New(pod.Options{Kubeconfig: kubeconfig, MaxOutput: 10 << 20})
			in := func(script string) pod.Command {
				c := sh(script)
				c.Namespace = r.namespace
				return c
			}
			for _, size := range []int{0, 1, 5 << 20} {
				command := in("cat; echo problems >&2")
				command.Input = bytes.Repeat([]byte("\x00\xff0123456789abcdef\n"), size/19)
				stdout, stderr, err := e.Run(t.Context(), command)
				if err != nil || !bytes.Equal(stdout, command.Input) || stderr != "problems" {
					t.Errorf("%d bytes: got %d, %q, %v", len(command.Input), len(stdout), stderr, err)
				}
			}
			r.mu.Lock()
			if !slices.Equal(r.spoke, []string{protocol, protocol, protocol}) {
				t.Errorf("got the protocols %v", r.spoke)
			}
			if want := "/exec/" + r.namespace + "/tools/main"; !slices.Equal(r.asked, []string{want, want, want}) {
				t.Errorf("the kubelet got requests for %v", r.asked)
			}
			r.mu.Unlock()

			for name, test := range map[string]struct {
				change func(*pod.Command, *pod.Options)
				want   string
			}{
				"exit code":    {func(c *pod.Command, _ *pod.Options) { c.Arguments[2] = "cat >/dev/null; echo broken >&2; exit 7" }, "exit code 7"},
				"flood":        {func(c *pod.Command, _ *pod.Options) { c.Arguments[2] = "exec yes" }, "more than 10485760 bytes"},
				"hang":         {func(c *pod.Command, _ *pod.Options) { c.Arguments[2], c.Timeout = "sleep 100", 2*time.Second }, "did not end within 2s"},
				"no pod":       {func(c *pod.Command, _ *pod.Options) { c.Pod = "gone" }, `pods "gone" not found`},
				"no container": {func(c *pod.Command, _ *pod.Options) { c.Container = "gone" }, "container gone is not valid for pod tools"},
				"no rights":    {func(_ *pod.Command, o *pod.Options) { o.Kubeconfig = r.kubeconfig(t, "stranger") }, `cannot create resource "pods/exec"`},
				"no token":     {func(_ *pod.Command, o *pod.Options) { o.Kubeconfig = write(t, r.proxy, r.proxy.URL, "made-up") }, "Unauthorized"},
			} {
				command, options := in("exit 9"), pod.Options{Kubeconfig: kubeconfig, MaxOutput: 10 << 20}
				test.change(&command, &options)
				_, _, err := pod.New(options).Run(t.Context(), command)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: got %v, want %q", name, err, test.want)
				}
			}

			runner := plugin.New(plugin.Options{Pods: pod.New(pod.Options{Kubeconfig: kubeconfig})})
			p := tko.Plugin{
				Type: tko.PluginPrepare, Name: "p",
				Arguments:  []string{"sh", "-c", `in=$(cat); case $in in *deploymentId*) echo '{prepared: true, package: [{apiVersion: v1, kind: ConfigMap, metadata: {name: made}}]}';; *) exit 3;; esac`},
				Properties: map[string]string{"_kubernetes.pod": "tools", "_kubernetes.namespace": r.namespace},
			}
			target := krm.Identity{GVK: krm.GVK{Group: "g", Version: "v1", Kind: "K"}, Name: "n"}
			prepared, out, err := runner.Prepare(t.Context(), p, target, "d", krm.Package{{"apiVersion": "g/v1", "kind": "K", "metadata": map[string]any{"name": "n"}}})
			if err != nil || !prepared || len(out) != 1 || out[0].Name() != "made" {
				t.Errorf("got %v %v %v", prepared, out, err)
			}
		})
	}
}
