package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko/internal/config"
)

func TestEachSettingIsInOneGroup(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(flags)
	of := map[string]string{}
	for _, g := range config.Groups {
		for _, name := range g.Settings {
			if before, ok := of[name]; ok {
				t.Errorf("--%s is in the groups %q and %q", name, before, g.Title)
			}
			of[name] = g.Title
			if flags.Lookup(name) == nil && !slices.Contains([]string{"config", "print-config", "check", "help", "version"}, name) {
				t.Errorf("group %q has --%s, and there is no such setting", g.Title, name)
			}
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if of[f.Name] == "" {
			t.Errorf("--%s is in no group: add it to config.Groups", f.Name)
		}
	})
	if text := config.Usage(flags); strings.Contains(text, "\nOther") || !strings.Contains(text, "\nFlux: sources and objects of Flux\n") {
		t.Error(text)
	}
}

func TestPrintedSettingsAreReadAsTheyWere(t *testing.T) {
	t.Parallel()
	args := []string{"--store=postgres://u:secret@host/db", "--roles=data,gitops", "--keep-changes=24h", "--insecure", "--plugin-memory=0", "--instance-description=a: b # c", "-v"}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	text, err := config.Print(flags)
	if err != nil || strings.Contains(text, "secret@") || !strings.Contains(text, "\n#git-interval: 1m0s\n") {
		t.Fatalf("%v\n%s", err, text)
	}
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	again := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(again)
	if err := config.Load(again, func(string) (string, bool) { return "", false }, file); err != nil {
		t.Fatal(err)
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if g := again.Lookup(f.Name); g.Value.String() != f.Value.String() || g.Changed != f.Changed {
			t.Errorf("--%s is %s (set: %t), was %s (%t)", f.Name, g.Value, g.Changed, f.Value, f.Changed)
		}
	})
}

func TestMissingFilesOfSettingsAreListed(t *testing.T) {
	t.Parallel()
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse([]string{"--tls-cert=/none/cert", "--tls-key=" + there, "--plugin-programs=/none/bin," + t.TempDir(), "--encryption-key=vault:a/b"}); err != nil {
		t.Fatal(err)
	}
	err := config.CheckFiles(flags)
	if err == nil || strings.Count(err.Error(), "--") != 2 || !strings.Contains(err.Error(), "--tls-cert: open /none/cert") || !strings.Contains(err.Error(), "--plugin-programs: open /none/bin") {
		t.Error(err)
	}
}
