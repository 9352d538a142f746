package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// An import from another server copies it: parents first, with what is prepared and
// approved. Its sites wait until they are resumed, and a second import changes nothing.
func TestImportCopiesAnotherServer(t *testing.T) {
	t.Parallel()
	from := process.StartServer(t, "--store=sqlite::memory:")
	to := process.StartServer(t, "--store=sqlite::memory:")
	pkg := filepath.Join(t.TempDir(), "nf.yaml")
	if err := os.WriteFile(pkg, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nf}\ndata: {a: one}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tko := func(s *process.Server, code int, args ...string) string {
		t.Helper()
		out, errs, got := s.CLI(args...)
		if got != code {
			t.Fatalf("tko %v: exit code %d, want %d: %s", args, got, code, errs)
		}
		return strings.TrimSpace(out + "\n" + errs)
	}
	id := func(s *process.Server, args ...string) string {
		out, _, _ := s.CLI(args...)
		return strings.TrimSpace(out)
	}
	tko(from, 0, "template", "register", "nf:v1", "-u", pkg, "-m", "type=nf")
	tko(from, 0, "plugin", "register", "validate", "check", "true", "-g", ",v1,Pod")
	tko(from, 0, "site", "register", "lagos", "nf:v1", "-m", "region=west")
	parent := id(from, "deployment", "create", "nf:v1", "--wait", "-m", "name=parent", "-q")
	child := id(from, "deployment", "create", "nf:v1", "--site", "lagos", "--parent", parent, "--wait", "-m", "name=child", "-q")
	tko(from, 0, "patch", "deployment", child, "--patch", "{apiVersion: v1, kind: ConfigMap, metadata: {name: nf}, data: {a: two}}")
	tko(from, 0, "wait", "deployment", child, "--for", "condition=Prepared")

	address := from.GRPC
	plan := tko(to, 0, "import", "--from", address, "--dry-run")
	for _, want := range []string{"create template nf:v1", "create plugin validate|check", "create site lagos", "create deployment " + parent + "\ncreate deployment " + child, "5 changes, 0 unchanged"} {
		if !strings.Contains(plan, want) {
			t.Errorf("the plan has no %q:\n%s", want, plan)
		}
	}
	if list := tko(to, 0, "site", "list", "-o", "bare"); list != "" {
		t.Errorf("a dry run created %s", list)
	}
	tko(to, 2, "import", "--from", address)
	tko(to, 2, "import", "--from", address, "--confirm", "4")
	tko(to, 0, "import", "--from", address, "--confirm", "5")

	copied := id(to, "deployment", "list", "-m", "name=child", "--prepared", "--approved", "--site-id", "lagos", "--template-id", "nf:v1", "-o", "bare")
	above := id(to, "deployment", "list", "-m", "name=parent", "-o", "bare")
	if copied == "" || above == "" || strings.Contains(copied, "\n") {
		t.Fatalf("the copies are %q and %q", above, copied)
	}
	if list := id(to, "deployment", "list", "--parent", above, "-o", "bare"); list != copied {
		t.Errorf("the parent has %q, want %q", list, copied)
	}
	if text := tko(to, 0, "deployment", "get", copied); !strings.Contains(text, "a: two") {
		t.Error(text)
	}
	tko(to, 0, "wait", "site", "lagos", "--for", "condition=Frozen=True:Suspended")

	again := tko(to, 0, "import", "--from", address)
	if !strings.Contains(again, "0 changes, 5 unchanged") {
		t.Error(again)
	}
	tko(to, 0, "site", "resume", "lagos")
	tko(from, 0, "label", "site", "lagos", "tier=1")
	tko(to, 0, "import", "--from", address, "--confirm", "1")
	if list := tko(to, 0, "site", "list", "-m", "tier=1", "-o", "jsonpath={.items[*].metadata}"); strings.Contains(list, "suspend") || !strings.Contains(list, "west") {
		t.Errorf("the site, which was resumed, has %s", list)
	}

	// From itself, nothing is duplicated.
	if text := tko(from, 0, "import", "--from", "localhost:"+address[strings.LastIndex(address, ":")+1:], "--dry-run", "--suspend=false"); !strings.Contains(text, "0 changes") {
		t.Error(text)
	}
	tko(to, 2, "import")
	tko(to, 2, "import", "--from", "nowhere")
	tko(to, 5, "import", "--from", "localhost:1")
}
