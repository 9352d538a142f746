package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// The command shows where sites come from, and which deployments have newer templates.
func TestCommandExplainsSitesAndFindsUpgradableDeployments(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	git(t, root, "init", "-q", "-b", "main", "vendor")
	vendor := filepath.Join(root, "vendor")
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	release := func(version string) {
		t.Helper()
		write("vendor/upf/c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {version: '"+version+"'}\n")
		git(t, vendor, "add", "-A")
		git(t, vendor, "commit", "-q", "-m", version)
		git(t, vendor, "tag", version)
	}
	release("v1.9.0")
	release("v1.10.0")
	release("v2.0.0-rc.1")
	write("sites.csv", "site,region\nlagos,west\naccra,west\n")
	write("contacts.csv", "site,contact\nlagos,ops@example.com\n")
	write("sources.yaml", strings.ReplaceAll(`sources:
- name: sheets
  interval: 1s
  inventory:
    editable: [metadata.owner]
    from:
    - { name: main, file: DIR/sites.csv, map: { id: record.site, metadata: { region: record.region } } }
    - { name: contacts, file: DIR/contacts.csv, enrich: true, map: { id: record.site, metadata: { contact: record.contact } } }
- name: vendor
  interval: 1s
  git: { url: "file://DIR/vendor" }
  catalog: { id: "nf/{path}:{tag}" }
`, "DIR", root))
	server := process.StartServer(t, "--store=sqlite::memory:", "--gitops-sources="+filepath.Join(root, "sources.yaml"), "--retry=50ms", "--retry-max=500ms")
	until := func(pattern string, args ...string) {
		t.Helper()
		eventually.Within(t, time.Minute*2, "tko "+strings.Join(args, " "), func() error {
			if out, errs, _ := server.CLI(args...); !regexp.MustCompile(pattern).MatchString(out) {
				return fmt.Errorf("the output lacks %q:\n%s%s", pattern, out, errs)
			}
			return nil
		})
	}
	run := func(code int, text string, args ...string) string {
		t.Helper()
		out, errs, got := server.CLI(args...)
		if got != code || !strings.Contains(out+errs, text) {
			t.Errorf("tko %s: exit code %d, want %d and %q\n%s%s", strings.Join(args, " "), got, code, text, out, errs)
		}
		return out
	}
	until(`sheets +True +2 `, "inventory", "status", "-o", "table")
	until(`vendor +True +3 `, "catalog", "list", "-o", "table")
	until(`(?s)metadata.contact +ops@example.com +contacts of source sheets +gitops:sheets .*metadata.region +west +main of source sheets `, "site", "explain", "lagos", "-o", "table")
	run(3, `"nowhere": not found`, "site", "explain", "nowhere")
	// What a user sets stays where the inventory lets users set it, and its origin is shown.
	run(0, "", "label", "site", "lagos", "owner=ada", "region=mine", "--overwrite")
	run(0, "", "gitops", "sync", "sheets")
	until(`(?s)metadata.owner +ada +user \S*, kept by source sheets .*metadata.region +west +main of source sheets `, "site", "explain", "lagos", "-o", "table")

	run(0, "", "deployment", "list", "--upgradable", "-o", "bare")
	newest := run(0, "", "deployment", "create", "nf/upf:v1.10.0")
	older := run(0, "", "deployment", "create", "nf/upf:v1.9.0")
	until(`^`+strings.TrimSpace(older)+`\n$`, "deployment", "list", "--upgradable", "-o", "bare")
	until(`nf/upf:v1.9.0 +nf/upf:v1.10.0 `, "deployment", "list", "--upgradable", "-o", "table")
	if out := run(0, "", "deployment", "list", "--upgradable", "--template-id", "other/**", "-o", "bare"); strings.TrimSpace(out) != "" {
		t.Errorf("other templates have upgradable deployments: %q", out)
	}
	release("v2.0.0")
	until(`(?s)`+strings.TrimSpace(newest)+`.*`+strings.TrimSpace(older), "deployment", "list", "--upgradable", "-o", "bare")
	until(`nf/upf:v1.9.0 +nf/upf:v2.0.0 `, "deployment", "list", "--upgradable", "-o", "table")
	// All of them are upgraded by one rollout.
	run(3, "none of the selected deployments", "rollout", "create", "newest", "--upgradable", "--template-id", "other/**", "--wave", "all")
	out := run(0, `"v1.9.0" → "v2.0.0"`, "rollout", "create", "newest", "--upgradable", "--wave", "all")
	plan := regexp.MustCompile(`tko rollout start newest --plan (\S+)`).FindStringSubmatch(out)
	if plan == nil {
		t.Fatalf("the plan doesn't say how to start it: %s", out)
	}
	run(0, "", "rollout", "start", "newest", "--plan", plan[1])
	until(`newest +.*Done`, "rollout", "list", "-o", "table")
	if left := run(0, "", "deployment", "list", "--upgradable", "-o", "bare"); strings.TrimSpace(left) != "" {
		t.Errorf("after the rollout, deployments are upgradable: %q", left)
	}
	// A value that changes in an origin is shown with it.
	write("contacts.csv", "site,contact\nlagos,noc@example.com\n")
	until(`metadata.contact +noc@example.com `, "site", "explain", "lagos", "-o", "table")
	// The values of an inventory that fails stay, and their age is shown.
	write("contacts.csv", "site,contact\nlagos\n")
	until(`sheets +False \(\S+\) +2 +\d+[sm] `, "inventory", "status", "-o", "table")
	if out := run(0, `source "sheets" has not been ready for `, "site", "explain", "lagos", "-o", "table"); !strings.Contains(out, "noc@example.com") {
		t.Errorf("the value is lost: %s", out)
	}
}
