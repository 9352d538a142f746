package wiring

import (
	"errors"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/config"
)

func TestGuardsAllowOnlyConfiguredAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made := func(args ...string) Guards {
		t.Helper()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		c := config.Flags(flags)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		g, err := NewGuards(c)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	names := []string{"git folder", "service template folder", "chart address", "git address", "service template address", "remote"}
	check := func(g Guards) map[string]bool {
		return map[string]bool{
			"git folder": g.Git.Folder(dir) == nil, "service template folder": g.TOSCA.Folder(dir) == nil,
			"chart address": g.Remote.Host("127.0.0.1") == nil, "git address": g.Git.Host("127.0.0.1") == nil,
			"service template address": g.TOSCA.Host("127.0.0.1") == nil, "remote": g.Git.Host("git.example.net") == nil,
		}
	}
	for args, want := range map[string][]string{
		"--git-cache=x":                  {"remote"},
		"--git-local=" + dir:             {"remote", "git folder"},
		"--tosca-local=" + dir:           {"remote", "service template folder"},
		"--tosca-local-addresses":        {"remote", "service template address"},
		"--remote-addresses=127.0.0.0/8": {"remote", "chart address", "git address", "service template address"},
		"--remote-hosts=example.org":     {},
	} {
		got := check(made(args))
		for _, name := range names {
			expected := false
			for _, w := range want {
				expected = expected || w == name
			}
			if got[name] != expected {
				t.Errorf("%s: %s: allowed is %v, want the opposite", args, name, got[name])
			}
		}
	}
	if _, err := NewGuards(&config.Config{RemoteHosts: []string{"https://x"}}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("a URL as a host: %v", err)
	}
}
