package catalog_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/record"
)

// repositoryAt is the package of a site whose repository gets a credential.
func repositoryAt(url, file string) string {
	return "apiVersion: git.plugin.nephio.org/v1alpha1\nkind: Repository\nmetadata: {name: r}\nspec: {url: '" + url + "', credentials: {tokenFile: '" + file + "'}}\n"
}

func declarations(t *testing.T, text string) *leash.Leash {
	t.Helper()
	file := filepath.Join(t.TempDir(), "credentials.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := leash.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// An editor can't have the server send a credential to a host of its choice, by whatever way
// it writes. What was in use before, what the operator declared, and what callers with the
// right write, works.
func TestEditorsCannotAimCredentials(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{
		Leash:       declarations(t, "credentials:\n- {name: 'git:declared', hosts: [git.example.com], sites: ['emea/**']}\n- {name: 'gitops:declared', hosts: [git.example.com], sources: [mine]}\n- {name: 'env:DECLARED', hosts: [git.example.com], rollouts: [r]}\n"),
		CheckSource: func(tko.SourceDefinition) error { return nil },
		SourceUses: func(d tko.SourceDefinition) []leash.Use {
			var spec map[string]string
			_ = json.Unmarshal(d.Spec, &spec)
			return []leash.Use{{Credential: leash.Name(leash.KindGitOps, spec["file"]), Host: leash.HostOf(spec["url"]), By: leash.By{Kind: tko.KindSource, ID: d.Name}}}
		},
	})
	const good, mine = "https://git.example.com/r", "https://mine.example.org/r"
	w.bind("cert:ada", access.Editor, access.Scope{SiteID: "emea/**"})
	w.bind("cert:ada", access.Editor, access.Scope{Kinds: []tko.Kind{tko.KindTemplate}})
	w.bind("cert:ada", access.DefineRole, access.Scope{})
	w.bind("cert:olga", access.Editor, access.Scope{})
	w.bind("cert:olga", access.CredentialRole, access.Scope{})
	w.bind("cert:scoped", access.Admin, access.Scope{SiteID: "emea/**"})
	ada := w.as("cert:ada")
	w.site("emea/used", repositoryAt(good, "canary"))
	w.template("lent", repositoryAt(good, "canary"))
	register := func(ctx context.Context, id, template, yaml string) error {
		_, err := w.RegisterSite(ctx, tko.Site{ID: tko.SiteID(id), Template: tko.TemplateID(template), Package: pkg(t, yaml)})
		return err
	}
	put := func(dryRun bool) error {
		_, _, err := w.PutRecord(ada, catalog.Put{Key: record.Key{Kind: tko.KindSite, ID: "emea/put"}, Package: pkg(t, repositoryAt(mine, "canary")), DryRun: dryRun})
		return err
	}
	source := func(name, file, url string) error {
		_, err := w.RegisterSources(ada, []tko.SourceDefinition{source(name, `{"url": "`+url+`", "file": "`+file+`"}`)}, false)
		return err
	}
	second := func(_ any, err error) error { return err }
	list := "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(repositoryAt(mine, "canary")), "\n", "\n  ") + "\n"
	rollout := func(id, url, reference string) error {
		_, err := w.RegisterRollout(ada, tko.Rollout{ID: tko.RolloutID(id), Package: pkg(t, `apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits: [{delete: {}, select: {templateIdPatterns: [x]}}]
  health: {metrics: [{name: a, prometheus: {url: '`+url+`', query: up, token: '`+reference+`'}, compare: {to: value, max: 1}}]}
`)})
		return err
	}
	w.bind("cert:ada", access.Editor, access.Scope{Kinds: []tko.Kind{tko.KindRollout}})
	tests := map[string]struct {
		why     string
		err     error
		refused bool
	}{
		"a metric of a rollout":      {"its host is the editor's", rollout("r", mine, "env:DECLARED"), true},
		"a metric, another rollout":  {"it is declared for others", rollout("other", good, "env:DECLARED"), true},
		"a declared metric":          {"", rollout("r", good, "env:DECLARED"), false},
		"a new site":                 {"the host is the editor's", register(ada, "emea/1", "", repositoryAt(mine, "canary")), true},
		"another spelling":           {"targets ignore the case of names", register(ada, "emea/1", "", strings.Replace(repositoryAt(mine, "canary"), "tokenFile", "tokenfile", 1)), true},
		"in a list":                  {"it is read, too", register(ada, "emea/1", "", list), true},
		"another host":               {"the credential was not sent there before", register(ada, "emea/used", "", repositoryAt(mine, "canary")), true},
		"without TLS":                {"anyone on the way would read it", register(ada, "emea/used", "", repositoryAt("http://git.example.com/r", "canary")), true},
		"another port":               {"another server may be there", register(ada, "emea/used", "", repositoryAt("https://git.example.com:8443/r", "canary")), true},
		"another credential":         {"it is for another server", register(ada, "emea/used", "", repositoryAt(good, "other")), true},
		"the same at another site":   {"it serves nothing new", register(ada, "emea/2", "", repositoryAt(good, "canary")), true},
		"a changed template":         {"sites would follow", second(w.RegisterTemplate(ada, tko.Template{ID: "t", Package: pkg(t, repositoryAt(mine, "canary"))})), true},
		"a template, overridden":     {"the template names another host", register(ada, "emea/3", "lent", repositoryAt(mine, "canary")), true},
		"a whole record":             {"as kubectl writes", put(false), true},
		"a preview":                  {"it decides as the write does", put(true), true},
		"a declared one elsewhere":   {"it is for another host", register(ada, "emea/4", "", repositoryAt(mine, "declared")), true},
		"an administrator of a part": {"credentials have no parts", register(w.as("cert:scoped"), "emea/5", "", repositoryAt(mine, "canary")), true},
		"a source":                   {"its host is the editor's", source("x", "canary", mine), true},
		"a declared source":          {"", source("mine", "declared", good), false},
		"in use before":              {"", register(ada, "emea/used", "", repositoryAt(good+"/another", "canary")), false},
		"of the template":            {"the template's author was permitted", register(ada, "emea/6", "lent", ""), false},
		"declared":                   {"", register(ada, "emea/7", "", repositoryAt(good, "declared")), false},
		"by the right":               {"", register(w.as("cert:olga"), "apac/1", "", repositoryAt(mine, "canary")), false},
	}
	for name, test := range tests {
		switch {
		case !test.refused:
			w.is(name, test.err, nil)
		default:
			w.is(name+": "+test.why, test.err, tko.ErrDenied)
			if test.err != nil && (!strings.Contains(test.err.Error(), "--credentials") || !strings.Contains(test.err.Error(), "role credential")) {
				t.Errorf("%s: %v: want the remedy", name, test.err)
			}
		}
	}
}
