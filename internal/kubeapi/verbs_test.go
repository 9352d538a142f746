package kubeapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kubeapi"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// deployment creates a deployment.
func deployment(spec obj) obj {
	return obj{"kind": "Deployment", "apiVersion": "tko.nephio.org/v1alpha1", "spec": spec}
}

// prepare marks a deployment as prepared.
func (w *world) prepare(name string) {
	w.t.Helper()
	d, err := w.Deployment(w.t.Context(), tko.DeploymentID(name), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	resource, err := d.Package.Deployment()
	if err != nil {
		w.t.Fatal(err)
	}
	resource.SetAnnotation("nephio.org/prepared", "true")
	if _, err := w.CommitDeployment(w.t.Context(), tko.DeploymentCommit{ID: d.ID, Revision: d.Stamp.Revision, Package: d.Package}); err != nil {
		w.t.Fatal(err)
	}
}

// A late catalog runs a function between the read for an approval and the
// approval.
type late struct {
	kubeapi.Catalog
	meanwhile func()
}

func (l *late) PutApproval(ctx context.Context, key record.Key, require record.Requirement, dryRun bool) (record.Record, error) {
	l.meanwhile()
	return l.Catalog.PutApproval(ctx, key, require, dryRun)
}

// An approval applies only to the revision that was read. A dry run returns the
// result of an approval and writes nothing.
func TestApprovalAppliesOnlyToTheRevisionThatWasRead(t *testing.T) {
	t.Parallel()
	l := late{meanwhile: func() {}}
	w := newWorldOf(t, func(s kubeapi.Catalog) kubeapi.Catalog { l.Catalog = s; return &l })
	name := w.must("POST", "deployments", deployment(nil)).text("metadata.name")
	path := "deployments/" + name + "/approval"
	w.fails(422, "not prepared", "PATCH", path+"?dryRun=All", `{"status":{"approved":true}}`, "Content-Type", merge)
	w.prepare(name)
	w.fails(422, "status.approved", "PATCH", path, `{"status":{"approved":false}}`, "Content-Type", merge)

	prepared := w.must("GET", "deployments/"+name, nil)
	dry := w.must("PATCH", path+"?dryRun=All", `{"status":{"approved":true}}`, "Content-Type", merge)
	conditions, _ := dry.at("status.conditions").([]any)
	if dry.at("status.approved") != true || len(conditions) != 3 {
		t.Errorf("the dry run returned %v, want it approved", dry["status"])
	}
	if diff := cmp.Diff(prepared, w.must("GET", "deployments/"+name, nil)); diff != "" {
		t.Errorf("the dry run changed the object: %s", diff)
	}

	change := func(value string) func() {
		return sync.OnceFunc(func() { // not by this server, in which writers of an object take turns
			d, err := w.Deployment(w.t.Context(), tko.DeploymentID(name), 0)
			if err != nil {
				t.Error(err)
			}
			more := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "changed-" + value}}
			if _, err := w.CommitDeployment(w.t.Context(), tko.DeploymentCommit{ID: d.ID, Revision: d.Stamp.Revision, Package: append(slices.Clip(d.Package), more)}); err != nil {
				t.Error(err)
			}
		})
	}
	l.meanwhile = change("1")
	w.fails(409, "was changed", "PUT", path, prepared.set("status.approved", true))
	if got := w.must("GET", "deployments/"+name, nil); got.at("status.approved") != false {
		t.Errorf("got %v, want a deployment that was changed meanwhile not approved", got["status"])
	}
	l.meanwhile = change("2")
	if got := w.must("PATCH", path, `{"status":{"approved":true}}`, "Content-Type", merge); got.at("status.approved") != true || !strings.Contains(fmt.Sprint(got["spec"]), "changed-2") {
		t.Errorf("got %v, want a patch without a version to approve the newest revision", got)
	}
}

// A deployment that was applied once can be created again; only apply can't
// create one.
func TestAppliedDeploymentsCanBeCreatedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	applied := deployment(nil).set("metadata.annotations", obj{lastApplied: "{}"}).set("metadata.name", "any")
	for manager, made := range map[string]bool{"kubectl-create": true, "kubectl-replace": true, "kubectl-client-side-apply": false, "other": false} {
		if code, response := w.do("POST", "deployments?fieldManager="+manager, applied); (code == 201) != made {
			t.Errorf("%s: %d %v", manager, code, response["message"])
		}
	}
	text := "apiVersion: tko.nephio.org/v1alpha1\nkind: Deployment\nmetadata: {name: any}\n"
	for _, name := range []string{"any", strings.Repeat("a", 27)} {
		response := w.fails(404, "apply never creates", "PATCH", "deployments/"+name+"?fieldManager=x", strings.Replace(text, "any", name, 1), "Content-Type", apply)
		if response.text("reason") != "NotFound" {
			t.Errorf("it is %v", response)
		}
	}
}

