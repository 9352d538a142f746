package tkoserver

import (
	"crypto/x509"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var update = flag.Bool("update", false, "rewrite the generated pages")

// The pages in docs are generated: go test ./cmd/tko-server -run Generated -update.
func TestGeneratedSettingsAreUpToDate(t *testing.T) {
	t.Parallel()
	command, _ := Program{Name: "tko-server"}.settingsCommand()
	sample, err := config.Print(command.Flags())
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"settings.md": config.Reference(command.Flags()), "tko-server.yaml": sample} {
		path := filepath.Join("../../../docs", file)
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
	if targets, sources := strings.Index(text, "\nTargets: "), strings.Index(text, "\nGitOps sources: "); strings.Index(text, "--target-git-cache") < targets || strings.Index(text, "--target-git-cache") > sources {
		t.Error("--target-git-cache is not among the settings of targets")
	}
	if i := strings.Index(text, "\nOther"); i >= 0 {
		t.Errorf("settings without a group: %.300s", text[i:])
	}
}

func TestSettingsAreCheckedAndPrintedWithoutStarting(t *testing.T) {
	t.Setenv("TKO_ALLOW_ROOT", "true")
	store := filepath.Join(t.TempDir(), "none.db")
	cert, key, _ := certstest.New(t, "ca").Issue("localhost", func(c *x509.Certificate) {
		certstest.Localhost(c)
		c.NotBefore, c.NotAfter = time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	})
	_, otherKey, _ := certstest.New(t, "ca").Issue("other", nil)
	files := certstest.Write(t, t.TempDir(), certstest.File{Name: "cert", Data: cert}, certstest.File{Name: "key", Data: key}, certstest.File{Name: "other", Data: otherKey})
	text := certstest.Write(t, t.TempDir(), certstest.File{Name: "text", Data: []byte("text")})[0]
	database := pgtest.EmptyDSN(t)
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

		"an expired certificate":   {[]string{"--check", "--tls-cert=" + files[0], "--tls-key=" + files[1]}, 2, "it expired at 2020-"},
		"the key of another":       {[]string{"--check", "--kubernetes-cert=" + files[0], "--kubernetes-key=" + files[2]}, 2, "--kubernetes-cert"},
		"no certificate":           {[]string{"--check", "--tls-cert=" + text, "--tls-key=" + text}, 2, "PEM"},
		"no tokens":                {[]string{"--check", "--token-file=" + text}, 2, "token file"},
		"no key":                   {[]string{"--check", "--encryption-key=" + text}, 2, "key"},
		"a new store":              {[]string{"--check"}, 0, "the start makes or migrates its schema\n"},
		"no folder of the store":   {[]string{"--check", "--store=sqlite:" + filepath.Join(store, "a", "b.db")}, 2, "can't be created"},
		"no database":              {[]string{"--check", "--store=sqlite:" + text}, 1, "not a database"},
		"an unknown store":         {[]string{"--check", "--store=mysql://a"}, 2, "use sqlite:PATH"},
		"an absent database":       {[]string{"--check", "--store=postgres://tko:geheim@127.0.0.1:1/tko"}, 1, "127.0.0.1:1"},
		"no store for other roles": {[]string{"--check", "--roles=preparer", "--store=postgres://127.0.0.1:1/tko"}, 0, "the settings are valid\n"},
		"an empty database":        {[]string{"--check", "--store=" + database}, 0, "the start makes or migrates its schema\n"},
		"an empty database, again": {[]string{"--check", "--store=" + database}, 0, "the start makes or migrates its schema\n"},
		"an earlier name":          {[]string{"--check", "--git-cache=" + text}, 0, "warning: the setting git-cache has the new name target-git-cache"},
	}
	for name, test := range tests {
		var out eventually.Buffer
		code := run(t.Context(), append([]string{"--store=sqlite:" + store}, test.args...), &out, &out)
		if code != test.code || !strings.Contains(out.String(), test.want) || strings.Contains(out.String(), "geheim") {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", name, code, test.code, test.want, &out)
		}
	}
	if _, err := os.Stat(store); err == nil {
		t.Error("a check created the store")
	}
}
