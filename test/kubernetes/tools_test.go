package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	v2chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	helmkube "helm.sh/helm/v4/pkg/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// scheduler is a schedule plugin that accepts everything.
const scheduler = `
apiVersion: tko.nephio.org/v1alpha1
kind: Plugin
metadata: {name: schedule-007ctaker}
spec:
  arguments: [sh, -c, "cat >/dev/null; echo '{}'"]
  triggers: [{group: taker.plugin.nephio.org, version: v1alpha1, kind: Taker}]
`

const takingSite = `
apiVersion: tko.nephio.org/v1alpha1
kind: Site
metadata: {name: lagos}
spec: {package: {resources: [{apiVersion: taker.plugin.nephio.org/v1alpha1, kind: Taker, metadata: {name: t}}]}}
`

const keptDeployment = `
apiVersion: tko.nephio.org/v1alpha1
kind: Deployment
metadata: {name: web-app, annotations: {tko.nephio.org/name: Keep}}
spec: {siteId: lagos, package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}]}}
`

func TestToolsManageObjects(t *testing.T) {
	w := newWorld(t, "data,preparer,meta-scheduler")
	w.with(scheduler+"---"+takingSite, "apply", "-f", "-")

	t.Run("kept names, Ready and Events", func(t *testing.T) { keptNames(t, w) })
	t.Run("kustomize", func(t *testing.T) { kustomized(t, w) })
	t.Run("applyset", func(t *testing.T) { applySet(t, w) })
	t.Run("labels", func(t *testing.T) { labelled(t, w) })
	t.Run("helm", func(t *testing.T) { helmed(t, w) })
	t.Run("controller-runtime", func(t *testing.T) { controlled(t, w) })
	t.Run("secrets", func(t *testing.T) { redacted(t, w) })
}

func keptNames(t *testing.T, w *world) {
	w.t = t
	w.with(keptDeployment, "apply", "-f", "-")
	w.refused(w.Kubeconfig, keptDeployment, "AlreadyExists", "create", "-f", "-")
	w.with("", "wait", "--for=condition=Ready", "tkod/web-app", "--timeout=240s")
	generation := w.with("", "get", "tkod", "web-app", "-o", "jsonpath={.metadata.generation} {.status.prepared}")
	w.with(keptDeployment, "apply", "-f", "-")
	w.prints(generation, "get", "tkod", "web-app", "-o", "jsonpath={.metadata.generation} {.status.prepared}")
	w.with(strings.ReplaceAll(keptDeployment, "web-app", "server-side"), "apply", "--server-side", "-f", "-")
	w.with(strings.ReplaceAll(keptDeployment, "web-app", "server-side"), "apply", "--server-side", "-f", "-")
	w.prints("web-app", "get", "tkod", "--field-selector=metadata.name=web-app", "-o", "jsonpath={.items[*].metadata.name}")
	_, stderr, code := w.Try(t, w.Kubeconfig, strings.Replace(keptDeployment, "Keep", "Lose", 1), "create", "-f", "-")
	if code == 0 || !strings.Contains(stderr, "Keep") {
		t.Errorf("a wrong annotation: %d, %s", code, stderr)
	}
	_, stderr, code = w.Try(t, w.Kubeconfig, manifest("Deployment", "lost", "}\nspec: {siteId: lagos}"), "create", "-f", "-")
	if code != 0 || !strings.Contains(stderr, "tko.nephio.org/name: Keep") {
		t.Errorf("a name that is discarded warns: %d, %s", code, stderr)
	}
	for _, name := range []string{"no-such", "a-b"} {
		w.refused(w.Kubeconfig, "", "NotFound", "get", "tkos", name)
		w.refused(w.Kubeconfig, "", "NotFound", "delete", "tkod", name)
	}
	w.refused(w.Kubeconfig, manifest("Site", "py-002f-00e4", "}"), "use only", "apply", "-f", "-")

	describes := func(says string, args ...string) {
		t.Helper()
		eventually.Within(t, timeLimit, fmt.Sprintf("kubectl describe %v", args), func() error {
			if out := w.with("", append([]string{"describe"}, args...)...); !strings.Contains(out, says) {
				return fmt.Errorf("the output lacks %s:\n%s", says, out)
			}
			return nil
		})
	}
	describes("at site \"lagos\"", "tkod", "web-app")
	describes("created by", "tkos", "lagos")

	w.with("", "delete", "tkod", "web-app")
	w.refused(w.Kubeconfig, "", "NotFound", "get", "tkod", "web-app")
	w.with("", "delete", "tkod", "--all")
}

