package cli

import (
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // makes the database of the inventory

	"github.com/tko-orchestrator/tko/test/process"
)

// tko inventory test reads databases by the program tko-server: its own has no drivers. It
// says which addresses a server refuses.
func TestInventoryTestReadsDatabases(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, sources := filepath.Join(folder, "sites.db"), filepath.Join(folder, "sources.yaml")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), "CREATE TABLE site (name TEXT, region TEXT); INSERT INTO site VALUES ('lagos', 'west'), ('accra', 'NO')")
	if closeErr := db.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	write := func(query string) {
		t.Helper()
		text := "sources:\n- name: db\n  inventory:\n    from:\n    - sql: {url: 'sqlite:" + file + "', query: '" + query + "'}\n      map: {id: record.name, metadata: {region: record.region}}\n"
		if err := os.WriteFile(sources, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		command := exec.CommandContext(t.Context(), process.Build(t, "tko"), append([]string{"inventory", "test", "--file", sources}, args...)...)
		command.Env = append(os.Environ(), "PATH="+filepath.Dir(process.Build(t, "tko-server")))
		out, err := command.CombinedOutput()
		return string(out), err
	}
	write("SELECT name, region FROM site")
	if out, err := run("-o", "jsonpath={.items[*].metadata.region}"); err != nil || !strings.Contains(out, "NO") || !strings.Contains(out, "west") {
		t.Errorf("the sites are %s (%v)", out, err)
	}
	write("SELECT nothing FROM site")
	if out, err := run(); err == nil || !strings.Contains(out, "nothing") || strings.Contains(out, "tko-server --help") {
		t.Errorf("the error of a wrong query is %s (%v)", out, err)
	}
	write("SELECT name FROM site', username: 'reader")
	if out, err := run(); err == nil || !strings.Contains(out, "it belongs next to sql, not in it") {
		t.Errorf("nothing says where the user of a database belongs: %s (%v)", out, err)
	}
	if err := os.WriteFile(sources, []byte("sources:\n- name: n\n  inventory:\n    from:\n    - url: http://localhost:1/sites.json\n      map: {id: record.name}\n    - {file: "+sources+", format: yaml, items: sources, enrich: true, map: {id: record.name}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run(); err == nil || !strings.Contains(out, "localhost:1") || !strings.Contains(out, "--remote-addresses") {
		t.Errorf("nothing says that a server refuses the address: %s (%v)", out, err)
	}
}