// Patches need no resourceVersion, also those of deployments.
func TestPatchesNeedNoResourceVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.must("POST", "deployments", deployment(nil))
	path := "deployments/" + made.text("metadata.name")
	for i, typ := range []string{merge, "application/strategic-merge-patch+json"} {
		patch := `{"metadata":{"resourceVersion":null,"labels":{"v":"` + strings.Repeat("i", i) + `"}}}`
		if got := w.must("PATCH", path, patch, "Content-Type", typ); got.text("metadata.labels.v") != strings.Repeat("i", i) {
			t.Errorf("patched to %v", got["metadata"])
		}
	}
	w.must("PATCH", path, `[{"op":"remove","path":"/metadata/resourceVersion"}]`, "Content-Type", "application/json-patch+json")
	w.fails(409, "was changed", "PATCH", path, `{"metadata":{"resourceVersion":"`+made.text("metadata.resourceVersion")+`"}}`, "Content-Type", merge)
	w.fails(422, "metadata.resourceVersion", "PUT", path, made.set("metadata.resourceVersion", nil))
}

// Conditions have the newest generation once it is prepared and approved,
// because kubectl waits for that.
func TestConditionsAreOfTheNewestGeneration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.must("POST", "deployments", deployment(nil)).text("metadata.name")
	w.prepare(name)
	w.must("PATCH", "deployments/"+name+"/approval", `{"status":{"approved":true}}`, "Content-Type", merge)
	if err := w.SetConditions(t.Context(), tko.KindDeployment, name, []tko.Condition{{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "x"}}); err != nil {
		t.Fatal(err)
	}
	got := w.must("PATCH", "deployments/"+name, `{"metadata":{"labels":{"v":"1"}}}`, "Content-Type", merge)
	generation, _ := got.at("metadata.generation").(float64)
	want := map[string]float64{"Prepared": generation, "Approved": generation, "Scheduled": generation - 1, "Ready": generation}
	observed := map[string]float64{}
	conditions, _ := got.at("status.conditions").([]any)
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		observed[obj(condition).text("type")], _ = condition["observedGeneration"].(float64)
	}
	if diff := cmp.Diff(want, observed); diff != "" || generation != 4 {
		t.Errorf("generation %v: %s", generation, diff)
	}
}

// A list with a resourceVersion and a limit is of that version, as informers
// that list in pages require.
func TestListsInPagesAreOfTheirVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	version := w.must("POST", "templates", template("a", nil)).text("metadata.resourceVersion")
	w.must("POST", "templates", template("b", nil))
	for query, want := range map[string]string{
		"limit=5&resourceVersion=" + version:                                   "a",
		"limit=5&resourceVersionMatch=NotOlderThan&resourceVersion=" + version: "a b",
		"limit=5&resourceVersion=0":                                            "a b",
		"resourceVersion=" + version:                                           "a b",
		"resourceVersionMatch=Exact&resourceVersion=" + version:                "a",
	} {
		if got := strings.Join(w.must("GET", "templates?"+query, nil).names(), " "); got != want {
			t.Errorf("%s lists %s, want %s", query, got, want)
		}
	}
}

// A deletion of a collection deletes one page and leaves the others.
func TestCollectionsAreDeletedPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		w.must("POST", "templates", template(id, obj{"of": id[:1]}))
	}
	first := w.must("DELETE", "templates?limit=1&labelSelector=of!=a", nil)
	if got := strings.Join(first.names(), " "); got != "b" || first.text("metadata.continue") == "" || first.text("metadata.resourceVersion") == "" {
		t.Errorf("the first page is %s, %v", got, first["metadata"])
	}
	w.must("DELETE", "templates?labelSelector=of!=a&dryRun=All", nil)
	second := w.must("DELETE", "templates?limit=1&labelSelector=of!=a&continue="+first.text("metadata.continue"), nil)
	if got := strings.Join(append(second.names(), w.must("GET", "templates", nil).names()...), " "); got != "c a d" {
		t.Errorf("got %s after the second page", got)
	}
}

