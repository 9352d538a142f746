package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/demo"
	"github.com/tko-orchestrator/tko/test/process"
)

// The demo's catalog produces the expected result on both stores, and a second run
// changes nothing.
func TestDemoCatalogHasExpectedResult(t *testing.T) {
	process.Reads(t, "examples", "krm", "sdk/python/src")
	bin := filepath.Join(t.TempDir(), "bin")
	build := exec.Command("go", "build", "-o", bin+"/", "github.com/tko-orchestrator/tko/examples/plugins/...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			examples, err := filepath.Abs("../../examples")
			if err != nil {
				t.Fatal(err)
			}
			catalog, err := demo.Load("../../examples", map[string]string{"BIN": bin, "DEMO": state})
			if err != nil {
				t.Fatal(err)
			}
			sources, err := catalog.WriteInventory(state)
			if err != nil {
				t.Fatal(err)
			}
			server := process.StartServer(t, "--store="+store(t), "--git-cache="+t.TempDir(), "--git-local="+state, "--tosca-local="+examples, "--gitops-sources="+sources, "--remote-addresses=127.0.0.1/32")
			c, ctx := dial(t, server.GRPC), patient(t)
			var last []string
			for run := range 2 {
				if err := catalog.Register(ctx, c, func(text string) { t.Error(text) }); err != nil {
					t.Fatal(err)
				}
				if n, err := catalog.AwaitSites(ctx, c, func(text string) { t.Log(text) }); err != nil || n != 12 {
					t.Fatalf("the inventory made %d sites, want 12: %v", n, err)
				}
				if _, err := catalog.Create(ctx, c); err != nil {
					t.Fatal(err)
				}
				progress, err := demo.Follow(ctx, c, 50*time.Millisecond, func(p demo.Progress) { t.Log(p, p.Problems) })
				if err != nil {
					t.Fatalf("%v\n%v", err, progress.Problems)
				}
				repository := filepath.Join(state, "sites.git")
				if err := catalog.Check(progress, repository); err != nil {
					t.Fatal(err)
				}
				if progress.Deployments != catalog.Expect.Deployments || len(progress.Sites) != catalog.Expect.Sites {
					t.Errorf("%d deployments and %d sites, want %d and %d", progress.Deployments, len(progress.Sites), catalog.Expect.Deployments, catalog.Expect.Sites)
				}
				out, err := exec.Command("git", "--git-dir", repository, "log", "--format=%H").CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				commits := strings.Fields(string(out))
				if run == 1 && !slices.Equal(commits, last) {
					t.Errorf("the second run committed something: %d commits, then %d", len(last), len(commits))
				}
				last = commits
				checkDemoFiles(t, repository, state)
			}
			// The demo ends with an upgrade of the SMF in two waves, which a metric holds for a
			// while, and its undo, after which everything is as before.
			metrics, err := demo.ServeMetrics(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer metrics.Close()
			var told []string
			if err := demo.Upgrade(ctx, c, metrics.URL, func(text string) { told = append(told, text) }); err != nil {
				t.Fatalf("%v\n%s", err, strings.Join(told, "\n"))
			}
			for _, want := range []string{"is Done", "is Undone", "canary 1/1 healthy", `holds: `, `the metric "lost-sessions" is bad: 4 at changed sites: it is more than 1`} {
				if !strings.Contains(strings.Join(told, "\n"), want) {
					t.Errorf("the upgrade doesn't report %q:\n%s", want, strings.Join(told, "\n"))
				}
			}
			progress, err := demo.Follow(ctx, c, 50*time.Millisecond, func(demo.Progress) {})
			if err == nil {
				err = catalog.Check(progress, filepath.Join(state, "sites.git"))
			}
			if err != nil {
				t.Error(err)
			}
			checkDemoFiles(t, filepath.Join(state, "sites.git"), state)
		})
	}
}

// checkDemoFiles checks the results of the catalog's plugins and merges.
func checkDemoFiles(t *testing.T, repository, state string) {
	t.Helper()
	grep := func(text string, paths ...string) {
		args := append([]string{"--git-dir", repository, "grep", "--no-color", "-h", "-e", text, "main", "--"}, paths...)
		out, err := exec.Command("git", args...).CombinedOutput()
		if err != nil {
			t.Errorf("git grep %s %v: %v\n%s", text, paths, err, out)
		}
	}
	grep("fd00:5c:1:", "north/central/*_n6.yaml")   // the Python plugin's addresses, with the prefix from the topology
	grep("fd00:5c::", "north/edge-1/*_smf-n4.yaml") // with the plugin's default prefix
	grep("namespace: north-core", "north/edge-1/")  // the Go plugin's namespace
	inventory, err := os.ReadFile(filepath.Join(state, "inventory", "north--edge-1.json"))
	if err != nil || !strings.Contains(string(inventory), "Deployment north-core/smf") {
		t.Errorf("the schedule plugin's file: %v\n%s", err, inventory)
	}
	if out, err := exec.Command("git", "--git-dir", repository, "grep", "-l", "nephio.org", "main").CombinedOutput(); err == nil {
		t.Errorf("orchestration resources or annotations are in the repository:\n%s", out)
	}
}
