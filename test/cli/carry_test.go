package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/process"
)

// notWritten are the fields of entities that users don't write, with the reason. The list may
// only become shorter: what is not in it must be the same on every server, by every way.
var notWritten = map[string]string{
	"Template.Deployments":       "made by deployments",
	"Template.DeploymentCount":   "made by deployments",
	"Template.Stamp":             "TKO writes it",
	"Site.Deployments":           "made by deployments",
	"Site.DeploymentCount":       "made by deployments",
	"Site.AwaitedTemplate":       "written as Template, by those who may name what comes later",
	"Site.Stamp":                 "TKO writes it",
	"Deployment.ID":              "TKO makes it; the test compares deployments by their labels",
	"Deployment.AwaitedTemplate": "written as Template, by those who may name what comes later",
	"Deployment.AwaitedSite":     "written as Site, by those who may name what comes later",
	"Deployment.Prepared":        "elsewhere it is prepared again",
	"Deployment.Approved":        "elsewhere it is approved again",
	"Deployment.Origin":          "TKO makes it",
	"Deployment.Replaces":        "preparers write it",
	"Deployment.Replaced":        "the store records it",
	"Deployment.Stamp":           "TKO writes it",
	"Plugin.Stamp":               "TKO writes it",
	"Rollout.State":              "elsewhere it is planned again",
	"Rollout.Reason":             "elsewhere it is planned again",
	"Rollout.Stamp":              "TKO writes it",
}

const mostNotWritten = 20

// values are those of fields that refer to other entities or must have a form. Other fields
// are filled by their types, so that a new field is covered unasked.
var values = map[string]any{
	"Template.ID": tko.TemplateID("nf/one:v1"), "Site.ID": tko.SiteID("lagos/1"), "Site.Template": tko.TemplateID("nf/one:v1"),
	"Deployment.Template": tko.TemplateID("nf/one:v1"), "Deployment.Site": tko.SiteID("lagos/1"), "Deployment.Parent": tko.DeploymentID(""), "Deployment.TemplateRevision": int64(0),
	"Plugin.Type": "validate", "Plugin.Executor": "command", "Plugin.Arguments": []string{"true"}, "Rollout.ID": tko.RolloutID("back"),
	"Rollout.Package": krm.Package{{
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": "back"},
		"spec": map[string]any{"restore": map[string]any{"asOf": "2026-01-01T00:00:00Z", "select": map[string]any{"siteIdPatterns": []any{"lagos/*"}}}},
	}},
}

// compared are the fields whose values the test compares in their own way.
var compared = map[string]string{
	"Deployment.Parent": "by the parent's labels", "Deployment.TemplateRevision": "by the content of the revision",
}

func configMap(name string, data ...string) krm.Resource {
	r := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}
	for i := 0; i < len(data); i += 2 {
		r.Set(data[i+1], "data", data[i])
	}
	return r
}

// fill returns the fields of an entity that users write, by name.
func fill(t *testing.T, of any) map[string]any {
	t.Helper()
	typ := reflect.TypeOf(of)
	fields := map[string]any{}
	for _, f := range reflect.VisibleFields(typ) {
		name := typ.Name() + "." + f.Name
		if notWritten[name] != "" || f.Anonymous {
			continue
		}
		if v, ok := values[name]; ok {
			fields[f.Name] = v
			continue
		}
		switch zero := reflect.New(f.Type).Elem().Interface().(type) {
		case string:
			fields[f.Name] = "some"
		case map[string]string:
			fields[f.Name] = map[string]string{"own": "x", "odd/key": "a b", "region": "west"}
		case []string:
			fields[f.Name] = []string{"one", "two"}
		case bool:
			fields[f.Name] = true
		case int64:
			fields[f.Name] = int64(7)
		case krm.Package:
			fields[f.Name] = krm.Package{configMap(strings.ToLower(typ.Name()))}
		case []krm.GVK:
			fields[f.Name] = []krm.GVK{{Group: "x.example.com", Version: "v1", Kind: "Ping"}}
		default:
			t.Fatalf("the field %s has the type %T, which the test can't fill: give it a value", name, zero)
		}
	}
	return fields
}

