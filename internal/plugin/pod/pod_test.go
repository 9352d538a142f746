package pod_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	streaming "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	utilexec "k8s.io/utils/exec"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/pod"
	"github.com/tko-orchestrator/tko/krm"
)

// Discard the log of the libraries of the stand-in.
func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(kube.Main(m))
}

// A cluster is a stand-in for an API server and its kubelets: it runs the
// commands here. The kubelets' own library serves SPDY.
type cluster struct {
	sockets bool   // whether it supports WebSocket, too
	token   string // the only valid token

	mu    sync.Mutex
	spoke []string // protocols
	paths []string
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+c.token {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	query := r.URL.Query()
	c.mu.Lock()
	c.paths = append(c.paths, r.URL.Path+" "+query.Get("container"))
	c.mu.Unlock()
	if !strings.HasSuffix(r.URL.Path, "/namespaces/plugins/pods/tools/exec") {
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods not found","reason":"NotFound","code":404}`, http.StatusNotFound)
		return
	}
	if wsstream.IsWebSocketRequest(r) {
		if !c.sockets {
			http.Error(w, "what is WebSocket?", http.StatusForbidden)
			return
		}
		c.speak("WebSocket")
		c.serveWebSocket(w, r, query["command"])
		return
	}
	c.speak("SPDY")
	streaming.ServeExec(w, r, c, "tools", "", query.Get("container"), query["command"],
		&streaming.Options{Stdin: true, Stdout: true, Stderr: true}, time.Minute, time.Minute, []string{streaming.StreamProtocolV4Name})
}

func (c *cluster) speak(protocol string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spoke = append(c.spoke, protocol)
}

// serveWebSocket serves exec as an API server does.
func (c *cluster) serveWebSocket(w http.ResponseWriter, r *http.Request, command []string) {
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{streaming.StreamProtocolV5Name: {Binary: true, Channels: []wsstream.ChannelType{
		wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.ReadChannel,
	}}})
	_, streams, err := conn.Open(w, r)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = streams[1].Write(nil)
	status := map[string]any{"metadata": map[string]any{}, "status": "Success"}
	err = c.ExecInContainer(r.Context(), "", "", "", command, streams[0], streams[1], streams[2], false, nil, 0)
	if exit, ok := errors.AsType[utilexec.ExitError](err); ok {
		status = map[string]any{"metadata": map[string]any{}, "status": "Failure", "reason": "NonZeroExitCode", "details": map[string]any{
			"causes": []any{map[string]any{"reason": "ExitCode", "message": strconv.Itoa(exit.ExitStatus())}},
		}}
	} else if err != nil {
		status = map[string]any{"metadata": map[string]any{}, "status": "Failure", "reason": "InternalError", "message": err.Error()}
	}
	text, err := json.Marshal(status)
	if err == nil {
		_, _ = streams[3].Write(text)
	}
}

// ExecInContainer runs the command here.
func (c *cluster) ExecInContainer(ctx context.Context, _, _, _ string, command []string, in io.Reader, out, stderr io.WriteCloser, _ bool, _ <-chan streaming.TerminalSize, _ time.Duration) error {
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.Stdout, process.Stderr = out, stderr
	process.WaitDelay = time.Second
	stdin, err := process.StdinPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(stdin, in)
		_ = stdin.Close()
	}()
	err = process.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return &utilexec.CodeExitError{Err: exit, Code: exit.ExitCode()}
	}
	return err
}

// start serves a cluster, and returns the path of a kubeconfig for it.
func start(t *testing.T, c *cluster) (kubeconfig string) {
	t.Helper()
	c.token = "secret-token"
	server := httptest.NewTLSServer(c)
	t.Cleanup(server.Close)
	return write(t, server, server.URL+"/behind/a/proxy", c.token)
}

