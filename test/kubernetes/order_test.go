package kubernetes_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/eventually"
)

// The parts of a bundle: a deployment with its template, its site and the template of that,
// which a tool writes in an order of its own. Only the site's template says who takes its
// deployments. NAME stands for the name of the bundle.
var bundle = map[string]string{
	"deployment": `
apiVersion: tko.nephio.org/v1alpha1
kind: Deployment
metadata: {name: NAME-app, annotations: {tko.nephio.org/name: Keep}}
spec: {templateId: NAME/template, siteId: NAME/site, package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: own}, data: {k: v}}]}}
`,
	"site": `
apiVersion: tko.nephio.org/v1alpha1
kind: Site
metadata: {name: NAME-002fsite}
spec: {templateId: NAME/cluster, package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: of-site}, data: {k: v}}]}}
`,
	"template": `
apiVersion: tko.nephio.org/v1alpha1
kind: Template
metadata: {name: NAME-002ftemplate}
spec: {package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: base}, data: {k: v}}]}}
---
apiVersion: tko.nephio.org/v1alpha1
kind: Template
metadata: {name: NAME-002fcluster}
spec: {package: {resources: [{apiVersion: taker.plugin.nephio.org/v1alpha1, kind: Taker, metadata: {name: t}}]}}
`,
}

// part returns a part of the bundle of a name.
func part(name, bundled string) string { return strings.ReplaceAll(bundle[bundled], "NAME", name) }

// Each tool that writes kinds in an order of its own, with Deployment first, installs a bundle
// of a deployment with its template and its site. All end with the same.
func TestDeploymentComesBeforeWhatItNames(t *testing.T) {
	w := newWorld(t, "data,preparer,meta-scheduler")
	w.with(scheduler, "apply", "-f", "-")
	for _, tool := range []struct {
		name    string
		install func(t *testing.T, w *world)
	}{{"helm", helmBundle}, {"kustomize", kustomizeBundle}, {"flux", fluxBundle}, {"argo", argoBundle}, {"restart", restartedBundle}} {
		t.Run(tool.name, func(t *testing.T) {
			w.t = t
			name := tool.name
			tool.install(t, w)
			w.with("", "wait", "--for=condition=Ready", "tkod/"+name+"-app", "--timeout=120s")
			w.prints("base own", "get", "tkod", name+"-app", "-o", `jsonpath={.spec.package.resources[?(@.kind=="ConfigMap")].metadata.name}`)
			w.prints(name+"/template "+name+"/site True", "get", "tkod", name+"-app", "-o",
				`jsonpath={.spec.templateId} {.spec.siteId} {.status.conditions[?(@.type=="ResolvedRefs")].status}`)
			w.prints(name+"/cluster t of-site True", "get", "tkos", name+"-002fsite", "-o",
				`jsonpath={.spec.templateId} {.spec.package.resources[*].metadata.name} {.status.conditions[?(@.type=="ResolvedRefs")].status}`)
		})
	}
}

func helmBundle(t *testing.T, w *world) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"Chart.yaml":                "apiVersion: v2\nname: bundle\nversion: 1.0.0\n",
		"templates/deployment.yaml": part("helm", "deployment"), "templates/site.yaml": part("helm", "site"), "templates/template.yaml": part("helm", "template"),
	})
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	defer cancel()
	installChart(ctx, t, w, dir, "bundle")
}

// kustomizeBundle applies a kustomization whose common labels and annotations kustomize puts
// into spec.selector and spec.template of each kind Deployment.
func kustomizeBundle(t *testing.T, w *world) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"kustomization.yaml": "resources: [all.yaml]\ncommonLabels: {team: core}\ncommonAnnotations: {example.com/by: me}\n",
		"all.yaml":           part("kustomize", "template") + "---" + part("kustomize", "site") + "---" + part("kustomize", "deployment"),
	})
	w.with("", "apply", "-k", dir)
	w.with("", "wait", "--for=condition=Ready", "tkod/kustomize-app", "--timeout=120s")
	generation := w.with("", "get", "tkod", "kustomize-app", "-o", "jsonpath={.metadata.generation}")
	if out := w.with("", "diff", "-k", dir); out != "" {
		t.Errorf("nothing differs:\n%s", out)
	}
	w.with("", "apply", "-k", dir)
	w.prints(generation+" core core me", "get", "tkod", "kustomize-app", "-o", `jsonpath={.metadata.generation} {.metadata.labels.team} `+
		`{.spec.selector.matchLabels.team} {.spec.template.metadata.annotations.example\.com/by}`)
	w.with("", "apply", "-k", dir, "--server-side", "--force-conflicts")
	for field, spec := range map[string]string{
		"selector.matchExpressions": "selector: {matchExpressions: []}", "template.spec": "template: {spec: {}}", "replicas": "replicas: 1",
	} {
		w.refused(w.Kubeconfig, strings.Replace(part("kustomize", "deployment"), "spec: {", "spec: {"+spec+", ", 1), `unknown field "spec.`+field, "apply", "-f", "-")
	}
}

// fluxBundle does as Flux' kustomize-controller: all objects are applied on the server in a dry
// run, sorted by kind, and then once more.
func fluxBundle(_ *testing.T, w *world) {
	for _, dry := range []string{"--dry-run=server", "--dry-run=none"} {
		for _, kind := range []string{"deployment", "site", "template"} {
			w.with(part("flux", kind), "apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", dry, "-f", "-")
		}
	}
}

// argoBundle does as Argo CD: one object after the other, sorted by kind, with the client's apply.
func argoBundle(_ *testing.T, w *world) {
	for _, dry := range []string{"--dry-run=client", "--dry-run=none"} {
		for _, kind := range []string{"deployment", "site", "template"} {
			w.with(part("argo", kind), "apply", "--field-manager=argocd-controller", dry, "-f", "-")
		}
	}
}

// restartedBundle stops the server while the deployment waits. The condition says for what.
func restartedBundle(t *testing.T, w *world) {
	w.with(part("restart", "deployment"), "apply", "-f", "-")
	waits := []string{"get", "tkod", "restart-app", "-o", `jsonpath={.spec.templateId} {.status.conditions[?(@.type=="Ready")].message}`}
	w.prints(`restart/template template "restart/template" and site "restart/site" don't exist yet: the deployment waits until they are registered`, waits...)
	w.with(part("restart", "deployment"), "apply", "-f", "-") // as it is
	w.Stop()
	w.start()
	eventually.Within(t, timeLimit, "the API is available again", func() error {
		if _, stderr, code := w.Try(t, w.Kubeconfig, "", "get", "tkos,tkod,tkot"); code != 0 {
			return errors.New(stderr)
		}
		return nil
	})
	w.with(part("restart", "site"), "apply", "-f", "-")
	w.prints(`restart/cluster template "restart/cluster" doesn't exist yet: the site waits until it is registered`, "get", "tkos", "restart-002fsite", "-o",
		`jsonpath={.spec.templateId} {.status.conditions[?(@.type=="Ready")].message}`)
	w.with(part("restart", "site"), "apply", "-f", "-") // as it is
	w.with("", "wait", `--for=jsonpath={.status.conditions[?(@.type=="Ready")].message}=template "restart/template" doesn't exist yet: the deployment waits until it is registered`,
		"tkod/restart-app", "--timeout=60s")
	w.with(part("restart", "template"), "apply", "-f", "-")
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
