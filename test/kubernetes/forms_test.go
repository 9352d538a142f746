package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
)

// formats checks all output formats of kubectl for all kinds.
func formats(t *testing.T, w *world) {
	w.t = t
	name := w.with(manifest("Deployment", "any", ", labels: {of: formats}}\nspec: {templateId: nf/a, siteId: lagos}"), "create", "-f", "-", "-o", "name")
	w.with("", "wait", "--for=condition=Approved", name, "--timeout=240s")
	_, name, _ = strings.Cut(name, "/")
	type row struct{ name, id, columns, wide, field, value string }
	kinds := map[string]row{
		"template": {"nf-002fa", "nf/a", "NAME ID DEPLOYMENTS AGE", "", "spec.templateId", "nf/a"},
		"site":     {"lagos", "lagos", "NAME ID TEMPLATE DEPLOYMENTS SCHEDULED REASON AGE", " SUSPENDED HEALTHY MESSAGE", "spec.templateId", "nf/a"},
		"deployment": {
			name, name, "NAME TEMPLATE SITE PREPARED APPROVED SCHEDULED REASON AGE", " SUSPENDED PARENT REVISION MESSAGE", "spec.siteId", "lagos",
		},
		"plugin": {"validate-007cfree5gc-002fsmf", "validate|free5gc/smf", "NAME TYPE PLUGIN EXECUTOR AGE", " TRIGGERS ARGUMENTS", "spec.pluginId", "free5gc/smf"},
	}
	for kind, want := range kinds {
		full := kind + ".tko.nephio.org"
		has := func(format, text string) {
			t.Helper()
			if out := strings.Join(strings.Fields(w.with("", "get", full, "-o", format)), " "); !strings.Contains(out, text) {
				t.Errorf("get %s -o %s prints\n%s\nwant %q in it", full, format, out, text)
			}
		}
		head := func(columns string, args ...string) {
			t.Helper()
			first, _, _ := strings.Cut(w.with("", append([]string{"get", full}, args...)...), "\n")
			if got := strings.Join(strings.Fields(first), " "); got != columns {
				t.Errorf("get %s %s has the columns\n%s\nwant\n%s", full, args, got, columns)
			}
		}
		head(want.columns)
		head(want.columns, want.name)
		head(want.columns+want.wide, "-o", "wide")
		head(want.columns+" LABELS", "--show-labels")
		if out := w.with("", "get", full, "--no-headers"); !strings.Contains(out, want.name) || strings.Contains(out, "NAME") {
			t.Errorf("without headers: %s", out)
		}
		has("name", full+"/"+want.name)
		has("jsonpath={.items[*]."+want.field+"}", want.value)
		has("custom-columns=NAME:.metadata.name,VALUE:."+want.field, want.name+" "+want.value)
		has("go-template={{range .items}}<{{.metadata.name}}>{{end}}", "<"+want.name+">")
		for _, format := range []string{"yaml", "json"} {
			var one, list struct {
				APIVersion string
				Kind       string
				Metadata   struct{ Name string }
				Items      []map[string]any
			}
			for to, args := range map[any][]string{&one: {full, want.name}, &list: {full}} {
				if err := yaml.Unmarshal([]byte(w.with("", append([]string{"get", "-o", format}, args...)...)), to); err != nil {
					t.Errorf("get %s -o %s: %v", args, format, err)
				}
			}
			if one.APIVersion != "tko.nephio.org/v1alpha1" || !strings.EqualFold(one.Kind, kind) || one.Metadata.Name != want.name || len(list.Items) == 0 {
				t.Errorf("get %s -o %s: %+v, and %d in the list", full, format, one, len(list.Items))
			}
		}
		describe := w.with("", "describe", full, want.name)
		if !strings.Contains(describe, want.value) {
			t.Errorf("describe %s: %s", full, describe)
		}
	}
	cells := strings.Fields(w.with("", "get", "tkod", name, "--no-headers"))
	if got := strings.Join(cells[1:5], " "); got != "nf/a lagos true true" || !strings.HasSuffix(cells[len(cells)-1], "s") && !strings.HasSuffix(cells[len(cells)-1], "m") {
		t.Errorf("the row of a deployment is %v", cells)
	}
	w.prints("demo", "get", "tkot", "nf-002fa", "--no-headers", "-o", "custom-columns=T:.metadata.labels.type")
	w.with("", "delete", "tkod", "-l", "of=formats")
}

