package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// The command shows sources, and approves and reconciles them.
func TestCommandShowsAndControlsSources(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	git(t, root, "init", "-q", "-b", "main", "fleet")
	dir := filepath.Join(root, "fleet")
	write := func(files map[string]string) {
		t.Helper()
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	commit := func() {
		t.Helper()
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-q", "-m", "x")
	}
	var many strings.Builder
	for c := 'a'; c < 'a'+25; c++ {
		many.WriteString("---\n" + aSite("many-"+string(c)))
	}
	write(map[string]string{"sites.yaml": aSite("lagos") + many.String()})
	commit()
	keys := filepath.Join(root, "keys")
	install := func(name string) { // keys, as an operator installs them while the server runs
		t.Helper()
		text, err := os.ReadFile(filepath.Join("../../internal/gitops/sops/testdata", name))
		if err == nil {
			err = os.WriteFile(keys, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install("other.txt")
	server := process.StartServer(t, "--store=sqlite::memory:", "--gitops-age-keys="+keys, "--git=fleet=file://"+dir, "--git-interval=1s", "--retry=50ms", "--retry-max=500ms")
	until := func(pattern string, args ...string) string {
		t.Helper()
		var out, errs string
		eventually.Within(t, timeLimit, "tko "+strings.Join(args, " "), func() error {
			out, errs, _ = server.CLI(args...)
			if !regexp.MustCompile(pattern).MatchString(out) {
				return fmt.Errorf("the output lacks %q:\n%s%s", pattern, out, errs)
			}
			return nil
		})
		return out
	}
	run := func(code int, text string, args ...string) {
		t.Helper()
		out, errs, got := server.CLI(args...)
		if got != code || !strings.Contains(out+errs, text) {
			t.Errorf("tko %s: exit code %d, want %d and %q\n%s%s", strings.Join(args, " "), got, code, text, out, errs)
		}
	}
	until(`fleet +True +main@sha1:[0-9a-f]{12} `, "gitops", "status", "-o", "table")
	until(`(?s)Ready: +True \(ReconciliationSucceeded\).*site +lagos.*create +site +`, "gitops", "status", "fleet", "-o", "table")
	run(3, `source "other": not found`, "gitops", "status", "other")
	run(0, "", "gitops", "sync", "fleet")
	run(0, `source "fleet" is ready at main@sha1:`, "gitops", "sync", "fleet", "--wait")
	run(3, "not found", "gitops", "sync", "other")

	// Plans of trees that change nothing, change something, or are invalid.
	run(0, "nothing would change", "gitops", "plan", "--dir", dir, "--exit-code", "-o", "table")
	run(2, "hint: source \"flete\": not found", "gitops", "plan", "--dir", dir, "--name", "flete")
	run(2, "\ntko: the tree has 26 problems\n", "gitops", "plan", "--dir", dir, "--name", "flete")
	run(0, "source \"other\": not found", "gitops", "plan", "--dir", t.TempDir(), "--name", "other")
	write(map[string]string{"sites.yaml": strings.Replace(aSite("lagos"), "spec:", "metadata: {labels: {tier: edge}}\nspec:", 1) + many.String(), "new.yaml": aSite("accra")})
	run(0, "\n    metadata.tier: (none) → \"edge\"\n", "gitops", "plan", "--dir", dir, "-o", "table")
	run(7, "create", "gitops", "plan", "--dir", dir, "--name", "fleet", "--exit-code", "-o", "table")
	run(0, "accra", "gitops", "plan", "--dir", dir, "-o", "json")
	write(map[string]string{"new.yaml": strings.Replace(aSite("accra"), "siteId", "siteID", 1)})
	run(2, `new.yaml: Site "": unknown field spec.siteID`, "gitops", "plan", "--dir", dir)
	if out, _, _ := server.CLI("site", "list", "-o", "bare"); strings.Contains(out, "accra") {
		t.Error("a plan changed entities")
	}

	// A deletion that waits for an approval, and its approval.
	write(map[string]string{"sites.yaml": aSite("lagos"), "new.yaml": "x: 1\n"})
	run(0, "waits for an approval", "gitops", "plan", "--dir", dir, "-o", "table")
	commit()
	run(1, `source "fleet" is not ready: WaitsForApproval: `, "gitops", "sync", "fleet", "--wait")
	out := until(`tko gitops approve fleet [0-9a-f]+`, "gitops", "status", "-o", "yaml")
	run(4, "source \"fleet\" has no pending removal \"0000\"", "gitops", "approve", "fleet", "0000")
	run(0, "approved", strings.Fields(regexp.MustCompile(`gitops approve fleet [0-9a-f]+`).FindString(out))...)
	until(`^lagos\n$`, "site", "list", "-o", "bare")

	// Encrypted files, and keys that are installed later.
	encrypted, err := os.ReadFile("../../internal/gitops/flux/testdata/template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(map[string]string{"secret.yaml": string(encrypted)})
	run(6, "secret.yaml: it is encrypted with SOPS, and no key is given", "gitops", "plan", "--dir", dir)
	run(6, "hint: give --age-keys", "gitops", "plan", "--dir", dir)
	run(6, "other keys", "gitops", "plan", "--dir", dir, "--age-keys", keys)
	commit()
	run(1, "other keys", "gitops", "sync", "fleet", "--wait")
	install("key.txt")
	run(0, "create", "gitops", "plan", "--dir", dir, "--age-keys", keys, "-o", "table")
	run(0, "is ready", "gitops", "sync", "fleet", "--wait")
	until(`^secret\n$`, "template", "list", "-o", "bare")
}