func kustomized(t *testing.T, w *world) {
	w.t = t
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kustomization.yaml": "resources: [all.yaml]\nlabels: [{pairs: {app.kubernetes.io/part-of: fleet, env: pre-prod, team_a: x_1}}]\n",
		"all.yaml":           strings.ReplaceAll(keptDeployment, "web-app", "kustomized") + "---" + strings.ReplaceAll(takingSite, "lagos", "accra") + "---" + strings.ReplaceAll(scheduler, "taker}", "other}"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.with("", "apply", "-k", dir)
	w.with("", "wait", "--for=condition=Ready", "tkod/kustomized", "--timeout=240s")
	generations := []string{"get", "tkod,tkos,tkop", "-l", "env=pre-prod", "-o", "jsonpath={.items[*].metadata.generation}"}
	before := w.with("", generations...)
	if out := w.with("", "diff", "-k", dir); out != "" {
		t.Errorf("nothing differs:\n%s", out)
	}
	if out := w.with("", "apply", "-k", dir); strings.Count(out, "unchanged") != 2 { // a deployment's package is larger than the manifest
		t.Errorf("applied again:\n%s", out)
	}
	w.prints(before, generations...)
	for _, selector := range []string{"app.kubernetes.io/part-of=fleet", "env=pre-prod,team_a=x_1"} {
		if out := w.with("", "get", "tkod,tkos,tkop", "-l", selector, "-o", "name"); len(strings.Fields(out)) != 3 {
			t.Errorf("-l %s:\n%s", selector, out)
		}
	}
	w.with("", "delete", "-k", dir)
}

func applySet(t *testing.T, w *world) {
	w.t = t
	t.Setenv("KUBECTL_APPLYSET", "true")
	a, b := manifest("Site", "one", "}"), manifest("Site", "two", "}")
	args := []string{"apply", "-n", "default", "--applyset=configmaps/fleet", "--prune", "-f", "-"}
	w.with(a+"---\n"+b, args...)
	w.with(a+"---\n"+b, args...)
	w.with(a, args...)
	w.prints("site.tko.nephio.org/one", "get", "tkos", "-l", "applyset.kubernetes.io/part-of", "-o", "name")
	w.with("", "delete", "tkos", "one")
}

func labelled(t *testing.T, w *world) {
	w.t = t
	w.with(manifest("Template", "gives", ", labels: {given: by-the-template}}"), "apply", "-f", "-")
	w.with(manifest("Site", "labelled", "}\nspec: {templateId: gives}"), "apply", "-f", "-")
	w.with("", "label", "tkos", "labelled", "argocd.argoproj.io/instance=my-app", "ver=v1_2")
	w.prints("my-app v1_2 by-002dthe-002dtemplate", "get", "tkos", "labelled", "-o",
		`jsonpath={.metadata.labels.argocd\.argoproj\.io/instance} {.metadata.labels.ver} {.metadata.labels.given}`)
	if out := w.with("", "label", "tkos", "labelled", "argocd.argoproj.io/instance-", "ver-", "given-"); !strings.Contains(out, "unlabeled") {
		t.Error(out)
	}
	w.prints("", "get", "tkos", "labelled", "-o", "jsonpath={.metadata.labels}")
	w.with("", "delete", "tkos/labelled", "tkot/gives")
}

// installChart installs a chart as helm install does, by Helm's own library.
func installChart(ctx context.Context, t *testing.T, w *world, dir, release string) (*action.Configuration, *v2chart.Chart) {
	t.Helper()
	chart, err := loader.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = &w.Kubeconfig
	config := action.NewConfiguration()
	if err := config.Init(flags, "default", "secret"); err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(config)
	install.ReleaseName, install.Namespace, install.Timeout, install.WaitStrategy = release, "default", timeLimit, helmkube.StatusWatcherStrategy
	install.ServerSideApply = true
	if _, err := install.RunWithContext(ctx, chart, nil); err != nil {
		t.Fatalf("helm install: %v", err)
	}
	return config, chart
}

func helmed(t *testing.T, w *world) {
	w.t = t
	dir := t.TempDir()
	files := map[string]string{
		"Chart.yaml":          "apiVersion: v2\nname: fleet\nversion: 1.0.0\n",
		"values.yaml":         "value: one\n",
		"templates/site.yaml": strings.ReplaceAll(takingSite, "lagos", "helm"),
		"templates/template.yaml": manifest("Template", "helm-002ftemplate", "}\nspec: {package: {resources: [{apiVersion: v1, kind: ConfigMap, "+
			"metadata: {name: a}, data: {k: '{{ .Values.value }}'}}]}}"),
		"templates/deployment.yaml": strings.NewReplacer("web-app", "helm-web", "data: {k: v}", "data: {k: '{{ .Values.value }}'}").Replace(keptDeployment),
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	defer cancel()
	config, chart := installChart(ctx, t, w, dir, "fleet")
	w.prints("Helm one", "get", "tkod", "helm-web", "-o", `jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by} {.spec.package.resources[?(@.kind=="ConfigMap")].data.k}`)
	w.prints("True", "get", "tkod", "helm-web", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	before := w.with("", "get", "tkos", "helm", "-o", "jsonpath={.metadata.generation}")
	upgrade := action.NewUpgrade(config)
	upgrade.Namespace, upgrade.Timeout, upgrade.WaitStrategy = "default", timeLimit, helmkube.StatusWatcherStrategy
	if _, err := upgrade.RunWithContext(ctx, "fleet", chart, map[string]any{"value": "two"}); err != nil {
		t.Fatalf("helm upgrade: %v", err)
	}
	w.prints("two", "get", "tkot", "helm-002ftemplate", "-o", "jsonpath={.spec.package.resources[0].data.k}")
	w.prints(before, "get", "tkos", "helm", "-o", "jsonpath={.metadata.generation}")
	uninstall := action.NewUninstall(config)
	uninstall.Timeout, uninstall.WaitStrategy = timeLimit, helmkube.StatusWatcherStrategy
	if _, err := uninstall.Run("fleet"); err != nil {
		t.Fatalf("helm uninstall: %v", err)
	}
	w.prints("", "get", "tkot,tkod,tkos", "-l", "app.kubernetes.io/managed-by=Helm", "-o", "name")
}

// controlled uses controller-runtime's client as controllers do.
func controlled(t *testing.T, w *world) {
	w.t = t
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(kubetest.Config(w.Cluster), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	want := func(o *v1alpha1.Deployment) func() error {
		return func() error {
			o.Labels = map[string]string{"example.org/owned-by": "me", "zone": "eu-west-1"}
			o.Annotations = map[string]string{"tko.nephio.org/name": "Keep"}
			o.Spec.SiteID = "lagos"
			return nil
		}
	}
	for _, expected := range []controllerutil.OperationResult{controllerutil.OperationResultCreated, controllerutil.OperationResultNone} {
		o := &v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "controlled-one"}}
		result, err := controllerutil.CreateOrPatch(t.Context(), c, o, want(o))
		if err != nil || result != expected {
			t.Fatalf("%s, %v, want %s", result, err, expected)
		}
	}
	var owner v1alpha1.Deployment
	if err := c.Get(t.Context(), client.ObjectKey{Name: "controlled-one"}, &owner); err != nil {
		t.Fatal(err)
	}
	child := &v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "controlled-two", Annotations: map[string]string{"tko.nephio.org/name": "Keep"}}}
	if err := controllerutil.SetControllerReference(&owner, child, scheme); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	w.prints("controlled-one "+string(owner.UID), "get", "tkod", "controlled-two", "-o", "jsonpath={.metadata.ownerReferences[0].name} {.metadata.ownerReferences[0].uid}")
	var list v1alpha1.DeploymentList
	if err := c.List(t.Context(), &list, client.MatchingLabels{"example.org/owned-by": "me", "zone": "eu-west-1"}); err != nil || len(list.Items) != 1 {
		t.Errorf("%d, %v", len(list.Items), err)
	}
	if err := c.DeleteAllOf(t.Context(), &v1alpha1.Deployment{}); err != nil {
		t.Error(err)
	}
}

