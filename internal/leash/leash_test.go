package leash_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/leash"
)

func open(t *testing.T, text string) (*leash.Leash, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "credentials.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return leash.Open(file)
}

func TestHostsAreComparedAsServers(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://Git.Example.com/a/b": "https://git.example.com", "https://git.example.com:443": "https://git.example.com", "https://git.example.com.": "https://git.example.com",
		"http://git.example.com:443": "http://git.example.com:443", "git@git.example.com:a/b": "ssh://git.example.com", "ssh://git@git.example.com:22/a": "ssh://git.example.com",
		"osm.example.com:9999": "https://osm.example.com:9999", "https://[::FFFF:192.0.2.1]/": "https://192.0.2.1", "https://[2001:DB8::0:1]:9/": "https://[2001:db8::1]:9",
		"https://good.example.com@evil.example.org/": "https://evil.example.org", "https:///x": "", "file:///x": "", "": "", "https://a b/": "", "mailto:x": "",
	} {
		if got := leash.HostOf(address); got != want {
			t.Errorf("%q: got %q, want %q", address, got, want)
		}
	}
}

func TestDeclaredCredentialsServeOnlyWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	l, err := open(t, `
credentials:
- {name: 'git:lagos/*', hosts: [git.example.com, '*.lagos.example.com:8443', '192.0.2.7'], sites: ['lagos/**']}
- {name: 'env:AWX', hosts: [awx.example.com], plugins: ['schedule/*']}
- {name: 'gitops:fleet/token', hosts: [github.com], sources: [fleet]}
- {name: 'kubeconfig:edge/*.yaml', sites: ['edge/**']}
- {name: 'kubeconfig:one.yaml', hosts: ['cluster.example.com:6443'], sites: ['edge/**']}
`)
	if err != nil {
		t.Fatal(err)
	}
	site, source, plugin := l.Site, l.Source, l.Plugin
	tests := map[string]struct {
		user             leash.User
		credential, host string
		at               string // where the credential itself leads
		refused          bool
	}{
		"for the site":           {user: site("lagos/1"), credential: "git:lagos/token", host: "https://git.example.com/r"},
		"on another port":        {user: site("lagos/1"), credential: "git:lagos/token", host: "https://git.example.com:444/r"},
		"below a domain":         {user: site("lagos/1"), credential: "git:lagos/token", host: "https://a.lagos.example.com:8443/r"},
		"at an address":          {user: site("lagos/1"), credential: "git:lagos/token", host: "https://192.0.2.7/r"},
		"the domain itself":      {user: site("lagos/1"), credential: "git:lagos/token", host: "https://lagos.example.com:8443/r", refused: true},
		"another port of it":     {user: site("lagos/1"), credential: "git:lagos/token", host: "https://a.lagos.example.com/r", refused: true},
		"another host":           {user: site("lagos/1"), credential: "git:lagos/token", host: "https://evil.example.org/git.example.com", refused: true},
		"a longer name":          {user: site("lagos/1"), credential: "git:lagos/token", host: "https://git.example.com.evil.example.org/", refused: true},
		"no host":                {user: site("lagos/1"), credential: "git:lagos/token", host: "https:///", refused: true},
		"another site":           {user: site("abuja/1"), credential: "git:lagos/token", host: "https://git.example.com/r", refused: true},
		"a source of that name":  {user: source("lagos/1"), credential: "git:lagos/token", host: "https://git.example.com/r", refused: true},
		"without a declaration":  {user: site("lagos/1"), credential: "git:other", host: "https://anywhere.example.com/r"},
		"for a plugin":           {user: plugin(tko.Plugin{Type: "schedule", Name: "a"}), credential: "env:AWX", host: "awx.example.com"},
		"for another plugin":     {user: plugin(tko.Plugin{Type: "prepare", Name: "a"}), credential: "env:AWX", host: "awx.example.com", refused: true},
		"for a source":           {user: source("fleet"), credential: "gitops:fleet/token", host: "https://github.com/x"},
		"for another source":     {user: source("x"), credential: "gitops:fleet/token", host: "https://github.com/x", refused: true},
		"a kubeconfig":           {user: site("edge/1"), credential: "kubeconfig:edge/1.yaml", at: "https://192.0.2.1:6443"},
		"of another site":        {user: site("x"), credential: "kubeconfig:edge/1.yaml", refused: true},
		"a kubeconfig's host":    {user: site("edge/1"), credential: "kubeconfig:one.yaml", at: "https://cluster.example.com:6443"},
		"of another host":        {user: site("edge/1"), credential: "kubeconfig:one.yaml", at: "https://evil.example.org:6443", refused: true},
		"the server's settings":  {user: leash.Operator(), credential: "git:lagos/token", host: "https://anywhere.example.com"},
		"an unknown user":        {user: leash.User{}, credential: "git:other", host: "https://git.example.com", refused: true},
		"no declarations at all": {user: (*leash.Leash)(nil).Site("a"), credential: "git:other", host: "https://git.example.com"},
	}
	for name, test := range tests {
		grant, err := test.user.Grant(test.credential, test.host)
		if err == nil && test.at != "" {
			err = grant.At(test.at)
		}
		if (err != nil) != test.refused || err != nil && !errors.Is(err, tko.ErrDenied) {
			t.Errorf("%s: got %v, want refused %t", name, err, test.refused)
		}
		if err == nil && (grant.Check(test.credential) != nil || grant.Check("git:x") == nil) {
			t.Errorf("%s: the grant isn't for the credential, or for another", name)
		}
	}
	if (leash.Grant{}).Check("") == nil || (leash.Grant{}).At("https://a") == nil {
		t.Error("the zero grant permits something")
	}
}

func TestOnlyDeclaredCredentialsServeIfTheOperatorSaysSo(t *testing.T) {
	t.Parallel()
	l, err := open(t, "onlyDeclared: true\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Site("a").Grant("git:x", "https://git.example.com"); !errors.Is(err, tko.ErrDenied) || !strings.Contains(err.Error(), `{name: "git:x", hosts: ["git.example.com"], sites: ["a"]}`) {
		t.Errorf("got %v, want the declaration that is missing", err)
	}
	if _, err := leash.Operator().Grant("git:x", "https://git.example.com"); err != nil {
		t.Errorf("got %v, want the settings' credentials", err)
	}
}

func TestMalformedDeclarationsAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no kind":         "credentials: [{name: token, hosts: [a], sites: [b]}]",
		"an unknown kind": "credentials: [{name: 'x:token', hosts: [a], sites: [b]}]",
		"no host":         "credentials: [{name: 'git:token', sites: [b]}]",
		"all hosts":       "credentials: [{name: 'git:token', hosts: ['*'], sites: [b]}]",
		"a URL":           "credentials: [{name: 'git:token', hosts: ['https://a/b'], sites: [b]}]",
		"for nothing":     "credentials: [{name: 'git:token', hosts: [a]}]",
		"a misspelt name": "credentials: [{name: 'git:token', host: [a], sites: [b]}]",
		"no YAML":         "{",
	} {
		if _, err := open(t, text); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	if _, err := leash.Open(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("got %v, want a refusal: the operator named a file", err)
	}
}
