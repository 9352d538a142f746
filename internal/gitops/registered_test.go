package gitops_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
)

func defined(kind, spec string) tko.SourceDefinition {
	return tko.SourceDefinition{Kind: kind, Name: "x", Spec: []byte(spec)}
}

// A caller who registers a source must not read the server's files, use its credentials, or
// run its programs.
func TestRegisteredSourcesAreConfined(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kind, spec string
		refused    string // a part of the error; "": allowed
	}{
		"a repository":                   {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git", "tokenFile": "git/token"}, "interval": "30s", "prune": false}`, ""},
		"a repository over ssh":          {tko.SourceKindGit, `{"git": {"url": "ssh://git@example.com/x.git", "sshKeyFile": "key", "knownHostsFile": "hosts"}}`, ""},
		"a repository as scp has it":     {tko.SourceKindGit, `{"git": {"url": "git@example.com:x.git", "sshKeyFile": "key", "knownHostsFile": "hosts"}}`, ""},
		"a local repository":             {tko.SourceKindGit, `{"git": {"url": "file:///srv/git/x"}}`, "use a URL of https, http or ssh"},
		"a local path":                   {tko.SourceKindGit, `{"git": {"url": "/srv/git/x"}}`, "on the machine of the server"},
		"another transport":              {tko.SourceKindGit, `{"git": {"url": "ext::sh -c id"}}`, "on the machine of the server"},
		"the server's own SSH key":       {tko.SourceKindGit, `{"git": {"url": "git@example.com:x.git"}}`, "with sshKeyFile"},
		"a token without TLS":            {tko.SourceKindGit, `{"git": {"url": "http://example.com/x.git", "tokenFile": "token"}}`, "over TLS only"},
		"an absolute file":               {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git", "tokenFile": "/etc/shadow"}}`, "without a leading / or .."},
		"a file outside of the folder":   {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git", "tokenFile": "a/../../token"}}`, "without a leading / or .."},
		"a file in another case":         {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git", "TOKENFILE": "/etc/shadow"}}`, "without a leading / or .."},
		"a CA file":                      {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git", "caFile": "ca.pem"}}`, "CA certificates of the system"},
		"very large revisions":           {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git", "maxBytes": 99999999999}}`, "higher limits"},
		"an OSM":                         {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git"}, "osm": {"broken": "Recreate"}}`, "no such field"},
		"a field that there isn't":       {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git", "branch": "main"}}`, `unknown field "branch"`},
		"no map":                         {tko.SourceKindGit, `[]`, "spec is not a map"},
		"a catalog as a repository":      {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git"}, "catalog": {}}`, "no such field"},
		"an inventory":                   {tko.SourceKindInventory, `{"inventory": {"from": [{"url": "https://example.com/x.csv", "passwordFile": "p", "username": "u", "map": {"id": "record.id"}}]}}`, ""},
		"an inventory without itself":    {tko.SourceKindInventory, `{"interval": "1m"}`, "spec.inventory is missing"},
		"a file of sites":                {tko.SourceKindInventory, `{"inventory": {"from": [{"file": "/etc/passwd", "format": "csv", "map": {"id": "record.id"}}]}}`, "files on the machine of the server"},
		"a database in a file":           {tko.SourceKindInventory, `{"inventory": {"from": [{"sql": {"url": "sqlite:/srv/x.db", "query": "SELECT 1"}, "map": {"id": "record.id"}}]}}`, "files on the machine of the server"},
		"a variable of the environment":  {tko.SourceKindInventory, `{"inventory": {"from": [{"url": "https://example.com/x.csv", "token": "env:HOME", "map": {"id": "record.id"}}]}}`, "use tokenFile"},
		"a secret of Vault":              {tko.SourceKindInventory, `{"inventory": {"from": [{"url": "https://example.com/x.csv", "username": "u", "password": "vault:a#b", "map": {"id": "record.id"}}]}}`, "use passwordFile"},
		"a secret itself":                {tko.SourceKindInventory, `{"inventory": {"from": [{"url": "https://example.com/x.csv", "token": "s3cret", "map": {"id": "record.id"}}]}}`, "use tokenFile"},
		"an expression that is wrong":    {tko.SourceKindInventory, `{"inventory": {"from": [{"url": "https://example.com/x.csv", "map": {"id": "record."}}]}}`, "map.id"},
		"a catalog":                      {tko.SourceKindCatalog, `{"git": {"url": "https://example.com/x.git"}, "catalog": {"pgpKeyFile": "keys.asc"}}`, ""},
		"a catalog with a key elsewhere": {tko.SourceKindCatalog, `{"catalog": {"cosignKeyFile": "/etc/key", "oci": {"url": "oci://example.com/x"}}}`, "without a leading / or .."},
		"a registry with a CA elsewhere": {tko.SourceKindCatalog, `{"catalog": {"oci": {"url": "oci://example.com/x", "caFile": "../ca"}}}`, "without a leading / or .."},
		"a kind that there isn't":        {"Fleet", `{}`, "git.url is missing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := gitops.CheckDefinition(defined(test.kind, test.spec))
			if test.refused == "" && err != nil || test.refused != "" && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.refused)) {
				t.Errorf("the error is %v, want %q", err, test.refused)
			}
		})
	}
}

// Each setting that names a file of the server, or a secret, is confined: also those that
// are added later.
func TestAllSettingsThatNameFilesAreConfined(t *testing.T) {
	t.Parallel()
	found := 0
	var visit func(typ reflect.Type, wrap func(inner string) string)
	visit = func(typ reflect.Type, wrap func(string) string) {
		for i := range typ.NumField() {
			field := typ.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !field.IsExported() || name == "-" {
				continue
			}
			of, inner := field.Type, func(text string) string { return wrap(`"` + name + `": ` + text) }
			if field.Anonymous {
				inner = wrap
				visit(of, inner)
				continue
			}
			if of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct {
				of, inner = of.Elem(), func(text string) string { return wrap(`"` + name + `": [{` + text + `}]`) }
				visit(of, inner)
				continue
			}
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			lower := strings.ToLower(name)
			switch {
			case of.Kind() == reflect.Struct:
				visit(of, func(text string) string { return inner("{" + text + "}") })
			case of.Kind() == reflect.String && (strings.Contains(lower, "file") || strings.Contains(lower, "key") || strings.Contains(lower, "token") || strings.Contains(lower, "password") || strings.Contains(lower, "dir")):
				found++
				spec := "{" + inner(`"/etc/shadow"`) + "}"
				refused := false
				for _, kind := range tko.SourceKinds {
					err := gitops.CheckDefinition(defined(kind, spec))
					refused = refused || err != nil && (strings.Contains(err.Error(), "--gitops-secrets") || strings.Contains(err.Error(), "files on the machine"))
				}
				if !refused {
					t.Errorf("%s isn't refused", spec)
				}
			}
		}
	}
	visit(reflect.TypeFor[gitops.Settings](), func(text string) string { return text })
	if found < 20 {
		t.Errorf("only %d settings were found", found)
	}
}

// Names of files are those below the folder of the role. Without it, and with a host that is
// not allowed, the source is invalid.
func TestRegisteredSourcesUseOnlyTheFolderAndTheHosts(t *testing.T) {
	t.Parallel()
	limits, err := guard.New(guard.Options{Hosts: []string{"example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	d := defined(tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git", "tokenFile": "token"}}`)
	if _, err := gitops.DefinedSpec(d, t.TempDir(), gitops.Confined{Secrets: t.TempDir(), Access: remote.Access{Guard: limits}}); err != nil {
		t.Error(err)
	}
	if _, err := gitops.DefinedSpec(d, t.TempDir(), gitops.Confined{Access: remote.Access{Guard: limits}}); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "set --gitops-secrets") {
		t.Errorf("without a folder: %v", err)
	}
	d = defined(tko.SourceKindGit, `{"git": {"url": "https://example.org/x.git"}}`)
	if _, err := gitops.DefinedSpec(d, t.TempDir(), gitops.Confined{Access: remote.Access{Guard: limits}}); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "example.org") {
		t.Errorf("with another host: %v", err)
	}
}
