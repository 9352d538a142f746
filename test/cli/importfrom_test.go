package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko/test/eventually"
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

// importing returns two servers, of which the first has a template, a site, and deployments
// in two levels, and a function that runs a command on a server.
func importing(t *testing.T, deployments int) (from, to *process.Server, run func(s *process.Server, code int, args ...string) string) {
	t.Helper()
	from, to = process.StartServer(t, "--store=sqlite::memory:"), process.StartServer(t, "--store=sqlite::memory:")
	run = func(s *process.Server, code int, args ...string) string {
		t.Helper()
		out, errs, got := s.CLI(args...)
		if got != code {
			t.Errorf("tko %v: exit code %d, want %d: %s", args, got, code, errs)
		}
		return strings.TrimSpace(out + "\n" + errs)
	}
	run(from, 0, "template", "register", "nf:v1", "-m", "type=nf")
	run(from, 0, "site", "register", "lagos", "-m", "region=west")
	parent := run(from, 0, "-q", "deployment", "create", "nf:v1", "--prepared", "-m", "n=parent")
	for n := 1; n < deployments; n++ {
		run(from, 0, "-q", "deployment", "create", "nf:v1", "--site", "lagos", "--parent", parent, "--prepared", "-m", "n="+strconv.Itoa(n))
	}
	return from, to, run
}

// copies checks that a server has each of the deployments of [importing] once.
func copies(t *testing.T, to *process.Server, run func(*process.Server, int, ...string) string, deployments int) {
	t.Helper()
	parent := run(to, 0, "deployment", "list", "-m", "n=parent", "-o", "bare")
	if children := strings.Fields(run(to, 0, "deployment", "list", "--parent", parent, "-o", "bare")); len(children) != deployments-1 {
		t.Errorf("the parent %q has %d children, want %d", parent, len(children), deployments-1)
	}
	if all := strings.Fields(run(to, 0, "deployment", "list", "-o", "bare")); len(all) != deployments {
		t.Errorf("there are %d deployments, want %d", len(all), deployments)
	}
}

func TestTwoImportsAtOnceCopyEachEntityOnce(t *testing.T) {
	t.Parallel()
	const deployments = 5
	from, to, run := importing(t, deployments)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			// The one that is behind may find that there is less to do than it confirmed.
			if _, errs, code := to.CLI("import", "--from", from.GRPC, "--confirm", strconv.Itoa(deployments+2)); code != 0 && (code != 2 || !strings.Contains(errs, "tko: --confirm 7, and there are")) {
				t.Errorf("exit code %d: %s", code, errs)
			}
		})
	}
	both.Wait()
	copies(t, to, run, deployments)
	if again := run(to, 0, "import", "--from", from.GRPC); !strings.Contains(again, "0 changes, 7 unchanged") {
		t.Error(again)
	}
}

func TestKilledImportContinues(t *testing.T) {
	t.Parallel()
	const deployments = 12
	from, to, run := importing(t, deployments)
	command := exec.Command(process.Build(t, "tko"), "import", "--from", from.GRPC, "--confirm", strconv.Itoa(deployments+2))
	command.Env = append(os.Environ(), to.Env()...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the first deployment is copied", func() bool { return run(to, 0, "deployment", "list", "-o", "bare", "--max-count", "1", "-q") != "" })
	_ = command.Process.Kill() // it may have ended
	_ = command.Wait()
	plan := run(to, 0, "import", "--from", from.GRPC, "--dry-run")
	var changes int
	for line := range strings.Lines(plan) {
		if _, err := fmt.Sscanf(line, "%d change", &changes); err == nil {
			break
		}
	}
	if changes > 0 {
		run(to, 0, "import", "--from", from.GRPC, "--confirm", strconv.Itoa(changes))
	}
	copies(t, to, run, deployments)
	if sites := run(to, 0, "site", "list", "-m", "tko.nephio.org/suspend=true", "-o", "bare"); sites != "lagos" {
		t.Errorf("the suspended sites are %q, want lagos", sites)
	}
}

// Entities with the same IDs that are not copies are replaced only if that was confirmed.
func TestImportReportsWhatItReplaces(t *testing.T) {
	t.Parallel()
	from, to, run := importing(t, 2)
	run(to, 0, "template", "register", "nf:v1", "-m", "type=another")
	run(to, 0, "site", "register", "lagos", "-m", "region=another")
	plan := run(to, 0, "import", "--from", from.GRPC, "--dry-run")
	for _, want := range []string{"update template nf:v1", "update site lagos", "2 changes replace an entity of this server that differs"} {
		if !strings.Contains(plan, want) {
			t.Errorf("the plan has no %q:\n%s", want, plan)
		}
	}
	if sites := run(to, 0, "site", "list", "-o", "jsonpath={.items[*].metadata.region}"); sites != "another" {
		t.Errorf("the dry run changed the site: %s", sites)
	}
	run(to, 0, "import", "--from", from.GRPC, "--confirm", "4")
	copies(t, to, run, 2)
	if sites := run(to, 0, "site", "list", "-m", "region=west", "-o", "bare"); sites != "lagos" {
		t.Errorf("the site is %q", sites)
	}
}
