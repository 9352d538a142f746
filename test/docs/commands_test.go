package docs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Pages whose blocks other tests run.
var runElsewhere = map[string]string{
	"docs/rollouts.md":        "TestExamplesOfRolloutsWork",
	"docs/first-site.md":      "TestPageOfTheFirstSiteWorks of test/deploy: the blocks marked site",
	"docs/tutorial-plugin.md": "TestTutorialCommandsWork of test/python: the blocks marked tutorial",
	"README.md":               "TestReadmeTourWorks: the blocks marked tour",
	"docs/python-sdk.md":      "TestDocumentedExamplesRun of test/python: the blocks in Python",
}

// Pages that are generated. The blocks of docs/commands.md are the examples of --help, which
// TestExamplesOfCommandsWork runs.
var generated = []string{"docs/commands.md", "docs/grpc.md", "docs/kinds.md", "docs/methods.md", "docs/settings.md"}

// Each block of commands is run by a test, or states why none runs it; then its commands are
// checked all the same, by this test and by those of the programs.
func TestEveryBlockIsRunOrChecked(t *testing.T) {
	t.Parallel()
	run, checked, others := 0, 0, 0
	for page, text := range Pages(t) {
		for _, b := range Blocks(page, text) {
			switch {
			case b.script() == "":
				others++
				if !slices.Contains([]string{"text", "yaml", "json", "python", "console"}, b.Language) {
					t.Errorf("%s: the block has the language %q: use sh, console, text, yaml, json or python", b, b.Language)
				}
				if b.Language == "yaml" {
					checkYAML(t, b)
				}
			case page == referencePage && examples[exampleOf(text, b)].whole == "":
				run++
			case slices.Contains(generated, page), b.Reason != "":
				checked++
			case pageScripts[page] != nil, runElsewhere[page] != "" && (b.Mark != "" || page == "docs/rollouts.md"):
				run++
			default:
				t.Errorf("%s: no test runs the block: run it, or write the comment \"<!-- not run: REASON -->\" before it", b)
			}
		}
	}
	t.Logf("%d blocks of commands are run, %d are checked; %d other blocks", run, checked, others)
	if run < 147 || checked < 50 {
		t.Errorf("%d blocks of commands are run, and %d checked: did their marks change?", run, checked)
	}
}

// checkYAML reports a block that is not YAML, or has a key twice.
func checkYAML(t *testing.T, b Block) {
	t.Helper()
	for document := range strings.SplitSeq(b.Text, "\n---\n") {
		var content any
		if err := yaml.UnmarshalStrict([]byte(document), &content); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
}

// Programs of others in the documentation.
var foreign = []string{
	"apt", "ansible-galaxy", "cat", "echo", "gcloud", "grep", "head", "journalctl", "kustomize", "mkdir", "openssl", "pidof", "pip", "podman", "python3", "runuser",
	"sed", "skopeo", "sleep", "systemctl", "tee", "xargs", "git", "cp",
}

// The commands of other programs name what exists: targets of make, tests, files and values of the chart.
func TestCommandsOfOtherProgramsNameWhatExists(t *testing.T) {
	t.Parallel()
	for _, c := range Commands(t) {
		var err error
		switch program, args := c.Words[0], c.Words[1:]; program {
		case "tko", "tko-server", "tko-server-spanner", "tko-agent": // checked by tests of these programs
		case "tko-bench":
			err = benchFlags(args)
		case "make":
			err = target(args[0])
		case "go":
			err = goTest(args)
		case "kubectl", "helm":
			err = installed(args)
		case "build.sh", "certificates.sh", "setup.sh", "python.sh":
		default:
			if !slices.Contains(foreign, program) {
				err = errors.New("unknown program")
			}
		}
		if err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// Patterns of go test in the Makefile match tests: one that matches none passes, and tests nothing.
func TestMakefileRunsExistingTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(Root(), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		_, args, is := strings.Cut(line, "$(GO) test ")
		if !is || !strings.Contains(args, "-run ") || strings.Contains(args, "$$package") {
			continue
		}
		found++
		if err := goTest(append([]string{"test"}, strings.Fields(strings.ReplaceAll(args, `"`, ""))...)); err != nil {
			t.Errorf("Makefile: %s: %v", strings.TrimSpace(line), err)
		}
	}
	if found < 10 {
		t.Errorf("the Makefile runs tests in only %d lines", found)
	}
}

func target(name string) error {
	text, err := os.ReadFile(filepath.Join(Root(), "Makefile"))
	if err == nil && !strings.Contains(string(text), "\n"+name+":") {
		err = fmt.Errorf("there is no target %s", name)
	}
	return err
}

func benchFlags(args []string) error {
	files, err := filepath.Glob(filepath.Join(Root(), "cmd/tko-bench/*.go"))
	if err != nil {
		return err
	}
	more, err := filepath.Glob(filepath.Join(Root(), "bench/*.go"))
	if err != nil {
		return err
	}
	var all strings.Builder
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		all.Write(text)
	}
	for _, arg := range args {
		if name, is := strings.CutPrefix(arg, "-"); is && !strings.Contains(all.String(), `"`+name+`"`) {
			return fmt.Errorf("there is no flag %s", arg)
		}
	}
	return nil
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)`)

// goTest checks that a pattern of go test matches a test in one of the folders.
func goTest(args []string) error {
	if args[0] != "test" {
		return nil
	}
	pattern, names := "", []string{}
	for i, arg := range args {
		switch {
		case arg == "-run" && args[i+1] != "xxx", arg == "-fuzz", arg == "-bench":
			pattern, _, _ = strings.Cut(args[i+1], "/")
		case strings.HasPrefix(arg, "./"):
			files, err := filepath.Glob(filepath.Join(Root(), arg, "*_test.go"))
			if err != nil || len(files) == 0 {
				return fmt.Errorf("there are no tests in %s (%w)", arg, err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
					names = append(names, m[1])
				}
			}
		}
	}
	expression, err := regexp.Compile(pattern)
	if err == nil && !slices.ContainsFunc(names, expression.MatchString) {
		err = fmt.Errorf("no test matches %q", pattern)
	}
	return err
}

// installed checks the files of kubectl and helm, and the values of the chart.
func installed(args []string) error {
	values := map[string]any{}
	for i, arg := range args {
		if strings.HasPrefix(arg, "deploy/") {
			if _, err := os.Stat(filepath.Join(Root(), arg)); err != nil {
				return err
			}
		}
		if arg != "--set" {
			continue
		}
		if len(values) == 0 {
			text, err := os.ReadFile(filepath.Join(Root(), "deploy/kubernetes/chart/values.yaml"))
			if err != nil {
				return err
			}
			if err := yaml.Unmarshal(text, &values); err != nil {
				return err
			}
		}
		path, _, _ := strings.Cut(args[i+1], "=")
		var at any = values
		for key := range strings.SplitSeq(path, ".") {
			within, _ := at.(map[string]any)
			below, ok := within[key]
			if !ok {
				return fmt.Errorf("the chart has no value %s", path)
			}
			at = below
		}
	}
	return nil
}
