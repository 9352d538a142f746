package krm_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/krm"
)

func secret(name string, fields map[string]any) map[string]any {
	s := map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "annotations": map[string]any{
		"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"p":"hunter2"}}`, "note": "unchanged",
	}}}
	maps.Copy(s, fields)
	return s
}

func TestRedactedSecretsComeBackWhole(t *testing.T) {
	pkg := krm.Package{
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"p": "shown"}},
		secret("s", map[string]any{"type": "Opaque", "data": map[string]any{"p": "aHVudGVyMg=="}, "stringData": map[string]any{"q": "hunter2"}}),
		{"apiVersion": "v1", "kind": "List", "items": []any{secret("listed", map[string]any{"stringData": map[string]any{"q": "hunter2"}})}},
		{"apiVersion": "example.org/v1", "kind": "Wrapper", "metadata": map[string]any{"name": "w"}, "spec": map[string]any{
			"manifest": secret("inner", map[string]any{"data": map[string]any{"p": "aHVudGVyMg=="}}),
		}},
	}
	redacted := pkg.WithoutSecrets()
	text, err := krm.Encode(krm.YAML, redacted)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"hunter2", "aHVudGVyMg"} {
		if strings.Contains(string(text), value) {
			t.Errorf("%s is shown:\n%s", value, text)
		}
	}
	for _, shown := range []string{"shown", "Opaque", "note: unchanged"} {
		if !strings.Contains(string(text), shown) {
			t.Errorf("%s is no secret:\n%s", shown, text)
		}
	}
	if err := redacted.CheckSecrets(); !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), "redacted") {
		t.Errorf("redacted values aren't stored: %v", err)
	}
	restored, found := redacted.WithSecretsOf(pkg)
	if diff := cmp.Diff(pkg, restored); diff != "" || !found {
		t.Errorf("restored, %v: %s", found, diff)
	}
	if err := restored.CheckSecrets(); err != nil {
		t.Error(err)
	}

	redacted[1]["metadata"] = map[string]any{"name": "renamed"}
	if restored, _ := redacted.WithSecretsOf(pkg); restored.CheckSecrets() == nil {
		t.Error("a Secret of another name has no values to take")
	}
	changed := pkg.WithoutSecrets()
	changed[1] = secret("s", map[string]any{"stringData": map[string]any{"q": "new"}})
	if restored, _ := changed.WithSecretsOf(pkg); restored[1].Text("stringData", "q") != "new" {
		t.Error("a new value was replaced")
	}
}

func TestRedactJSON(t *testing.T) {
	for text, want := range map[string]string{
		"no JSON with Secret": "no JSON with Secret",
		`{"a":"Secret"}`:      `{"a":"Secret"}`,
		`{"spec":[{"apiVersion":"v1","kind":"Secret","stringData":{"a":"b"}},12345678901234567890]}` + "\n": `{"spec":[{"apiVersion":"v1","kind":"Secret","stringData":{"a":"[redacted by TKO]"}},12345678901234567890]}` + "\n",
	} {
		if got := krm.RedactJSON(text); got != want {
			t.Errorf("%s becomes %s", text, got)
		}
		if again := krm.RedactJSON(want); again != want {
			t.Errorf("redacted twice: %s", again)
		}
	}
}