// A request that deletes many objects must confirm their number; otherwise it
// deletes none.
func TestCollectionsOfManyAreDeletedWithConfirmation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 101 {
		if _, err := w.RegisterSite(t.Context(), tko.Site{ID: tko.SiteID(fmt.Sprintf("s%03d", i))}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(want int) {
		t.Helper()
		if got := len(w.must("GET", "sites", nil).names()); got != want {
			t.Errorf("%d sites remain, want %d", got, want)
		}
	}
	w.fails(400, "delete 101 sites", "DELETE", "sites", nil)
	w.fails(400, "but 100 were confirmed", "DELETE", "sites?confirm=100", nil)
	w.fails(400, "use the number of objects", "DELETE", "sites?confirm=all", nil)
	left(101)
	w.must("DELETE", "sites?confirm=101&dryRun=All", nil)
	left(101)
	if deleted := w.must("DELETE", "sites?confirm=101", nil); len(deleted.items()) != 101 {
		t.Errorf("the response has %d deleted objects", len(deleted.items()))
	}
	left(0)

	parent := w.must("POST", "deployments", deployment(nil)).text("metadata.name")
	children := tko.NewChildren{Parent: tko.DeploymentID(w.must("GET", "deployments/"+parent, nil).text("spec.deploymentId"))}
	for i := range 100 {
		children.Children = append(children.Children, tko.NewChild{Origin: strconv.Itoa(i)})
	}
	if _, _, err := w.CreateChildren(t.Context(), children); err != nil {
		t.Fatal(err)
	}
	w.fails(422, "delete 101 deployments", "DELETE", "deployments/"+parent, nil)
	w.must("DELETE", "deployments/"+parent+"?confirm=101", nil)
	if left := w.must("GET", "deployments", nil).names(); len(left) != 0 {
		t.Errorf("%d deployments remain, want none", len(left))
	}
}

// Descendants can't be orphaned: requests for that are refused.
func TestDeletionsThatOrphanDescendantsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	parent := w.must("POST", "deployments", deployment(nil)).text("metadata.name")
	child := w.must("POST", "deployments", deployment(obj{"parentDeploymentId": parent})).text("metadata.name")
	w.fails(422, "1 descendants", "DELETE", "deployments/"+parent+"?propagationPolicy=Orphan", nil)
	w.fails(422, "1 descendants", "DELETE", "deployments/"+parent, obj{"orphanDependents": true})
	w.fails(404, "not found", "DELETE", "deployments/"+strings.Repeat("a", 27)+"?propagationPolicy=Orphan", nil)
	w.must("DELETE", "deployments/"+child+"?propagationPolicy=Orphan", nil)
	w.must("DELETE", "deployments/"+parent+"?propagationPolicy=Foreground", nil)
	if left := w.must("GET", "deployments", nil).names(); len(left) != 0 {
		t.Errorf("got the remaining deployments %v", left)
	}
}

// An object keeps the base of its generated name.
func TestGeneratedNamesKeepTheirBase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.must("POST", "templates", template("", nil).set("metadata.generateName", "some-"))
	name := made.text("metadata.name")
	changed := w.must("PATCH", "templates/"+name, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", merge)
	for _, o := range []obj{made, changed, w.must("GET", "templates/"+name, nil)} {
		if o.text("metadata.generateName") != "some-" {
			t.Errorf("%v", o["metadata"])
		}
	}
}

