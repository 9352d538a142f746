package kubeapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

const apply = "application/apply-patch+yaml"

func TestObjectsAreCreatedReadUpdatedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)

	created := w.must("POST", "templates", template("demo/hello-world:v1.0.0", obj{"type": "demo", "a-002fb": "x-0020y"}, configMap("a", obj{"k": "v"})))
	const name = "demo-002fhello-002dworld-003av1.0.0"
	if created.text("metadata.name") != name || created.text("metadata.uid") == "" || created.text("metadata.creationTimestamp") == "" {
		t.Errorf("created as %v", created["metadata"])
	}
	stored, err := w.Template(t.Context(), "demo/hello-world:v1.0.0", 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"type": "demo", "a/b": "x y"}, stored.Metadata); diff != "" {
		t.Errorf("the labels differ from the metadata: %s", diff)
	}
	if !strings.HasPrefix(stored.Stamp.Who, "anonymous@") {
		t.Errorf("the author is %q", stored.Stamp.Who)
	}
	got := w.must("GET", "templates/"+name, nil)
	if diff := cmp.Diff(created, got); diff != "" {
		t.Errorf("the created object differs from the read one: %s", diff)
	}
	w.fails(409, "already exists", "POST", "templates", template("demo/hello-world:v1.0.0", nil))
	w.fails(404, "not found", "GET", "templates/other", nil)
	w.fails(404, "not found", "GET", "templates/a-b", nil)
	w.fails(422, "metadata.name", "POST", "templates", template("", nil).set("metadata.name", "a-b"))
	w.fails(422, "spec.templateId", "POST", "templates", template("x", nil).set("metadata.name", "y"))
	w.fails(422, "metadata.labels[a b]", "POST", "templates", template("x", obj{"a b": ""}))

	// Updates.
	changed := got.set("metadata.labels.more", "1").set("metadata.annotations", obj{"note": "kept"})
	updated := w.must("PUT", "templates/"+name, changed)
	if updated.text("metadata.resourceVersion") == got.text("metadata.resourceVersion") {
		t.Error("the resourceVersion stayed the same after a change")
	}
	w.fails(409, "was changed", "PUT", "templates/"+name, changed)
	again := w.must("PUT", "templates/"+name, updated)
	if again.text("metadata.resourceVersion") != updated.text("metadata.resourceVersion") {
		t.Error("an update without changes was written")
	}
	for _, change := range []func(query string) obj{
		func(query string) obj {
			return w.must("PUT", "templates/"+name+query, updated.set("metadata.labels.more", "dry"))
		},
		func(query string) obj {
			return w.must("PATCH", "templates/"+name+query, `{"metadata":{"labels":{"more":"dry"}}}`, "Content-Type", "application/strategic-merge-patch+json")
		},
	} {
		if dry := change("?dryRun=All"); dry.text("metadata.labels.more") != "dry" || dry.at("metadata.generation") != updated.at("metadata.generation") {
			t.Errorf("the dry run returned %v, want the changed object", dry["metadata"])
		}
	}
	if diff := cmp.Diff(updated, w.must("GET", "templates/"+name, nil)); diff != "" {
		t.Errorf("a dry run changed the object: %s", diff)
	}
	if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: "demo/hello-world:v1.0.0", Metadata: map[string]string{"type": "other"}}); err != nil {
		t.Fatal(err)
	}
	got = w.must("GET", "templates/"+name, nil)
	if got.text("metadata.annotations.note") != "kept" || got.text("metadata.labels.type") != "other" {
		t.Errorf("another API changed the annotations: %v", got["metadata"])
	}

	// Dry runs, preconditions, deletions.
	w.must("POST", "templates?dryRun=All", template("dry", nil))
	w.fails(404, "not found", "GET", "templates/dry", nil)
	w.must("DELETE", "templates/"+name+"?dryRun=All", nil)
	w.fails(409, "UID", "DELETE", "templates/"+name, obj{"preconditions": obj{"uid": "00000000-0000-0000-0000-000000000000"}})
	w.fails(409, "was changed", "DELETE", "templates/"+name, obj{"preconditions": obj{"resourceVersion": updated.text("metadata.resourceVersion")}})
	w.must("DELETE", "templates/"+name, obj{"preconditions": obj{"uid": got.text("metadata.uid")}})
	w.fails(404, "not found", "GET", "templates/"+name, nil)

	generated := w.must("POST", "templates", template("", nil).set("metadata.generateName", "some-"))
	if id := generated.text("spec.templateId"); !strings.HasPrefix(id, "some-") || len(id) != len("some-")+5 {
		t.Errorf("generated as %q", id)
	}
}

func TestInvalidPackagesNameResourceAndPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wrong := obj{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": obj{"name": "web"}, "spec": obj{"replicas": "many"}}
	response := w.fails(422, "spec.package.resources[1].spec.replicas", "POST", "templates", template("t", nil, configMap("a", nil), wrong))
	if response.text("reason") != "Invalid" || !strings.Contains(response.text("message"), `apps/v1 Deployment \"web\"`) {
		t.Errorf("got %v, want the resource named", response)
	}
	w.fails(422, "spec.package.resources[1]", "POST", "templates", template("t", nil, configMap("a", nil), configMap("a", nil)))
	w.fails(422, "spec.package.resources[0].kind", "POST", "templates", template("t", nil, obj{"apiVersion": "v1"}))
	twice := json.RawMessage(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1", "x": "2"}}`)
	w.fails(422, `duplicate field "data.x"`, "POST", "templates", template("t", nil, twice))
	waits := w.must("POST", "deployments", obj{"kind": "Deployment", "apiVersion": "tko.nephio.org/v1alpha1", "spec": obj{"templateId": "nowhere"}})
	if !strings.Contains(fmt.Sprint(waits.at("status.conditions")), `template "nowhere" doesn't exist yet`) {
		t.Errorf("a deployment whose template comes later is %v", waits)
	}
	w.fails(422, "site \"nowhere\" does not exist", "POST", "deployments", obj{"kind": "Deployment", "apiVersion": "tko.nephio.org/v1alpha1", "spec": obj{
		"siteId": "nowhere", "package": obj{"resources": []obj{{"apiVersion": "deployment.nephio.org/v1alpha1", "kind": "Deployment", "metadata": obj{"name": "deployment", "annotations": obj{"nephio.org/prepared": "true"}}}}},
	}})
}

func TestServerSideApplyTracksManagersAndConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := "apiVersion: tko.nephio.org/v1alpha1\nkind: Template\nmetadata: {name: t, labels: {one: %q}}\n" +
		"spec: {package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]}}\n"
	w.must("PATCH", "templates/t?fieldManager=alice", fmt.Sprintf(text, "1"), "Content-Type", apply)
	first := w.must("PATCH", "templates/t?fieldManager=alice", fmt.Sprintf(text, "1"), "Content-Type", apply)
	if fields, _ := first.at("metadata.managedFields").([]any); len(fields) != 1 {
		t.Fatalf("managed fields: %v", fields)
	}
	w.fails(409, "alice", "PATCH", "templates/t?fieldManager=bob", fmt.Sprintf(text, "2"), "Content-Type", apply)
	forced := w.must("PATCH", "templates/t?fieldManager=bob&force=true", fmt.Sprintf(text, "2"), "Content-Type", apply)
	if forced.text("metadata.labels.one") != "2" {
		t.Errorf("forced: %v", forced["metadata"])
	}
	w.must("PATCH", "templates/t", `{"metadata":{"labels":{"two":"2"}}}`, "Content-Type", "application/merge-patch+json")
	patched := w.must("PATCH", "templates/t", `[{"op":"remove","path":"/metadata/labels/two"}]`, "Content-Type", "application/json-patch+json")
	if diff := cmp.Diff(map[string]any{"one": "2"}, patched.at("metadata.labels")); diff != "" {
		t.Error(diff)
	}

	// Applying again to a site that starts from a template changes nothing.
	site := "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {name: s}\nspec: {templateId: t, package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}]}}\n"
	one := w.must("PATCH", "sites/s?fieldManager=alice", site, "Content-Type", apply)
	two := w.must("PATCH", "sites/s?fieldManager=alice", site, "Content-Type", apply)
	if resources, _ := one.at("spec.package.resources").([]any); len(resources) != 2 || one.text("metadata.resourceVersion") != two.text("metadata.resourceVersion") {
		t.Errorf("%v, %v, then %v", resources, one["metadata"], two["metadata"])
	}
}

