package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// A server has secrets in its environment, its files, its packages and its clients'
// calls, and logs all that it can, while calls and targets fail. No secret is in its
// log, its traces, its audit log, errors and conditions, nor in the arguments and the
// environment of its processes.
func TestNoSecretIsInLogsErrorsTracesOrProcesses(t *testing.T) { // sets the environment, so it isn't parallel
	spans := startReceiver(t)
	dir := t.TempDir()
	secrets := map[string]string{} // by what they are
	secret := func(what string) string {
		secrets[what] = "canary-" + what + "-7Hq2"
		return secrets[what]
	}
	t.Setenv("CANARY_GIT_TOKEN", secret("git-token"))
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret("of-the-environment"))
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token="+secret("trace-header"))

	programs := process.Programs(t, "--kubernetes=")
	tool := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(programs[0], args...)
		cmd.Env = append(os.Environ(), process.Environment()...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	tokens, key := filepath.Join(dir, "tokens"), filepath.Join(dir, "key")
	token := tool("token", "add", "--file="+tokens, "ci")
	secrets["client-token"] = token
	tool("keys", "create", key)
	data, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if len(line) > 20 && !strings.HasPrefix(line, "#") {
			secrets["encryption-key "+line[:4]] = line
		}
	}

	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // returns what it gets
		_, password, _ := r.BasicAuth()
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "no access with %s, %s", r.Header.Get("Authorization"), password)
	}))
	t.Cleanup(echo.Close)

	server := process.StartServer(t, "--store=sqlite::memory:", "--kubernetes=localhost:0", "--kubernetes-trust-everybody", "--encryption-key="+key, "--token-file="+tokens,
		"--secret-environment=CANARY_GIT_TOKEN", "--remote-addresses=127.0.0.1", "--remote-schemes=http,https", "--git-cache="+t.TempDir(), "--traces-endpoint="+spans.url, "--log-level=debug", "--retry=50ms", "--retry-max=500ms")
	seen := map[string]string{} // what users and operators see
	note := func(where, what string) { seen[where] += what + "\n" }

	credentials := func(token string) *client.Client {
		t.Helper()
		c, err := client.Dial(client.Options{Address: server.GRPC, WaitForReady: true, Token: func(context.Context) (string, error) { return token, nil }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c, ctx := credentials(token), patient(t)
	_, err = credentials(secret("wrong-token")).About(ctx)
	note("errors", fmt.Sprint(err))
	note("errors", fmt.Sprint(get("http://"+server.Web+"/api/about", secret("wrong-web-token"))))
	note("errors", fmt.Sprint(get("https://"+server.Kube+"/apis/tko.nephio.org/v1alpha1/templates", secret("wrong-kubernetes-token"))))

	// The plugin writes what it and its parents have as arguments and environment.
	program, processes := filepath.Join(dir, "plugin.sh"), filepath.Join(dir, "processes")
	script := `#!/bin/sh
cat > '` + dir + `/input.new' && mv '` + dir + `/input.new' '` + dir + `/input.yaml'
for f in /proc/[0-9]*/cmdline /proc/self/environ; do tr '\0' '\n' < $f; done > '` + processes + `.new' 2>/dev/null
cat /proc/$PPID/environ >> '` + processes + `.new' 2>/dev/null
mv '` + processes + `.new' '` + processes + `'
echo '{error: "refused"}'
`
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RegisterPlugin(ctx, tko.Plugin{Type: tko.PluginPrepare, Name: "plugin", Arguments: []string{program}, Triggers: []krm.GVK{{Version: "v1", Kind: "ConfigMap"}}}); err != nil {
		t.Fatal(err)
	}
	value := secret("of-a-Secret")
	good := krm.Resource{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "good"}, "stringData": map[string]any{"password": value}}
	bad := krm.Resource{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "bad"}, "data": map[string]any{"password": secret("not-base64") + "!"}, "type": int64(7)}
	marked := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "marked", "annotations": map[string]any{"nephio.org/prepare": "Here"}}}
	_, err = c.RegisterTemplate(ctx, tko.Template{ID: "bad", Package: krm.Package{bad}})
	note("errors", fmt.Sprint(err))
	if err == nil {
		t.Error("the wrong Secret was accepted, so its error is not tested")
	}
	if _, err := c.RegisterSite(ctx, tko.Site{ID: "lagos", Package: krm.Package{{
		"apiVersion": "git.plugin.nephio.org/v1alpha1", "kind": "Repository", "metadata": map[string]any{"name": "repository"},
		"spec": map[string]any{"url": echo.URL + "/sites.git", "credentials": map[string]any{"username": "tko", "tokenFile": "env:CANARY_GIT_TOKEN"}},
	}}}); err != nil {
		t.Fatal(err)
	}
	id, err := c.CreateDeployment(ctx, tko.NewDeployment{Site: "lagos", Merge: krm.Package{good, marked}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateDeployment(ctx, tko.NewDeployment{Site: "lagos", Merge: krm.Package{good}, Prepared: true, Approved: true}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the plugin's run and the target's failure", func() bool {
		site, err := c.Site(ctx, "lagos", 0)
		if err != nil {
			return false
		}
		d, err := c.Deployment(ctx, id, 0)
		_, ran := os.Stat(processes)
		seen["conditions"] = fmt.Sprintf("%+v %+v", site.Stamp.Conditions, d.Stamp.Conditions)
		return err == nil && ran == nil && strings.Contains(seen["conditions"], "refused") && strings.Contains(seen["conditions"], echo.URL)
	})
	input, err := os.ReadFile(filepath.Join(dir, "input.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"grpcToken", "logToken"} {
		_, rest, found := strings.Cut(string(input), name+": ")
		if !found {
			t.Errorf("the plugin got no %s", name)
		}
		secrets[name], _, _ = strings.Cut(rest, "\n")
	}
	if !strings.Contains(string(input), value) {
		t.Error("the plugin did not get the package")
	}
	for _, pid := range append(childrenOf(t, server.PID), server.PID) {
		arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			t.Fatal(err)
		}
		note("arguments", string(arguments))
	}
	of, err := os.ReadFile(processes)
	if err != nil {
		t.Fatal(err)
	}
	note("processes", string(of))
	t.Setenv("TKO_TOKEN", token)
	for _, args := range [][]string{{"-vv", "--trace", "audit", "list", "-o", "json"}, {"-vv", "template", "get", "nothing"}, {"-vv", "about"}, {"-vv", "site", "list", "-o", "wide"}} {
		stdout, stderr, _ := server.CLI(args...)
		note("command", stdout+stderr)
	}
	server.Stop()
	seen["log"], seen["traces"] = server.Log(), spans.all.String()
	if !strings.Contains(seen["log"], "DEBUG") || !strings.Contains(seen["traces"], "target.apply") || !strings.Contains(seen["processes"], "plugin.sh") || !strings.Contains(seen["command"], `"op"`) {
		t.Error("something was not recorded, so it is not tested")
	}
	for where, text := range seen {
		for what, s := range secrets {
			for _, form := range []string{s, base64.StdEncoding.EncodeToString([]byte(s)), base64.StdEncoding.EncodeToString([]byte("tko:" + s))} {
				if strings.Contains(text, form) {
					t.Errorf("%s: the secret %q is there:\n%s", where, what, around(text, form))
				}
			}
		}
	}
}

// around returns a secret's surroundings.
func around(text, secret string) string {
	i := strings.Index(text, secret)
	return text[max(0, i-300):min(len(text), i+300)]
}

// get sends a request with a token, and returns the error of the response.
func get(address, token string) error {
	request, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := insecure.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var text [4096]byte
	n, _ := response.Body.Read(text[:])
	return fmt.Errorf("%s: %s", response.Status, text[:n])
}
