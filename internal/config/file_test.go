package config_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/secret"
)

func noEnvironment(string) (string, bool) { return "", false }

// write writes a file of settings.
func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A value in a file is the text that a flag would have, whatever YAML makes of it.
func TestValuesOfFilesAreThoseOfFlags(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why, file string
		flag      []string
	}{
		"a large number":              {"not in scientific notation", "plugin-memory: 1073741824", []string{"--plugin-memory=1073741824"}},
		"a round number":              {"the same", "max-message: 100000000", []string{"--max-message=100000000"}},
		"a fraction":                  {"numbers keep their digits", "requests-per-client: 1000000.5", []string{"--requests-per-client=1000000.5"}},
		"a version":                   {"it is no number", "schema-kubernetes-version: 1.30", []string{"--schema-kubernetes-version=1.30"}},
		"a name of digits":            {"it is no octal number", "instance-name: 0017", []string{"--instance-name=0017"}},
		"a date":                      {"it is no time", "instance-name: 2026-01-01", []string{"--instance-name=2026-01-01"}},
		"off":                         {"it is no boolean where there are words", "secrets-check: off\nplugin-isolation: off", []string{"--secrets-check=off", "--plugin-isolation=off"}},
		"yes":                         {"it is a boolean where there are two", "audit: no\nwithdraw-approval: yes", []string{"--audit=false", "--withdraw-approval"}},
		"a boolean in quotes":         {"as the environment has it", `insecure: "true"`, []string{"--insecure"}},
		"an empty text":               {"empty for none", `listen-web: ""`, []string{"--listen-web="}},
		"a list":                      {"lists are lists", "web-hosts: [a.example.com, b.example.com]", []string{"--web-hosts=a.example.com,b.example.com"}},
		"a list as a flag has it":     {"lists may be texts", "web-hosts: a.example.com,b.example.com", []string{"--web-hosts=a.example.com,b.example.com"}},
		"an empty list":               {"none, and not the default", "plugin-environment: []", []string{"--plugin-environment="}},
		"a list of one":               {"a comma belongs to the entry", "plugin-files: ['/srv/a,b', '/srv/\"c\"']", []string{`--plugin-files="/srv/a,b","/srv/""c"""`}},
		"a list that has its default": {"it replaces the default", "plugin-environment: [A]", []string{"--plugin-environment=A"}},
		"DSNs of libpq":               {"each entry is one", "store: postgres://p/tko\nstore-replicas: [host=a dbname=tko, 'host=b,c dbname=tko']", []string{"--store=postgres://p/tko", "--store-replicas=host=a dbname=tko", "--store-replicas=host=b,c dbname=tko"}},
		"an alias":                    {"it is YAML", "retry: &a 3s\nretry-max: *a", []string{"--retry=3s", "--retry-max=3s"}},
		"several lines":               {"a folded text is one", "instance-description: >-\n  a\n  b", []string{"--instance-description=a b"}},
		"rollouts":                    {"YAML in YAML, in quotes", `git-rollout: "{waves: [{name: a, count: 1}]}"`, []string{"--git-rollout={waves: [{name: a, count: 1}]}"}},
		"no settings":                 {"comments only, as in the sample", "# retry: 1s\n", nil},
		"nothing":                     {"an empty file", "", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := settings(t, test.flag...)
			got := settings(t)
			if err := config.Load(got, noEnvironment, write(t, test.file)); err != nil {
				t.Fatalf("%v: %s", err, test.why)
			}
			want.VisitAll(func(f *pflag.Flag) {
				if g := got.Lookup(f.Name); fmt.Sprintf("%q", plain(g)) != fmt.Sprintf("%q", plain(f)) || g.Changed != f.Changed {
					t.Errorf("--%s is %q (set: %t), as a flag %q (%t): %s", f.Name, plain(g), g.Changed, plain(f), f.Changed, test.why)
				}
			})
		})
	}
}

// plain returns the value of a flag, also a secret one.
func plain(f *pflag.Flag) any {
	switch v := f.Value.(type) {
	case pflag.SliceValue:
		return v.GetSlice()
	case *secret.Text:
		return string(*v)
	case *secret.DSNs:
		var texts []string
		for _, dsn := range *v {
			texts = append(texts, string(dsn))
		}
		return texts
	default:
		return v.String()
	}
}

func TestUnclearFilesAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why, file string
		says      []string
	}{
		"no value":            {"none, or the default?", "kubernetes:\n", []string{"kubernetes", "no value", `""`}},
		"null":                {"none, or the default?", "plugin-programs: ~\n", []string{"plugin-programs", "no value"}},
		"a mapping":           {"no setting has fields", "git-rollout: {waves: []}\n", []string{"git-rollout", "mapping", "in quotes"}},
		"a list":              {"which of them?", "data: [a:1, b:1]\n", []string{"data", "is a list", "one value"}},
		"a list in a list":    {"which of them?", "roles: [data, [gitops]]\n", []string{"roles", "entry 2"}},
		"an empty entry":      {"a line was forgotten", "roles:\n- data\n-\n", []string{"roles", "entry 2"}},
		"twice":               {"which of them?", "retry: 1s\nretry: 2s\n", []string{"retry", "already defined"}},
		"two documents":       {"the second would be ignored", "retry: 1s\n---\ninsecure: false\n", []string{"more than one document", "the first"}},
		"no settings":         {"there are no names", "- retry\n", []string{"settings.yaml"}},
		"a flag as in help":   {"names have no dashes in front", "--retry: 1s\n", []string{`"--retry" is not a setting`, "--help"}},
		"the file's own flag": {"files don't name files", "config: a.yaml\n", []string{`"config" is not a setting`}},
		"a time without unit": {"seconds or hours?", "retry: 5\n", []string{"retry", "settings.yaml", "unit"}},
		"an earlier name":     {"the name in the file, to find it", "git-cache: [a, b]\n", []string{"setting git-cache"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := config.Load(settings(t), noEnvironment, write(t, test.file))
			if !errors.Is(err, tko.ErrInvalid) {
				t.Fatalf("%v, want an ErrInvalid: %s", err, test.why)
			}
			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %q", part, err)
				}
			}
		})
	}
	missing := filepath.Join(t.TempDir(), "none.yaml")
	if err := config.Load(settings(t), noEnvironment, missing); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), missing) {
		t.Errorf("%v, want an ErrInvalid that names %s", err, missing)
	}
}

// example returns the nth value for a flag, other than its default.
func example(f *pflag.Flag, n int) string {
	switch f.Value.Type() {
	case "bool":
		return strconv.FormatBool((n%2 == 0) != (f.DefValue == "true"))
	case "duration":
		return fmt.Sprintf("%dh7m0s", n+1)
	case "int", "int64", "count":
		return strconv.Itoa(3000001 + n)
	case "float64":
		return strconv.Itoa(3001+n) + ".5"
	default:
		return fmt.Sprintf("example-%d", n)
	}
}

// Flags override the environment, and the environment overrides the file: each setting.
func TestEachSettingIsReadFromTheFlagThenTheEnvironmentThenTheFile(t *testing.T) {
	t.Parallel()
	settings(t).VisitAll(func(f *pflag.Flag) {
		file, environment, flag := example(f, 0), example(f, 1), example(f, 2)
		path := write(t, f.Name+": "+file+"\n")
		variable := "TKO_" + strings.ReplaceAll(strings.ToUpper(f.Name), "-", "_")
		set := func(name string) (string, bool) { return environment, name == variable }
		for _, test := range []struct {
			from        string
			args        []string
			environment func(string) (string, bool)
			file, want  string
		}{
			{"the file", nil, noEnvironment, path, file},
			{"the environment", nil, set, "", environment},
			{"the environment, not the file", nil, set, path, environment},
			{"the flag", []string{"--" + f.Name + "=" + flag}, set, path, flag},
		} {
			flags := settings(t, test.args...)
			if err := config.Load(flags, test.environment, test.file); err != nil {
				t.Errorf("--%s from %s: %v", f.Name, test.from, err)
				continue
			}
			want := test.want
			if f.Value.Type() == "stringSlice" || f.Value.Type() == "strings" {
				want = "[" + want + "]"
			}
			if got := flags.Lookup(f.Name); fmt.Sprint(plain(got)) != want || !got.Changed {
				t.Errorf("--%s is %v, want %s from %s", f.Name, plain(got), want, test.from)
			}
		}
	})
}

// docs/tko-server.yaml is a file with all settings and their defaults: its lines have no
// effect when they are used, whatever their type.
func TestSampleHasTheDefaults(t *testing.T) {
	t.Parallel()
	sample, err := os.ReadFile("../../docs/tko-server.yaml")
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`(?m)^#([a-z-])`).ReplaceAllString(string(sample), "$1")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c := config.Flags(flags)
	if err := config.Load(flags, noEnvironment, write(t, used)); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if want := settings(t).Lookup(f.Name); f.Value.String() != want.Value.String() {
			t.Errorf("%s is %s in the sample, %s by default", f.Name, f.Value, want.Value)
		}
		if !strings.Contains(used, "\n"+f.Name+":") {
			t.Errorf("the sample lacks %s", f.Name)
		}
	})
	if string(c.Store) != "sqlite:tko.db" {
		t.Errorf("the store is %q", string(c.Store))
	}
}

