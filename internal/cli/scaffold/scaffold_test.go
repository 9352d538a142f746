package scaffold_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/cli/scaffold"
	"github.com/tko-orchestrator/tko/internal/plugin/plugintest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/process"
)

// runIn runs a program in a directory, with the Python SDK.
func runIn(t *testing.T, dir, program string, arguments ...string) (string, error) {
	t.Helper()
	process.Reads(t, "krm", "sdk/python/src")
	cmd := exec.CommandContext(t.Context(), program, arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "PYTHONPATH="+process.PythonSDK(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Each scaffolded plugin passes its own test, and fails it with another input.
func TestWrittenPluginsPassTheirTests(t *testing.T) {
	t.Parallel()
	test := map[string]func(*testing.T) []string{
		"python": func(t *testing.T) []string {
			return []string{filepath.Join(process.Python(t), "bin", "python3"), "-m", "unittest"}
		},
		"go": func(*testing.T) []string { return []string{"go", "test", "./..."} },
	}
	change := map[string][2]string{"validate": {"size: 3", "size: -7"}, "prepare": {"size: 3", "size: -7"}, "schedule": {"context:", "nothing:"}}
	for _, language := range scaffold.Languages() {
		for _, typ := range []string{tko.PluginValidate, tko.PluginPrepare, tko.PluginSchedule} {
			t.Run(language+" "+typ, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "plugin")
				p := scaffold.Plugin{Type: typ, Name: "vendor/my-plugin:v1.2", Language: language}
				names, err := scaffold.Write(p, dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range names {
					text, err := os.ReadFile(filepath.Join(dir, name))
					if err != nil {
						t.Fatal(err)
					}
					if strings.Contains(string(text), "{{") || strings.Contains(string(text), "<no value>") {
						t.Errorf("%s is not filled in:\n%s", name, text)
					}
				}
				if testing.Short() {
					return // the rest needs a compiler and Python's packages
				}
				command := test[language](t)
				if out, err := runIn(t, dir, command[0], command[1:]...); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				switch language {
				case "go":
					if out, err := runIn(t, dir, "gofmt", "-l", "."); err != nil || out != "" {
						t.Errorf("gofmt: %v %s", err, out)
					}
					if out, err := runIn(t, dir, "go", "vet", "./..."); err != nil {
						t.Errorf("go vet: %s", out)
					}
				case "python":
					program := filepath.Join(dir, "vendor-my-plugin-v12.py")
					if out, err := runIn(t, dir, command[0], "-m", "mypy", "--strict", "--cache-dir=/dev/null", program); err != nil {
						t.Errorf("mypy: %s", out)
					}
					for _, style := range [][]string{{"check", "--select=E,F,W,I,B,UP"}, {"format", "--check", "--diff"}} {
						ruff := append(append([]string{"-m", "ruff"}, style...), "--isolated", "--no-cache", "--line-length=120", ".")
						if out, err := runIn(t, dir, command[0], ruff...); err != nil {
							t.Errorf("ruff: %s", out)
						}
					}
				}

				in := filepath.Join(dir, "testdata", "good", "in.yaml")
				text, err := os.ReadFile(in)
				if err != nil {
					t.Fatal(err)
				}
				changed := strings.Replace(string(text), change[typ][0], change[typ][1], 1)
				if err := os.WriteFile(in, []byte(changed), 0o600); err != nil {
					t.Fatal(err)
				}
				if out, err := runIn(t, dir, command[0], command[1:]...); err == nil {
					t.Errorf("the test passes with another input:\n%s", out)
				}
			})
		}
	}
}

// A server runs the scaffolded plugin with the result that the plugin's test expects.
func TestWrittenPluginsRun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		return // it needs Python's packages
	}
	for _, typ := range []string{tko.PluginValidate, tko.PluginPrepare, tko.PluginSchedule} {
		dir := filepath.Join(t.TempDir(), typ)
		if _, err := scaffold.Write(scaffold.Plugin{Type: typ, Name: "x", Language: "python"}, dir); err != nil {
			t.Fatal(err)
		}
		plugintest.Run(t, filepath.Join(dir, "testdata"), "env", "PYTHONPATH="+process.PythonSDK(),
			filepath.Join(process.Python(t), "bin", "python3"), filepath.Join(dir, "x.py"))
	}
}

func TestWriteRefusesInvalidPluginsAndFilledDirectories(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why    string
		plugin scaffold.Plugin
		want   error
		text   string // in README.md
	}{
		"a name with parts":      {why: "the default trigger is made from the name", plugin: scaffold.Plugin{Type: "prepare", Name: "a/b-c", Language: "go"}, text: "a-b-c.plugin.nephio.org,v1alpha1,ABC"},
		"a strange name":         {why: "the trigger must be valid for any name", plugin: scaffold.Plugin{Type: "prepare", Name: "..1", Language: "python"}, text: "plugin.plugin.nephio.org,v1alpha1,Plugin"},
		"a trigger":              {why: "the user chose the trigger", plugin: scaffold.Plugin{Type: "validate", Name: "x", Language: "go", Trigger: krm.GVK{Version: "v1", Kind: "ConfigMap"}}, text: ",v1,ConfigMap"},
		"unknown type":           {why: "plugins have one of three types", plugin: scaffold.Plugin{Type: "mutate", Name: "x", Language: "go"}, want: tko.ErrInvalid},
		"unknown language":       {why: "there are two languages", plugin: scaffold.Plugin{Type: "prepare", Name: "x", Language: "cobol"}, want: tko.ErrInvalid},
		"invalid name":           {why: "IDs have an alphabet", plugin: scaffold.Plugin{Type: "prepare", Name: "a b", Language: "go"}, want: tko.ErrInvalid},
		"half of a trigger":      {why: "no resource matches it", plugin: scaffold.Plugin{Type: "prepare", Name: "x", Language: "go", Trigger: krm.GVK{Kind: "X"}}, want: tko.ErrInvalid},
		"a directory with files": {why: "existing files are never overwritten", plugin: scaffold.Plugin{Type: "prepare", Name: "x", Language: "go"}, want: tko.ErrConflict},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if errors.Is(test.want, tko.ErrConflict) {
				if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := scaffold.Write(test.plugin, dir)
			if !errors.Is(err, test.want) {
				t.Fatalf("the error is %v, want %v: %s", err, test.want, test.why)
			}
			if test.want != nil {
				return
			}
			readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
			if err != nil || !strings.Contains(string(readme), test.text) {
				t.Errorf("%v\n%s\nlacks %q: %s", err, readme, test.text, test.why)
			}
		})
	}
}
