package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A test that fails once, a test that always fails, and a data race, run by
// run.sh in a module of their own.
func TestFailedTestsRunAgain(t *testing.T) {
	run, err := filepath.Abs("run.sh")
	if err != nil {
		t.Fatal(err)
	}
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
			write(t, dir, "go.mod", "module example.com/it\n\ngo 1.26.0\n")
			write(t, dir, "it_test.go", "package it\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Stat\n\nfunc TestIt(t *testing.T) {\n"+test.body+"\n}\n")
			cmd := exec.Command(run, ".", "-count=1")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "TKO_TEST_PROGRAM_tko_server="+dir, "TKO_TEST_TIMES=", "GOWORK=off", "GOFLAGS=")
			out, err := cmd.CombinedOutput()
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

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
