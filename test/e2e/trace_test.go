package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// A receiver is a receiver of spans, by OTLP over HTTP.
type receiver struct {
	url string

	mu    sync.Mutex
	spans []receivedSpan
	all   bytes.Buffer // every byte that was received
}

type receivedSpan struct {
	*otlp.Span

	service string
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body := io.Reader(q.Body)
		if q.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Error(err)
				return
			}
		}
		data, err := io.ReadAll(body)
		var m collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(data, &m)
		}
		if err != nil || q.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", q.URL, err)
			return
		}
		r.add(data, &m)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	r.url = server.URL + "/v1/traces"
	return r
}

func (r *receiver) add(data []byte, m *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Write(data)
	for _, resource := range m.GetResourceSpans() {
		service := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, receivedSpan{s, service})
			}
		}
	}
}

// trace returns the spans of a trace.
func (r *receiver) trace(id string) []receivedSpan {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []receivedSpan
	for _, s := range r.spans {
		if hex.EncodeToString(s.GetTraceId()) == id {
			all = append(all, s)
		}
	}
	return all
}

// preparingPlugin writes a plugin that marks a ConfigMap as prepared, logs a line,
// and writes its input to a file.
func preparingPlugin(t *testing.T) (program, input string) {
	t.Helper()
	dir := t.TempDir()
	program, input = filepath.Join(dir, "prepare.sh"), filepath.Join(dir, "input.yaml")
	script := `#!/bin/sh
cat > '` + input + `'
echo 'a line of the plugin' > "$(sed -n 's/^logFile: //p' '` + input + `')"
echo 'prepared: true'
echo 'package:'
sed -n '/^deploymentPackage:/,/^[a-z].*:/p' '` + input + `' | sed '1d; /^[a-z]/d; s/example.org\/todo: .*/nephio.org\/prepared: "true"/'
`
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return program, input
}

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceparent = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// A deployment is created over the Kubernetes API, which tko-kubernetes serves,
// prepared by a plugin and applied to a git repository: its trace has spans of both
// programs, and its request ID is in the log, the plugin's lines and input, and the
// audit log.
func TestTraceGoesFromAPICallToAppliedObject(t *testing.T) {
	t.Parallel()
	spans := startReceiver(t)
	repository := filepath.Join(t.TempDir(), "sites.git")
	server := process.StartServer(t, "--store="+anyStore(t), "--git-cache="+t.TempDir(), "--git-local="+filepath.Dir(repository),
		"--kubernetes=localhost:0", "--kubernetes-trust-everybody", "--traces-endpoint="+spans.url, "--log-format=json", "--log-level=info,meta-scheduler=debug")
	c, ctx := dial(t, server.GRPC), patient(t)
	if _, err := c.RegisterSite(ctx, tko.Site{ID: "lagos", Package: krm.Package{{
		"apiVersion": "git.plugin.nephio.org/v1alpha1", "kind": "Repository", "metadata": map[string]any{"name": "repository"},
		"spec": map[string]any{"url": repository},
	}}}); err != nil {
		t.Fatal(err)
	}
	program, input := preparingPlugin(t)
	if _, err := c.RegisterPlugin(ctx, tko.Plugin{Type: tko.PluginPrepare, Name: "prepare", Arguments: []string{program}, Triggers: []krm.GVK{{Version: "v1", Kind: "ConfigMap"}}}); err != nil {
		t.Fatal(err)
	}

	body := `{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Deployment", "spec": {"siteId": "lagos", "package": {"resources": [
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "annotations": {"nephio.org/prepare": "Here", "example.org/todo": "yes"}}, "data": {"value": "first"}}]}}}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+server.Kube+"/apis/tko.nephio.org/v1alpha1/deployments", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("traceparent", traceparent)
	response, err := insecure.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	made, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("%v: %s: %s", err, response.Status, made)
	}
	id := response.Header.Get("Audit-Id")
	if id == "" {
		t.Fatalf("the response has no request ID: %v", response.Header)
	}
	eventually.NoError(t, "the object in the repository", func() error {
		out, err := exec.CommandContext(ctx, "git", "-C", repository, "grep", "first", "main").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	audited, stderr, code := server.CLI("audit", "list", "--request", id, "-o", "json")
	if code != 0 || strings.Count(audited, `"op": "written"`) < 2 {
		t.Errorf("%d: the audit log of the request lacks its creation or its preparation: %s%s", code, audited, stderr)
	}
	server.Stop() // exports the last spans

	all := spans.trace(traceID)
	ids := map[string]bool{"00f067aa0ba902b7": true}
	found := map[string]bool{}
	for _, s := range all {
		ids[hex.EncodeToString(s.GetSpanId())] = true
		found[s.service+" "+s.GetName()] = true
	}
	for _, s := range all {
		if !ids[hex.EncodeToString(s.GetParentSpanId())] {
			t.Errorf("the span %s of %s has a parent that is not in the trace", s.GetName(), s.service)
		}
	}
	for _, want := range []string{
		"tko-kubernetes Kubernetes create deployments", "tko-server sibling catalog.PutRecord", "tko-server catalog.commit", "tko-server store.commit", "tko-server store.transaction",
		"tko-server prepare.reconcile", "tko-server plugin.run", "tko-server tko.Data/commitDeployment", "tko-server schedule.reconcile", "tko-server target.apply", "tko-server git.commit",
	} {
		if !found[want] {
			t.Errorf("the trace has no span %q: %v", want, found)
		}
	}
	given, err := os.ReadFile(input)
	plain := strings.ReplaceAll(string(given), `"`, "")
	if err != nil || !strings.Contains(plain, "requestId: "+id+"\n") || !strings.Contains(plain, "traceparent: 00-"+traceID) {
		t.Errorf("%v: the input of the plugin lacks the request or the trace:\n%s", err, given)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(server.Log()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("a line of the log is not JSON: %s", line)
		}
		if fields["request_id"] == id && fields["trace_id"] == traceID {
			lines[fmt.Sprint(fields["component"], " ", fields["msg"])] = true
		}
	}
	for _, want := range []string{"plugins plugin log", "meta-scheduler scheduled"} {
		if !lines[want] {
			t.Errorf("the log has no line %q of the request: %v\n%s", want, lines, server.Log())
		}
	}
}
