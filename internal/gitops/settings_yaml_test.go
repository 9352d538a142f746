package gitops_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/internal/gitops"
)

// YAML 1.1 makes false of the key n, and 1.1 of the version 1.10.
func TestYAMLOfSettingsKeepsWhatTheOperatorWrote(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sources.yaml")
	if err := os.WriteFile(file, []byte(`sources:
- name: 0123
  suspend: no
  git: {url: "https://git.example.com/x.git", ref: 1.10}
- name: "no"
  inventory:
    from:
    - netbox: {url: "https://netbox.example.com", filter: {n: [NO, 007]}}
      map: {id: record.slug, metadata: {n: record.n, on: record.on}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := gitops.ReadSettings(file)
	if err != nil {
		t.Fatal(err)
	}
	if s := all[0]; s.Name != "0123" || s.Suspend || s.Git.Ref != "1.10" {
		t.Errorf("the first source is %q with suspend %v and ref %q", s.Name, s.Suspend, s.Git.Ref)
	}
	from := all[1].Inventory.From[0]
	if from.Map.Metadata["n"] != "record.n" || from.Map.Metadata["on"] != "record.on" || from.NetBox.Filter["n"][0] != "NO" || from.NetBox.Filter["n"][1] != "007" {
		t.Errorf("the mapping is %v and the filter %v", from.Map.Metadata, from.NetBox.Filter)
	}
}
