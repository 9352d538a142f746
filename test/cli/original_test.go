package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/original"
	"github.com/tko-orchestrator/tko/test/process"
)

// at returns what the command prints, connected to an address.
func at(t *testing.T, s *process.Server, address string, code int, args ...string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	out, errs, got := s.CLI(append([]string{"--grpc-address", host, "--grpc-port", port}, args...)...)
	if got != code {
		t.Errorf("tko %v: exit code %d, want %d: %s", args, got, code, errs)
	}
	return strings.TrimSpace(out + "\n" + errs)
}

// The server of the original TKO reads an absent window as one of no rows, may cut lists, and
// has no method or field of ours: the command works there all the same, or says what it lacks.
func TestCommandWorksWithTheOriginalServer(t *testing.T) {
	t.Parallel()
	behind := process.StartServer(t, "--store=sqlite::memory:")
	stand := original.Start(t, behind.GRPC)
	stand.MostRows = 3
	tko := func(code int, args ...string) string {
		t.Helper()
		return at(t, behind, stand.Address, code, args...)
	}
	pkg := filepath.Join(t.TempDir(), "nf.yaml")
	if err := os.WriteFile(pkg, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: nf}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	tko(0, "template", "register", "nf:v1", "-m", "type=nf", "-u", pkg)
	if out := tko(2, "template", "register", "nf:v1", "-m", "type=other"); !strings.Contains(out, "has a package of 1 resources") {
		t.Error(out)
	}
	for n := range 7 {
		tko(0, "site", "register", fmt.Sprintf("s/%d", n))
	}
	tko(0, "plugin", "register", "validate", "check", "true", "-g", ",v1,Pod")
	var ids []string
	for range 4 {
		id := tko(0, "-q", "deployment", "create", "nf:v1", "--site", "s/0", "--prepared")
		ids = append(ids, id)
	}
	for list, want := range map[string]int{"template list": 1, "site list": 7, "deployment list": 4, "plugin list": 1} {
		if out := strings.Fields(tko(0, append(strings.Fields(list), "-o", "bare")...)); len(out) != want {
			t.Errorf("tko %s prints %q: want %d rows", list, out, want)
		}
	}
	if out := strings.Fields(tko(0, "site", "list", "-o", "bare", "--offset", "1", "--max-count", "2")); len(out) < 2 || out[0] != "s/1" || out[1] != "s/2" || out[2] != "this" {
		t.Errorf("a page is %q", out)
	}

	if out := tko(0, "deployment", "approve", ids[0]); !strings.Contains(out, "approved 1 deployment") {
		t.Error(out)
	}
	if out := tko(0, "deployment", "approve", ids[0]); !strings.Contains(out, "approved 0 deployments") {
		t.Error(out)
	}
	if out := tko(0, "deployment", "approve", "--all", "--dry-run"); !strings.Contains(out, "would approve 3 deployments") {
		t.Error(out)
	}
	tko(2, "deployment", "approve", "--all", "--confirm", "2")
	if out := tko(0, "deployment", "approve", "--all"); !strings.Contains(out, "approved 3 deployments") {
		t.Error(out)
	}
	if out := strings.Fields(tko(0, "deployment", "list", "--approved", "-o", "bare")); len(out) != 4 {
		t.Errorf("%d deployments are approved: want 4", len(out))
	}

	// The server would ignore what limits these, and delete all.
	if out := tko(0, "site", "purge", "--id", "s/*", "--dry-run"); !strings.Contains(out, "would delete 7 sites") {
		t.Error(out)
	}
	if out := tko(2, "site", "list", "--condition", "Healthy=True"); !strings.Contains(out, `ignores "conditions"`) {
		t.Error(out)
	}
	tko(2, "deployment", "list", "--outdated")
	tko(2, "site", "purge", "--id", "s/*", "--confirm", "3")
	if out := strings.Fields(tko(0, "site", "list", "-o", "bare")); len(out) != 7 {
		t.Fatalf("%d sites are left: want 7", len(out))
	}
	if out := tko(0, "site", "purge", "--id", "s/[56]"); !strings.Contains(out, "deleted 0 sites") {
		t.Error(out)
	}
	if out := tko(0, "site", "purge", "--id", "s/6", "--confirm", "1"); !strings.Contains(out, "deleted 1 site") {
		t.Error(out)
	}
	if out := tko(0, "site", "delete", "s/5"); !strings.Contains(out, "deleted 1 site") {
		t.Error(out)
	}
	if out := tko(1, "label", "site", "s/0", "tier=1"); !strings.Contains(out, "original TKO") {
		t.Error(out)
	}
}

// An import from the server of the original TKO copies all entities, also of lists that it
// cuts. One that copies nothing is a failure.
func TestImportCopiesTheOriginalServer(t *testing.T) {
	t.Parallel()
	behind, to := process.StartServer(t, "--store=sqlite::memory:"), process.StartServer(t, "--store=sqlite::memory:")
	stand := original.Start(t, behind.GRPC)
	stand.MostRows = 2
	run := func(s *process.Server, code int, args ...string) string {
		t.Helper()
		return at(t, s, s.GRPC, code, args...)
	}
	if out := run(to, 2, "import", "--from", stand.Address); !strings.Contains(out, "no templates, plugins, sites or deployments") {
		t.Error(out)
	}
	run(behind, 0, "template", "register", "nf:v1", "-m", "type=nf")
	for n := range 5 {
		run(behind, 0, "site", "register", fmt.Sprintf("s/%d", n), "-m", "region=west")
	}
	parent := run(behind, 0, "-q", "deployment", "create", "nf:v1", "--prepared", "--approved", "-m", "n=parent")
	for n := range 3 {
		run(behind, 0, "-q", "deployment", "create", "nf:v1", "--site", "s/0", "--parent", parent, "--prepared", "-m", fmt.Sprintf("n=%d", n))
	}
	run(to, 0, "import", "--from", stand.Address, "--confirm", "10")
	copies(t, to, run, 4)
	if out := strings.Fields(run(to, 0, "site", "list", "-m", "region=west", "-o", "bare")); len(out) != 5 {
		t.Errorf("sites are %q", out)
	}
	if out := strings.Fields(run(to, 0, "deployment", "list", "--prepared", "--approved", "-o", "bare")); len(out) != 1 {
		t.Errorf("approved are %q", out)
	}
	if out := run(to, 0, "import", "--from", stand.Address); !strings.Contains(out, "0 changes, 10 unchanged") {
		t.Error(out)
	}
}
