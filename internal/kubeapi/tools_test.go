package kubeapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kubeapi"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

func site(name string, labels obj, resources ...any) obj {
	return obj{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Site", "metadata": obj{"name": name, "labels": labels}, "spec": obj{"package": obj{"resources": resources}}}
}

// gathered is a resource that provides metadata.
func gathered(kind string, spec obj) obj {
	return obj{"apiVersion": "metadata.nephio.org/v1alpha1", "kind": kind, "metadata": obj{"name": "m"}, "spec": spec}
}

func TestLabelsStayAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	labels := obj{
		"app.kubernetes.io/managed-by": "Helm", "region": "eu-west-1", "team_a": "x", "ver": "v1_2", "kustomize.toolkit.fluxcd.io/name": "apps-0041",
		"Site.cloud": "GCP", "a-002fb": "x-0020y", "empty_one": "",
	}
	created := w.must("POST", "sites", site("s", labels))
	shown := func(o obj, want obj) {
		t.Helper()
		if diff := cmp.Diff(any(map[string]any(want)), o.at("metadata.labels")); diff != "" {
			t.Errorf("labels: %s", diff)
		}
	}
	shown(created, labels)
	shown(w.must("GET", "sites/s", nil), labels)
	shown(w.must("GET", "sites", nil).items()[0], labels)
	stored, err := w.Site(t.Context(), "s", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"region": "eu-west-1", "team_a": "x", "ver": "v1_2", "Site.cloud": "GCP", "a/b": "x y", "empty_one": ""}
	if diff := cmp.Diff(want, stored.Metadata); diff != "" {
		t.Errorf("labels without a prefix are metadata, too: %s", diff)
	}

	// A second apply changes nothing, by either method.
	applied := w.must("PATCH", "sites/s?fieldManager=helm&force=true", site("s", labels), "Content-Type", apply)
	again := w.must("PATCH", "sites/s?fieldManager=helm&force=true", site("s", labels), "Content-Type", apply)
	put := w.must("PUT", "sites/s", again)
	if v := applied.text("metadata.resourceVersion"); v != again.text("metadata.resourceVersion") || v != put.text("metadata.resourceVersion") {
		t.Errorf("applied at %s, again at %s and %s", v, again.text("metadata.resourceVersion"), put.text("metadata.resourceVersion"))
	}

	// Selecting.
	w.must("POST", "sites", site("other", obj{"app.kubernetes.io/managed-by": "Flux", "region": "eu-west-2", "team_a": "y"}))
	if _, err := w.RegisterSite(t.Context(), tko.Site{ID: "plain", Metadata: map[string]string{"region": "eu-west-1", "app.kubernetes.io/managed-by": "Helm"}}); err != nil {
		t.Fatal(err)
	}
	for selector, want := range map[string]string{
		"app.kubernetes.io/managed-by=Helm":                   "s",
		"app.kubernetes.io/managed-by":                        "other s",
		"!app.kubernetes.io/managed-by":                       "plain",
		"app.kubernetes.io/managed-by!=Helm":                  "other plain",
		"app.kubernetes.io/managed-by in (Helm,Flux)":         "other s",
		"kustomize.toolkit.fluxcd.io/name=apps-0041":          "s",
		"app.kubernetes.io/managed-by=Helm,Site.cloud":        "s",
		"region=eu-west-1":                                    "plain s", // the same metadata
		"region=eu-002dwest-002d1":                            "plain s",
		"region=eu-002a":                                      "other plain s",
		"region in (eu-west-1,eu-002dwest-002d2)":             "other plain s",
		"region notin (eu-west-1)":                            "other",
		"team_a=x":                                            "s",
		"team_a":                                              "other s",
		"team-005fa=x":                                        "s",
		"ver=v1_2,team_a=x,app.kubernetes.io/managed-by=Helm": "s",
		"app.kubernetes.io-002fmanaged-002dby=Helm":           "plain",
	} {
		if got := strings.Join(w.must("GET", "sites?labelSelector="+escape(selector), nil).names(), " "); got != want {
			t.Errorf("-l %s: %q, want %q", selector, got, want)
		}
	}
	w.fails(422, "the same metadata", "POST", "sites", site("twice", obj{"team_a": "x", "team-005fa": "y"}))
	w.fails(422, "metadata.labels", "POST", "sites", site("wrong", obj{"a b": "x"}))
	w.fails(422, "metadata.labels", "POST", "sites", site("wrong", obj{"app.kubernetes.io/name": "a b"}))

	// Remove labels.
	removed := w.must("PATCH", "sites/s", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null,"region":null,"team_a":null,"empty_one":null,"ver":null,"a-002fb":null}}}`, "Content-Type", merge)
	shown(removed, obj{"kustomize.toolkit.fluxcd.io/name": "apps-0041", "Site.cloud": "GCP"})
	if stored, err = w.Site(t.Context(), "s", 0); err != nil || !cmp.Equal(stored.Metadata, map[string]string{"Site.cloud": "GCP"}) {
		t.Errorf("metadata %v, %v", stored.Metadata, err)
	}
	if got := w.must("GET", "sites?labelSelector=app.kubernetes.io/managed-by%3DHelm", nil).names(); len(got) != 0 {
		t.Errorf("a removed label selects %v, want nothing", got)
	}

	// Metadata changed through other APIs is shown; labels that are not metadata
	// are not changed.
	if _, err := w.RegisterSite(t.Context(), tko.Site{ID: "other", Metadata: map[string]string{"region": "us-east-1", "team_a": "y"}}); err != nil {
		t.Fatal(err)
	}
	shown(w.must("GET", "sites/other", nil), obj{"app.kubernetes.io/managed-by": "Flux", "region": "us-002deast-002d1", "team_a": "y"})
	shown(w.must("PATCH", "sites/plain", `{"metadata":{"labels":{"region":"eu-west-3"}}}`, "Content-Type", merge),
		obj{"region": "eu-west-3", "app.kubernetes.io-002fmanaged-002dby": "Helm"})

	// Plugins have labels, but no metadata.
	plugin := obj{
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Plugin", "metadata": obj{"name": "validate-007cp", "labels": obj{"app.kubernetes.io/managed-by": "Helm", "tier": "a"}},
		"spec": obj{"arguments": []any{"true"}},
	}
	w.must("POST", "plugins", plugin)
	shown(w.must("GET", "plugins/validate-007cp", nil), obj{"app.kubernetes.io/managed-by": "Helm", "tier": "a"})
	for _, selector := range []string{"tier=a", "tier", "app.kubernetes.io/managed-by=Helm"} {
		if got := w.must("GET", "plugins?labelSelector="+escape(selector), nil).names(); len(got) != 1 {
			t.Errorf("-l %s: %v", selector, got)
		}
	}
}

func escape(selector string) string {
	return strings.NewReplacer("=", "%3D", " ", "+", "!", "%21", ",", "%2C").Replace(selector)
}

// A label from a template or package stays removed until a client sets it
// again.
func TestRemovedLabelsStayRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("POST", "templates", template("t", obj{"from": "template", "both": "template"}))
	o := site("s", obj{"both": "passed", "team_a": "x"}, gathered("Site", obj{"cloud": "GCP", "zone": "a"}))
	w.must("POST", "sites", o.set("spec.templateId", "t"))
	labels := func(want obj) {
		t.Helper()
		if diff := cmp.Diff(any(map[string]any(want)), w.must("GET", "sites/s", nil).at("metadata.labels")); diff != "" {
			t.Error(diff)
		}
	}
	labels(obj{"from": "template", "both": "passed", "team_a": "x", "Site.cloud": "GCP", "Site.zone": "a"})
	w.must("PATCH", "sites/s", `{"metadata":{"labels":{"from":null,"both":null,"Site.cloud":null}}}`, "Content-Type", merge)
	labels(obj{"team_a": "x", "Site.zone": "a"})
	stored, err := w.Site(t.Context(), "s", 0)
	if err != nil || !cmp.Equal(stored.Metadata, map[string]string{"team_a": "x", "Site.zone": "a"}) {
		t.Errorf("%v, %v", stored.Metadata, err)
	}
	if got := w.must("GET", "sites?labelSelector=Site.cloud", nil).names(); len(got) != 0 {
		t.Errorf("a removed label selects %v, want nothing", got)
	}
	again := w.must("PUT", "sites/s", w.must("GET", "sites/s", nil))
	if again.at("metadata.generation") != 2.0 {
		t.Errorf("writing it back unchanged made generation %v", again.at("metadata.generation"))
	}
	w.must("PATCH", "sites/s", `{"metadata":{"labels":{"Site.cloud":"AWS"}}}`, "Content-Type", merge)
	labels(obj{"team_a": "x", "Site.zone": "a", "Site.cloud": "AWS"})

	// A manifest that replaces the object doesn't remove labels that it never
	// had.
	w.must("PUT", "sites/s", o.set("spec.templateId", "t"))
	labels(obj{"both": "passed", "team_a": "x", "Site.cloud": "GCP", "Site.zone": "a"})
}

func TestDeploymentsKeepTheirNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("POST", "sites", site("lagos", nil))
	keep := deployment(obj{"siteId": "lagos"}).set("metadata", obj{"name": "my-app.v1", "annotations": obj{"tko.nephio.org/name": "Keep"}})
	created := w.must("POST", "deployments", keep)
	id := created.text("spec.deploymentId")
	if created.text("metadata.name") != "my-app.v1" || len(id) != 27 {
		t.Errorf("created as %v, %q", created["metadata"], id)
	}
	if d, err := w.Deployment(t.Context(), tko.DeploymentID(id), 0); err != nil || d.Origin != "" || d.Stamp.UID != created.text("metadata.uid") {
		t.Errorf("%+v, %v", d, err)
	}
	w.fails(409, "already exists", "POST", "deployments", keep)
	w.fails(409, "already exists", "POST", "deployments?dryRun=All", keep)
	w.fails(404, "not found", "GET", "deployments/"+id, nil) // it isn't reachable by its ID's name
	w.fails(404, "not found", "DELETE", "deployments/"+id, nil)
	w.fails(404, "not found", "GET", "deployments/my-app", nil)

	// Apply creates it, from the client and on the server; a second apply changes
	// nothing.
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	client := keep.set("metadata.name", "client").set("metadata.annotations", obj{"tko.nephio.org/name": "Keep", lastApplied: "{}"})
	w.must("POST", "deployments?fieldManager=kubectl-client-side-apply", client)
	server := keep.set("metadata.name", "server")
	first := w.must("PATCH", "deployments/server?fieldManager=x", server, "Content-Type", apply)
	second := w.must("PATCH", "deployments/server?fieldManager=x", server, "Content-Type", apply)
	if first.text("metadata.name") != "server" || first.text("metadata.resourceVersion") != second.text("metadata.resourceVersion") {
		t.Errorf("applied %v and %v", first["metadata"], second["metadata"])
	}
	w.must("PATCH", "deployments/server", `{"metadata":{"labels":{"app.kubernetes.io/instance":"i"}}}`, "Content-Type", merge)
	w.must("PATCH", "deployments/server/status",
		`{"status":{"conditions":[{"type":"Mine","status":"True","reason":"Fine","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "Content-Type", merge)

	// Lists, selectors and watches use its name.
	if got := w.must("GET", "deployments", nil).names(); !cmp.Equal(got, []string{"my-app.v1", "client", "server"}) {
		t.Errorf("list: %v", got)
	}
	for selector, want := range map[string]string{
		"metadata.name=server": "server", "metadata.name=my-app.v1": "my-app.v1", "metadata.name=ser-002a": "server", "metadata.name=none-such": "", "spec.deploymentId=" + id: "my-app.v1",
	} {
		if got := strings.Join(w.must("GET", "deployments?fieldSelector="+selector, nil).names(), " "); got != want {
			t.Errorf("%s: %q", selector, got)
		}
	}
	next := w.watch("deployments?watch=1&fieldSelector=metadata.name=server")
	if e := next(); e.Type != "ADDED" || e.Object.text("metadata.name") != "server" {
		t.Errorf("watched %v", e)
	}

	// An unknown value of the annotation, or no name.
	w.fails(422, "metadata.name", "POST", "deployments", keep.set("metadata.name", "My_App"))
	w.fails(422, "form of an ID", "POST", "deployments", keep.set("metadata.name", "3mqrzoudiezflczddr0hmn0m9vr"))
	w.fails(422, "Keep", "POST", "deployments", keep.set("metadata.annotations", obj{"tko.nephio.org/name": "keep"}))
	generated := w.must("POST", "deployments", keep.set("metadata", obj{"generateName": "gen-", "annotations": obj{"tko.nephio.org/name": "Keep"}}))
	if !strings.HasPrefix(generated.text("metadata.name"), "gen-") {
		t.Errorf("generated %v", generated["metadata"])
	}

	// It is deleted by its name, which another deployment can then use.
	w.must("DELETE", "deployments/my-app.v1", nil)
	w.fails(404, "not found", "GET", "deployments/my-app.v1", nil)
	if again := w.must("POST", "deployments", keep); again.text("spec.deploymentId") == id || again.text("metadata.uid") == created.text("metadata.uid") {
		t.Errorf("another one: %v", again["metadata"])
	}
}

// Applying an unchanged manifest changes nothing, and a changed manifest
// changes only what differs.
func TestAppliedManifestsChangeOnlyTheirDifferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("POST", "templates", template("t", nil, configMap("base", obj{"k": "template"}), configMap("both", obj{"k": "template"})))
	w.must("POST", "sites", site("s", nil))
	applied := func(resources ...any) obj {
		t.Helper()
		return w.must("PATCH", "deployments/web?fieldManager=helm&force=true", obj{
			"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Deployment", "metadata": obj{"name": "web", "annotations": obj{"tko.nephio.org/name": "Keep"}},
			"spec": obj{"templateId": "t", "siteId": "s", "package": obj{"resources": resources}},
		}, "Content-Type", apply)
	}
	values := func(o obj) map[string]any {
		t.Helper()
		all := map[string]any{"prepared": o.at("status.prepared")}
		resources, _ := o.at("spec.package.resources").([]any)
		for _, r := range resources {
			m, _ := r.(map[string]any)
			if o := obj(m); o.text("kind") == "ConfigMap" {
				all[o.text("metadata.name")] = o.at("data.k")
			}
		}
		return all
	}
	same := func(o obj, want map[string]any) {
		t.Helper()
		if diff := cmp.Diff(want, values(o)); diff != "" {
			t.Error(diff)
		}
	}
	both, own := configMap("both", obj{"k": "mine"}), configMap("own", obj{"k": "mine"})
	first := applied(both, own)
	same(first, map[string]any{"prepared": false, "base": "template", "both": "mine", "own": "mine"})
	w.prepare(first.text("spec.deploymentId"))
	prepared := w.must("GET", "deployments/web", nil)
	if again := applied(both, own); again.text("metadata.resourceVersion") != prepared.text("metadata.resourceVersion") || again.at("status.prepared") != true {
		t.Errorf("applied again: %v", again["status"])
	}
	w.must("PATCH", "deployments/web", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", merge)
	same(applied(both, configMap("own", obj{"k": "changed"})), map[string]any{"prepared": false, "base": "template", "both": "mine", "own": "changed"})
	w.prepare(first.text("spec.deploymentId"))
	same(applied(configMap("own", obj{"k": "changed"})), map[string]any{"prepared": false, "base": "template", "both": "template", "own": "changed"})
	same(applied(), map[string]any{"prepared": false, "base": "template", "both": "template"})

	// Resources that were edited by hand get the manifest's content again.
	applied(own)
	o := w.must("GET", "deployments/web", nil)
	resources, _ := o.at("spec.package.resources").([]any)
	for i, r := range resources {
		m, _ := r.(map[string]any)
		if obj(m).text("metadata.name") == "own" {
			resources[i] = configMap("own", obj{"k": "by hand"})
		}
	}
	same(w.must("PUT", "deployments/web", o.set("spec.package.resources", resources)), map[string]any{"prepared": false, "base": "template", "both": "template", "own": "by hand"})
	same(applied(own), map[string]any{"prepared": false, "base": "template", "both": "template", "own": "mine"})
	w.fails(422, "", "PATCH", "deployments/web?fieldManager=helm&force=true", obj{
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Deployment", "metadata": obj{"name": "web"}, "spec": obj{"package": obj{"resources": []any{own, own}}},
	}, "Content-Type", apply)
}

func TestDiscardedNamesWarn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := w.warnings("deployments", deployment(nil).set("metadata.name", "given")); len(got) != 1 || !strings.Contains(got[0], "given") || !strings.Contains(got[0], "tko.nephio.org/name: Keep") {
		t.Errorf("warnings: %q", got)
	}
	if got := w.warnings("deployments", deployment(nil).set("metadata", obj{"name": "kept", "annotations": obj{"tko.nephio.org/name": "Keep"}})); len(got) != 0 {
		t.Errorf("warnings: %q", got)
	}
}

// warnings creates an object, and returns the warnings of the response.
func (w *world) warnings(path string, o obj) []string {
	w.t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		w.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+group+path, strings.NewReader(string(text)))
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		w.t.Errorf("%s: status %s", path, response.Status)
	}
	return response.Header.Values("Warning")
}

