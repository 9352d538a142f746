package kubernetes_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/kube"
)

const aPackage = `, labels: {type: demo, Site.cloud: GCP}}
spec: {package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}]}}`

func TestKubectlCommandsWork(t *testing.T) {
	policy, log := filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, users: [alice]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "data,preparer", "--kubernetes-audit-policy="+policy, "--kubernetes-audit-log="+log)

	t.Run("create, get and list", func(t *testing.T) {
		w.t = t
		w.with(manifest("Template", "nf-002fa", aPackage), "create", "-f", "-")
		w.with(manifest("Template", "nf-002fb-002fc", ", labels: {Site.cloud: AWS}}"), "create", "-f", "-")
		w.with(manifest("Site", "lagos", "}\nspec: {templateId: nf/a}"), "create", "-f", "-")
		w.with(manifest("Plugin", "validate-007cfree5gc-002fsmf", "}\nspec: {arguments: ['true'], triggers: [{group: g, version: v1, kind: K}]}"), "create", "-f", "-")
		w.refused(w.Kubeconfig, manifest("Template", "nf-002fa", aPackage), "AlreadyExists", "create", "-f", "-")
		w.prints("nf/a", "get", "template.tko.nephio.org", "nf-002fa", "-o", "jsonpath={.spec.templateId}")
		w.prints("template.tko.nephio.org/nf-002fa\ntemplate.tko.nephio.org/nf-002fb-002fc", "get", "tkot", "-o", "name")
		w.prints("NAME\nlagos", "get", "tkos", "-o", "custom-columns=NAME:.metadata.name")
		for _, format := range []string{"yaml", "json", "wide", "go-template={{range .items}}{{.metadata.name}}{{end}}"} {
			if out := w.with("", "get", "tkot", "-o", format); !strings.Contains(out, "nf-002fb-002fc") {
				t.Errorf("-o %s: %s", format, out)
			}
		}
		all := w.with("", "get", "tko")
		for _, name := range []string{"template.tko.nephio.org/nf-002fa", "site.tko.nephio.org/lagos", "plugin.tko.nephio.org/validate-007cfree5gc-002fsmf"} {
			if !strings.Contains(all, name) {
				t.Errorf("the category lacks %s:\n%s", name, all)
			}
		}
		if head, _, _ := strings.Cut(w.with("", "get", "tkos"), "\n"); strings.Join(strings.Fields(head), " ") != "NAME ID TEMPLATE DEPLOYMENTS SCHEDULED REASON AGE" {
			t.Errorf("columns: %s", head)
		}
	})

	t.Run("wildcards", func(t *testing.T) {
		w.t = t
		a, b := "template.tko.nephio.org/nf-002fa", "template.tko.nephio.org/nf-002fb-002fc"
		w.prints(a+"\n"+b, "get", "tkot", "-o", "name", "--field-selector=metadata.name=nf-002f-002a-002a")
		w.prints(a, "get", "tkot", "-o", "name", "--field-selector=metadata.name=nf-002f-002a")
		w.prints(a, "get", "tkot", "-o", "name", "-l", "Site.cloud=G-002a")
		w.prints(b, "get", "tkot", "-o", "name", "-l", "Site.cloud,Site.cloud!=G-002a")
	})

	t.Run("apply, edit and patch", func(t *testing.T) {
		w.t = t
		text := manifest("Template", "applied", aPackage)
		w.with(text, "apply", "-f", "-")
		if out := w.with(text, "apply", "-f", "-"); !strings.HasSuffix(out, "unchanged") {
			t.Errorf("applied again: %s", out)
		}
		empty := manifest("Site", "appliedempty", "}\nspec: {package: {resources: []}}")
		w.with(empty, "apply", "-f", "-")
		if out := w.with(empty, "apply", "-f", "-"); !strings.HasSuffix(out, "unchanged") {
			t.Errorf("with an empty package, applied again: %s", out)
		}
		w.with(strings.Replace(text, "demo", "changed", 1), "apply", "-f", "-")
		w.prints("changed", "get", "tkot", "applied", "-o", "jsonpath={.metadata.labels.type}")
		w.with(strings.Replace(text, ", Site.cloud: GCP", "", 1), "apply", "-f", "-")
		w.prints("", "get", "tkot", "applied", "-o", "jsonpath={.metadata.labels.Site\\.cloud}")
		w.with(text, "apply", "--server-side", "--force-conflicts", "-f", "-")
		w.refused(w.Kubeconfig, strings.Replace(text, "demo", "mine", 1), "conflict", "apply", "--server-side", "--field-manager=other", "-f", "-")
		w.with("", "patch", "tkot", "applied", "--type=merge", "-p", `{"metadata":{"labels":{"patched":"1"}}}`)
		w.with("", "label", "tkot", "applied", "labelled=1")
		w.with("", "annotate", "tkot", "applied", "note=kept")
		w.prints("demo 1 1 kept", "get", "tkot", "applied", "-o", "jsonpath={.metadata.labels.type} {.metadata.labels.patched} {.metadata.labels.labelled} {.metadata.annotations.note}")

		editor := filepath.Join(t.TempDir(), "editor")
		if err := os.WriteFile(editor, []byte("#!/bin/sh\nsed -i 's/k: v/k: edited/' \"$1\"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("KUBE_EDITOR", editor)
		w.with("", "edit", "tkot", "applied")
		w.prints("edited", "get", "tkot", "applied", "-o", "jsonpath={.spec.package.resources[0].data.k}")
	})

	t.Run("conflicts", func(t *testing.T) {
		w.t = t
		old := w.with("", "get", "tkot", "applied", "-o", "yaml")
		w.with("", "label", "tkot", "applied", "meanwhile=1")
		w.refused(w.Kubeconfig, old, "Conflict", "replace", "-f", "-")
	})

	t.Run("invalid packages", func(t *testing.T) {
		w.t = t
		wrong := manifest("Template", "wrong", "}\nspec: {package: {resources: [{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: many}}]}}")
		w.refused(w.Kubeconfig, wrong, "spec.package.resources[0].spec.replicas", "create", "-f", "-")
		w.refused(w.Kubeconfig, manifest("Template", "wrong", "}\nspec: {pakage: {}}"), `unknown field "spec.pakage"`, "create", "-f", "-")
	})

	t.Run("deployments", func(t *testing.T) {
		w.t = t
		text := manifest("Deployment", "any", "}\nspec: {templateId: nf/a, siteId: lagos}")
		name := w.with(text, "create", "-f", "-", "-o", "name")
		w.with("", "wait", "--for=condition=Prepared", name, "--timeout=240s")
		w.prints("true true lagos", "get", name, "-o", "jsonpath={.status.prepared} {.status.approved} {.spec.siteId}")
		w.with("", "label", name, "later=1")
		w.with("", "wait", "--for=condition=Prepared", "--for=condition=Approved", name, "--timeout=240s")
		w.refused(w.Kubeconfig, text, "apply never creates", "apply", "-f", "-")
		w.refused(w.Kubeconfig, text, "apply never creates", "apply", "--server-side", "-f", "-")
		current := w.with("", "get", name, "-o", "yaml")
		w.with(strings.Replace(current, "k: v", "k: other", 1), "replace", "-f", "-")
		w.refused(w.Kubeconfig, current, "Conflict", "replace", "-f", "-")
		var after struct{ Metadata struct{ Name string } }
		if err := json.Unmarshal([]byte(w.with("", "get", name, "-o", "json")), &after); err != nil || "deployment.tko.nephio.org/"+after.Metadata.Name != name {
			t.Errorf("%v, %v", after, err)
		}
		w.with(w.with("", "get", name, "-o", "yaml"), "apply", "-f", "-") // which records the last applied configuration
		w.with(w.with("", "get", name, "-o", "yaml"), "replace", "--force", "-f", "-")
		w.with("", "wait", "--for=delete", name, "--timeout=240s")
		w.refused(w.Kubeconfig, "", "NotFound", "get", name)
		w.prints("lagos", "get", "tkod", "-o", "jsonpath={.items[*].spec.siteId}")
		w.with("", "delete", "tkod", "--all")
		w.prints("", "get", "tkod", "-o", "name")
	})

	t.Run("watch", func(t *testing.T) {
		w.t = t
		cmd := w.Command(w.Kubeconfig, "get", "tkot", "--watch-only", "--output-watch-events", "-o", `jsonpath={.type} {.object.metadata.name}{"\n"}`)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end := time.AfterFunc(timeLimit, func() { _ = cmd.Process.Kill() })
		defer func() {
			end.Stop()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() { // kubectl does not report when its watch has started
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Millisecond):
					_, _, _ = w.Try(t, w.Kubeconfig, "", "label", "tkot", "nf-002fa", "--overwrite", "n="+strings.Repeat("i", i%60))
				}
			}
		}()
		lines := bufio.NewScanner(out)
		seen := lines.Scan()
		close(stop)
		<-done
		if !seen || lines.Text() != "MODIFIED nf-002fa" {
			t.Errorf("watched %q", lines.Text())
		}
	})

	t.Run("field managers", func(t *testing.T) { fieldManagers(t, w) })
	t.Run("formats", func(t *testing.T) { formats(t, w) })
	t.Run("patches", func(t *testing.T) { patches(t, w) })
	t.Run("explain", func(t *testing.T) { explanations(t, w) })
	t.Run("status", func(t *testing.T) { statuses(t, w) })
	t.Run("users", func(t *testing.T) { users(t, w) })
	t.Run("audit", func(t *testing.T) { audited(t, log) })

	t.Run("deletes", func(t *testing.T) {
		w.t = t
		w.with("", "delete", "tkot", "-l", "Site.cloud")
		w.with("", "delete", "tkop", "--all")
		w.prints("", "get", "tkop", "-o", "name")
	})
}

