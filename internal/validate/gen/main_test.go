package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The two sources are combined into one schema.
func TestConvertAddsEnumerationsToSchemas(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "openapi.go")
	if err := os.WriteFile(source, []byte(`package openapi
func schema_k8sio_api_core_v1_Thing(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return common.OpenAPIDefinition{Schema: spec.Schema{SchemaProps: spec.SchemaProps{
		Properties: map[string]spec.Schema{
			"mode": {SchemaProps: spec.SchemaProps{Type: []string{"string"}, Enum: []interface{}{"A", "B"}}},
			"modes": {SchemaProps: spec.SchemaProps{Items: &spec.SchemaOrArray{Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Enum: []interface{}{"C"}}}}}},
			"plain": {SchemaProps: spec.SchemaProps{Type: []string{"string"}}},
		}}}}
}`), 0o600); err != nil {
		t.Fatal(err)
	}
	enums, err := readEnums(source)
	if err != nil {
		t.Fatal(err)
	}
	document := filepath.Join(dir, "swagger.json")
	if err := os.WriteFile(document, []byte(`{"definitions": {
		"io.k8s.api.core.v1.Thing": {"description": "d", "type": "object", "required": ["plain", "mode"],
			"x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Thing"}],
			"properties": {"mode": {"type": "string", "description": "d"}, "modes": {"type": "array", "items": {"type": "string"}},
				"plain": {"type": "string"}, "number": {"type": "integer", "format": "int32"}, "part": {"$ref": "#/definitions/io.k8s.api.core.v1.Part"}}},
		"io.k8s.api.core.v1.Part": {"type": "string", "format": "date-time"},
		"io.k8s.api.core.v1.Options": {"x-kubernetes-group-version-kind": [{"version": "v1", "kind": "Options"}, {"group": "apps", "version": "v1", "kind": "Options"}]},
		"io.k8s.api.core.v1.Unused": {"type": "object"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	published, err := readOpenAPI(document)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(convert("v1.2.3", published, enums))
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{"kubernetes": "v1.2.3", "kinds": {"v1 Thing": "io.k8s.api.core.v1.Thing"}, "definitions": {
		"io.k8s.api.core.v1.Thing": {"type": "object", "required": ["mode", "plain"],
			"properties": {"mode": {"type": "string", "enum": ["A", "B"]}, "modes": {"type": "array", "items": {"type": "string", "enum": ["C"]}},
				"plain": {"type": "string"}, "number": {"type": "integer"}, "part": {"$ref": "io.k8s.api.core.v1.Part"}}},
		"io.k8s.api.core.v1.Part": {"type": "string", "format": "date-time"}}}`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A file with the same content is not rewritten.
func TestWriteLeavesEqualFilesUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.gz")
	for _, text := range []string{"one", "one", "two"} {
		if err := write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if !same(path, []byte(text)) || same(path, []byte("other")) {
			t.Errorf("read %q, want the written content", text)
		}
	}
}

func TestDownloadChecksVersion(t *testing.T) {
	for _, version := range []string{"", "latest", "v1.2", "v1.2.3;x"} {
		if _, err := download(version); err == nil {
			t.Errorf("version %q was accepted", version)
		}
	}
}
