package tosca

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/internal/location"
)

// FuzzCSAR reads archives of service templates, finds their entry and its
// imports.
func FuzzCSAR(f *testing.F) {
	for _, files := range []map[string]string{
		{"TOSCA-Metadata/TOSCA.meta": "TOSCA-Meta-File-Version: 1.1\nEntry-Definitions: main.yaml\n", "main.yaml": "tosca_definitions_version: tosca_simple_yaml_1_3\nimports: [a.yaml, {file: b.yaml}, {url: http://x/y}]\n", "a.yaml": "imports: &x [*x]"},
		{"TOSCA.meta": "Entry-Definitions: ../../etc/passwd\n"},
		{"TOSCA.meta": "Entry-Definitions: /etc/passwd\n"},
		{"main.yaml": "imports: {a: [b]}"},
		{"a.yaml": "", "b.yaml": ""},
	} {
		var data bytes.Buffer
		w := zip.NewWriter(&data)
		for name, content := range files {
			file, err := w.Create(name)
			if err != nil {
				f.Fatal(err)
			}
			if _, err := file.Write([]byte(content)); err != nil {
				f.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(data.Bytes(), "")
	}
	f.Add([]byte("PK\x03\x04"), "../x")
	f.Fuzz(func(t *testing.T, data []byte, within string) {
		path := filepath.Join(t.TempDir(), "x.csar")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := location.ReadFiles(t.Context(), path, location.Options{MaxBytes: 1 << 20, Takes: takes})
		if err != nil {
			return
		}
		entry, err := entryOf(files, within)
		if err != nil {
			return
		}
		content, ok := files[entry]
		if !ok {
			t.Fatalf("the entry %q is not in the archive", entry)
		}
		_, _ = importsOf(content)
	})
}