// kubectl prints the warnings of the catalog, which runs in another process.
func TestUnknownPropertiesWarn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("POST", "templates", template("operator", nil, obj{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": obj{"name": "things.example.com"},
		"spec": obj{
			"group": "example.com", "scope": "Namespaced", "names": obj{"plural": "things", "kind": "Thing"},
			"versions": []any{obj{"name": "v1", "served": true, "storage": true, "schema": obj{"openAPIV3Schema": obj{
				"type": "object", "properties": obj{"spec": obj{"type": "object", "properties": obj{"size": obj{"type": "integer"}}}},
			}}}},
		},
	}))
	warned := site("warned", nil, obj{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": obj{"name": "t"}, "spec": obj{"size": 1, "later": 1}})
	for _, path := range []string{"sites?dryRun=All", "sites"} {
		if got := w.warnings(path, warned); len(got) != 1 || !strings.Contains(got[0], "spec.later: unknown property") {
			t.Errorf("%s: the warnings are %q", path, got)
		}
	}
}

// All APIs check IDs alike. A record with an invalid ID that is already stored
// can be read and deleted.
// Names are parts of paths, in which . and .. are folders: each object of such an ID is reached by
// its own name only.
func TestDotsInIDsAreNoFolders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := []string{".", "..", "...", "a/..", "../a", "./a", "a/./b", "a/../b", "/.", "../"}
	kinds := map[string]func(id string) tko.Put{
		"templates/": func(id string) tko.Put { return tko.Put{Kind: tko.KindTemplate, ID: id} },
		"sites/":     func(id string) tko.Put { return tko.Put{Kind: tko.KindSite, ID: id} },
		"rollouts/": func(id string) tko.Put {
			return tko.Put{Kind: tko.KindRollout, ID: id, Package: krm.Package{{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": "r"}, "spec": map[string]any{
				"edits": []any{map[string]any{"delete": map[string]any{}, "select": map[string]any{"siteIdPatterns": []any{"b/**"}}}},
			}}}}
		},
	}
	for resource, put := range kinds {
		names := map[string]string{}
		for _, id := range ids {
			if _, err := w.PutEntity(t.Context(), put(id)); err != nil {
				t.Fatalf("%s%s: %v", resource, id, err)
			}
		}
		listed := w.must("GET", strings.TrimSuffix(resource, "/"), nil).items()
		for _, o := range listed {
			name := o.text("metadata.name")
			if name == "." || name == ".." || strings.ContainsAny(name, "/%") || names[name] != "" {
				t.Errorf("%s: name %q of %v", resource, name, o.at("spec"))
			}
			names[name] = "listed"
			if got := w.must("GET", resource+name, nil); got.text("metadata.uid") != o.text("metadata.uid") {
				t.Errorf("%s%s is %v, want %v", resource, name, got["metadata"], o["metadata"])
			}
		}
		if len(listed) != len(ids) {
			t.Errorf("%d %s are listed, want %d", len(listed), resource, len(ids))
		}
		for i, o := range listed {
			w.must("DELETE", resource+o.text("metadata.name"), nil)
			if rest := w.must("GET", strings.TrimSuffix(resource, "/"), nil).items(); len(rest) != len(ids)-i-1 {
				t.Errorf("after the deletion of %s, %d are left", o.text("metadata.name"), len(rest))
			}
		}
		for _, name := range []string{"%2e", "%2e%2e", "a%2f.."} {
			if code, got := w.do("GET", resource+name, nil); code == http.StatusOK && got.text("kind") == "" {
				t.Errorf("%s%s: %d %v", resource, name, code, got)
			}
		}
	}
}

func TestIDsAreCheckedByAllAPIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"py-002f-00e4", "py-0020x", "nf-002a", "a-0023b"} {
		w.fails(422, "use only", "POST", "sites", site(name, nil))
		w.fails(422, "use only", "POST", "templates", obj{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Template", "metadata": obj{"name": name}})
		w.fails(422, "use only", "PATCH", "sites/"+name+"?fieldManager=x", site(name, nil), "Content-Type", apply)
		if _, err := w.PutEntity(t.Context(), tko.Put{Kind: tko.KindSite, ID: "py/ä"}); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("put a site: %v", err)
		}
	}
	w.fails(404, "not found", "GET", "sites/py-002f-00e4", nil)
	w.fails(404, "not found", "DELETE", "sites/py-002f-00e4", nil)
	for _, name := range []string{"a-b", "my-site", "-", "a-002F"} {
		for _, resource := range []string{"templates/", "sites/", "deployments/", "plugins/"} {
			w.fails(404, "not found", "GET", resource+name, nil)
			w.fails(404, "not found", "DELETE", resource+name, nil)
			w.fails(404, "not found", "PATCH", resource+name, `{}`, "Content-Type", merge)
		}
	}

	old := func() {
		t.Helper()
		for _, id := range []string{"py/ä", "a b*"} {
			digest, encoded, err := krm.DigestOf(nil)
			if err != nil {
				t.Fatal(err)
			}
			r := record.Record{Key: record.Key{Kind: tko.KindSite, ID: id}, UID: "uid-" + id, Metadata: &record.Metadata{}, Digest: digest, Package: encoded}
			if _, err := w.store.Commit(t.Context(), record.Ungated(record.Write{Op: tko.OpWritten, Record: r})); err != nil {
				t.Fatal(err)
			}
		}
	}
	old()
	if got := w.must("GET", "sites", nil).names(); !cmp.Equal(got, []string{"a-0020b-002a", "py-002f-00e4"}) {
		t.Errorf("listed %v", got)
	}
	w.must("GET", "sites/py-002f-00e4", nil)
	w.must("DELETE", "sites/py-002f-00e4", nil)
	w.must("DELETE", "sites/a-0020b-002a", nil)
	old()
	for _, id := range []tko.SiteID{"py/ä", "a b*"} {
		if s, err := w.Site(t.Context(), id, 0); err != nil || s.ID != id {
			t.Errorf("read %v, %v", s, err)
		}
		if err := w.SetConditions(t.Context(), tko.KindSite, string(id), []tko.Condition{{Type: "x", Status: tko.ConditionTrue}}); err != nil {
			t.Error(err)
		}
		if _, err := w.DeleteSite(t.Context(), id); err != nil {
			t.Errorf("delete %q: %v", id, err)
		}
		if _, err := w.Site(t.Context(), id, 0); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("an impossible ID: %v", err)
		}
	}
}

func TestReadySummarizesAllConditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("POST", "sites", site("lagos", nil))
	created := w.must("POST", "deployments", deployment(obj{"siteId": "lagos"}))
	name := created.text("metadata.name")
	ready := func(path, status, reason string) obj {
		t.Helper()
		list, _ := w.must("GET", path, nil).at("status.conditions").([]any)
		for _, c := range list {
			condition, _ := c.(map[string]any)
			if condition["type"] == "Ready" {
				if condition["status"] != status || condition["reason"] != reason {
					t.Errorf("ready: %v, want %s %s", condition, status, reason)
				}
				return condition
			}
		}
		if status != "" {
			t.Errorf("%s has no condition Ready", path)
		}
		return nil
	}
	report := func(typ, status string, revision int64) {
		t.Helper()
		err := w.SetConditions(t.Context(), tko.KindDeployment, name, []tko.Condition{{Type: typ, Status: status, Reason: "R" + status, ObservedRevision: revision}})
		if err != nil {
			t.Fatal(err)
		}
	}
	path := "deployments/" + name
	ready(path, "False", "NotPrepared")
	w.prepare(name)
	ready(path, "False", "NotApproved")
	w.must("PATCH", path+"/approval", `{"status":{"approved":true}}`, "Content-Type", merge)
	ready(path, "False", "NotScheduled")
	report(tko.ConditionScheduled, "False", 3)
	ready(path, "False", "RFalse")
	report(tko.ConditionScheduled, "True", 3)
	ready(path, "True", "Ready")
	report(tko.ConditionHealthy, "Unknown", 3)
	ready(path, "Unknown", "RUnknown")
	report(tko.ConditionHealthy, "True", 3)
	if c := ready(path, "True", "Ready"); c["observedGeneration"] != 3.0 {
		t.Errorf("observed %v", c)
	}

	// Clients can't write it.
	w.must("PUT", path+"/status", w.must("GET", path, nil))
	w.fails(422, "derived from the other conditions", "PATCH", path+"/status",
		`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Mine","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "Content-Type", merge)
	w.must("PATCH", path, `{"metadata":{"labels":{"v":"2"}}}`, "Content-Type", merge)
	ready(path, "Unknown", "Reconciling") // the site has not reported this revision
	report(tko.ConditionScheduled, "True", 4)
	report(tko.ConditionHealthy, "True", 4)
	ready(path, "True", "Ready")
	w.must("PATCH", path, `{"spec":{"siteId":null}}`, "Content-Type", merge)
	ready(path, "False", "NoSite")

	ready("sites/lagos", "", "")
	for status, want := range map[string]string{"True": "Ready", "False": "Broken"} {
		condition := tko.Condition{Type: tko.ConditionScheduled, Status: status, Reason: "Broken"}
		if err := w.SetConditions(t.Context(), tko.KindSite, "lagos", []tko.Condition{condition}); err != nil {
			t.Fatal(err)
		}
		ready("sites/lagos", status, want)
	}
}

func TestBookmarksAreSentWithoutChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *kubeapi.Options) { o.Bookmarks = 10 * time.Millisecond })
	w.must("POST", "templates", template("a", nil))
	next := w.watch("templates?watch=1&allowWatchBookmarks=true")
	if e := next(); e.Type != "ADDED" {
		t.Fatalf("%v", e)
	}
	for range 3 {
		if e := next(); e.Type != "BOOKMARK" || e.Object.text("metadata.resourceVersion") == "" {
			t.Fatalf("%v", e)
		}
	}
}

// Bookmarks are also sent during a continuous series of changes.
func TestBookmarksAreSentAmongChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *kubeapi.Options) { o.Bookmarks = time.Nanosecond })
	next := w.watch("templates?watch=1&allowWatchBookmarks=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = w.RegisterTemplate(ctx, tko.Template{ID: tko.TemplateID(strconv.Itoa(i))})
		}
	}()
	for seen := map[string]bool{}; !seen["ADDED"] || !seen["BOOKMARK"]; {
		seen[next().Type] = true
	}
	stop()
	<-done
}

func TestSecretsAreRedacted(t *testing.T) {
	t.Parallel()
	var trusted atomic.Bool
	asked := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetSubresource() == "secrets" && (a.GetVerb() != "get" || a.GetAPIGroup() != "tko.nephio.org" || !trusted.Load()) {
			return authorizer.DecisionNoOpinion, "", nil
		}
		return authorizer.DecisionAllow, "", nil
	})
	w := newWorld(t, func(o *kubeapi.Options) { o.Authorizer = asked })
	secret := obj{"apiVersion": "v1", "kind": "Secret", "metadata": obj{"name": "s"}, "data": obj{"password": "aHVudGVyMg=="}, "stringData": obj{"token": "hunter3"}}
	listed := obj{"apiVersion": "v1", "kind": "List", "metadata": obj{"name": "l"}, "items": []any{
		obj{"apiVersion": "v1", "kind": "Secret", "metadata": obj{"name": "inner"}, "stringData": obj{"token": "hunter4"}},
	}}
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	o := site("s", nil, secret, configMap("c", obj{"k": "v"}), listed)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	o = o.set("metadata.annotations", obj{lastApplied: string(text) + "\n"})
	leaks := func(what string, o obj) {
		t.Helper()
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"hunter", "aHVudGVyMg"} {
			if !trusted.Load() && strings.Contains(string(text), value) {
				t.Errorf("%s shows %s: %s", what, value, text)
			}
		}
	}
	stored := func() krm.Package {
		t.Helper()
		s, err := w.Site(t.Context(), "s", 0)
		if err != nil {
			t.Fatal(err)
		}
		return s.Package
	}
	next := w.watch("sites?watch=1")
	leaks("create", w.must("POST", "sites", o))
	before := stored()
	leaks("watch", next().Object)
	leaks("watch from the beginning", w.watch("sites?watch=1")().Object)
	leaks("watch by name", w.watch("sites?watch=1&fieldSelector=metadata.name=s")().Object)
	leaks("list", w.must("GET", "sites", nil))
	leaks("pages", w.must("GET", "sites?limit=1", nil))
	table := "application/json;as=Table;g=meta.k8s.io;v=v1"
	for _, include := range []string{"Object", "Metadata", "None"} {
		leaks("table", w.must("GET", "sites?includeObject="+include, nil, "Accept", table))
		leaks("table", w.must("GET", "sites/s?includeObject="+include, nil, "Accept", table))
	}
	leaks("metadata", w.must("GET", "sites", nil, "Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"))
	leaks("metadata", w.must("GET", "sites/s", nil, "Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"))
	leaks("status", w.must("GET", "sites/s/status", nil))
	read := w.must("GET", "sites/s", nil)
	leaks("get", read)
	if resources, _ := read.at("spec.package.resources").([]any); !cmp.Equal(resources[1], any(map[string]any(configMap("c", map[string]any{"k": "v"})))) && len(resources) != 3 {
		t.Errorf("got the resources %v, want others than Secrets shown", resources)
	}

	// Writing back a redacted object preserves the values; an object whose values
	// can't be restored is refused.
	same := w.must("PUT", "sites/s", read)
	if same.text("metadata.resourceVersion") != read.text("metadata.resourceVersion") {
		t.Error("writing the object back unchanged changed it")
	}
	leaks("update", w.must("PUT", "sites/s", read.set("metadata.labels.a", "b")))
	leaks("patch", w.must("PATCH", "sites/s", `{"metadata":{"labels":{"a":"c"}}}`, "Content-Type", merge))
	leaks("apply", w.must("PATCH", "sites/s?fieldManager=x&force=true", obj{
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Site", "metadata": obj{"name": "s", "labels": obj{"z": "y"}},
	}, "Content-Type", apply))
	leaks("patch of the status", w.must("PATCH", "sites/s/status",
		`{"status":{"conditions":[{"type":"Mine","status":"True","reason":"Fine","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "Content-Type", merge))
	copied := `[{"op":"copy","from":"/spec/package/resources/0/data/password","path":"/spec/package/resources/1/data/stolen"}]`
	// The placeholder would be stored, and with a move the value would be lost.
	leaks("copy", w.fails(422, "", "PATCH", "sites/s?dryRun=All", copied, "Content-Type", "application/json-patch+json"))
	w.fails(422, "", "PATCH", "sites/s", `[{"op":"test","path":"/spec/package/resources/0/data/password","value":"aHVudGVyMg=="}]`, "Content-Type", "application/json-patch+json")
	if diff := cmp.Diff(before, stored()); diff != "" {
		t.Errorf("the package changed: %s", diff)
	}
	trusted.Store(true)
	if got := w.must("GET", "sites/s", nil); got.text("metadata.annotations."+"note") != "" || !strings.Contains(fmt.Sprint(got.at("metadata.annotations")), "hunter3") {
		t.Errorf("got the metadata %v, want the last applied object unredacted", got["metadata"])
	}
	trusted.Store(false)
	resources, _ := read.at("spec.package.resources").([]any)
	w.fails(422, "spec.package.resources[0]", "POST", "sites", site("elsewhere", nil, resources...))
	if _, err := w.RegisterSite(t.Context(), tko.Site{ID: "registered", Package: before.WithoutSecrets()}); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "redacted") {
		t.Errorf("registered redacted: %v", err)
	}
	moment, err := w.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.must("PATCH", "sites/s", `{"metadata":{"labels":{"a":"later"}}}`, "Content-Type", merge)
	past := fmt.Sprint("asOf=", moment)
	leaks("get as of a moment", w.must("GET", "sites/s?"+past, nil))
	leaks("list as of a moment", w.must("GET", "sites?"+past, nil))
	leaks("table as of a moment", w.must("GET", "sites?includeObject=Object&"+past, nil, "Accept", table))
	leaks("delete of all, tried", w.must("DELETE", "sites?dryRun=All", nil))
	trusted.Store(true)
	if shown, err := json.Marshal(w.must("GET", "sites/s", nil)); err != nil || strings.Count(string(shown), "aHVudGVyMg") != 2 {
		t.Errorf("a permitted user sees %s, %v", shown, err)
	}
	if e := w.watch("sites?watch=1")(); !strings.Contains(fmt.Sprint(e.Object), "hunter4") {
		t.Errorf("a permitted user sees %v", e)
	}
	trusted.Store(false)
	leaks("delete", w.must("DELETE", "sites/s", nil))
	for e := next(); ; e = next() {
		leaks("watch", e.Object)
		if e.Type == "DELETED" {
			break
		}
	}
}
