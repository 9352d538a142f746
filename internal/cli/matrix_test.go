package cli

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/catalog"
	manifests "github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/notify"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/planner"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
)

// Each command is called by each role within a/**, about what is of b/**: nothing changes, and
// nothing of it is printed. A command that isn't here fails TestEachCommandStaysInTheScopeOfItsCaller.

// localCommands use no server, or only what the caller has on this machine.
var localCommands = strings.Fields(`context.delete context.list context.set context.use completion.bash completion.fish completion.zsh completion.powershell kube.from kube.to login logout
	plugin.new version documentation inventory.test explain bundle.key`)

// elsewhereCommands are those that a test of its own calls as each role, or that can't run here.
var elsewhereCommands = map[string]string{
	"dashboard":          "a terminal; it uses the lists and actions of gRPC: TestEveryMethodAsEveryRole",
	"access.break-glass": "only over the Unix socket: TestBreakGlassIsForLocalUsersOfTheServer",
	"gitops.plan":        "it reads with lists of gRPC: TestEveryMethodAsEveryRole",
	"bundle.create":      "it calls what only meta-schedulers may: TestEveryMethodAsEveryRole", "bundle.report": "as bundle.create",
	"catalog.plan": "as gitops.plan", "inventory.plan": "as gitops.plan",
	"gitops.approve": "callSources: TestEveryMethodAsEveryRole", "inventory.approve": "as gitops.approve",
	"inventory.sync": "as gitops.sync", "catalog.sync": "as gitops.sync",
	"subscription.test":     "it sends to another host: TestEveryMethodAsEveryRole",
	"deployment.mod.cancel": "a token of the caller", "deployment.mod.end": "a token of the caller",
}

// A commandRow is how a command is called about what is of b.
type commandRow struct {
	args [][]string
	root int // exit code of the first call by an administrator of everything, or waits
}

// waits is in place of an exit code where a command waits for a controller, or for an editor.
const waits = -1

func row(root int, lines ...string) commandRow {
	r := commandRow{root: root}
	for _, line := range lines {
		r.args = append(r.args, strings.Fields(line))
	}
	return r
}

