package secret_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/secret"
)

func TestFilesOfSecretsAreReadOnlyBelowTheirFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inside := filepath.Join(dir, "secrets")
	if err := os.MkdirAll(filepath.Join(inside, "lagos"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"outside": "canary", "secrets/token": "hunter2\n", "secrets/lagos/key": " two\nlines \n", "secrets/empty": "\n", "secrets/large": strings.Repeat("canary", 200_000),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.Symlink(filepath.Join(dir, "outside"), filepath.Join(inside, "link")),
		os.Symlink("token", filepath.Join(inside, "near")),
		syscall.Mkfifo(filepath.Join(inside, "pipe"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	folder := secret.Folder{Kind: leash.KindGit, Path: inside, Owner: "meta-scheduler", Flag: "--git-secrets"}
	tests := map[string]struct {
		why, name, want, wantErr string
		invalid                  bool
	}{
		"a file":               {why: "it is there", name: "token", want: "hunter2\n"},
		"in a folder":          {why: "folders are for sites", name: "lagos/key", want: " two\nlines \n"},
		"a link in the folder": {why: "mounted Secrets have them", name: "near", want: "hunter2\n"},
		"an absolute path":     {why: "it is in the folder", name: filepath.Join(inside, "token"), want: "hunter2\n"},
		"climbing out":         {why: "the server has other files", name: "../outside", wantErr: "not in the meta-scheduler's folder of secrets", invalid: true},
		"absolutely out":       {why: "the same", name: filepath.Join(dir, "outside"), wantErr: "not in the meta-scheduler's folder of secrets", invalid: true},
		"linked out":           {why: "the same", name: "link", wantErr: `"link" can't be read`},
		"a missing file":       {why: "it may be created later", name: "later", wantErr: `"later" can't be read: no such file`},
		"a folder":             {why: "it has no content", name: "lagos", wantErr: "not a file"},
		"a pipe":               {why: "to open it would wait for ever", name: "pipe", wantErr: "not a file"},
		"an empty file":        {why: "a secret is never empty", name: "empty", wantErr: `"empty" is empty`},
		"a large file":         {why: "a part of a secret is another secret", name: "large", wantErr: "longer than"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := folder.Read(test.name, granted(t, folder, test.name))
			if string(got) != test.want || errors.Is(err, tko.ErrInvalid) != test.invalid || (err != nil) != (test.wantErr != "") {
				t.Errorf("%s: got %q, %v", test.why, got, err)
			}
			if err != nil && (!strings.Contains(err.Error(), test.wantErr) || strings.Contains(err.Error(), "canary")) {
				t.Errorf("%s: got the error %v, want %q", test.why, err, test.wantErr)
			}
		})
	}
	if path, err := folder.Locate("lagos/hosts"); err != nil || path != filepath.Join(inside, "lagos", "hosts") {
		t.Errorf("got %q, %v", path, err)
	}
	if path, err := folder.Locate("../outside"); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("got %q, %v, want a refusal", path, err)
	}
	none := secret.Folder{Owner: "server", Flag: "--awx-secrets"}
	if _, err := none.Read("token", leash.Grant{}); err == nil || errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "configure --awx-secrets") {
		t.Errorf("got %v, want the setting that is missing", err)
	}
	grant, err := leash.Operator().Grant("a", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := secret.ReadFile(filepath.Join(inside, "lagos/key"), "a", grant); err != nil || got != "two\nlines" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, name := range []string{"empty", "large", "later"} {
		if got, err := secret.ReadFile(filepath.Join(inside, name), "a", grant); err == nil || got != "" || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

// granted returns a grant for a file in a folder, if it is in it.
func granted(t *testing.T, f secret.Folder, name string) leash.Grant {
	t.Helper()
	credential, err := f.Credential(name)
	if err != nil {
		return leash.Grant{}
	}
	g, err := leash.Operator().Grant(credential, "")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestCredentialsAreReadOnlyWithTheirGrant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("canary"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := secret.Folder{Kind: leash.KindGit, Path: dir}
	of := func(credential string) leash.Grant {
		g, err := leash.Operator().Grant(credential, "")
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	for name, g := range map[string]leash.Grant{"no grant": {}, "of another": of("git:b"), "of another folder": of("osm:a")} {
		if got, err := f.Read("a", g); err == nil || len(got) > 0 {
			t.Errorf("%s: got %q, want a refusal", name, got)
		}
		if got, err := secret.ReadFile(filepath.Join(dir, "a"), "git:a", g); err == nil || got != "" {
			t.Errorf("%s: got %q, want a refusal", name, got)
		}
		sources := secret.Sources{Environment: []string{"PATH"}}
		if got, err := sources.Resolve(t.Context(), "env:PATH", g); err == nil || got != "" {
			t.Errorf("%s: got a variable, want a refusal", name)
		}
	}
	for _, spelling := range []string{"a", "./a", "b/../a", filepath.Join(dir, "a")} {
		if got, err := f.Read(spelling, of("git:a")); err != nil || string(got) != "canary" {
			t.Errorf("%s: got %q, %v", spelling, got, err)
		}
	}
}
