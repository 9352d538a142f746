package gitops_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
)

// Credentials of an origin are next to it. An error about some that are in it, for each kind of
// origin, names where they belong.
func TestCredentialsWithinAnOriginAreNamedWithTheirPlace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sources.yaml")
	origins := 0
	for origin := range reflect.TypeFor[inventory.OriginSettings]().Fields() {
		if origin.Type.Kind() != reflect.Pointer {
			continue
		}
		origins++
		name, _, _ := strings.Cut(origin.Tag.Get("json"), ",")
		for credential := range reflect.TypeFor[remote.Credentials]().Fields() {
			field, _, _ := strings.Cut(credential.Tag.Get("json"), ",")
			text := fmt.Sprintf("sources:\n- name: other\n- name: mine\n  inventory:\n    from:\n    - %s: {url: 'x://y', %s: z}\n      map: {id: record.id}\n", name, field)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf(`unknown field "%s" in sources[1].inventory.from[0].%s: it belongs next to %[2]s, not in it: write it as sources[1].inventory.from[0].%[1]s`, field, name)
			if _, err := gitops.ReadSettings(file); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("the error is %v, want %s", err, want)
			}
		}
	}
	if origins < 4 {
		t.Errorf("only %d kinds of origins have settings", origins)
	}
}

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