// redacted checks that Secrets are redacted for viewers.
func redacted(t *testing.T, w *world) {
	w.t = t
	roles, err := os.ReadFile("../../deploy/kubernetes/base/roles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.Apply(t, string(roles))
	for role, group := range map[string]string{"tko-viewer": "viewers", "tko-editor": "editors", "tko-secret-reader": "seers"} {
		w.with("", "create", "clusterrolebinding", "tools-"+group, "--clusterrole="+role, "--group="+group)
		t.Cleanup(func() { w.with("", "delete", "clusterrolebinding", "tools-"+group) })
	}
	text := manifest("Site", "secretive", "}\nspec: {package: {resources: [{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {password: hunter2}}]}}")
	w.with(text, "apply", "-f", "-")
	viewer, editor := w.UserKubeconfig(t, "victor", "viewers"), w.UserKubeconfig(t, "edith", "viewers", "editors")
	seer := w.UserKubeconfig(t, "sara", "viewers", "editors", "seers")
	w.Eventually(t, "yes", "auth", "can-i", "update", "sites.tko.nephio.org", "--as=edith", "--as-group=editors")
	w.Eventually(t, "yes", "auth", "can-i", "list", "sites.tko.nephio.org", "--as=victor", "--as-group=viewers")
	w.Eventually(t, "yes", "auth", "can-i", "get", "sites.tko.nephio.org", "--subresource=secrets", "--as=sara", "--as-group=seers")
	for _, args := range [][]string{
		{"get", "tkos", "secretive", "-o", "yaml"}, {"get", "tkos", "-o", "json"}, {"describe", "tkos", "secretive"}, {"get", "--raw", "/apis/tko.nephio.org/v1alpha1/sites?watch=1&timeoutSeconds=1"},
	} {
		out, stderr, code := w.Try(t, viewer, "", args...)
		if code != 0 || !strings.Contains(out, "secretive") || strings.Contains(out, "hunter2") {
			t.Errorf("kubectl %v: %d, %s%s", args, code, out, stderr)
		}
		if out, _, _ := w.Try(t, seer, "", args...); !strings.Contains(out, "hunter2") {
			t.Errorf("a user with the right gets a redacted Secret: kubectl %v: %s", args, out)
		}
	}
	out, _, _ := w.Try(t, editor, "", "get", "tkos", "secretive", "-o", "yaml")
	if stdout, stderr, code := w.Try(t, editor, out, "replace", "-f", "-"); code != 0 || strings.Contains(stdout, "hunter2") {
		t.Errorf("written back: %s%s", stdout, stderr)
	}
	if stdout, stderr, code := w.Try(t, editor, "", "label", "tkos", "secretive", "a=b"); code != 0 {
		t.Errorf("labelled: %s%s", stdout, stderr)
	}
	if stdout, stderr, code := w.Try(t, editor, text, "apply", "-f", "-"); code != 0 {
		t.Errorf("applied: %s%s", stdout, stderr)
	}
	w.prints("hunter2", "get", "tkos", "secretive", "-o", "jsonpath={.spec.package.resources[0].stringData.password}")
	w.with("", "delete", "tkos", "secretive")
}