func TestDeploymentsAreCreatedMovedApprovedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("POST", "templates", template("t", obj{"from": "template"}, configMap("a", nil)))
	w.must("POST", "sites", obj{"kind": "Site", "apiVersion": "tko.nephio.org/v1alpha1", "spec": obj{"siteId": "s/1"}})
	placeholder := obj{
		"kind": "Deployment", "apiVersion": "tko.nephio.org/v1alpha1", "metadata": obj{"name": "any-thing", "labels": obj{"mine": "1"}},
		"spec": obj{"templateId": "t", "package": obj{"resources": []any{configMap("b", nil)}}},
	}
	one, two := w.must("POST", "deployments", placeholder), w.must("POST", "deployments", placeholder)
	name := one.text("metadata.name")
	if len(name) != 27 || name == two.text("metadata.name") || one.text("spec.deploymentId") != name {
		t.Errorf("got the names %q and %q, want two different ones", name, two.text("metadata.name"))
	}
	if resources, _ := one.at("spec.package.resources").([]any); len(resources) != 3 {
		t.Errorf("got %v, want the resources of template and package, and the Deployment resource", resources)
	}
	w.fails(422, "apply never creates", "POST", "deployments?fieldManager=kubectl-client-side-apply", placeholder)
	w.fails(404, "not found", "PATCH", "deployments/"+strings.Repeat("a", 27)+"?fieldManager=x", `{"kind": "Deployment", "apiVersion": "tko.nephio.org/v1alpha1"}`, "Content-Type", apply)

	w.fails(422, "resourceVersion", "PUT", "deployments/"+name, one.set("metadata.resourceVersion", ""))
	moved := w.must("PUT", "deployments/"+name, one.set("spec.siteId", "s/1"))
	if d, err := w.Deployment(t.Context(), tko.DeploymentID(name), 0); err != nil || d.Site != "s/1" || d.Package[2].Text("spec", "siteId") != "s/1" {
		t.Errorf("moved to %q: %v", d.Site, err)
	}
	w.fails(409, "was changed", "PUT", "deployments/"+name, one.set("spec.siteId", ""))
	w.fails(422, "parent", "PUT", "deployments/"+name, moved.set("spec.parentDeploymentId", two.text("metadata.name")))
	moved = w.must("PATCH", "deployments/"+name, `{"spec":{"siteId":null}}`, "Content-Type", "application/merge-patch+json")
	if moved.at("spec.siteId") != nil {
		t.Errorf("got %v, want the deployment without a site", moved["spec"])
	}

	// Labels from a template can be removed, too.
	w.must("PATCH", "deployments/"+name, `{"metadata":{"labels":{"from":null,"mine":null}}}`, "Content-Type", "application/merge-patch+json")
	if got := w.must("GET", "deployments/"+name, nil); got.at("metadata.labels") != nil {
		t.Errorf("labels: %v", got.at("metadata.labels"))
	}

	// Approval and status.
	w.fails(422, "not prepared", "PATCH", "deployments/"+name+"/approval", `{"status":{"approved":true}}`, "Content-Type", "application/merge-patch+json")
	w.fails(422, "approval", "PATCH", "deployments/"+name+"/status", `{"status":{"approved":true}}`, "Content-Type", "application/merge-patch+json")
	w.fails(422, "prepared", "PATCH", "deployments/"+name+"/status", `{"status":{"prepared":true}}`, "Content-Type", "application/merge-patch+json")
	w.must("PATCH", "deployments/"+name+"/status",
		`{"status":{"conditions":[{"type":"Healthy","status":"True","reason":"Fine","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		"Content-Type", "application/merge-patch+json")
	current, err := w.Deployment(t.Context(), tko.DeploymentID(name), 0)
	if err != nil || len(current.Stamp.Conditions) != 1 || current.Stamp.Conditions[0].Reason != "Fine" {
		t.Fatalf("%v, %v", current.Stamp.Conditions, err)
	}
	current.Package[2].SetAnnotation("nephio.org/prepared", "true")
	if _, err := w.CommitDeployment(t.Context(), tko.DeploymentCommit{ID: current.ID, Revision: current.Stamp.Revision, Package: current.Package}); err != nil {
		t.Fatal(err)
	}
	approved := w.must("PATCH", "deployments/"+name+"/approval", `{"status":{"approved":true}}`, "Content-Type", "application/merge-patch+json")
	if approved.at("status.approved") != true {
		t.Errorf("approved: %v", approved["status"])
	}
	child := obj{"kind": "Deployment", "apiVersion": "tko.nephio.org/v1alpha1", "spec": obj{"parentDeploymentId": name}}
	w.must("POST", "deployments", child)
	w.must("DELETE", "deployments/"+name, nil)
	if names := w.must("GET", "deployments", nil).names(); !cmp.Equal(names, []string{two.text("metadata.name")}) {
		t.Errorf("got %v, want the child deleted with its parent", names)
	}
}

func TestPluginsAreCreatedSelectedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plugin := obj{
		"kind": "Plugin", "apiVersion": "tko.nephio.org/v1alpha1", "metadata": obj{"name": "validate-007cfree5gc-002fsmf"},
		"spec": obj{"arguments": []any{"true"}, "triggers": []any{obj{"group": "g", "version": "v1", "kind": "K"}}},
	}
	made := w.must("POST", "plugins", plugin)
	if made.text("spec.type") != "validate" || made.text("spec.pluginId") != "free5gc/smf" || made.text("spec.executor") != "command" {
		t.Errorf("made %v", made["spec"])
	}
	changed := w.must("PUT", "plugins/validate-007cfree5gc-002fsmf", made.set("metadata.annotations.a", "b").set("spec.arguments", []any{"false"}))
	if changed.text("metadata.annotations.a") != "b" {
		t.Error("the plugin lost its annotations")
	}
	for selector, want := range map[string]int{"spec.type=validate": 1, "spec.type=prepare": 0, "spec.pluginId=free5gc/*": 1, "metadata.name=-002a-002a": 1, "spec.executor!=command": 0} {
		if got := len(w.must("GET", "plugins?fieldSelector="+selector, nil).items()); got != want {
			t.Errorf("%s selects %d, want %d", selector, got, want)
		}
	}
	w.fails(422, "executor", "POST", "plugins", plugin.set("metadata.name", "validate-007cx").set("spec.executor", "none"))
	w.must("DELETE", "plugins", nil)
	if got := w.must("GET", "plugins", nil).names(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestSelectorsMatchMetadataAndFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for id, metadata := range map[string]map[string]string{
		"nf/a": {"Site.cloud": "GCP", "n": "5"}, "nf/b/c": {"Site.cloud": "AWS", "n": "50"}, "other": {"cloud": "/x"},
	} {
		if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(id), Metadata: metadata}); err != nil {
			t.Fatal(err)
		}
	}
	a, b, other := "nf-002fa", "nf-002fb-002fc", "other"
	tests := map[string]struct {
		why   string
		query string
		want  []string
	}{
		"name":          {why: "exactly one", query: "fieldSelector=metadata.name=nf-002fa", want: []string{a}},
		"deep":          {why: "** crosses boundaries", query: "fieldSelector=metadata.name=nf-002f-002a-002a", want: []string{a, b}},
		"shallow":       {why: "* doesn't", query: "fieldSelector=metadata.name=nf-002f-002a", want: []string{a}},
		"not":           {why: "all others", query: "fieldSelector=metadata.name!=nf-002f-002a-002a", want: []string{other}},
		"plain":         {why: "specs aren't escaped", query: "fieldSelector=spec.templateId=nf/**", want: []string{a, b}},
		"label":         {why: "a pattern of values", query: "labelSelector=Site.cloud=G-002a", want: []string{a}},
		"in":            {why: "any of them", query: "labelSelector=Site.cloud+in+(GCP,AWS)", want: []string{a, b}},
		"not in":        {why: "also objects without the label", query: "labelSelector=Site.cloud+notin+(GCP)", want: []string{b, other}},
		"both":          {why: "all must match", query: "labelSelector=Site.cloud=G-002a,Site.cloud=-002aP&fieldSelector=metadata.name=nf-002fa", want: nil},
		"exists":        {why: "whatever the value", query: "labelSelector=Site.cloud", want: []string{a, b}},
		"less":          {why: "as numbers", query: "labelSelector=n%3C6", want: []string{a}},
		"exists not":    {why: "none at all", query: "labelSelector=!Site.cloud", want: []string{other}},
		"greater":       {why: "as numbers", query: "labelSelector=n>6", want: []string{b}},
		"as field":      {why: "values that label selectors don't take", query: "fieldSelector=metadata.labels.cloud=-002fx", want: []string{other}},
		"contradiction": {why: "of the same key", query: "labelSelector=Site.cloud=G-002a,Site.cloud=A-002a", want: []string{}},
		"two patterns":  {why: "of the same key", query: "labelSelector=Site.cloud=G-002a,Site.cloud=GC-002a", want: []string{a}},
	}
	for name, test := range tests {
		if name == "both" {
			w.fails(400, "", "GET", "templates?"+test.query, nil) // Kubernetes takes no value that begins with an escape
			continue
		}
		if got := w.must("GET", "templates?"+test.query, nil).names(); !cmp.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v: %s", name, got, test.want, test.why)
		}
	}
	if got := w.must("GET", "templates?labelSelector=a=b-c", nil).names(); len(got) != 0 {
		t.Errorf("got %v, want a value that is not an escape to be text", got)
	}
	w.fails(400, "metadata.name, spec.templateId", "GET", "templates?fieldSelector=spec.nothing=1", nil)
}

func TestPagesAreOfOneSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	register := func(id, value string) {
		t.Helper()
		if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(id), Metadata: map[string]string{"v": value}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		register(id, "old")
	}
	first := w.must("GET", "templates?limit=2&labelSelector=v=old", nil)
	register("bb", "old")
	register("c", "new")
	register("d", "new")
	register("d", "newer")
	if _, err := w.DeleteTemplate(t.Context(), "e"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.DeleteTemplate(t.Context(), "f"); err != nil {
		t.Fatal(err)
	}
	register("f", "another")
	names, versions := first.names(), map[string]bool{first.text("metadata.resourceVersion"): true}
	values := map[string]bool{}
	for page := first; page.text("metadata.continue") != ""; {
		page = w.must("GET", "templates?limit=1&labelSelector=v=old&continue="+page.text("metadata.continue"), nil)
		names = append(names, page.names()...)
		versions[page.text("metadata.resourceVersion")] = true
		for _, i := range page.items() {
			values[i.text("metadata.labels.v")] = true
		}
	}
	if !cmp.Equal(names, []string{"a", "b", "c", "d", "e", "f"}) || len(versions) != 1 || !cmp.Equal(values, map[string]bool{"old": true}) {
		t.Errorf("got %v at %v with %v, want the snapshot at the beginning of the list", names, versions, values)
	}
	exact := w.must("GET", "templates?resourceVersionMatch=Exact&resourceVersion="+first.text("metadata.resourceVersion"), nil)
	if !cmp.Equal(exact.names(), names) {
		t.Errorf("the list at exactly that version is %v", exact.names())
	}
	w.fails(400, "continue token", "GET", "templates?limit=1&continue=x", nil)
}

func TestWatchSendsAddedModifiedAndDeletedEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	register := func(id, value string) {
		t.Helper()
		if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(id), Metadata: map[string]string{"v": value}}); err != nil {
			t.Fatal(err)
		}
	}
	register("a", "1")
	register("b", "1")
	list := w.must("GET", "templates", nil)
	from := list.text("metadata.resourceVersion")
	listAll := w.watch("templates?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan")
	unmarked := w.watch("templates?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name=c")
	quiet := w.watch("templates?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
	selected := w.watch("templates?watch=1&resourceVersion=" + from + "&labelSelector=v=1")
	live := w.watch("templates?watch=1&resourceVersion=" + from)
	for _, want := range []string{"ADDED a", "ADDED b"} {
		if e := listAll(); e.Type+" "+e.Object.text("metadata.name") != want {
			t.Fatalf("%v, want %s", e, want)
		}
	}
	if e := listAll(); e.Type != "BOOKMARK" || e.Object.text("metadata.resourceVersion") != from || e.Object.at("metadata.annotations") == nil {
		t.Fatalf("%v, want the bookmark after the initial events", e)
	}
	register("c", "1")
	register("a", "2")
	register("a", "3")
	register("a", "1")
	if _, err := w.DeleteTemplate(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	register("b", "1")
	want := []string{"ADDED c 1", "MODIFIED a 2", "MODIFIED a 3", "MODIFIED a 1", "DELETED b 1", "ADDED b 1"}
	follow := func(next func() event, want []string) {
		t.Helper()
		version := from
		for _, text := range want {
			e := next()
			if got := fmt.Sprintf("%s %s %s", e.Type, e.Object.text("metadata.name"), e.Object.text("metadata.labels.v")); got != text {
				t.Fatalf("%s, want %s", got, text)
			}
			if v := e.Object.text("metadata.resourceVersion"); len(v) < len(version) || len(v) == len(version) && v <= version {
				t.Fatalf("resourceVersion %s after %s", v, version)
			} else {
				version = v
			}
		}
	}
	follow(live, want)
	follow(listAll, want)
	follow(unmarked, want[:1]) // without requesting bookmarks
	follow(quiet, want[:2])
	follow(selected, []string{"ADDED c 1", "DELETED a 2", "ADDED a 1", "DELETED b 1", "ADDED b 1"})
	follow(w.watch("templates?watch=1&resourceVersion="+from), want) // resuming
	w.fails(410, "beyond", "GET", "templates?watch=1&resourceVersion=100000", nil)
}

func TestTablesHaveTheColumnsOfTheKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("POST", "templates", template("t/1", nil, configMap("a", nil)))
	if _, err := w.CreateDeployment(t.Context(), tko.NewDeployment{Template: "t/1"}); err != nil {
		t.Fatal(err)
	}
	table := w.must("GET", "templates", nil, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	rows, _ := table["rows"].([]any)
	row, _ := rows[0].(map[string]any)
	cells, _ := row["cells"].([]any)
	if table.text("kind") != "Table" || len(rows) != 1 || fmt.Sprint(cells[:3]) != "[t-002f1 t/1 1]" {
		t.Errorf("%v", table)
	}
	if kind := obj(row).text("object.kind"); kind != "PartialObjectMetadata" {
		t.Errorf("rows have %q", kind)
	}
}

// A label that was only stored would leave a site running that its operator believes to be suspended.
func TestLabelSuspendsAsItIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("PATCH", "sites/s?fieldManager=owner", "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {name: s}\n", "Content-Type", apply)
	suspended := func() (shown, decided bool) {
		t.Helper()
		site, err := w.Site(t.Context(), "s", 0)
		if err != nil {
			t.Fatal(err)
		}
		o := w.must("GET", "sites/s", nil)
		return o.at("status.suspended") == true, tko.Suspended(site.Metadata)
	}
	patch := func(labels string) obj {
		t.Helper()
		return w.must("PATCH", "sites/s", `{"metadata": {"labels": `+labels+`}}`, "Content-Type", "application/merge-patch+json")
	}
	for label, value := range map[string]string{"tko.nephio.org/suspend": "true", "tko.nephio.org-002fsuspend": "yes"} {
		if o := patch(fmt.Sprintf(`{%q: %q}`, label, value)); fmt.Sprint(o.at("metadata.labels")) != "map["+label+":"+value+"]" {
			t.Errorf("the labels are %v", o.at("metadata.labels"))
		}
		if shown, decided := suspended(); !shown || !decided {
			t.Errorf("label %s: suspended: status %t, metadata %t", label, shown, decided)
		}
		if list, _ := w.must("GET", "sites?labelSelector="+label+"%3D"+value, nil)["items"].([]any); len(list) != 1 {
			t.Errorf("the selector %s finds %d sites", label, len(list))
		}
		patch(fmt.Sprintf(`{%q: null}`, label))
		if shown, decided := suspended(); shown || decided {
			t.Errorf("without label %s: suspended: status %t, metadata %t", label, shown, decided)
		}
	}
}

func TestDiscoveryAndOpenAPIListAllKinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	resources, _ := w.must("GET", strings.TrimSuffix(group, "/"), nil)["resources"].([]any)
	seen := map[string]string{}
	for _, r := range resources {
		m, _ := r.(map[string]any)
		seen[fmt.Sprint(m["name"])] = fmt.Sprint(m["categories"], m["namespaced"])
	}
	want := map[string]string{}
	for _, name := range []string{"templates", "sites", "deployments", "plugins", "rollouts"} {
		want[name] = "[tko] false"
	}
	for _, name := range []string{"deployments/status", "deployments/approval", "sites/status"} {
		want[name] = "<nil> false"
	}
	for _, verb := range tko.RolloutVerbs() {
		want["rollouts/"+verb] = "<nil> false"
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{"/openapi/v2", "/openapi/v3" + strings.TrimSuffix(group, "/"), "/readyz", "/livez", "/apis"} {
		if code, _ := w.do(http.MethodGet, path, nil); code != http.StatusOK {
			t.Errorf("GET %s: %d", path, code)
		}
	}
}

// Controllers write conditions of their own, without changing others.
func TestStatusWritesChangeOnlyTheirConditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("PATCH", "sites/s?fieldManager=owner", "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {name: s, labels: {a: b}}\n", "Content-Type", apply)
	text := "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {name: s, labels: {a: other}}\n" +
		"status: {deploymentIds: [mine], conditions: [{type: %s, status: 'True', reason: Fine, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}]}\n"
	first := w.must("PATCH", "sites/s/status?fieldManager=one", fmt.Sprintf(text, "One"), "Content-Type", apply)
	second := w.must("PATCH", "sites/s/status?fieldManager=two", fmt.Sprintf(text, "Two"), "Content-Type", apply)
	again := w.must("PATCH", "sites/s/status?fieldManager=one", fmt.Sprintf(text, "One"), "Content-Type", apply)
	if again.text("metadata.resourceVersion") != second.text("metadata.resourceVersion") || first.text("metadata.resourceVersion") == second.text("metadata.resourceVersion") {
		t.Errorf("a write without changes was stored: %v, %v, %v", first["metadata"], second["metadata"], again["metadata"])
	}
	types := []string{}
	conditions, _ := again.at("status.conditions").([]any)
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		types = append(types, fmt.Sprint(m["type"], m["reason"], m["observedGeneration"]))
	}
	if diff := cmp.Diff([]string{"OneFine1", "TwoFine1"}, types); diff != "" {
		t.Error(diff)
	}
	if again.at("metadata.generation") != 1.0 || again.text("metadata.labels.a") != "b" || again.at("status.deploymentIds") != nil {
		t.Errorf("writing the status changed more than conditions: %v, %v", again["metadata"], again["status"])
	}
	if diff := cmp.Diff([]string{"owner Apply ", "one Apply status", "two Apply status"}, again.managers()); diff != "" {
		t.Error(diff)
	}
	w.fails(409, `conflicts with "one"`, "PATCH", "sites/s/status?fieldManager=three", strings.Replace(fmt.Sprintf(text, "One"), "Fine", "Other", 1), "Content-Type", apply)
	w.must("PATCH", "sites/s/status?fieldManager=three&force=true", strings.Replace(fmt.Sprintf(text, "One"), "Fine", "Other", 1), "Content-Type", apply)
	again = w.must("PATCH", "sites/s/status?fieldManager=one&force=true", fmt.Sprintf(text, "One"), "Content-Type", apply)
	second = again
	stale := first.set("status.conditions", []any{obj{"type": "Stale", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}})
	w.fails(409, "was changed", "PUT", "sites/s/status", stale)
	w.must("PUT", "sites/s/status?dryRun=All", stale.set("metadata.resourceVersion", second.text("metadata.resourceVersion")))
	w.fails(422, "status", "PATCH", "sites/s/status", `{"status":{"conditions":[{"type":"Wrong","status":"Maybe","reason":"x","message":"","lastTransitionTime":null}]}}`, "Content-Type", "application/merge-patch+json")
	w.fails(404, "not found", "PATCH", "sites/other/status", `{}`, "Content-Type", "application/merge-patch+json")
	w.fails(405, "", "DELETE", "sites/s/status", nil)
	if got := w.must("GET", "sites/s/status", nil); got.text("metadata.resourceVersion") != second.text("metadata.resourceVersion") {
		t.Errorf("the dry run was written: %v", got)
	}
	var wait sync.WaitGroup
	var won atomic.Int32
	for i := range 8 {
		wait.Go(func() {
			condition := obj{"type": fmt.Sprintf("Racer%d", i), "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
			if code, _ := w.do("PUT", "sites/s/status", again.set("status.conditions", []any{condition})); code == 200 {
				won.Add(1)
			} else if code != 409 {
				t.Errorf("code %d", code)
			}
		})
	}
	wait.Wait()
	if won.Load() != 1 {
		t.Errorf("%d of the clients that read the same version have written, want 1", won.Load())
	}
	// Writing the object without a status does not change the status.
	written := w.must("PUT", "sites/s", w.must("GET", "sites/s", nil).set("status", obj{}).set("metadata.labels.a", "c"))
	if left, _ := written.at("status.conditions").([]any); len(left) != 1 {
		t.Errorf("got the status %v, want the conditions unchanged", written["status"])
	}
}