// Whatever settings a server has, --print-config prints a file that makes the same.
func TestPrintedSettingsOfAllTypesAreReadAsTheyWere(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", " ", "a, b", "1.30", "off", "~", "null", "- a", "{a: b}", "# a", "a: b", "0x1F", "1e3", "2026-01-01", "é\tü", "a\nb", `"a"`, "'", "*a", "&a", "%a", "@a", "<nil>", strings.Repeat("long ", 40)}
	text := func() string { return texts[random.IntN(len(texts))] }
	for round := range 15 {
		flags := settings(t)
		flags.VisitAll(func(f *pflag.Flag) {
			if random.IntN(3) > 0 || f.Name == "store" || f.Name == "store-replicas" { // are secret
				return
			}
			value := ""
			switch f.Value.Type() {
			case "bool":
				value = strconv.FormatBool(random.IntN(2) == 0)
			case "int", "int64", "count":
				value = strconv.Itoa(random.Int() >> random.IntN(63))
			case "float64":
				value = strconv.FormatFloat(random.ExpFloat64()*float64(random.IntN(1e9)), 'g', -1, 64)
			case "duration":
				value = fmt.Sprintf("%dns", random.Int()>>random.IntN(63))
			case "string":
				value = text()
			}
			if err := flags.Set(f.Name, value); err != nil {
				t.Fatal(err)
			}
			if list, ok := f.Value.(pflag.SliceValue); ok {
				entries := make([]string, random.IntN(4))
				for i := range entries {
					entries[i] = text()
				}
				if err := list.Replace(entries); err != nil {
					t.Fatal(err)
				}
			}
		})
		printed, err := config.Print(flags)
		if err != nil {
			t.Fatal(err)
		}
		again := settings(t)
		if err := config.Load(again, noEnvironment, write(t, printed)); err != nil {
			t.Fatalf("round %d: %v\n%s", round, err, printed)
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if g := again.Lookup(f.Name); fmt.Sprintf("%q", plain(g)) != fmt.Sprintf("%q", plain(f)) || g.Changed != f.Changed {
				t.Errorf("round %d: --%s is %q (set: %t), was %q (%t)", round, f.Name, plain(g), g.Changed, plain(f), f.Changed)
			}
		})
	}
}

// --print-config prints no secrets: not of the store, nor passwords in any URL, whether
// the settings are valid or not.
func TestSecretsAreNotInPrintedSettings(t *testing.T) {
	t.Parallel()
	urls := []string{
		"postgres://tko:hunter2@db/tko", "https://hunter2@git.example.com/a.git", "http://tko:hunter2@proxy.example.com:3128", "https://tko:hun@hunter2@git.example.com",
		"corp=https://x:hunter2@git.example.com/a.git", "ssh://git:hunter2@git.example.com/a.git",
	}
	for _, url := range urls {
		flags, given := settings(t), 0
		flags.VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); kind != "string" && kind != "stringSlice" && kind != "strings" {
				return
			}
			given++
			if err := flags.Set(f.Name, url); err != nil {
				t.Fatal(err)
			}
		})
		printed, err := config.Print(flags)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(printed) {
			if strings.Contains(line, "hunter2") {
				t.Errorf("a secret of %s is printed: %s", url, line)
			}
		}
		if hidden := strings.Count(printed, "[secret]"); hidden != given || given < 80 {
			t.Errorf("%s is hidden in %d settings, want %d", url, hidden, given)
		}
	}
	for _, kept := range []string{"ssh://git@git.example.com/a.git", "https://git.example.com/a@b.git", "git@git.example.com:a.git"} {
		if printed, err := config.Print(settings(t, "--git="+kept)); err != nil || !strings.Contains(printed, kept+"\n") {
			t.Errorf("%s has no secret, and isn't printed as it is (%v)", kept, err)
		}
	}
	flags := settings(t, "--git=https://tko:hunter2@git.example.com/a.git")
	if _, err := config.Print(flags); err != nil || !strings.Contains(flags.Lookup("git").Value.String(), "hunter2") {
		t.Error("printing changed the setting")
	}
}