// patches changes objects with each type of kubectl patch.
func patches(t *testing.T, w *world) {
	w.t = t
	w.with(manifest("Template", "patched", aPackage), "create", "-f", "-")
	label := func(want string) {
		t.Helper()
		w.prints(want, "get", "tkot", "patched", "-o", "jsonpath={.metadata.labels.type}{.metadata.annotations.note}")
	}
	w.with("", "patch", "tkot", "patched", "--type=strategic", "-p", `{"metadata":{"labels":{"type":"strategic"}}}`)
	label("strategic")
	w.with("", "patch", "tkot", "patched", "--type=merge", "-p", `{"metadata":{"labels":{"type":"merge"},"annotations":{"note":"!"}}}`)
	label("merge!")
	w.with("", "patch", "tkot", "patched", "--type=json", "-p", `[{"op":"test","path":"/metadata/labels/type","value":"merge"},{"op":"replace","path":"/metadata/labels/type","value":"json"}]`)
	label("json!")
	w.refused(w.Kubeconfig, "", "the server rejected our request", "patch", "tkot", "patched", "--type=json", "-p", `[{"op":"test","path":"/metadata/labels/type","value":"other"}]`)
	w.with("", "patch", "tkot", "patched", "--type=merge", "--dry-run=server", "-p", `{"metadata":{"labels":{"type":"dry"}}}`)
	label("json!")
	w.refused(w.Kubeconfig, "", "spec.package.resources[0].data", "patch", "tkot", "patched", "--type=json", "-p", `[{"op":"add","path":"/spec/package/resources/0/data","value":{"k":[1]}}]`)
	w.refused(w.Kubeconfig, "", "Conflict", "patch", "tkot", "patched", "--type=merge", "-p", `{"metadata":{"resourceVersion":"1"}}`)
	w.refused(w.Kubeconfig, "", "metadata.finalizers", "patch", "tkot", "patched", "--type=merge", "-p", `{"metadata":{"finalizers":["a.example/b"]}}`)
	w.refused(w.Kubeconfig, "", "NotFound", "patch", "tkot", "nowhere", "--type=merge", "-p", `{}`)

	// An invalid edit is shown again with the reason, and changes nothing.
	editor := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\ngrep -q '^# .*spec.package' \"$1\" && exit 1\nsed -i 's/k: v$/k: [1]/' \"$1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBE_EDITOR", editor)
	w.refused(w.Kubeconfig, "", "there was a problem with the editor", "edit", "tkot", "patched")
	w.prints("v", "get", "tkot", "patched", "-o", "jsonpath={.spec.package.resources[0].data.k}")
	w.with("", "delete", "tkot", "patched")
}