// put returns the Put that writes an entity. Each field that users write must have one there.
func put(t *testing.T, kind tko.Kind, of any) tko.Put {
	t.Helper()
	p := tko.Put{Kind: kind, Marks: &tko.Marks{
		Labels:      map[string]string{"example.com/team": "core", "app.kubernetes.io/part-of": ""},
		Annotations: map[string]string{"example.com/note": "to keep: yes", "ticket": "4711", "Example.com/CamelCase": "{\"a\": 1}"},
	}}
	to := reflect.ValueOf(&p).Elem()
	if kind == tko.KindPlugin {
		to = reflect.ValueOf(&p.Plugin).Elem()
	}
	for name, value := range fill(t, of) {
		field := to.FieldByName(name)
		if name == "TemplateRevision" { // see MadeFrom
			continue
		}
		if !field.IsValid() {
			t.Fatalf("%T.%s can't be written: tko.Put has no such field", of, name)
		}
		field.Set(reflect.ValueOf(value).Convert(field.Type()))
	}
	if kind == tko.KindPlugin {
		p.ID = p.Plugin.ID()
	}
	return p
}

// A fleetOf describes all that users wrote on a server: lines of "KIND NAME FIELD: VALUE".
type fleetOf struct {
	*testing.T
	c     *client.Client
	lines []string
}

func (f *fleetOf) add(kind, name string, of any) {
	f.Helper()
	v := reflect.ValueOf(of)
	for _, part := range reflect.VisibleFields(v.Type()) {
		field := v.Type().Name() + "." + part.Name
		if notWritten[field] != "" || compared[field] != "" || part.Anonymous {
			continue
		}
		value := v.FieldByIndex(part.Index).Interface()
		if p, ok := value.(krm.Package); ok {
			value = packageText(f.T, p)
		}
		f.lines = append(f.lines, fmt.Sprintf("%s %s %s: %v", kind, name, part.Name, value))
	}
}

func packageText(t *testing.T, p krm.Package) string {
	t.Helper()
	var resources []string
	for _, r := range p {
		if r.GVK().Group == "deployment.nephio.org" {
			continue // TKO writes it
		}
		text, err := krm.Encode(krm.YAML, krm.Package{r})
		if err != nil {
			t.Fatal(err)
		}
		resources = append(resources, string(text))
	}
	slices.Sort(resources)
	return strings.Join(resources, "---\n")
}

