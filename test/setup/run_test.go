package setup

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/test/process"
)

// A test that fails once, a test that always fails, and a data race, run by
// run.sh in a module of their own.
func TestFailedTestsRunAgain(t *testing.T) {
	process.Reads(t, "test/setup", "tools/test")
	tests := map[string]struct {
		why    string
		body   string
		passes bool
		prints []string
	}{
		"fails once": {
			why: "a flaky test must not fail the run, and must be listed",
			body: `
	if _, err := os.Stat("ran"); err != nil {
		os.WriteFile("ran", nil, 0o600)
		t.Fatal("too early")
	}`,
			passes: true,
			prints: []string{"too early", "is flaky, and a defect to mend", "TestIt: 2 runs, 1 failures"},
		},
		"always fails": {
			why:    "a test that always fails is a defect",
			body:   `t.Fatal("never")`,
			prints: []string{"never", "TestIt: 3 runs, 3 failures"},
		},
		"race": {
			why: "a data race is a defect even if the next run does not show it",
			body: `
	if _, err := os.Stat("ran"); err == nil {
		return
	}
	os.WriteFile("ran", nil, 0o600)
	n, done := 0, make(chan bool)
	go func() { n++; close(done) }()
	n++
	<-done`,
			prints: []string{"DATA RACE"},
		},
		"passes": {why: "no list of flaky tests without one", passes: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			module(t, dir, test.body)
			out, err := run(dir, "-count=1")
			noDetector := name == "race" && strings.Contains(string(out), "without the race detector")
			if noDetector {
				return // a machine without a C compiler, which run.sh reports
			}
			if passed := err == nil; passed != test.passes {
				t.Errorf("passed: %t, want %t (%s)\n%s", passed, test.passes, test.why, out)
			}
			for _, text := range test.prints {
				if !strings.Contains(string(out), text) {
					t.Errorf("output without %q (%s):\n%s", text, test.why, out)
				}
			}
			if len(test.prints) == 0 && strings.Contains(string(out), "flaky") {
				t.Errorf("a flaky test is listed:\n%s", out)
			}
		})
	}
}

// module writes a module of this repository, with one test.
func module(t *testing.T, dir, body string) {
	t.Helper()
	write(t, dir, "go.mod", "module github.com/tko-orchestrator/tko/it\n\ngo 1.26.0\n")
	write(t, dir, "it_test.go", "package it\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Stat\n\nfunc TestIt(t *testing.T) {\n"+body+"\n}\n")
}

// run runs run.sh in a module, on a machine of developers.
func run(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command(filepath.Join(process.Root(), "test", "setup", "run.sh"), append([]string{"."}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TKO_TEST_PROGRAM_tko_server="+dir, "TKO_TEST_TIMES=", "GOWORK=off", "CI=")
	return cmd.CombinedOutput()
}

// A second run without a change tests nothing anew; a run of CI, in random order, does.
func TestResultsAreCached(t *testing.T) {
	process.Reads(t, "test/setup", "tools/test")
	dir := t.TempDir()
	module(t, dir, "\tt.Log("+strconv.Quote(rand.Text())+")") // an earlier run of this test is no cached result
	old := time.Now().Add(-time.Minute)                       // go test doesn't trust files that were just written
	for _, name := range []string{"go.mod", "it_test.go"} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name   string
		args   []string
		cached bool
	}{{"first", nil, false}, {"second", nil, true}, {"in random order", []string{"-shuffle=on"}, false}} {
		out, err := run(dir, step.args...)
		if err != nil {
			t.Fatalf("%s: %v\n%s", step.name, err, out)
		}
		if cached := strings.Contains(string(out), "(cached)"); cached != step.cached {
			t.Errorf("the %s run: cached: %t\n%s", step.name, cached, out)
		}
	}
}

// make changed tests the packages that contain a changed package, and no others.
func TestChangeSelectsPackagesThatContainIt(t *testing.T) {
	process.Reads(t, "test/setup")
	dir := t.TempDir()
	script, err := os.ReadFile(filepath.Join(process.Root(), "test", "setup", "changed.sh"))
	if err != nil {
		t.Fatal(err)
	}
	const test = "import \"testing\"\n\nfunc Test(*testing.T) {}\n"
	for name, text := range map[string]string{
		"go.mod":                         "module example.com/m\n\ngo 1.26.0\n",
		"test/setup/changed.sh":          string(script),
		"low/low.go":                     "package low\n",
		"low/low_test.go":                "package low\n\n" + test,
		"middle/middle.go":               "package middle\n\nimport _ \"example.com/m/low\"\n",
		"high/high.go":                   "package high\n\nimport _ \"example.com/m/middle\"\n",
		"high/high_test.go":              "package high\n\n" + test,
		"other/other.go":                 "package other\n",
		"other/other_test.go":            "package other\n\n" + test,
		"test/starts/starts_test.go":     "package starts\n\nimport _ \"example.com/m/low\"\n" + test,
		"test/docs/docs_test.go":         "package docs\n\n" + test,
		"test/conventions/words_test.go": "package conventions\n\n" + test,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, text)
	}
	git := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "first")
	for name, c := range map[string]struct{ file, want string }{
		"nothing":           {"", ""},
		"a source":          {"low/low.go", "high low test/conventions"},
		"data of a package": {"low/testdata/x.json", "high low test/conventions"},
		"a page":            {"docs/page.md", "test/conventions test/docs"},
		"a test":            {"test/starts/starts_test.go", "test/conventions test/starts"},
		"a dependency":      {"go.mod", "high low middle other test/conventions test/docs test/starts"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.file != "" {
				path := filepath.Join(dir, c.file)
				before, readErr := os.ReadFile(path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, dir, c.file, string(before)+"\n")
				defer func() {
					if readErr != nil {
						_ = os.Remove(path)
						return
					}
					write(t, dir, c.file, string(before))
				}()
			}
			cmd := exec.Command(filepath.Join(dir, "test", "setup", "changed.sh"))
			cmd.Env = append(os.Environ(), "GOWORK=off")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := strings.ReplaceAll(strings.Join(strings.Fields(string(out)), " "), "example.com/m/", ""); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	mode := os.FileMode(0o600)
	if strings.HasSuffix(name, ".sh") {
		mode = 0o700
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