// commandRows are the commands by their path. ID stands for the deployment of b, DIR for a folder
// with manifests of b, BINDING and FREEZE, STOP for what an administrator made of b.
func commandRows() map[string]commandRow {
	return map[string]commandRow{
		"about": row(0, "about"), "whoami": row(0, "whoami"), "status": row(0, "status -o json", "status --site-metadata tenant=b -o json"),
		"access.bind":   row(0, "access bind cert:eve viewer --site-id b/**", "access bind cert:eve admin"),
		"access.can-i":  row(0, "access can-i update site b/1"),
		"access.list":   row(0, "access list -o json"),
		"access.own":    row(0, "access own deployment ID cert:eve", "access own deployment ID"),
		"access.unbind": row(0, "access unbind BINDING --confirm 9"), "access.policy.add": row(0, "access policy add --site-id b/** --approvers 1"), "access.policy.list": row(0, "access policy list -o json"),
		"apply":          row(0, "apply -f DIR/sites --confirm 1"),
		"audit.evidence": row(0, "audit evidence b/1"), "audit.list": row(0, "audit list -o json"), "audit.verify": row(0, "audit verify"),
		"backup":            row(0, "backup DIR/backup"),
		"blame":             row(0, "blame ID -o json", "blame site b/1 -o json", "blame template b/t -o json"),
		"catalog.list":      row(0, "catalog list -o json"),
		"credential.list":   row(0, "credential list -o json"),
		"deployment.create": row(0, "deployment create b/t --site b/1", "deployment create b/t", "deployment create --site b/1", "deployment create a/t --parent ID"),
		"deployment.delete": row(0, "deployment delete ID --confirm 9"), "deployment.purge": row(0, "deployment purge --site-id b/** --confirm 9", "deployment purge --template-id b/** --confirm 9"),
		"deployment.approve": row(0, "deployment approve ID --confirm 9", "deployment approve --site-id b/** --confirm 9"),
		"deployment.edit":    row(waits, "deployment edit ID"), "deployment.explain": row(0, "deployment explain ID -o json", "deployment explain ID --field data.of"),
		"deployment.get": row(0, "deployment get ID -o json", "deployment get ID --revision 1 -o yaml"), "deployment.list": row(0, "deployment list -o json", "deployment list --site-id b/** -o yaml"),
		"deployment.mod.start": row(0, "deployment mod start ID", "deployment mod start ID --url DIR/work"), "deployment.mod.break": row(3, "deployment mod break ID"), "deployment.mod.list": row(0, "deployment mod list -o json"),
		"deployment.suspend": row(0, "deployment suspend ID --reason x"), "deployment.resume": row(0, "deployment resume ID"), "deployment.upgrade": row(waits, "deployment upgrade ID --to b/t2"),
		"diff":   row(7, "diff -f DIR/sites", "diff deployment --from 1h -o json", "diff site --from 1h -o json"),
		"events": row(0, "events -o json --last 100", "events --kind site --id b/1 -o json"),
		"export": row(0, "export DIR/exported.tar"),
		"freeze": row(0, "freeze --site-metadata tenant=b --until 8h --reason x --confirm 1"), "freeze.list": row(0, "freeze list -o json"), "unfreeze": row(0, "unfreeze FREEZE"),
		"gitops.source.delete": row(0, "gitops source delete of-b --keep"), "gitops.source.get": row(0, "gitops source get of-b"), "gitops.source.list": row(0, "gitops source list -o json"),
		"gitops.source.register": row(0, "gitops source register -f DIR/source"), "gitops.status": row(0, "gitops status -o json", "gitops status of-b -o json"), "gitops.sync": row(3, "gitops sync of-b"),
		"inventory.status": row(0, "inventory status -o json"),
		"history":          row(0, "history deployment ID -o json", "history site b/1 -o json", "history template b/t -o json", "history deployment --site-id b/** -o json"),
		"queue.list":       row(0, "queue list -o json"), "queue.failing": row(0, "queue failing -o json"),
		"hold.list": row(0, "hold list -o json"), "hold.release": row(0, "hold release --queues", "hold release b/** --remove"),
		"import":       row(0, "import DIR/sites --confirm 1"),
		"label":        row(0, "label site b/1 new=x", "label deployment ID new=x"),
		"log.level":    row(2, "log level store=debug", "log level"),
		"set":          row(0, "set site b/1 description=x"),
		"patch":        row(0, "patch site b/1 --patch-file DIR/patch", "patch deployment ID --patch-file DIR/patch"),
		"plugin.get":   row(0, "plugin get validate of-b -o json"),
		"plugin.list":  row(0, "plugin list -o json"),
		"plugin.purge": row(0, "plugin purge -n of-b --confirm 1"), "plugin.delete": row(0, "plugin delete validate of-b"), "plugin.register": row(0, "plugin register validate new /bin/true -g x,v1,Y"),
		"restore":   row(0, "restore site b/1 --as-of r1 --confirm 1", "restore deployment ID --as-of r1", "restore --site-id b/** --as-of r1"),
		"retention": row(0, "retention"),
		"stop":      row(0, "stop --all --reason x", "stop --site b/** --reason x", "stop --topology ID --reason x"), "stop.list": row(0, "stop list -o json"), "resume": row(0, "resume STOP --confirm 1"),
		"rollout.create": row(waits, "rollout create new --upgrade b/t=b/t2 --site-id b/** --wave rest"), "rollout.get": row(0, "rollout get of-b"), "rollout.list": row(0, "rollout list -o json"),
		"rollout.plan": row(waits, "rollout plan of-b", "rollout plan of-b -o diff"), "rollout.status": row(0, "rollout status of-b -o json"), "rollout.start": row(4, "rollout start of-b --plan 4f5c1d2e3b4a"),
		"rollout.approve": row(4, "rollout approve of-b"), "rollout.cancel": row(0, "rollout cancel of-b"), "rollout.delete": row(0, "rollout delete of-b"), "rollout.pause": row(4, "rollout pause of-b"),
		"rollout.resume": row(4, "rollout resume of-b"), "rollout.skip": row(0, "rollout skip of-b"), "rollout.undo": row(4, "rollout undo of-b"), "rollout.waive": row(0, "rollout waive of-b"), "rollout.evidence": row(0, "rollout evidence of-b -o json"),
		"site.delete": row(0, "site delete b/1 --confirm 9"), "site.diff": row(waits, "site diff b/1"), "site.explain": row(0, "site explain b/1", "site explain b/1 --topology b/t"), "site.get": row(0, "site get b/1 -o json"),
		"site.edit": row(waits, "site edit b/1"), "site.list": row(0, "site list -o json", "site list --id b/** -o yaml"), "site.purge": row(0, "site purge --id b/1* --confirm 9"), "site.register": row(0, "site register b/new", "site register b/1 -m new=x"),
		"subscription.delete": row(0, "subscription delete of-b"), "subscription.get": row(0, "subscription get of-b"), "subscription.list": row(0, "subscription list -o json"), "subscription.register": row(0, "subscription register -f DIR/subscription"),
		"site.enroll": row(0, "site enroll b/1"), "site.revoke": row(3, "site revoke b/1"), "site.approve": row(3, "site approve b/1"), "site.waiting": row(0, "site waiting"),
		"site.suspend": row(0, "site suspend b/1 --reason x"), "site.resume": row(0, "site resume b/1"),
		"template.delete": row(0, "template delete b/t --confirm 9"), "template.get": row(0, "template get b/t -o yaml"), "template.impact": row(0, "template impact b/t"), "template.list": row(0, "template list -o json", "template list --id b/** -o yaml"),
		"template.edit": row(waits, "template edit b/t"), "template.purge": row(0, "template purge --id b/** --confirm 9"), "template.register": row(0, "template register b/new --url DIR/work", "template register b/t --url DIR/work"),
		"view.delete": row(0, "view delete of-b"), "view.get": row(0, "view get of-b"), "view.list": row(0, "view list -o json"), "view.register": row(0, "view register -f DIR/view"), "view.save": row(0, "view save of-b /matrix"),
		"wait": row(0, "wait deployment ID --for condition=Prepared --wait-timeout 1s"),
	}
}

