package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

func TestMain(m *testing.M) {
	process.Plain()
	code := m.Run()
	process.Clean()
	os.Exit(code)
}

var (
	tourBlock = regexp.MustCompile("(?ms)^```sh tour\n(.*?)^```")
	changing  = regexp.MustCompile(`^(\w{27}|\d+[smh])$`) // IDs and ages
	refusal   = regexp.MustCompile(`(?m)^! `)
)

// The commands of the README's tour work as described.
func TestReadmeTourWorks(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\nrefused() { if \"$@\"; then echo \"not refused: $*\"; exit 1; fi; }\n")
	blocks := tourBlock.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 4 {
		t.Fatalf("the README has %d blocks of the tour: did their mark change?", len(blocks))
	}
	for _, b := range blocks {
		script.WriteString(refusal.ReplaceAllString(b[1], "refused "))
	}
	const list = "tko deployment list --template-id 'workload/**' --format table\n"
	if strings.Count(script.String(), list) != 1 {
		t.Fatalf("the README doesn't list the deployments once by %s", list)
	}
	// Readers are slower than the meta-scheduler.
	wait := "until [ $(tko deployment list --template-id 'workload/**' --condition Scheduled -o bare | wc -l) = 3 ]; do sleep 0.1; done\n"
	commands := strings.Replace(script.String(), list, wait+list, 1)

	folder := t.TempDir()
	server := process.StartServer(t, "--store=sqlite::memory:", "--target-git-local="+filepath.Join(folder, "tour"))
	process.Reads(t, "examples")
	for link, to := range map[string]string{"bin": process.Folder(t, "tko", "tko-server"), "examples": filepath.Join(root, "examples")} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	// The trace of commands is written to another file, so that a command is not
	// mistaken for its output.
	trace, err := os.Create(filepath.Join(t.TempDir(), "trace"))
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	bash := exec.CommandContext(t.Context(), "bash", "-x")
	bash.ExtraFiles = []*os.File{trace} // file descriptor 3
	bash.Dir, bash.Stdin = folder, strings.NewReader(commands)
	bash.Env = append(append(os.Environ(), server.Env()...), "BASH_XTRACEFD=3")
	out, err := bash.CombinedOutput()
	traced, _ := os.ReadFile(trace.Name())
	t.Logf("commands:\n%s\noutput:\n%s", traced, out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(traced, []byte("grep replicas")) || bytes.Contains(out, []byte("grep replicas")) {
		t.Fatal("the trace of commands is not separate from their output")
	}
	shown := 0
	for _, b := range Blocks("README.md", string(readme)) {
		if b.Mark != "output" {
			continue
		}
		for line := range strings.Lines(b.Text) {
			shown++
			var pattern strings.Builder
			for word := range strings.FieldsSeq(line) {
				if changing.MatchString(word) {
					pattern.WriteString(`\w+\s+`)
				} else {
					pattern.WriteString(regexp.QuoteMeta(word) + `\s+`)
				}
			}
			if !regexp.MustCompile(pattern.String()).Match(out) {
				t.Errorf("%s: the tour doesn't print the line %q", b, line)
			}
		}
	}
	if shown < 5 {
		t.Errorf("the README shows %d lines of output: did their mark change?", shown)
	}
	rest := string(out)
	for _, want := range []string{"NetworkFunction.name", "replicas: 2", "replicas: 3", "lagos/edge-2: 1 added|Update 2 sites", "Nothing fails.", "spec.replicas"} { // in this order
		at := regexp.MustCompile(want).FindStringIndex(rest) // sites that are ready at the same time share a commit
		if at == nil {
			t.Fatalf("the tour does not print %q after what it printed before", want)
		}
		rest = rest[at[1]:]
	}
}
