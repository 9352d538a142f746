package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// blamed returns the origins of the fields of a ConfigMap's data, by key.
func (w *world) blamed(kind, id string) map[string]string {
	w.t.Helper()
	stdout, stderr, code := w.CLI("blame", kind, id, "--field", `v1 ConfigMap "a"`, "-o", "json")
	if code != 0 {
		w.t.Fatalf("blame: exit code %d\n%s", code, stderr)
	}
	var b struct {
		Fields []struct {
			Path   string
			Origin struct{ Source, Who, Why string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &b); err != nil {
		w.t.Fatalf("%v:\n%s", err, stdout)
	}
	got := map[string]string{}
	for _, f := range b.Fields {
		if key, ok := strings.CutPrefix(f.Path, "data."); ok {
			got[key] = fmt.Sprintf("%s by %s: %s", f.Origin.Source, f.Origin.Who, f.Origin.Why)
		}
	}
	return got
}

// fieldManagers checks that blame names the field manager of each change that kubectl
// makes.
func fieldManagers(t *testing.T, w *world) {
	w.t = t
	resources := func(data string) string {
		return "}\nspec: {package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {" + data + "}}]}}"
	}
	text := func(data string) string { return manifest("Template", "managed", resources(data)) }
	w.with(text("created: v"), "create", "-f", "-")
	w.with(text("created: v, replaced: v"), "replace", "-f", "-")
	w.with(text("created: v, replaced: v, applied: v"), "apply", "-f", "-")
	w.with(text("created: v, replaced: v, applied: v, ci: v"), "apply", "--server-side", "--force-conflicts", "--field-manager=ci", "-f", "-")
	w.with("", "patch", "tkot", "managed", "--type=json", "-p", `[{"op": "add", "path": "/spec/package/resources/0/data/patched", "value": "v"}]`)
	w.with("", "patch", "tkot", "managed", "--field-manager=robot", "--type=json", "-p", `[{"op": "add", "path": "/spec/package/resources/0/data/robot", "value": "v"}]`)
	editor := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\nsed -i 's/created: v/created: edited/' \"$1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBE_EDITOR", editor)
	w.with("", "edit", "tkot", "managed")
	got := w.blamed("template", "managed")
	for key, manager := range map[string]string{
		"created": "kubectl-edit", "replaced": "kubectl-replace", "applied": "kubectl-client-side-apply", "ci": "ci", "patched": "kubectl-patch", "robot": "robot",
	} {
		if want := fmt.Sprintf(": field manager %q", manager); !strings.HasPrefix(got[key], tko.SourceEdit+" by ") || !strings.HasSuffix(got[key], want) {
			t.Errorf("%s: %q, want an edit by %s", key, got[key], manager)
		}
	}

	name := w.with(manifest("Deployment", "any", "}\nspec: {templateId: managed}"), "create", "-f", "-", "-o", "name")
	w.with("", "wait", "--for=condition=Prepared", name, "--timeout=240s")
	w.with(strings.Replace(w.with("", "get", name, "-o", "yaml"), "robot: v", "robot: other", 1), "replace", "--field-manager=pipeline", "-f", "-")
	id := w.with("", "get", name, "-o", "jsonpath={.spec.deploymentId}")
	got = w.blamed("deployment", id)
	if !strings.HasSuffix(got["robot"], `: field manager "pipeline"`) || !strings.HasPrefix(got["ci"], tko.SourceTemplate+" ") {
		t.Errorf("the deployment's fields are from %v", got)
	}
	w.with("", "delete", name)
	w.with("", "delete", "tkot", "managed")
}