func describe(t *testing.T, s *process.Server) []string {
	t.Helper()
	c, err := client.Dial(client.Options{Address: s.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f := &fleetOf{T: t, c: c}
	all := tko.ListOptions{Packages: true}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for p, err := range c.Plugins(t.Context(), tko.PluginSelect{}, all) {
		must(err)
		f.add("plugin", p.ID(), p)
	}
	for one, err := range c.Templates(t.Context(), tko.TemplateSelect{}, all) {
		must(err)
		f.add("template", string(one.ID), one)
	}
	for one, err := range c.Sites(t.Context(), tko.SiteSelect{}, all) {
		must(err)
		f.add("site", string(one.ID), one)
	}
	names := map[tko.DeploymentID]string{"": "none"}
	for d, err := range c.Deployments(t.Context(), tko.DeploymentSelect{}, all) {
		must(err)
		names[d.ID] = d.Metadata["name"]
		f.add("deployment", d.Metadata["name"], d)
		f.lines = append(f.lines, fmt.Sprintf("deployment %s Parent: %s", d.Metadata["name"], names[d.Parent]))
		base := "none"
		if d.TemplateRevision != 0 {
			from, err := c.Template(t.Context(), d.Template, d.TemplateRevision)
			must(err)
			base = packageText(t, from.Package)
		}
		f.lines = append(f.lines, fmt.Sprintf("deployment %s made from: %s", d.Metadata["name"], base))
	}
	outdated := true
	for d, err := range c.Deployments(t.Context(), tko.DeploymentSelect{Outdated: &outdated}, tko.ListOptions{}) {
		must(err)
		f.lines = append(f.lines, fmt.Sprintf("deployment %s is outdated", d.Metadata["name"]))
	}
	for r, err := range c.Rollouts(t.Context(), tko.RolloutSelect{}, all) {
		must(err)
		f.add("rollout", string(r.ID), r)
	}
	for _, kind := range []tko.Kind{tko.KindPlugin, tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindRollout} {
		for m, err := range c.Marks(t.Context(), kind) {
			must(err)
			name := m.ID
			if kind == tko.KindDeployment {
				name = names[tko.DeploymentID(m.ID)]
			}
			f.lines = append(f.lines, fmt.Sprintf("%s %s marks: %v", kind, name, m.Marks))
		}
	}
	sources, err := c.SourceDefinitions(t.Context(), 0)
	must(err)
	for _, d := range sources.All {
		var spec any
		must(json.Unmarshal(d.Spec, &spec))
		f.lines = append(f.lines, fmt.Sprintf("source %s %s: %v", d.Kind, d.Name, spec))
	}
	slices.Sort(f.lines)
	return f.lines
}

// makeFleet writes an entity of every kind with every field, and what users remove and make by
// hand.
func makeFleet(t *testing.T, s *process.Server) {
	t.Helper()
	c, err := client.Dial(client.Options{Address: s.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	write := func(p tko.Put) tko.PutResult {
		t.Helper()
		r, err := c.PutEntity(ctx, p)
		if err != nil {
			t.Fatalf("put %s %q: %v", p.Kind, p.ID, err)
		}
		return r
	}
	write(put(t, tko.KindPlugin, tko.Plugin{}))
	first := put(t, tko.KindTemplate, tko.Template{})
	first.Package = append(first.Package, configMap("optional"), configMap("image", "tag", "v1"))
	first.Metadata = map[string]string{"tier": "core", "type": "nf"}
	write(first)
	site := put(t, tko.KindSite, tko.Site{})
	write(site)
	site.RemoveMetadata = []string{"tier"}
	write(site)
	created := put(t, tko.KindDeployment, tko.Deployment{})
	deployment := func(name string, change func(*tko.Put)) tko.DeploymentID {
		t.Helper()
		p := created
		p.Name, p.Metadata = name, maps.Clone(created.Metadata)
		p.Metadata["name"] = name
		if change != nil {
			change(&p)
		}
		return tko.DeploymentID(write(p).ID)
	}
	top := deployment("top", func(p *tko.Put) { p.Site, p.Template, p.Package = "", "", nil })
	child := deployment("child", func(p *tko.Put) { p.Parent = top })
	deployment("grandchild", func(p *tko.Put) { p.Parent = child })
	reduced := deployment("reduced", nil)
	m, err := c.StartModification(ctx, reduced)
	if err != nil {
		t.Fatal(err)
	}
	less := slices.DeleteFunc(m.Package, func(r krm.Resource) bool { return r.Name() == "optional" })
	if _, _, err := c.EndModification(ctx, m.Token, less); err != nil {
		t.Fatal(err)
	}
	unlabelled, err := c.Deployment(ctx, reduced, 0)
	if err != nil {
		t.Fatal(err)
	}
	delete(unlabelled.Metadata, "tier")
	write(tko.Put{
		Kind: tko.KindDeployment, ID: string(reduced), Template: unlabelled.Template, Site: unlabelled.Site, Metadata: unlabelled.Metadata, Package: unlabelled.Package,
		RemoveMetadata: []string{"tier"},
	})
	second := first
	second.Package = append(slices.Clone(first.Package[:2]), configMap("image", "tag", "v2"), configMap("new"))
	write(second)
	deployment("newer", nil)
	third := second
	third.Package = append(slices.Clone(second.Package[:2]), configMap("image", "tag", "v3"))
	write(third)
	deployment("newest", nil)
	write(put(t, tko.KindRollout, tko.Rollout{}))
	specs := map[string]string{
		tko.SourceKindGit:       `{"git":{"url":"https://git.example.com/fleet.git"},"path":"sites"}`,
		tko.SourceKindInventory: `{"inventory":{"from":[{"url":"https://inventory.example.com/sites.csv","map":{"id":"record.id"}}]}}`,
		tko.SourceKindCatalog:   `{"catalog":{"helm":{"url":"https://charts.example.com","charts":["web-*"]},"id":"charts/{path}:{tag}"}}`,
	}
	for _, kind := range tko.SourceKinds {
		if _, err := c.RegisterSources(ctx, []tko.SourceDefinition{{Kind: kind, Name: strings.ToLower(kind), Spec: []byte(specs[kind])}}, false); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	}
}

func tkoCommand(t *testing.T, s *process.Server, args ...string) string {
	t.Helper()
	out, errs, got := s.CLI(args...)
	if got != 0 {
		t.Fatalf("tko %v: exit code %d: %s", args, got, errs)
	}
	return out + errs
}

// changesIn returns the number of changes that a plan shows.
func changesIn(t *testing.T, shown string) string {
	t.Helper()
	found := regexp.MustCompile(`(\d+) changes?, `).FindStringSubmatch(shown)
	if found == nil {
		t.Fatalf("the plan has no number of changes:\n%s", shown)
	}
	return found[1]
}

// Whatever users write is the same on another server, by each way there: backup and restore,
// export and import, apply, a GitOps source. A second export is as the first one.
func TestFleetIsTheSameElsewhere(t *testing.T) {
	t.Parallel()
	if len(notWritten) != mostNotWritten {
		t.Errorf("there are %d exceptions and not %d: the list may only become shorter (then lower the number)", len(notWritten), mostNotWritten)
	}
	serve := func(store string) *process.Server {
		t.Helper()
		return process.StartServer(t, "--roles=data", "--store="+store, "--access=off")
	}
	dir := t.TempDir()
	from := serve("sqlite:" + filepath.Join(dir, "from.db"))
	makeFleet(t, from)
	want := describe(t, from)
	for _, kind := range []string{"plugin", "template", "site", "deployment", "rollout", "source"} {
		if !slices.ContainsFunc(want, func(line string) bool { return strings.HasPrefix(line, kind+" ") }) {
			t.Errorf("the fleet has no %s", kind)
		}
		if kind != "source" && !slices.ContainsFunc(want, func(line string) bool { return strings.HasPrefix(line, kind+" ") && strings.Contains(line, " marks: ") }) {
			t.Errorf("the fleet has no %s with marks", kind)
		}
	}
	same := func(way string, s *process.Server) {
		t.Helper()
		if diff := cmp.Diff(want, describe(t, s)); diff != "" {
			t.Errorf("by %s (-here +there):\n%s", way, diff)
		}
	}

	exported := filepath.Join(dir, "exported")
	if text := tkoCommand(t, from, "export", exported); !strings.Contains(text, "exported 13 entities") {
		t.Errorf("the export says: %s", text)
	}
	imported := serve("sqlite::memory:")
	tkoCommand(t, imported, "import", exported, "--confirm", changesIn(t, tkoCommand(t, imported, "import", exported, "--dry-run")))
	same("export and import", imported)
	if text := tkoCommand(t, imported, "import", exported); !strings.Contains(text, "0 changes") {
		t.Errorf("a second import says: %s", text)
	}
	if text := tkoCommand(t, from, "import", exported); !strings.Contains(text, "0 changes") {
		t.Errorf("an import into the same server says: %s", text)
	}
	again := filepath.Join(dir, "again")
	tkoCommand(t, imported, "export", again)
	if diff := cmp.Diff(manifests(t, exported), manifests(t, again)); diff != "" {
		t.Errorf("the second export differs (-first +second):\n%s", diff)
	}
	third := serve("sqlite::memory:")
	tkoCommand(t, third, "import", again, "--confirm", changesIn(t, tkoCommand(t, third, "import", again, "--dry-run")))
	same("a second export and import", third)

	backup := filepath.Join(dir, "backup")
	tkoCommand(t, from, "backup", backup)
	restored := "sqlite:" + filepath.Join(dir, "restored.db")
	out, err := exec.Command(process.Build(t, "tko-server"), "restore", "--store="+restored, "--access=none", backup).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	same("backup and restore", serve(restored))

	// Readers other than import don't know earlier revisions of templates: the deployments that
	// were made from them are not outdated there, and their revision is not recorded.
	known := func(lines []string) []string {
		return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			return strings.Contains(line, " made from: ") || strings.HasSuffix(line, " is outdated")
		})
	}
	applied := serve("sqlite::memory:")
	tkoCommand(t, applied, "apply", "-f", exported, "--dry-run")
	tkoCommand(t, applied, "apply", "-f", exported)
	if diff := cmp.Diff(known(want), known(describe(t, applied))); diff != "" {
		t.Errorf("by apply (-here +there):\n%s", diff)
	}

	// A source can't name the parents of children, whose IDs TKO makes.
	flat := func(lines []string) []string {
		return slices.DeleteFunc(known(lines), func(line string) bool {
			return strings.HasPrefix(line, "deployment child ") || strings.HasPrefix(line, "deployment grandchild ") || strings.HasPrefix(line, "source ")
		})
	}
	synced := serve("sqlite::memory:")
	syncTree(t, synced, os.DirFS(exported))
	if diff := cmp.Diff(flat(want), flat(describe(t, synced))); diff != "" {
		t.Errorf("by a GitOps source (-here +there):\n%s", diff)
	}
}

// manifests returns the files of an export, by their content. Deployments have IDs of their own
// on each server, in place of which there is the label that names them.
func manifests(t *testing.T, folder string) []string {
	t.Helper()
	names := []string{}
	tree := os.DirFS(folder)
	files := map[string]string{}
	if err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, name)
		files[name] = string(data)
		if path.Base(path.Dir(name)) == "deployments" {
			label := regexp.MustCompile(`(?m)^    name: (.*)$`).FindSubmatch(data)
			if label == nil {
				return fmt.Errorf("%s has no label that names it", name)
			}
			names = append(names, strings.TrimSuffix(path.Base(name), ".yaml"), "ID of "+string(label[1]))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	replacer := strings.NewReplacer(names...)
	var all []string
	for name, content := range files {
		all = append(all, replacer.Replace(name+"\n"+content))
	}
	slices.Sort(all)
	return all
}

// syncTree applies the manifests of a tree as a GitOps source does.
func syncTree(t *testing.T, s *process.Server, tree fs.FS) {
	t.Helper()
	c, err := client.Dial(client.Options{Address: s.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	manifests, _, err := manifest.ReadAll(tree, ".")
	if err != nil {
		t.Fatal(err)
	}
	manifests = slices.DeleteFunc(manifests, func(m manifest.Manifest) bool { return m.Put.Parent != "" })
	var items []tko.SourceItem
	for round := range 2 {
		p, err := plan.Make(t.Context(), c, manifests, items, plan.Policy{Source: "fleet"})
		if err != nil {
			t.Fatal(err)
		}
		if round > 0 && len(p.Actions) > 0 {
			t.Errorf("a second plan of the source has %v, want nothing", p.Actions)
		}
		save := func(_ context.Context, now []tko.SourceItem) error {
			items = now
			return nil
		}
		if _, err := p.Apply(t.Context(), c, "r", save); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever users write is the same on another server by way of the Kubernetes API and back:
// manifests are created as objects, and objects are applied as manifests. Children are left
// out, because TKO makes the IDs of their parents; the Kubernetes API has no GitOps sources.
func TestFleetIsTheSameThroughTheKubernetesAPI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := process.StartServer(t, "--roles=data", "--store=sqlite::memory:", "--access=off")
	makeFleet(t, from)
	want := withoutRelations(describe(t, from))
	exported := filepath.Join(dir, "exported")
	tkoCommand(t, from, "export", exported)
	kube := process.StartServer(t, "--roles=data", "--store=sqlite::memory:", "--access=off", "--kubernetes=localhost:0", "--kubernetes-trust-everybody", "--kubernetes-events=false")
	k := &kubernetes{t, "https://" + kube.Kube + "/apis/tko.nephio.org/v1alpha1/", &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the server under test signs its own certificate
	}}}
	kinds := []string{"plugins", "templates", "sites", "deployments", "rollouts"}
	for _, kind := range kinds {
		k.create(kind, filepath.Join(exported, kind))
	}
	if diff := cmp.Diff(want, withoutRelations(describe(t, kube))); diff != "" {
		t.Errorf("as objects (-here +there):\n%s", diff)
	}
	back := filepath.Join(dir, "back")
	for _, kind := range kinds {
		k.save(kind, back)
	}
	applied := process.StartServer(t, "--roles=data", "--store=sqlite::memory:", "--access=off")
	tkoCommand(t, applied, "apply", "-f", back)
	if diff := cmp.Diff(want, withoutRelations(describe(t, applied))); diff != "" {
		t.Errorf("from objects (-here +there):\n%s", diff)
	}
}

// withoutRelations returns the lines of a fleet without those of what TKO makes the identity of:
// children, what they were made from, and sources.
func withoutRelations(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return strings.Contains(line, " made from: ") || strings.HasSuffix(line, " is outdated") ||
			strings.HasPrefix(line, "deployment child ") || strings.HasPrefix(line, "deployment grandchild ") || strings.HasPrefix(line, "source ")
	})
}

// kubernetes is a client of the Kubernetes API.
type kubernetes struct {
	t      *testing.T
	url    string
	client *http.Client
}

func (k *kubernetes) do(method, kind string, body []byte) []byte {
	k.t.Helper()
	request, err := http.NewRequestWithContext(k.t.Context(), method, k.url+kind, bytes.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := k.client.Do(request)
	if err != nil {
		k.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= http.StatusBadRequest {
		k.t.Fatalf("%s %s: %s, %v: %s", method, kind, response.Status, err, data)
	}
	return data
}

// create creates the objects of the manifests in a folder, without children.
func (k *kubernetes) create(kind, folder string) {
	k.t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		k.t.Fatalf("%s has no manifests: %v", folder, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			k.t.Fatal(err)
		}
		resources, err := krm.Decode(krm.YAML, data, krm.Limits{})
		if err != nil {
			k.t.Fatal(err)
		}
		if parent, _ := resources[0].Get("spec", "parentDeploymentId"); parent != nil {
			continue
		}
		body, err := json.Marshal(resources[0])
		if err != nil {
			k.t.Fatal(err)
		}
		k.do(http.MethodPost, kind, body)
	}
}

// save writes the objects of a kind as manifests: what users write of them.
func (k *kubernetes) save(kind, folder string) {
	k.t.Helper()
	var list struct {
		Items []map[string]any `json:"items"`
	}
	if err := json.Unmarshal(k.do(http.MethodGet, kind, nil), &list); err != nil {
		k.t.Fatal(err)
	}
	if len(list.Items) == 0 {
		k.t.Errorf("there are no %s", kind)
	}
	for i, item := range list.Items {
		o := krm.Resource(item)
		written := krm.Resource{"apiVersion": o["apiVersion"], "kind": o["kind"], "spec": o["spec"]}
		for _, field := range []string{"name", "labels", "annotations"} {
			if value, ok := o.Get("metadata", field); ok {
				written.Set(value, "metadata", field)
			}
		}
		if spec, ok := o["spec"].(map[string]any); ok {
			delete(spec, "deploymentId") // TKO makes it
			if kind == "deployments" {
				spec["package"] = withoutDeployment(spec["package"])
			}
		}
		data, err := json.Marshal(written)
		if err != nil {
			k.t.Fatal(err)
		}
		if err := os.MkdirAll(folder, 0o700); err != nil {
			k.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%s-%d.yaml", kind, i)), data, 0o600); err != nil {
			k.t.Fatal(err)
		}
	}
}

// withoutDeployment returns the package of an object without the resource that TKO writes.
func withoutDeployment(of any) any {
	p, ok := of.(map[string]any)
	resources, _ := p["resources"].([]any)
	if !ok {
		return of
	}
	return map[string]any{"resources": slices.DeleteFunc(resources, func(r any) bool {
		one, _ := r.(map[string]any)
		return krm.Resource(one).GVK().Group == "deployment.nephio.org"
	})}
}

// copyByPython reads all that the client of the Python SDK can read and write, and writes it to
// another server.
const copyByPython = `
import dataclasses
import sys
import tko
from tko._details import Details
def details(of):
    return {f.name: getattr(of, f.name) for f in dataclasses.fields(Details)}
with tko.Client(sys.argv[1]) as here, tko.Client(sys.argv[2]) as there:
    for p in here.list_plugins():
        there.register_plugin(p.type, p.name, p.executor, p.arguments, p.properties, p.triggers)
    for t in here.list_templates(with_packages=True):
        there.register_template(t.template_id, t.metadata, t.package_format, t.package, **details(t))
    for s in here.list_sites(with_packages=True):
        there.register_site(s.site_id, s.template_id, s.metadata, s.package_format, s.package, **details(s))
    ids = {"": ""}
    for d in here.list_deployments(with_packages=True):
        ids[d.deployment_id] = there.create_deployment(
            d.template_id, ids[d.parent_deployment_id], d.site_id, d.metadata, merge_package_format=d.package_format, merge_package=d.package
        )
`

// Whatever users write is the same on another server by way of the Python client, apart from
// what its calls can't state: removed metadata and resources, marks, and rollouts.
func TestFleetIsTheSameThroughThePythonClient(t *testing.T) {
	t.Parallel()
	from := process.StartServer(t, "--roles=data", "--store=sqlite::memory:", "--access=off")
	makeFleet(t, from)
	to := process.StartServer(t, "--roles=data", "--store=sqlite::memory:", "--access=off")
	python := filepath.Join(process.Python(t), "bin", "python3")
	cmd := exec.CommandContext(t.Context(), python, "-c", copyByPython, from.GRPC, to.GRPC)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+process.PythonSDK(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stated := func(lines []string) []string {
		return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			for _, prefix := range []string{"deployment reduced ", "rollout ", "source ", "site lagos/1 Metadata: "} {
				if strings.HasPrefix(line, prefix) {
					return true
				}
			}
			return strings.Contains(line, " made from: ") || strings.Contains(line, " marks: ") || strings.HasSuffix(line, " is outdated") || strings.HasPrefix(line, "deployment ") && strings.Contains(line, " Package: ")
		})
	}
	if diff := cmp.Diff(stated(describe(t, from)), stated(describe(t, to))); diff != "" {
		t.Errorf("(-here +there):\n%s", diff)
	}
}