// explanations checks that kubectl explain describes nested fields.
func explanations(t *testing.T, w *world) {
	w.t = t
	explain := func(path string) string {
		t.Helper()
		return strings.Join(strings.Fields(w.with("", "explain", path)), " ")
	}
	for path, text := range map[string]string{
		"templates.tko.nephio.org":                            "a package that deployments are made from",
		"sites.tko.nephio.org.spec.templateId":                "merges the given package and labels into those of the template",
		"sites.tko.nephio.org.status.conditions":              "The conditions of the site",
		"deployments.tko.nephio.org.spec":                     "siteId <string> The ID of the site",
		"deployments.tko.nephio.org.spec.package.resources":   "Each has apiVersion and kind",
		"deployments.tko.nephio.org.status.approved":          "The subresource approval sets it",
		"deployments.tko.nephio.org.status.conditions":        "type <string> -required-",
		"deployments.tko.nephio.org.status.conditions.reason": "FIELD: reason <string>",
		"deployments.tko.nephio.org.status.conditions.status": "True, False, Unknown",
		"deployments.tko.nephio.org.metadata.resourceVersion": "FIELD: resourceVersion <string>",
		"plugins.tko.nephio.org.spec.triggers":                "kinds of resources",
		"plugins.tko.nephio.org.spec.triggers.kind":           "FIELD: kind <string>",
	} {
		if out := explain(path); !strings.Contains(out, text) {
			t.Errorf("explain %s prints\n%s\nwant %q in it", path, out, text)
		}
	}
	if out := strings.Join(strings.Fields(w.with("", "explain", "deployments.tko.nephio.org", "--recursive")), " "); !strings.Contains(out, "conditions <[]Condition> lastTransitionTime <string> -required-") {
		t.Errorf("all of it: %s", out)
	}
	w.refused(w.Kubeconfig, "", `field "nothing" does not exist`, "explain", "deployments.tko.nephio.org.spec.nothing")
}

// statuses writes statuses as controllers do.
func statuses(t *testing.T, w *world) {
	w.t = t
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := ctrlclient.New(kubetest.Config(w.Cluster), ctrlclient.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	condition := func(typ string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: typ, Status: status, Reason: "Test", LastTransitionTime: metav1.Now()}
	}
	var site v1alpha1.Site
	if err := c.Get(t.Context(), ctrlclient.ObjectKey{Name: "lagos"}, &site); err != nil {
		t.Fatal(err)
	}
	generation := site.Generation
	site.Status.Conditions = append(site.Status.Conditions, condition("Updated", metav1.ConditionTrue))
	if err := c.Status().Update(t.Context(), &site); err != nil {
		t.Fatal(err)
	}
	stale := site.DeepCopy()
	before := site.DeepCopy()
	site.Status.Conditions = append(site.Status.Conditions, condition("Patched", metav1.ConditionFalse))
	if err := c.Status().Patch(t.Context(), &site, ctrlclient.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	stale.Status.Conditions = append(stale.Status.Conditions, condition("Stale", metav1.ConditionTrue))
	if err := c.Status().Update(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("a status that was read before another was written is %v, want a conflict", err)
	}
	applied := "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {name: lagos}\n" +
		"status: {conditions: [{type: %s, status: 'True', reason: Test, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}]}\n"
	for _, manager := range []string{"One", "Two", "One"} {
		w.with(fmt.Sprintf(applied, manager), "apply", "--server-side", "--subresource=status", "--field-manager="+manager, "-f", "-")
	}
	w.refused(w.Kubeconfig, strings.Replace(fmt.Sprintf(applied, "One"), "'True'", "'False'", 1), `conflict`,
		"apply", "--server-side", "--subresource=status", "--field-manager=Two", "-f", "-")
	w.prints("One Two", "get", "site.tko.nephio.org", "lagos", "--show-managed-fields", "-o", `jsonpath={.metadata.managedFields[?(@.operation=="Apply")].manager}`)
	w.prints("One=True Patched=False Two=True Updated=True", "get", "site.tko.nephio.org", "lagos", "-o", "jsonpath={range .status.conditions[*]}{.type}={.status} {end}")
	w.prints(strconv.FormatInt(generation, 10), "get", "site.tko.nephio.org", "lagos", "-o", "jsonpath={.metadata.generation}")
	w.with("", "wait", "--for=condition=Two", "site.tko.nephio.org/lagos", "--timeout=240s")
}

// audited checks that the audit log names the users.
func audited(t *testing.T, log string) {
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Name string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.User.Username == "alice" && e.Verb == "delete" && e.ObjectRef.Resource == "templates" && e.ObjectRef.Name == "by-002dalice" {
			t.Errorf("the API server itself rejected the request: %s", line)
		}
		if e.User.Username == "alice" && e.Verb == "create" && e.ObjectRef.Resource == "templates" && e.ResponseStatus.Code == 201 {
			return
		}
	}
	t.Errorf("alice has made a template, and the log has\n%s", text)
}
