package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	helmkube "helm.sh/helm/v4/pkg/kube"
	authorization "k8s.io/api/authorization/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// cluster starts a cluster with a namespace tko and the kinds of cert-manager and of
// the Prometheus operator.
func cluster(t *testing.T) *kube.Cluster {
	t.Helper()
	c := kube.Shared(t, kube.Options{Controllers: true})
	for _, file := range []string{"cert-manager.yaml", "prometheus-operator.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(t, string(text))
	}
	c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=4m", "crd", "--all")
	return c
}

// The trial is installed as its README describes, with restricted pod security and
// strict validation of fields. All pods become ready, as far as that is possible
// without containers.
func TestTrialInstallsWithRestrictedPodSecurity(t *testing.T) {
	c := cluster(t)
	c.Apply(t, `
apiVersion: v1
kind: PersistentVolume
metadata: {name: for-postgresql}
spec: {capacity: {storage: 10Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /nowhere}, claimRef: {namespace: tko, name: data-tko-postgresql-0}}
`)
	manifest := kustomize(t, "trial")
	defer apply(t, c, manifest, "delete", "--ignore-not-found")
	if output := runReadme(t, c, "## A trial"); strings.Contains(output, "Warning") {
		t.Fatal(output)
	}
	image := []string{"-n", "tko", "get", "deployments", "-o", "jsonpath={.items[*].spec.template.spec.containers[*].image}"}
	if got := c.Kubectl(t, image...); got != strings.TrimSuffix(strings.Repeat("registry.example/tko-server:v1 ", 3), " ") {
		t.Errorf("the images are %s", got)
	}
	dsn := decoded(t, c.Kubectl(t, "-n", "tko", "get", "secret", "tko-database", "-o", "jsonpath={.data.dsn}"))
	password := decoded(t, c.Kubectl(t, "-n", "tko", "get", "secret", "tko-database", "-o", "jsonpath={.data.password}"))
	if len(password) != 48 || string(dsn) != "postgres://tko:"+string(password)+"@tko-postgresql/tko?sslmode=disable" {
		t.Errorf("the DSN is %s, the password %s", dsn, password)
	}
	if ca := c.Kubectl(t, "get", "apiservice", "v1alpha1.tko.nephio.org", "-o", "jsonpath={.spec.caBundle}"); ca == "" ||
		ca != c.Kubectl(t, "-n", "tko", "get", "secret", "tko-data-tls", "-o", `jsonpath={.data.ca\.crt}`) {
		t.Errorf("certificates.sh sets the APIService's caBundle to %q", ca)
	}
	apply(t, c, manifest) // the second application changes the image only
	if ca := c.Kubectl(t, "get", "apiservice", "v1alpha1.tko.nephio.org", "-o", "jsonpath={.spec.caBundle}"); ca == "" {
		t.Error("applying the trial again removes the APIService's caBundle")
	}
	for _, what := range []string{"deployment/tko-data", "deployment/tko-preparer", "deployment/tko-meta-scheduler", "statefulset/tko-postgresql"} {
		c.Kubectl(t, "-n", "tko", "rollout", "status", "--timeout=4m", what)
	}
	if policy := c.Kubectl(t, "-n", "tko", "get", "service", "tko-data", "-o", "jsonpath={.spec.ipFamilies}"); policy != `["IPv4","IPv6"]` {
		t.Errorf("the Service is for %s", policy)
	}
}

