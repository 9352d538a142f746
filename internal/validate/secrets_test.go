package validate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
)

// The secrets are put together here, so that no scanner finds them in this file.
var (
	pem    = "-----BEGIN " + "PRIVATE KEY-----\n" + strings.Repeat("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", 3) + "\n-----END " + "PRIVATE KEY-----\n"
	aws    = "AKIA" + "Z7ABCDEFGH234567"
	github = "ghp" + "_" + strings.Repeat("a1B2c3", 6)
)

func TestSecretsInPackagesAreRefused(t *testing.T) {
	config := func(value string, annotations map[string]any) krm.Resource {
		return krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c", "annotations": annotations}, "data": map[string]any{"file": value}}
	}
	secret := func() krm.Resource {
		r := config(pem, map[string]any{})
		r["kind"], r["type"], r["stringData"] = "Secret", "Opaque", r["data"]
		delete(r, "data")
		return r
	}
	env := func(value string) krm.Resource {
		return krm.Resource{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p"}, "spec": map[string]any{"containers": []any{
			map[string]any{"name": "c", "image": "i", "env": []any{map[string]any{"name": "DB_PASSWORD", "value": value}}},
		}}}
	}
	tests := map[string]struct {
		why      string
		mode     string
		resource krm.Resource
		want     string // path, "" if it is accepted
	}{
		"private key":           {why: "it can't be anything else", resource: config("key: |\n"+pem, nil), want: "data.file"},
		"AWS key":               {why: "its form is unique", resource: config("aws_access_key_id = "+aws, nil), want: "data.file"},
		"GitHub token":          {why: "its form is unique", resource: config(github, nil), want: "data.file"},
		"documented AWS key":    {why: "it is an example", resource: config("AKIAIOSFODNN7"+"EXAMPLE", nil)},
		"public certificate":    {why: "it is public", resource: config("-----BEGIN CERTIFICATE-----\n"+strings.Repeat("MIIE", 30)+"\n-----END CERTIFICATE-----", nil)},
		"text about keys":       {why: "there is no key", resource: config("starts with -----BEGIN "+"PRIVATE KEY-----, see the manual", nil)},
		"allowed":               {why: "the annotation has a reason", resource: config(pem, map[string]any{tko.AnnotationAllowSecret: "a key of a test"})},
		"allowed without":       {why: "the annotation needs a reason", resource: config(pem, map[string]any{tko.AnnotationAllowSecret: " "}), want: "data.file"},
		"a Secret":              {why: "it is the place for secrets", resource: secret()},
		"password":              {why: "ordinary packages have example passwords", resource: env("hunter2")},
		"password, strict":      {why: "the operator asks for it", mode: validate.SecretsStrict, resource: env("hunter2"), want: "spec.containers[0].env[0].value"},
		"expression, strict":    {why: "it is no literal", mode: validate.SecretsStrict, resource: env("$(OTHER)")},
		"private key, but off":  {why: "the operator turned the check off", mode: validate.SecretsOff, resource: config(pem, nil)},
		"digest":                {why: "it is public", resource: config("sha256:"+strings.Repeat("0123456789abcdef", 4), nil)},
		"RBAC with API groups":  {why: "names are no keys", resource: config("secrets.hashicorp.com/apiKeySecretAccessTokenNames", nil)},
		"base64 of random data": {why: "entropy alone says nothing", resource: config(strings.Repeat("q83vEjRWeJCrze8=", 4), nil)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v, err := validate.New(validate.Options{Secrets: test.mode})
			if err != nil {
				t.Fatal(err)
			}
			err = v.Validate(t.Context(), tko.Validation{Package: krm.Package{test.resource}})
			if test.want == "" {
				if err != nil {
					t.Errorf("got %v, want no error: %s", err, test.why)
				}
				return
			}
			invalid, ok := errors.AsType[*tko.InvalidPackageError](err)
			if !ok || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), tko.AnnotationAllowSecret) {
				t.Fatalf("got %v, want an error about %s that names the annotation: %s", err, test.want, test.why)
			}
			for _, value := range []string{"MIIEvQ", aws, github, "hunter2"} {
				if strings.Contains(invalid.Error(), value) {
					t.Errorf("the error shows the secret: %v", err)
				}
			}
		})
	}
}