// A commandWorld is a server with two tenants, and clients of it by role.
type commandWorld struct {
	t       *testing.T
	service *catalog.Service
	store   record.Store
	root    context.Context
	dial    func(token string) *client.Client
	words   *strings.Replacer
	dir     string
}

// tokenIsSubject identifies callers by their token.
type tokenIsSubject struct{}

func (tokenIsSubject) Identify(_ context.Context, _ authn.Connection, token string) (identity.Identity, error) {
	return identity.Identity{Subject: token, Authenticator: "token", From: "192.0.2.7:1"}, nil
}

func newCommandWorld(t *testing.T) *commandWorld {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store, err := sqlite.OpenMemory(t.Context())
	check(err)
	validator, err := validate.New(validate.Options{})
	check(err)
	w := &commandWorld{t: t, store: store, dir: t.TempDir()}
	w.service = catalog.New(store, validator, catalog.Options{Access: rights.Enforce, CompareWait: 50 * time.Millisecond, CheckSource: func(tko.SourceDefinition) error { return nil }, Notify: notify.New(notify.Access{}, "", slog.New(slog.DiscardHandler))})
	w.service.PlanWith(planner.New(planner.OnCatalog(w.service), planner.Options{}))
	_, err = rights.InitAccess(t.Context(), store, "cert:root", "test", time.Time{})
	check(err)
	w.root = tko.WithAuthor(identity.With(t.Context(), identity.Identity{Subject: "cert:root", Authenticator: "token"}), tko.Author{Who: "cert:root"})
	server := grpcapi.NewServer(w.service, grpcapi.Options{Callers: tokenIsSubject{}})
	listener := bufconn.Listen(1 << 20)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	var clients []*client.Client
	w.dial = func(token string) *client.Client {
		c, err := client.Dial(client.Options{
			WaitForReady: true, Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
			Token: func(context.Context) (string, error) { return token, nil },
		})
		check(err)
		clients = append(clients, c)
		return c
	}
	t.Cleanup(func() {
		for _, c := range clients {
			_ = c.Close()
		}
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = store.Close()
	})
	for _, role := range commandRoles {
		for _, scope := range []access.Scope{{SiteID: "a/**"}, {TemplateID: "a/**", Kinds: []tko.Kind{tko.KindTemplate}}} {
			_, err := w.service.Bind(w.root, access.Binding{Subject: "cert:" + string(role), Role: role, Scope: scope})
			check(err)
		}
	}
	var id tko.DeploymentID
	marked := func(tenant string) krm.Package {
		return krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"of": "marked-" + tenant}}}
	}
	for _, tenant := range []string{"a", "b"} {
		root := tko.WithAuthor(w.root, tko.Author{Who: "cert:root", Why: "of marked-" + tenant})
		for _, template := range []string{"/t", "/t2"} {
			_, err = w.service.RegisterTemplate(root, tko.Template{ID: tko.TemplateID(tenant + template), Package: marked(tenant)})
			check(err)
		}
		_, err = w.service.RegisterSite(root, tko.Site{ID: tko.SiteID(tenant + "/1"), Package: marked(tenant), Metadata: map[string]string{"of": "marked-" + tenant, "tenant": tenant}})
		check(err)
		id, err = w.service.CreateDeployment(root, tko.NewDeployment{Template: tko.TemplateID(tenant + "/t"), Site: tko.SiteID(tenant + "/1"), Prepared: true})
		check(err)
	}
	_, err = w.service.RegisterPlugin(w.root, tko.Plugin{Type: tko.PluginValidate, Name: "of-b", Arguments: []string{"true"}, Triggers: []krm.GVK{{Version: "v1", Kind: "Nothing"}}})
	check(err)
	_, err = w.service.RegisterSources(w.root, []tko.SourceDefinition{{Kind: tko.SourceKinds[0], Name: "of-b", Spec: []byte(`{"git":{"url":"https://example.com/marked-b.git"}}`)}}, false)
	check(err)
	_, err = w.service.RegisterSubscriptions(w.root, []tko.Subscription{{Name: "of-b", Spec: []byte(`{"about":[{"of":"changes"}],"to":{"slack":{"url":"https://example.com/marked-b"}}}`)}}, false)
	check(err)
	_, err = w.service.RegisterViews(w.root, []tko.View{{Name: "of-b", Path: "/sites", Description: "all may see it"}}, false)
	check(err)
	pkg, err := krm.Decode(krm.YAML, []byte("apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: of-b}\nspec: {edits: [{upgrade: {to: b/t2}, select: {siteIdPatterns: [b/**]}}]}\n"), krm.Limits{})
	check(err)
	_, err = w.service.RegisterRollout(w.root, tko.Rollout{ID: "of-b", Package: pkg})
	check(err)
	binding, err := w.service.Bind(w.root, access.Binding{Subject: "cert:eve", Role: access.Viewer, Scope: access.Scope{SiteID: "c/**"}})
	check(err)
	freeze, err := w.service.Freeze(w.root, tko.Freeze{SiteMetadata: map[string]string{"tenant": "b"}, Until: time.Now().Add(time.Hour), Reason: "all may see it"})
	check(err)
	_, err = w.service.RegisterSite(w.root, tko.Site{ID: "b/stopped"})
	check(err)
	stop, err := w.service.Stop(w.root, tko.Stop{Sites: []string{"b/stopped"}, Reason: "all may see it"})
	check(err)
	w.words = strings.NewReplacer("ID", string(id), "DIR", w.dir, "BINDING", binding.ID, "FREEZE", freeze.ID, "STOP", stop.Stop.ID)
	for name, text := range map[string]string{
		"sites/site.yaml":       "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {labels: {new: x}}\nspec: {siteId: b/1}\n",
		"work/c.yaml":           "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
		"patch":                 "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {new: x}}",
		"view/all.yaml":         "apiVersion: tko.nephio.org/v1alpha1\nkind: View\nmetadata: {name: of-b}\nspec: {path: /matrix}\n",
		"subscription/all.yaml": "apiVersion: tko.nephio.org/v1alpha1\nkind: Subscription\nmetadata: {name: of-b}\nspec: {about: [{of: changes}], to: {slack: {url: 'https://example.com/new'}}}\n",
		"source/git.yaml":       "apiVersion: tko.nephio.org/v1alpha1\nkind: GitOpsSource\nmetadata: {name: of-b}\nspec: {git: {url: 'https://example.com/x.git'}}\n",
	} {
		path := filepath.Join(w.dir, name)
		check(os.MkdirAll(filepath.Dir(path), 0o755))
		check(os.WriteFile(path, []byte(text), 0o600))
	}
	return w
}