// runReadme runs the first commands below a heading of the README, and returns their
// output.
func runReadme(t *testing.T, c *kube.Cluster, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, below, _ := strings.Cut(string(text), heading+"\n")
	_, below, _ = strings.Cut(below, "```sh\n")
	commands, _, ok := strings.Cut(below, "```\n")
	if !ok {
		t.Fatalf("no commands below %q", heading)
	}
	deploy, err := filepath.Abs(filepath.Join(folder, ".."))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	process.Reads(t, "deploy")
	cmd := exec.CommandContext(ctx, "bash", "-euxo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = t.TempDir(), c.Env(c.Kubeconfig)
	if err := os.Symlink(deploy, filepath.Join(cmd.Dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v", out, err)
	}
	return string(out)
}

// The API server accepts the production overlay and the chart with strict validation.
func TestAPIServerAcceptsProductionManifests(t *testing.T) {
	c := cluster(t)
	c.Kubectl(t, "create", "namespace", "tko-dry")
	defer c.Kubectl(t, "delete", "namespace", "tko-dry", "--wait=false")
	everything := map[string]any{
		"kubernetesAPI": map[string]any{"certManager": true}, "serviceMonitor": map[string]any{"enabled": true}, "podMonitor": map[string]any{"enabled": true}, "postgresql": map[string]any{"enabled": true, "storageClass": "fast"},
		"kubernetesSites": map[string]any{"management": true},
		"image":           map[string]any{"pullPolicy": "Always", "pullSecrets": []any{"registry"}},
		"data":            map[string]any{"flags": []any{"--log-level=debug"}, "nodeSelector": map[string]any{"a": "b"}, "tolerations": []any{map[string]any{"operator": "Exists"}}},
	}
	for name, manifest := range map[string]string{
		"production": strings.ReplaceAll(kustomize(t, "production"), "namespace: tko\n", "namespace: tko-dry\n"),
		"chart":      mustHelm(t, "tko-dry", everything),
	} {
		if output := apply(t, c, manifest, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict"); strings.Contains(output, "Warning") {
			t.Errorf("%s: %s", name, output)
		}
	}
}

func TestHelmInstallsUpgradesAndRemovesChart(t *testing.T) {
	c := cluster(t)
	settings := cli.New()
	settings.KubeConfig = c.Kubeconfig
	settings.SetNamespace("tko-helm")
	configuration := action.NewConfiguration()
	if err := configuration.Init(settings.RESTClientGetter(), "tko-helm", "secret"); err != nil {
		t.Fatal(err)
	}
	chart, err := loader.Load(filepath.Join(folder, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.WaitStrategy = "tko", "tko-helm", true, helmkube.HookOnlyStrategy
	if _, err := install.Run(chart, map[string]any{"kubernetesAPI": map[string]any{"caBundle": string(c.CA())}}); err != nil {
		t.Fatal(err)
	}
	defer c.Kubectl(t, "delete", "namespace", "tko-helm", "--wait=false")
	c.Kubectl(t, "-n", "tko-helm", "rollout", "status", "--timeout=4m", "deployment/tko-data")
	upgrade := action.NewUpgrade(configuration)
	upgrade.Namespace, upgrade.WaitStrategy = "tko-helm", helmkube.HookOnlyStrategy
	if _, err := upgrade.Run("tko", chart, map[string]any{"data": map[string]any{"replicas": 3}, "kubernetesAPI": map[string]any{"enabled": false}}); err != nil {
		t.Fatal(err)
	}
	c.Eventually(t, "3", "-n", "tko-helm", "get", "deployment", "tko-data", "-o", "jsonpath={.status.readyReplicas}")
	c.Eventually(t, "", "get", "apiservice", "v1alpha1.tko.nephio.org", "-o", "name", "--ignore-not-found")
	uninstall := action.NewUninstall(configuration)
	uninstall.WaitStrategy = helmkube.HookOnlyStrategy
	if _, err := uninstall.Run("tko"); err != nil {
		t.Fatal(err)
	}
	c.Eventually(t, "", "get", "clusterroles,clusterrolebindings,rolebindings,apiservices", "-A", "-o", "name", "-l", "app.kubernetes.io/part-of=tko")
}

// The API server grants each role its rights and no others.
func TestRolesGrantExactlyTheirRights(t *testing.T) {
	c := cluster(t)
	manifest := kustomize(t, "production")
	apply(t, c, manifest)
	defer apply(t, c, manifest, "delete")
	client, err := kubernetes.NewForConfig(kubetest.Config(c))
	if err != nil {
		t.Fatal(err)
	}
	// may waits until the API server responds as wanted, because roles take effect
	// with a delay.
	may := func(want bool, user string, attributes authorization.ResourceAttributes) {
		t.Helper()
		eventually.NoError(t, "the rights of "+user, func() error {
			review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorization.SubjectAccessReview{
				Spec: authorization.SubjectAccessReviewSpec{User: user, ResourceAttributes: &attributes},
			}, meta.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed != want {
				return fmt.Errorf("%+v is allowed: %t", attributes, !want)
			}
			return nil
		})
	}
	const (
		read    = "list deployments"
		status  = "get deployments/status"
		change  = "create templates"
		approve = "update deployments/approval"
		start   = "create rollouts/start"
		wave    = "create rollouts/approve"
		plugin  = "create plugins"
		report  = "patch sites/status"
	)
	tests := []struct {
		role, why string
		may       []string
	}{
		{"tko-viewer", "looks only", []string{read, status}},
		{"tko-editor", "is bound in addition to tko-viewer, and doesn't approve", []string{change, start}},
		{"tko-approver", "is bound in addition to tko-viewer", []string{approve, wave}},
		{"tko-operator", "plugins are programs", []string{plugin, report}},
		{"view", "of the whole cluster", []string{read, status}},
		{"edit", "doesn't approve", []string{read, status, change, start}},
		{"admin", "registers no programs", []string{read, status, change, start, approve, wave}},
	}
	for _, test := range tests {
		c.Kubectl(t, "create", "clusterrolebinding", "test-"+test.role, "--clusterrole="+test.role, "--user="+test.role)
		for _, allowed := range []bool{true, false} { // grants take effect late, and so would unwanted ones
			for _, do := range []string{read, status, change, start, approve, wave, plugin, report} {
				if slices.Contains(test.may, do) != allowed {
					continue
				}
				verb, resource, _ := strings.Cut(do, " ")
				resource, sub, _ := strings.Cut(resource, "/")
				may(allowed, test.role, authorization.ResourceAttributes{Group: "tko.nephio.org", Version: "v1alpha1", Verb: verb, Resource: resource, Subresource: sub})
			}
		}
	}
	// Only the data controller may authenticate and authorize users.
	const data, preparer = "system:serviceaccount:tko:tko-data", "system:serviceaccount:tko:tko-preparer"
	tokens := authorization.ResourceAttributes{Group: "authentication.k8s.io", Version: "v1", Verb: "create", Resource: "tokenreviews"}
	may(true, data, tokens)
	may(false, preparer, tokens)
	may(true, data, authorization.ResourceAttributes{Group: "authorization.k8s.io", Version: "v1", Verb: "create", Resource: "subjectaccessreviews"})
	may(true, data, authorization.ResourceAttributes{Version: "v1", Verb: "watch", Resource: "configmaps", Namespace: "kube-system", Name: "extension-apiserver-authentication"})
	may(false, data, authorization.ResourceAttributes{Version: "v1", Verb: "get", Resource: "secrets", Namespace: "kube-system"})
}

// apply applies manifests, or runs kubectl with other args, and returns all output.
func apply(t *testing.T, c *kube.Cluster, manifest string, args ...string) string {
	t.Helper()
	if len(args) == 0 {
		args = []string{"apply", "--validate=strict"}
	}
	stdout, stderr, code := c.Try(t, c.Kubeconfig, manifest, append(args, "-f", "-")...)
	if code != 0 {
		t.Fatalf("kubectl %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout + stderr
}

// The README's commands work with kubectl's own version of kustomize.
func TestReadmeCommandsWork(t *testing.T) {
	c := cluster(t)
	for _, overlay := range []string{"trial", "production"} {
		if diff := cmp.Diff(objects(t, kustomize(t, overlay)), objects(t, c.Kubectl(t, "kustomize", filepath.Join(folder, "overlays", overlay)))); diff != "" {
			t.Errorf("kubectl kustomize of %s: %s", overlay, diff)
		}
	}
	manifest := kustomize(t, "production")
	apply(t, c, manifest)
	defer apply(t, c, manifest, "delete")
	dsn := filepath.Join(t.TempDir(), "dsn")
	write(t, dsn, []byte("postgres://tko@db/tko"))
	c.Kubectl(t, "-n", "tko", "create", "secret", "generic", "tko-database", "--from-file="+dsn)
	if got := string(decoded(t, c.Kubectl(t, "-n", "tko", "get", "secret", "tko-database", "-o", "jsonpath={.data.dsn}"))); got != "postgres://tko@db/tko" {
		t.Errorf("the secret has %q", got)
	}
	c.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: sites}\n---\n"+`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.cluster.x-k8s.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: cluster.x-k8s.io
  scope: Namespaced
  names: {plural: clusters, singular: cluster, kind: Cluster, listKind: ClusterList}
  versions: [{name: v1beta2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`)
	defer c.Kubectl(t, "delete", "crd/clusters.cluster.x-k8s.io", "namespace/sites", "--wait=false")
	c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=4m", "crd/clusters.cluster.x-k8s.io")
	c.Kubectl(t, "-n", "sites", "create", "role", "tko-clusters", "--verb=get,list,watch,create,patch,delete", "--resource=clusters.cluster.x-k8s.io")
	c.Kubectl(t, "-n", "sites", "create", "rolebinding", "tko-clusters", "--role=tko-clusters", "--serviceaccount=tko:tko-meta-scheduler")
	c.Eventually(t, "yes", "-n", "sites", "auth", "can-i", "patch", "clusters.cluster.x-k8s.io", "--as=system:serviceaccount:tko:tko-meta-scheduler")
}