// Concurrent patches without a precondition all succeed.
func TestConcurrentPatchesAllSucceed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("POST", "sites", obj{"kind": "Site", "apiVersion": "tko.nephio.org/v1alpha1", "spec": obj{"siteId": "s"}})
	name, other := w.must("POST", "deployments", deployment(nil)).text("metadata.name"), w.must("POST", "deployments", deployment(nil)).text("metadata.name")
	condition := `{"type":"%d","status":"True","reason":"x","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`
	methods := map[string]func(i int) (path, typ, body string){
		"merge": func(i int) (string, string, string) {
			return "deployments/" + name, merge, fmt.Sprintf(`{"metadata":{"labels":{"merge%d":""}}}`, i)
		},
		"unversioned": func(i int) (string, string, string) {
			return "deployments/" + other, merge, fmt.Sprintf(`{"metadata":{"resourceVersion":null,"labels":{"merge%d":""}}}`, i)
		},
		"json": func(i int) (string, string, string) {
			return "sites/s", "application/json-patch+json", fmt.Sprintf(`[{"op":"add","path":"/spec/package/resources","value":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"%d"}}]}]`, i)
		},
		"apply": func(i int) (string, string, string) {
			return fmt.Sprintf("templates/new?fieldManager=m%d", i), apply, fmt.Sprintf("apiVersion: tko.nephio.org/v1alpha1\nkind: Template\nmetadata: {name: new, labels: {apply%d: ''}}\n", i)
		},
		"status": func(i int) (string, string, string) {
			return fmt.Sprintf("sites/s/status?fieldManager=m%d", i), apply,
				"apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {name: s}\nstatus: {conditions: [" + fmt.Sprintf(condition, i) + "]}\n"
		},
	}
	const n = 6
	var wait sync.WaitGroup
	for method, request := range methods {
		for i := range n {
			wait.Go(func() {
				path, typ, body := request(i)
				if code, response := w.do("PATCH", path, body, "Content-Type", typ); code != 200 && code != 201 {
					t.Errorf("%s %d: %d %v", method, i, code, response["message"])
				}
			})
		}
	}
	wait.Wait()
	for path, at := range map[string]string{"deployments/" + name: "metadata.labels", "deployments/" + other: "metadata.labels", "templates/new": "metadata.labels", "sites/s": "status.conditions"} {
		got := 0
		switch all := w.must("GET", path, nil).at(at).(type) {
		case map[string]any:
			got = len(all)
		case []any:
			got = len(all)
		}
		if got != n {
			t.Errorf("%s has %d of %d in %s", path, got, n, at)
		}
	}
}

// Many clients that apply to the same objects at once, also to ones that don't exist yet, either
// succeed, or get an error that there was no time, and succeed when they try again. It doesn't run next to
// other tests: their requests would have no time.
func TestManyConcurrentAppliesHaveNoInternalErrors(t *testing.T) { //nolint:paralleltest // see above
	w := newWorld(t)
	w.client.Transport.(*http.Transport).MaxConnsPerHost = 50
	const writers = 100
	for _, kind := range []string{"Template", "Site", "Deployment"} {
		path := strings.ToLower(kind) + "s/all"
		var wait sync.WaitGroup
		for i := range writers {
			wait.Go(func() {
				text := fmt.Sprintf("apiVersion: tko.nephio.org/v1alpha1\nkind: %s\nmetadata: {name: all, labels: {l%d: ''}, annotations: {tko.nephio.org/name: Keep}}\n", kind, i)
				code, got := w.do("PATCH", fmt.Sprintf("%s?fieldManager=m%d", path, i), text, "Content-Type", apply)
				for try := 0; code == http.StatusGatewayTimeout && try < 5; try++ {
					code, got = w.do("PATCH", fmt.Sprintf("%s?fieldManager=m%d", path, i), text, "Content-Type", apply)
				}
				if code != http.StatusOK && code != http.StatusCreated {
					t.Errorf("%s %d: %d %v: %v", kind, i, code, got["reason"], got["message"])
				}
			})
		}
		wait.Wait()
		labels, _ := w.must("GET", path, nil).at("metadata.labels").(map[string]any)
		if len(labels) != writers {
			t.Errorf("%s has %d labels, want %d", kind, len(labels), writers)
		}
	}
}

// Objects as large as other APIs can write can be written back.
func TestLargeObjectsCanBeWrittenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	large := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"k": strings.Repeat("x", 5<<20)}}}
	if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: "t", Package: large}); err != nil {
		t.Fatal(err)
	}
	got := w.must("GET", "templates/t", nil)
	w.must("PUT", "templates/t", got.set("metadata.labels", obj{"a": "b"}))
	// The library's limit of 34 seconds for a patch can't be raised; a busy machine may reach it.
	eventually.NoError(t, "the patch", func() error {
		code, status := w.do("PATCH", "templates/t?fieldManager=x&force=true", got.set("metadata", obj{"name": "t", "labels": obj{"a": "c"}}), "Content-Type", apply)
		if code == http.StatusGatewayTimeout {
			return errors.New(status.text("message"))
		}
		if code != http.StatusOK {
			t.Fatalf("%d %v", code, status["message"])
		}
		return nil
	})
	w.fails(413, "too large", "PUT", "templates/t", strings.Repeat(" ", 73<<20))
}
