package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/test/docs"
	"github.com/tko-orchestrator/tko/test/process"
)

// The page of a newcomer's first site works from its first command to its last, on a real cluster.
func TestPageOfTheFirstSiteWorks(t *testing.T) {
	c := kube.Shared(t, kube.Options{Controllers: true})
	const page = "docs/first-site.md"
	process.Reads(t, page)
	text, err := os.ReadFile(filepath.Join(docs.Root(), page))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "kubeconfigs"), 0o700); err != nil {
		t.Fatal(err)
	}
	server := process.StartServer(t, "--store=sqlite::memory:", "--kubeconfigs="+filepath.Join(folder, "kubeconfigs"))
	var script strings.Builder
	script.WriteString("set -euo pipefail\nmkdir() { [ -d kubeconfigs ]; }\n") // the server is running already
	for _, b := range docs.Blocks(page, string(text)) {
		if b.Mark == "site" {
			script.WriteString(b.Text)
		}
	}
	script.WriteString("tko wait deployment $ID --for delete\n! kubectl get namespace hello --output name | grep . || kubectl wait --for=delete namespace/hello --timeout=2m\n")
	bash := exec.CommandContext(t.Context(), "bash", "-x", "-c", script.String())
	bash.Dir = folder
	bash.Env = append(append(c.Env(c.Kubeconfig), server.Env()...), "PATH="+filepath.Dir(process.Build(t, "tko"))+":"+c.Programs+":"+os.Getenv("PATH"))
	out, err := bash.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rest := string(out)
	for _, want := range []string{"2/2", "2/2", "nginx:1.29"} { // in this order: running, repaired, upgraded
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("the page doesn't show %q after what it showed before:\n%s", want, out)
		}
		rest = after
	}
}