// write writes a kubeconfig. Tokens are sent over TLS only.
func write(t *testing.T, of *httptest.Server, server, token string) string {
	t.Helper()
	authority := ""
	if of != nil {
		authority = base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: of.Certificate().Raw}))
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q}}],
users: [{name: u, user: {token: %q}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`, server, authority, token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func sh(script string) pod.Command {
	return pod.Command{Namespace: "plugins", Pod: "tools", Container: "main", Arguments: []string{"sh", "-c", script}, Timeout: time.Minute}
}

var protocols = map[string]bool{"WebSocket": true, "SPDY": false}

// Input and output are complete over each protocol.
func TestInputAndOutputAreCompleteOverEachProtocol(t *testing.T) {
	t.Parallel()
	for protocol, sockets := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c := &cluster{sockets: sockets}
			e := pod.New(pod.Options{Kubeconfig: start(t, c)})
			for _, size := range []int{0, 1, 5 << 20} {
				command := sh("cat; echo problems >&2")
				command.Input = bytes.Repeat([]byte("\x00\xff0123456789abcdef\n"), size/19)
				stdout, stderr, err := e.Run(t.Context(), command)
				if err != nil || !bytes.Equal(stdout, command.Input) || stderr != "problems" {
					t.Errorf("%d bytes: got %d, %q, %v", len(command.Input), len(stdout), stderr, err)
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if strings.Join(c.spoke, " ") != protocol+" "+protocol+" "+protocol {
				t.Errorf("got the protocols %v", c.spoke)
			}
			if want := "/behind/a/proxy/api/v1/namespaces/plugins/pods/tools/exec main"; c.paths[0] != want {
				t.Errorf("asked for %q, want %q", c.paths[0], want)
			}
		})
	}
}

// Failures are reported, and limited as for local programs.
func TestFailuresAreReportedAndLimited(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why    string
		change func(*pod.Command, *pod.Options)
		script string
		want   string
	}{
		"exit code":     {why: "it failed", script: "echo broken wrench >&2; exit 7", want: "exit code 7"},
		"flood":         {why: "output is limited", script: "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done", want: "more than 100000 bytes"},
		"hang":          {why: "time is limited", script: "sleep 100", want: "did not end within 500ms", change: func(c *pod.Command, _ *pod.Options) { c.Timeout = 500 * time.Millisecond }},
		"doesn't read":  {why: "a program may ignore its input", script: "exec <&-; exit 3", want: "exit code 3", change: func(c *pod.Command, _ *pod.Options) { c.Input = make([]byte, 10<<20) }},
		"no program":    {why: "the message names the program", want: "no-such-program", change: func(c *pod.Command, _ *pod.Options) { c.Arguments = []string{"no-such-program"} }},
		"no pod":        {why: "the API server reports it", want: `pod "gone" of namespace "plugins"`, change: func(c *pod.Command, _ *pod.Options) { c.Pod = "gone" }},
		"path as pod":   {why: "a name must not be a path", want: `"../../nodes" can't be the name of a pod`, change: func(c *pod.Command, _ *pod.Options) { c.Pod = "../../nodes" }},
		"no namespace":  {why: "a name is needed", want: `"" can't be the name of a namespace`, change: func(c *pod.Command, _ *pod.Options) { c.Namespace = "" }},
		"odd container": {why: "a name must not be a query", want: "can't be the name of a container", change: func(c *pod.Command, _ *pod.Options) { c.Container = "a&command=b" }},
		"no cluster":    {why: "the server can't be reached", want: "could not be run in pod", change: func(_ *pod.Command, o *pod.Options) { o.Kubeconfig = write(t, nil, "http://localhost:1", "") }},
		"not allowed": {why: "the wrong token", want: "could not be run in pod", change: func(_ *pod.Command, o *pod.Options) {
			server := httptest.NewTLSServer(&cluster{token: "other"})
			t.Cleanup(server.Close)
			o.Kubeconfig = write(t, server, server.URL, "secret-token")
		}},
		"no kubeconfig": {why: "the kubeconfig is missing", want: "no cluster", change: func(_ *pod.Command, o *pod.Options) { o.Kubeconfig = "/no/such/file" }},
	}
	for protocol, sockets := range protocols {
		kubeconfig := start(t, &cluster{sockets: sockets})
		for name, test := range tests {
			t.Run(protocol+"/"+name, func(t *testing.T) {
				t.Parallel()
				command, options := sh(test.script), pod.Options{Kubeconfig: kubeconfig, MaxOutput: 100_000}
				if test.change != nil {
					test.change(&command, &options)
				}
				began := time.Now()
				stdout, stderr, err := pod.New(options).Run(t.Context(), command)
				if err == nil || !strings.Contains(err.Error(), test.want) || stdout != nil {
					t.Errorf("got %d bytes, %v, want %q: %s", len(stdout), err, test.want, test.why)
				}
				if err != nil && strings.Contains(err.Error(), "secret-token") {
					t.Errorf("the error contains the token: %v", err)
				}
				if strings.Contains(test.script, "wrench") && stderr != "broken wrench" {
					t.Errorf("stderr is %q", stderr)
				}
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("it took %s", took)
				}
			})
		}
	}
}

// A plugin in a pod fulfills the contract of plugins.
func TestPluginInPodFulfillsTheContract(t *testing.T) {
	t.Parallel()
	r := plugin.New(plugin.Options{Pods: pod.New(pod.Options{Kubeconfig: start(t, &cluster{sockets: true})}), LogAddressPort: "tko:50055"})
	target := krm.Identity{GVK: krm.GVK{Group: "g", Version: "v1", Kind: "K"}, Name: "n"}
	pkg := krm.Package{{"apiVersion": "g/v1", "kind": "K", "metadata": map[string]any{"name": "n"}}}
	p := tko.Plugin{
		Type: tko.PluginPrepare, Name: "p", Arguments: []string{"sh", "-c", `in=$(cat); case $in in *'logAddressPort: tko:50055'*'logFile: ""'*) echo '{prepared: true, package: [{apiVersion: v1, kind: ConfigMap, metadata: {name: made}}]}';; *) echo "error: $in";; esac`},
		Properties: map[string]string{"_kubernetes.pod": "tools", "_kubernetes.namespace": "plugins"},
	}
	prepared, out, err := r.Prepare(t.Context(), p, target, "d", pkg)
	if err != nil || !prepared || len(out) != 1 || out[0].Name() != "made" {
		t.Errorf("got %v %v %v", prepared, out, err)
	}
	p.Type, p.Arguments = tko.PluginValidate, []string{"sh", "-c", "echo 'error: too small'"}
	var e *plugin.Error
	if err := r.Validate(t.Context(), p, target, pkg, true); !errors.As(err, &e) || !e.Refused || !strings.Contains(err.Error(), "too small") {
		t.Errorf("got %v", err)
	}
	p.Arguments = []string{"sh", "-c", "echo broken wrench >&2; exit 7"}
	if err := r.Validate(t.Context(), p, target, pkg, true); err == nil || !strings.Contains(err.Error(), "exit code 7, stderr: broken wrench") {
		t.Errorf("got %v", err)
	}
	delete(p.Properties, "_kubernetes.namespace") // the default is tko, where there is no such pod
	if err := r.Validate(t.Context(), p, target, pkg, true); err == nil || !strings.Contains(err.Error(), `namespace "tko"`) {
		t.Errorf("got %v", err)
	}
}