var commandRoles = []access.Role{access.Viewer, access.Editor, access.Approver, access.Operator, access.Admin}

// manifestReader is the part of a planner that reads manifests.
type manifestReader struct{ Planner }

func (manifestReader) ReadManifests(tree fs.FS, _ bool) (all []Manifest, err error) {
	found, declared, err := manifests.ReadAll(tree, ".")
	for _, m := range found {
		all = append(all, Manifest{File: m.File, Name: m.Name, Put: m.Put})
	}
	for _, d := range declared {
		all = append(all, Manifest{File: d.File, Name: d.Name, Put: tko.Put{Kind: KindSource}, Source: &d.SourceDefinition})
	}
	return all, err
}

// state returns the position of the change log, and the version of the rules.
func (w *commandWorld) state() [2]int64 {
	w.t.Helper()
	position, err := w.service.Position(w.root)
	if err != nil {
		w.t.Fatal(err)
	}
	rules, err := w.store.AccessVersion(w.root)
	if err != nil {
		w.t.Fatal(err)
	}
	return [2]int64{position, rules}
}

// run runs a command as the caller of a client.
func (w *commandWorld) run(c *client.Client, within time.Duration, args []string) result {
	var out, errs bytes.Buffer
	a := newApp(Streams{In: strings.NewReader("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: new}\n"), Out: &out, Err: &errs}, func(target) (server, error) { return c, nil })
	a.planner = manifestReader{}
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = w.words.Replace(arg)
	}
	ctx, stop := context.WithTimeout(w.t.Context(), within)
	defer stop()
	code := a.main(ctx, words)
	return result{out.String(), errs.String(), code}
}

