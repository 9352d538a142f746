package kube

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ServerName is the name that the API server expects in the certificate of an
// aggregated server that RegisterAPIService registered.
const ServerName = "aggregated.default.svc"

// Command returns a kubectl command with these arguments for the user of the
// kubeconfig. The caller runs it.
func (c *Cluster) Command(kubeconfig string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.Programs, "kubectl"), args...)
	cmd.Env = c.Env(kubeconfig)
	return cmd
}

// Env returns an environment in which kubectl is on the PATH and uses the kubeconfig.
func (c *Cluster) Env(kubeconfig string) []string {
	return append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+c.folder, "KUBECACHEDIR="+c.path("kubectl-cache"),
		"PATH="+c.Programs+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// Try runs kubectl for the user of a kubeconfig, with input on standard input, and
// returns its output and exit code.
func (c *Cluster) Try(t testing.TB, kubeconfig, input string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := c.Command(kubeconfig, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Kubectl runs kubectl as an administrator and returns its standard output. It fails
// the test if kubectl fails.
func (c *Cluster) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	return c.must(t, "", args...)
}

// Apply applies manifests as an administrator, by server-side apply. It fails the
// test if the API server rejects one of them.
func (c *Cluster) Apply(t testing.TB, manifests string) {
	t.Helper()
	c.must(t, manifests, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

func (c *Cluster) must(t testing.TB, input string, args ...string) string {
	t.Helper()
	stdout, stderr, code := c.Try(t, c.Kubeconfig, input, args...)
	if code != 0 {
		t.Fatalf("kubectl %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// RegisterAPIService registers the server at a localhost port for a version of an API
// group, and waits until the API server forwards requests to it. The server's
// certificate must be valid for ServerName and signed by an authority in caBundle
// (PEM, as CA and ServingCertificate return it); without caBundle it is not verified.
// Call UnregisterAPIService before the server stops: the API server does not finish
// deleting a namespace while a registered group is unavailable.
func (c *Cluster) RegisterAPIService(t testing.TB, group, version string, port int, caBundle []byte) {
	t.Helper()
	trust := "insecureSkipTLSVerify: true"
	if len(caBundle) > 0 {
		trust = "caBundle: " + base64.StdEncoding.EncodeToString(caBundle)
	}
	service, namespace, _ := strings.Cut(strings.TrimSuffix(ServerName, ".svc"), ".")
	c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %[4]s.%[3]s}
spec: {group: %[3]s, version: %[4]s, groupPriorityMinimum: 1000, versionPriority: 15, %[6]s, service: {name: %[1]s, namespace: %[2]s, port: %[5]d}}
`, service, namespace, group, version, port, trust))
	c.Kubectl(t, "wait", "--for=condition=Available", "--timeout="+timeLimit.String(), "apiservice/"+version+"."+group)
	c.served(t, group, version)
}

// served waits until the API server forwards requests. That is a moment after it
// reports the APIService as available.
func (c *Cluster) served(t testing.TB, group, version string) {
	t.Helper()
	client, err := c.client()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.api.await(func(ctx context.Context) error {
		return c.get(ctx, client, "/apis/"+group+"/"+version)
	}); err != nil {
		t.Fatal(err)
	}
}

// UnregisterAPIService undoes RegisterAPIService.
func (c *Cluster) UnregisterAPIService(t testing.TB, group, version string) {
	t.Helper()
	c.Kubectl(t, "delete", "apiservice", version+"."+group, "--ignore-not-found")
}

// Eventually runs kubectl as an administrator until its output, without surrounding
// white space, equals want.
func (c *Cluster) Eventually(t testing.TB, want string, args ...string) {
	t.Helper()
	deadline := time.Now().Add(timeLimit)
	for {
		stdout, stderr, _ := c.Try(t, c.Kubeconfig, "", args...)
		if strings.TrimSpace(stdout) == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("kubectl %s prints %q after %s, not %q\n%s", strings.Join(args, " "), stdout, timeLimit, want, stderr)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
