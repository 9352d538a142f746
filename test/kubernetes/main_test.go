package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/test/process"
)

// timeLimit bounds waits. It is generous for busy machines.
const timeLimit = 4 * time.Minute

func TestMain(m *testing.M) {
	code := kube.Main(m)
	process.Clean()
	os.Exit(code)
}

// A world is a management cluster with TKO's API in it.
type world struct {
	*kube.Cluster
	*process.Server
	t    *testing.T
	args []string
	port int
}

// rights lets the server authenticate and authorize users in the cluster.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tko-auth-delegator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:auth-delegator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tko-data}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tko-auth-reader, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tko-data}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tko-data-events, namespace: default}
rules: [{apiGroups: [""], resources: [events], verbs: [create, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tko-data-events, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tko-data-events}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tko-data}]
`

// newWorld starts a server with roles, and registers it with the cluster that all
// tests share.
func newWorld(t *testing.T, roles string, args ...string) *world {
	t.Helper()
	c := kube.Shared(t, kube.Options{})
	c.Apply(t, rights)
	certificate, key := c.ServingCertificate(t)
	w := &world{Cluster: c, t: t, port: process.FreePort(t)}
	w.args = append([]string{
		"--roles=" + roles, "--store=sqlite:" + filepath.Join(t.TempDir(), "tko.db"), "--kubernetes=localhost:" + strconv.Itoa(w.port),
		"--kubernetes-cert=" + certificate, "--kubernetes-key=" + key, "--kubernetes-kubeconfig=" + c.UserKubeconfig(t, "tko-data"),
	}, args...)
	w.start()
	c.RegisterAPIService(t, "tko.nephio.org", "v1alpha1", w.port, c.CA())
	t.Cleanup(func() { c.UnregisterAPIService(t, "tko.nephio.org", "v1alpha1") })
	return w
}

// start starts the server, also after a stop.
func (w *world) start() {
	w.t.Helper()
	w.Server = process.StartServer(w.t, w.args...)
}

// refused runs kubectl, which must fail with an error that contains says.
func (w *world) refused(kubeconfig, input, says string, args ...string) {
	w.t.Helper()
	stdout, stderr, code := w.Try(w.t, kubeconfig, input, args...)
	if code == 0 || !strings.Contains(stderr, says) {
		w.t.Errorf("kubectl %s: exit code %d, want an error with %q\n%s%s", strings.Join(args, " "), code, says, stdout, stderr)
	}
}

// with runs kubectl with an input, and returns its output.
func (w *world) with(input string, args ...string) string {
	w.t.Helper()
	stdout, stderr, code := w.Try(w.t, w.Kubeconfig, input, args...)
	if code != 0 {
		w.t.Fatalf("kubectl %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return strings.TrimSpace(stdout)
}

// prints runs kubectl and checks its output.
func (w *world) prints(want string, args ...string) {
	w.t.Helper()
	if got := w.with("", args...); got != want {
		w.t.Errorf("kubectl %s prints\n%s\nwant\n%s", strings.Join(args, " "), got, want)
	}
}

func manifest(kind, name, rest string) string {
	return fmt.Sprintf("apiVersion: tko.nephio.org/v1alpha1\nkind: %s\nmetadata: {name: %s%s\n", kind, name, rest)
}