func TestEachCommandStaysInTheScopeOfItsCaller(t *testing.T) {
	t.Parallel()
	rows, known := commandRows(), map[string]bool{}
	for _, path := range leaves(newApp(Streams{In: strings.NewReader(""), Out: &strings.Builder{}, Err: &strings.Builder{}}, nil).rootCommand()) {
		_, path, _ := strings.Cut(path, " ")
		path = strings.ReplaceAll(path, " ", ".")
		known[path] = true
		if _, ok := rows[path]; !ok && elsewhereCommands[path] == "" && !slices.Contains(localCommands, path) && !strings.HasPrefix(path, "help") {
			t.Errorf("the command %s isn't in this test: add how it is called about what is of b", path)
		}
	}
	for path, row := range rows {
		if !known[path] && !slices.Contains([]string{"freeze", "stop"}, path) { // which have commands below them
			t.Errorf("there is no command %s: remove it from this test", path)
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := newCommandWorld(t)
			for _, who := range append([]access.Role{"eve"}, commandRoles...) {
				c := w.dial("cert:" + string(who))
				for _, args := range row.args {
					before := w.state()
					got := w.run(c, time.Minute, args)
					what := strings.Join(args, " ")
					if after := w.state(); after != before {
						t.Errorf("%s as %s (exit code %d): it has changed something: %s", what, who, got.code, got.err)
					}
					if strings.Contains(got.out+got.err, "marked-b") {
						t.Errorf("%s as %s: it prints what is of b: %.400s%.400s", what, who, got.out, got.err)
					}
				}
			}
			within := time.Minute
			if row.root == waits {
				within = time.Second
			}
			if got := w.run(w.dial("cert:root"), within, row.args[0]); got.code != row.root && row.root != waits {
				t.Errorf("%s as an administrator: exit code %d, want %d, so this row shows nothing: %.400s", strings.Join(row.args[0], " "), got.code, row.root, got.err)
			}
		})
	}
}
