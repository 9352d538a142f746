package gitops_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	corecatalog "github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/grpcapi/grpctest"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func defined(kind, spec string) tko.SourceDefinition {
	return tko.SourceDefinition{Kind: kind, Name: "x", Spec: []byte(spec)}
}

// The limits of sources in the server's settings are the operator's.
func TestSourcesOfTheSettingsHaveNoLimitOfTheirOwn(t *testing.T) {
	t.Parallel()
	settings := gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: "https://example.com/x.git"}, Reach: &gitops.ReachSettings{Created: 5}}
	if _, err := settings.Spec(""); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), `author: "gitops:fleet"`) {
		t.Errorf("got %v", err)
	}
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
		"a limit of its own":             {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git"}, "reach": {"created": 5000}}`, ""},
		"a limit that is none":           {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git"}, "reach": {"created": -1}}`, "above 0"},
		"an OSM":                         {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git"}, "osm": {"broken": "Recreate"}}`, "no such field"},
		"a field that there isn't":       {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git", "branch": "main"}}`, `unknown field "branch": tko explain GitOpsSource --recursive lists the fields`},
		"no map":                         {tko.SourceKindGit, `[]`, "spec is not a map"},
		"a catalog as a repository":      {tko.SourceKindGit, `{"git": {"url": "https://example.com/x.git"}, "catalog": {}}`, "no such field"},
		"an inventory":                   {tko.SourceKindInventory, `{"inventory": {"from": [{"url": "https://example.com/x.csv", "passwordFile": "p", "username": "u", "map": {"id": "record.id"}}]}}`, ""},
		"an inventory without itself":    {tko.SourceKindInventory, `{"interval": "1m"}`, "spec.inventory is missing"},
		"a file of sites":                {tko.SourceKindInventory, `{"inventory": {"from": [{"file": "/etc/passwd", "format": "csv", "map": {"id": "record.id"}}]}}`, "files on the machine of the server"},
		"a database in a file":           {tko.SourceKindInventory, `{"inventory": {"from": [{"sql": {"url": "sqlite:/srv/x.db", "query": "SELECT 1"}, "map": {"id": "record.id"}}]}}`, "files on the machine of the server"},
		"a user within a database":       {tko.SourceKindInventory, `{"inventory": {"from": [{"sql": {"url": "postgres://db.example.com/x", "query": "SELECT 1", "username": "u"}, "passwordFile": "p", "map": {"id": "record.id"}}]}}`, `unknown field "username" in inventory.from[0].sql: it belongs next to sql, not in it: write it as inventory.from[0].username`},
		"a database without a user":      {tko.SourceKindInventory, `{"inventory": {"from": [{"sql": {"url": "postgres://db.example.com/x", "query": "SELECT 1"}, "map": {"id": "record.id"}}]}}`, "next to sql and not in it"},
		"a user in the URL":              {tko.SourceKindInventory, `{"inventory": {"from": [{"sql": {"url": "postgres://u:p@db.example.com/x", "query": "SELECT 1"}, "map": {"id": "record.id"}}]}}`, "or password, next to sql"},
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
		for field := range typ.Fields() {
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

// registered starts controllers on one data controller, which have registered sources only.
func registered(t *testing.T, controllers int) []*world {
	t.Helper()
	c := grpctest.StartWith(t, client.Options{Author: tko.Author{Who: "test"}}, corecatalog.Options{CheckSource: gitops.CheckDefinition})
	local, err := guard.New(guard.Options{Addresses: []string{"127.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	var all []*world
	folder := t.TempDir() // before the controllers start, because it is removed after they stop
	for i := range controllers {
		all = append(all, start(t, c, gitops.Options{Worker: fmt.Sprint("w", i), Registered: func(d tko.SourceDefinition) (gitops.Spec, error) {
			cache, err := os.MkdirTemp(folder, "source-") //nolint:usetesting // TempDir removes its folder before the controllers stop
			if err != nil {
				return gitops.Spec{}, err
			}
			return gitops.DefinedSpec(d, cache, gitops.Confined{Access: remote.Access{Guard: local}})
		}}))
	}
	return all
}

func (w *world) register(definitions ...tko.SourceDefinition) {
	w.Helper()
	if _, err := w.RegisterSources(w.Context(), definitions, false); err != nil {
		w.Fatal(err)
	}
}

func (r *repo) definition(name string) tko.SourceDefinition {
	return tko.SourceDefinition{Kind: tko.SourceKindGit, Name: name, Spec: []byte(fmt.Sprintf(`{"git": {"url": %q}, "interval": "1h"}`, r.url))}
}

// gone waits until a source is neither registered nor known.
func (w *world) gone(name string) {
	w.Helper()
	eventually.NoError(w.TB, fmt.Sprintf("the end of source %q", name), func() error {
		found, err := w.SourceDefinitions(w.Context(), 0)
		if err == nil && len(found.All) > 0 {
			err = fmt.Errorf("there are the definitions %+v", found.All)
		}
		if err != nil {
			return err
		}
		_, err = w.Source(w.Context(), name)
		if err == nil {
			return errors.New("it is still there")
		}
		if errors.Is(err, tko.ErrNotFound) {
			return nil
		}
		return err
	})
}

// Sources that are registered, changed and deleted are applied by running controllers, one
// at a time, without a restart.
func TestRegisteredSourcesAreAppliedByRunningControllers(t *testing.T) {
	t.Parallel()
	w := registered(t, 2)[0]
	r, other := newRepo(t), newRepo(t)
	first := r.push(map[string]string{"a.yaml": all(template("t", "1"), site("s", "t"), deployment("d", "t", "s"))})
	second := other.push(map[string]string{"a.yaml": all(template("t", "1"), site("s", "t"), site("s2", "t"), deployment("d", "t", "s"))})
	w.register(r.definition("fleet"))
	s := w.until("fleet", "applied", func(s tko.Source) bool { return s.Status.Applied == first })
	if !s.Status.Registered || len(w.entities()) != 3 {
		t.Errorf("the source is %+v, with %v", s.Status, w.entities())
	}
	w.register(other.definition("fleet"))
	w.until("fleet", "changed", func(s tko.Source) bool { return s.Status.Applied == second && s.Status.URL == other.url })
	third := other.push(map[string]string{"b.yaml": site("s3", "t")})
	w.sync("fleet", third) // either controller may have its work
	if got := w.entities(); len(got) != 5 {
		t.Errorf("the entities are %v, want 5", got)
	}
	if err := w.DeleteSource(w.Context(), "fleet", false); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "owns 5 entities") {
		t.Errorf("deleting it without a number: %v", err)
	}
	if err := w.DeleteSource(w.Context(), "fleet", true); err != nil {
		t.Fatal(err)
	}
	w.gone("fleet")
	if got := w.entities(); len(got) != 5 {
		t.Errorf("the entities are %v: they were to be kept", got)
	}
	// It may be registered again, and adopts its entities.
	again := other.definition("fleet")
	again.Spec = []byte(strings.Replace(string(again.Spec), "{", `{"adopt": true, `, 1))
	w.register(again)
	w.until("fleet", "applied again", func(s tko.Source) bool { return s.Status.Applied == third && len(s.Status.Items) == 5 })
	if err := w.DeleteSource(tko.WithConfirmation(w.Context(), 5), "fleet", false); err != nil {
		t.Fatal(err)
	}
	w.gone("fleet")
	if got := w.entities(); len(got) != 0 {
		t.Errorf("the entities are %v: their deletion was confirmed", got)
	}
}

// The confirmed number is that of entities in the inventory. If descendants make the removal
// larger, it waits for an approval.
func TestConfirmedDeletionOfFewerEntitiesWaits(t *testing.T) {
	t.Parallel()
	w := registered(t, 1)[0]
	r := newRepo(t)
	first := r.push(map[string]string{"a.yaml": all(template("t", "1"), site("s", "t"), deployment("d", "t", "s"))})
	w.register(r.definition("fleet"))
	s := w.until("fleet", "applied", func(s tko.Source) bool { return s.Status.Applied == first })
	var parent tko.DeploymentID
	for _, item := range s.Status.Items {
		if item.Kind == "deployment" {
			parent = tko.DeploymentID(item.ID)
		}
	}
	if _, err := w.CreateDeployment(w.Context(), tko.NewDeployment{Parent: parent, Template: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := w.DeleteSource(tko.WithConfirmation(w.Context(), 3), "fleet", false); err != nil {
		t.Fatal(err)
	}
	s = w.until("fleet", "waiting", func(s tko.Source) bool { return s.Status.PendingRemoval != "" })
	if got := w.entities(); len(got) != 4 || ready(s).Reason != tko.SourceReasonApproval {
		t.Errorf("the entities are %v, and the condition is %+v", got, ready(s))
	}
	if err := w.controller.Approve(w.Context(), "fleet", s.Status.PendingRemoval); err != nil {
		t.Fatal(err)
	}
	w.gone("fleet")
	if got := w.entities(); len(got) != 0 {
		t.Errorf("the entities are %v", got)
	}
}

// Plugins run programs, and an OSM has the operator's credentials: a registered source can
// have neither, and changes nothing then.
func TestRegisteredSourcesHaveNoPluginsAndNoOSM(t *testing.T) {
	t.Parallel()
	w := registered(t, 1)[0]
	for name, files := range map[string]map[string]string{
		"plugins": {"a.yaml": all(plugin, template("t", "1"))},
		"osm":     {"osm_ops_config.yaml": "targetDir: .\nconnectionFile: /etc/osmops/x\n", "a.yaml": template("t", "1")},
	} {
		r := newRepo(t)
		r.push(files)
		w.register(r.definition(name))
		w.refused(name, tko.SourceReasonInvalid, "a registered source can't")
	}
	if got := w.entities(); len(got) != 0 {
		t.Errorf("the entities are %v", got)
	}
}

// A name has one source: that of a registered one isn't used for one in settings, whichever
// was first, and neither touches the other's entities.
func TestSourcesOfOneNameAreNotMixed(t *testing.T) {
	t.Parallel()
	w := registered(t, 1)[0]
	r, mine := newRepo(t), newRepo(t)
	first := r.push(map[string]string{"a.yaml": all(template("t", "1"), template("u", "1"))})
	mine.push(map[string]string{"a.yaml": template("v", "1")})
	w.register(r.definition("fleet"))
	w.until("fleet", "applied", func(s tko.Source) bool { return s.Status.Applied == first })
	settings := start(t, w.Client, gitops.Options{Worker: "settings", Sources: []gitops.Spec{spec(t, gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: mine.url}, Interval: "1s"})}})
	eventually.NoError(t, "the refusal", func() error {
		if text := settings.log.String(); !strings.Contains(text, "another source has the name") {
			return fmt.Errorf("the log is %q", text)
		}
		return nil
	})
	if s, err := w.Source(t.Context(), "fleet"); err != nil || s.Status.URL != r.url || len(w.entities()) != 2 {
		t.Errorf("the source is %+v, %v, with %v", s.Status, err, w.entities())
	}
	// The one in settings uses the name when the other is gone.
	if err := w.DeleteSource(t.Context(), "fleet", true); err != nil {
		t.Fatal(err)
	}
	w.until("fleet", "that of the settings", func(s tko.Source) bool {
		return s.Status.URL == mine.url && !s.Status.Registered && ready(s).Status == tko.ConditionTrue
	})
	if _, err := w.RegisterSources(t.Context(), []tko.SourceDefinition{r.definition("fleet")}, false); !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), "--take-over") {
		t.Errorf("registering a name that settings have: %v", err)
	}
}
