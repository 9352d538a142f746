package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var update = flag.Bool("update", false, "rewrite the generated pages")

// The pages in docs are generated: go test ./cmd/tko-server -run Generated -update.
func TestGeneratedSettingsAreUpToDate(t *testing.T) {
	t.Parallel()
	command, _ := settingsCommand()
	sample, err := config.Print(command.Flags())
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"settings.md": config.Reference(command.Flags()), "tko-server.yaml": sample} {
		path := filepath.Join("../../docs", file)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("docs/%s is not up to date (%v): rewrite it with -update", file, err)
		}
	}
}

func TestHelpGroupsTheSettings(t *testing.T) {
	t.Parallel()
	var out eventually.Buffer
	if code := run(t.Context(), []string{"--help"}, &out, &out); code != 0 {
		t.Fatal(code)
	}
	text := out.String()
	for _, title := range []string{"Targets: ", "GitOps sources: ", "Available Commands:"} {
		if !strings.Contains(text, title) {
			t.Errorf("there is no %q in\n%s", title, text)
		}
	}
	if targets, sources := strings.Index(text, "\nTargets: "), strings.Index(text, "\nGitOps sources: "); strings.Index(text, "--git-cache") < targets || strings.Index(text, "--git-cache") > sources {
		t.Error("--git-cache is not among the settings of targets")
	}
	if i := strings.Index(text, "\nOther"); i >= 0 {
		t.Errorf("settings without a group: %.300s", text[i:])
	}
}

func TestSettingsAreCheckedAndPrintedWithoutStarting(t *testing.T) {
	t.Setenv("TKO_ALLOW_ROOT", "true")
	store := filepath.Join(t.TempDir(), "none.db")
	tests := map[string]struct {
		args []string
		code int
		want string
	}{
		"valid":          {[]string{"--check"}, 0, "the settings are valid\n"},
		"invalid":        {[]string{"--check", "--ip-stack=ipv5"}, 2, "--ip-stack"},
		"a missing file": {[]string{"--check", "--tls-cert=/none/a", "--tls-key=/none/b"}, 2, "--tls-key: open /none/b"},
		"printed":        {[]string{"--print-config", "--instance-name=lab"}, 0, "\ninstance-name: lab\n"},
		"both, invalid":  {[]string{"--print-config", "--check", "--ip-stack=ipv5"}, 2, "--ip-stack"},
	}
	for name, test := range tests {
		var out eventually.Buffer
		code := run(t.Context(), append(test.args, "--store=sqlite:"+store), &out, &out)
		if code != test.code || !strings.Contains(out.String(), test.want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", name, code, test.code, test.want, &out)
		}
	}
	if _, err := os.Stat(store); err == nil {
		t.Error("a check created the store")
	}
}
