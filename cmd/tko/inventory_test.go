package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/cli"
)

// inventoryFile writes a file of sources with an inventory of two sites.
func inventoryFile(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"sites.csv": "name,region\nlagos,west\naccra,west\n", "overrides.csv": "name,region\nlagos,south\n",
		"sources.yaml": `sources:
- name: fleet
  git: { url: "https://git.example.com/fleet.git" }
- name: sites
  inventory:
    from:
    - { name: overrides, file: DIR/overrides.csv, enrich: true, map: { id: record.name, metadata: { region: record.region } } }
    - { name: sheet, file: DIR/sites.csv, map: { id: '"ng/" + record.name', template: '"edge:v1"', metadata: { region: record.region } } }
` + more,
	} {
		if name == "overrides.csv" {
			content = strings.ReplaceAll(content, "lagos", "ng/lagos")
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(content, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "sources.yaml")
}

// The command shows what records become without a server, with the origin of each part.
func TestInventoryTestShowsSitesAndOrigins(t *testing.T) {
	t.Parallel()
	var out, notices bytes.Buffer
	code := cli.Main(t.Context(), []string{"--colorize=false", "-o", "table", "inventory", "test", "--file", inventoryFile(t, "")}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &notices}, planner{})
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, notices.String())
	}
	for _, want := range []string{"ng/accra", `metadata.region: "south" from overrides`, `metadata.region: "west" from sheet`, `template: "edge:v1" from sheet`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output has no %q:\n%s", want, out.String())
		}
	}
	if want := `site "ng/lagos": metadata.region is "south" in overrides, and "west" in sheet`; !strings.Contains(notices.String(), want) {
		t.Errorf("the notices have no %q:\n%s", want, notices.String())
	}
}

// A file with several inventories needs a name.
func TestInventoryIsNamedAmongSeveral(t *testing.T) {
	t.Parallel()
	file := inventoryFile(t, "- { name: more, inventory: { from: [ { file: x.csv, map: { id: record.name } } ] } }\n")
	_, _, err := planner{}.ReadInventory(t.Context(), cli.InventoryOptions{File: file})
	if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "sites, more") {
		t.Errorf("the error is %v: want one that names both", err)
	}
	if sites, _, err := (planner{}).ReadInventory(t.Context(), cli.InventoryOptions{File: file, Name: "sites"}); err != nil || len(sites) != 2 {
		t.Errorf("got %d sites and %v: want 2", len(sites), err)
	}
}