// users checks that users have the rights of their roles, and are recorded as
// authors.
func users(t *testing.T, w *world) {
	w.t = t
	w.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tko-editor}
rules:
- {apiGroups: [tko.nephio.org], resources: [templates, sites, deployments], verbs: [get, list, create, update, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tko-editors}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tko-editor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: editors}]
`)
	w.Eventually(t, "yes", "auth", "can-i", "create", "templates.tko.nephio.org", "--as=alice", "--as-group=editors")
	alice, mallory := w.UserKubeconfig(t, "alice", "editors"), w.UserKubeconfig(t, "mallory")
	w.refused(mallory, "", `User "mallory" cannot list resource "templates"`, "get", "tkot")
	if _, stderr, code := w.Try(t, alice, manifest("Template", "by-002dalice", aPackage), "create", "-f", "-"); code != 0 {
		t.Fatalf("alice may create: %s", stderr)
	}
	w.refused(alice, "", `User "alice" cannot delete resource "templates"`, "delete", "tkot", "by-002dalice")

	// Approval needs its own right, in each form.
	name, stderr, code := w.Try(t, alice, manifest("Deployment", "any", "}\nspec: {package: {resources: [{apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, "+
		"metadata: {name: deployment, annotations: {nephio.org/approve: Manual}}}]}}"), "create", "-f", "-", "-o", "name")
	name = strings.TrimSpace(name)
	if code != 0 {
		t.Fatalf("alice may create: %s", stderr)
	}
	id := strings.TrimPrefix(name, "deployment.tko.nephio.org/")
	if log, stderr, code := w.CLI("deployment", "explain", id, "-o", "json"); code != 0 || !strings.Contains(log, `"k8s:alice"`) {
		t.Errorf("the log lacks the author: %d, %s%s", code, log, stderr)
	}
	w.with("", "wait", "--for=condition=Prepared", name, "--timeout=240s")
	approve := `[{"op":"add","path":"/spec/package/resources/0/metadata/annotations/nephio.org~1approved","value":"true"}]`
	w.refused(alice, "", "deployments/approval", "patch", name, "--type=json", "-p", approve)
	path := "/apis/tko.nephio.org/v1alpha1/deployments/" + id
	file := filepath.Join(t.TempDir(), "approved.json")
	text := strings.Replace(w.with("", "get", name, "-o", "json"), `"approved": false`, `"approved": true`, 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.refused(alice, "", "cannot update resource \"deployments/approval\"", "replace", "--raw", path+"/approval", "-f", file)
	yes := []string{"patch", name, "--subresource=approval", "--type=merge", "-p", `{"status":{"approved":true}}`}
	w.refused(alice, "", "cannot get resource \"deployments/approval\"", yes...)
	w.with("", append(yes, "--dry-run=server")...)
	w.prints("false", "get", name, "-o", "jsonpath={.status.approved}")
	w.with("", yes...)
	w.prints("true", "get", name, "-o", "jsonpath={.status.approved}")
	w.with("", "replace", "--raw", path+"/approval", "-f", replacement(t, w, name))

	// Clients that bypass the API server are authenticated too, and can't claim to be
	// other users.
	for _, headers := range []map[string]string{{}, {"X-Remote-User": "administrator", "X-Remote-Group": "system:masters"}, {"Impersonate-User": "administrator"}} {
		if code := w.direct(headers); code != http.StatusForbidden {
			t.Errorf("a client with the headers %v gets %d", headers, code)
		}
	}
	if code := w.direct(map[string]string{"Authorization": "Bearer wrong"}); code != http.StatusUnauthorized {
		t.Errorf("a wrong token gets %d", code)
	}
	if code := w.direct(map[string]string{"Authorization": "Bearer " + kube.Token}); code != http.StatusOK {
		t.Errorf("an administrator's token gets %d", code)
	}
	w.with("", "label", name, "by=carol", "--as=carol", "--as-group=system:masters")
	if log, stderr, code := w.CLI("deployment", "explain", id, "-o", "json"); code != 0 || !strings.Contains(log, `"carol"`) {
		t.Errorf("the log lacks the impersonated user: %d, %s%s", code, log, stderr)
	}
}

// replacement writes a deployment to a file.
func replacement(t *testing.T, w *world, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "deployment.json")
	if err := os.WriteFile(file, []byte(w.with("", "get", name, "-o", "json")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// direct lists templates without the API server, and returns the HTTP status.
func (w *world) direct(headers map[string]string) int {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), timeLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost:"+strconv.Itoa(w.port)+"/apis/tko.nephio.org/v1alpha1/templates", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for key, value := range headers {
		request.Header.Set(key, value)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}
