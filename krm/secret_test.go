package krm_test

import (
	"encoding/base64"
	"errors"
	"fmt"
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

func TestRedactText(t *testing.T) {
	for text, want := range map[string]string{
		"no JSON with Secret": "no JSON with Secret",
		`{"a":"Secret"}`:      `{"a":"Secret"}`,
		`{"spec":[{"apiVersion":"v1","kind":"Secret","stringData":{"a":"b"}},12345678901234567890]}` + "\n": `{"spec":[{"apiVersion":"v1","kind":"Secret","stringData":{"a":"[redacted by TKO]"}},12345678901234567890]}` + "\n",
	} {
		if got := krm.RedactText(text); got != want {
			t.Errorf("%s becomes %s", text, got)
		}
		if again := krm.RedactText(want); again != want {
			t.Errorf("redacted twice: %s", again)
		}
	}
}

const manifest = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nstringData:\n  password: hunter2\n"

// textsWithSecrets returns texts with a Secret, by their form.
func textsWithSecrets() map[string]string {
	return map[string]string{
		"YAML":               manifest,
		"YAML of documents":  "apiVersion: v1\nkind: ConfigMap\n---\n" + manifest,
		"a list":             "- apiVersion: v1\n  kind: Secret\n  data: {password: aHVudGVyMg==}\n",
		"flow style":         `{apiVersion: v1, "kind": 'Secret', stringData: {password: hunter2}}`,
		"JSON":               `{"apiVersion":"v1","kind":"Secret","stringData":{"password":"hunter2"}}`,
		"JSON documents":     `{"a":1}{"apiVersion":"v1","kind":"Secret","stringData":{"password":"hunter2"}}`,
		"a script":           "#!/bin/sh\nkubectl apply -f - <<EOF\n" + manifest + "EOF\n",
		"a Helm template":    "{{- if .Values.x }}\n" + manifest + "{{- end }}\n",
		"base64":             base64.StdEncoding.EncodeToString([]byte(manifest)),
		"base64, unaligned":  base64.StdEncoding.EncodeToString([]byte("#\n" + manifest)),
		"base64, unaligned+": base64.StdEncoding.EncodeToString([]byte("#." + "\n\n" + manifest)),
		"text in YAML":       "data:\n  m: |\n    " + strings.ReplaceAll(manifest, "\n", "\n    "),
		"base64 in YAML":     "apiVersion: v1\nkind: ConfigMap\nbinaryData:\n  m: " + base64.StdEncoding.EncodeToString([]byte(manifest)),
		"JSON in JSON":       fmt.Sprintf(`{"a": %q}`, `{"apiVersion":"v1","kind":"Secret","stringData":{"password":"hunter2"}}`),
	}
}

func TestSecretsInTextsAreRedactedAndComeBackWhole(t *testing.T) {
	for name, text := range textsWithSecrets() {
		redacted := krm.RedactText(text)
		for _, value := range []string{"hunter2", "aHVudGVyMg", text} {
			if strings.Contains(redacted, value) {
				t.Errorf("%s: %s is shown:\n%s", name, value, redacted)
			}
		}
		if again := krm.RedactText(redacted); again != redacted {
			t.Errorf("%s: redacted twice it is\n%s\nonce it is\n%s", name, again, redacted)
		}
		config := func(text string) krm.Package {
			return krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"m": text, "n": "1"}}}
		}
		if !krm.MayHoldSecrets([]byte(text)) {
			t.Errorf("%s: the text is thought to have no Secret", name)
		}
		shown := config(text).WithoutSecrets()
		if got := shown[0].Text("data", "m"); got != redacted {
			t.Errorf("%s: a ConfigMap has\n%s", name, got)
		}
		if err := shown.CheckSecrets(); err == nil {
			t.Errorf("%s: the redacted text can be stored", name)
		}
		shown[0].Set("2", "data", "n")
		want := config(text)
		want[0].Set("2", "data", "n")
		if restored, found := shown.WithSecretsOf(config(text)); !found || cmp.Diff(want, restored) != "" {
			t.Errorf("%s: restored, %v: %s", name, found, cmp.Diff(want, restored))
		}
	}
	for _, text := range []string{"kind words about a Secret", "kind: Secretary", "apiVersion: v1\nkind: ConfigMap\ndata: {secretName: Secret}\n", "U2VjcmV0", "secretRef: {kind: Secret, name: s}"} {
		if got := krm.RedactText(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func TestMaskHidesAllThatIsConfidential(t *testing.T) {
	hide := func(any) any { return "hidden" }
	for name, text := range textsWithSecrets() {
		if masked, hidden := krm.Mask(map[string]any{"data": map[string]any{"m": text}}, "", hide); !hidden || strings.Contains(fmt.Sprint(masked), "hunter2") || strings.Contains(fmt.Sprint(masked), "aHVudGVyMg") {
			t.Errorf("%s: %v", name, masked)
		}
	}
	for what, value := range map[string]any{
		"a Secret":            secret("s", map[string]any{"data": map[string]any{"p": "hunter2"}}),
		"Helm's values":       map[string]any{"values": map[string]any{"db": map[string]any{"adminPassword": "x", "password": "hunter2"}}},
		"a number":            map[string]any{"password": int64(1234567890)},
		"a variable":          map[string]any{"env": []any{map[string]any{"name": "DB_PASSWORD", "value": "hunter2"}}},
		"values as text":      "db:\n  user: u\n  password: hunter2\n",
		"values as JSON":      `{"db": {"user": "u", "password": "hunter2"}}`,
		"properties":          "user=u\ndb.password=hunter2",
		"a token in a text":   "url: https://ghp_" + strings.Repeat("hunter2", 6)[:36] + "@github.com",
		"a text in a Secret":  map[string]any{"apiVersion": "v1", "kind": "Secret", "stringData": "hunter2"},
		"Secret's annotation": map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"annotations": map[string]any{"a": "hunter2"}}},
	} {
		masked, hidden := krm.Mask(value, "", hide)
		if text := fmt.Sprint(masked); !hidden || strings.Contains(text, "hunter2") || strings.Contains(text, "1234567890") {
			t.Errorf("%s: %v", what, masked)
		}
	}
	for _, value := range []any{
		map[string]any{"passwordSecret": map[string]any{"name": "s", "key": "password"}, "user": "u", "replicas": int64(2)},
		[]any{map[string]any{"name": "PATH", "value": "/bin"}},
		"a: b", "tokens: 5",
	} {
		if masked, hidden := krm.Mask(value, "", hide); hidden || cmp.Diff(value, masked) != "" {
			t.Errorf("%v becomes %v", value, masked)
		}
	}
}

func TestDifferencesHidePasswordsAndSecretsInTexts(t *testing.T) {
	config := func(password, text string) krm.Resource {
		return krm.Resource{"apiVersion": "v1", "kind": "HelmRelease", "values": map[string]any{"password": password, "env": []any{map[string]any{"name": "API_KEY", "value": password}}, "m": text}}
	}
	n := 0
	for d := range krm.Differences(config("hunter2", manifest), config("sesame", strings.ReplaceAll(manifest, "hunter2", "sesame"))) {
		n++
		if text := d.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "sesame") {
			t.Error(text)
		}
	}
	if n != 3 {
		t.Errorf("%d differences", n)
	}
}
