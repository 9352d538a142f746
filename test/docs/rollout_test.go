package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// The commands at the beginning of the page of rollouts work in their order, its package
// is a rollout, and its freeze a freeze.
func TestExamplesOfRolloutsWork(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/rollouts.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```(sh|yaml)\n(.*?)^```").FindAllStringSubmatch(string(page), -1)
	freeze := regexp.MustCompile("`(tko freeze --site-metadata [^`]*)`").FindStringSubmatch(string(page))
	if len(blocks) < 2 || blocks[1][1] != "yaml" || freeze == nil {
		t.Fatalf("the page has other examples: %q, %q", blocks, freeze)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "rollout.yaml"), []byte(blocks[1][2]), 0o600); err != nil {
		t.Fatal(err)
	}
	server := process.StartServer(t, "--store=sqlite::memory:")
	tko := process.Build(t, "tko")
	shell := func(command string, codes ...int) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
		cmd.Dir = folder
		cmd.Env = append(append(os.Environ(), server.Env()...), "PATH="+filepath.Dir(tko)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil && !slices.Contains(codes, cmd.ProcessState.ExitCode()) {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	for _, version := range []string{"v1", "v2"} {
		shell("echo '{apiVersion: v1, kind: ConfigMap, metadata: {name: smf}, data: {version: " + version + "}}' | tko template register nf/smf:" + version + " --stdin")
	}
	for _, site := range []string{"a", "b", "c", "d"} { // one more than the canary takes
		shell("tko site register " + site + " -m region=north -m timezone=UTC -m redundancy=" + site + " -m tac=1 && tko deployment create nf/smf:v1 --site " + site + " --wait")
	}

	digest := ""
	commands := strings.ReplaceAll(blocks[0][2], "\\\n", " ")
	for line := range strings.Lines(commands) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		line = strings.ReplaceAll(line, "--watch", "") // it would wait for the approval that follows
		if strings.Contains(line, "rollout start") {
			line = regexp.MustCompile(`--plan \S+`).ReplaceAllString(line, "--plan "+digest)
		}
		out := shell(line, 7)
		if found := regexp.MustCompile(`--plan ([0-9a-f]{12})`).FindStringSubmatch(out); found != nil {
			digest = found[1]
		}
		if strings.Contains(line, "rollout create") && !strings.Contains(out, "4 Change") {
			t.Errorf("%s prints\n%s", line, out)
		}
	}
	if out := shell("tko rollout list -o bare"); !strings.Contains(out, "smf-v2-undo") {
		t.Errorf("the undo is not among the rollouts:\n%s", out)
	}

	if out := shell("tko rollout create file --url rollout.yaml", 7); !strings.Contains(out, "Rollout file: 4 ") {
		t.Errorf("the rollout of the page is planned as\n%s", out)
	}
	shell(regexp.MustCompile(`--until \S+`).ReplaceAllString(freeze[1], "--until 8h"))
	if out := shell("tko freeze list -o json"); !strings.Contains(out, "year-end peak") {
		t.Errorf("the freeze is not among\n%s", out)
	}
}
